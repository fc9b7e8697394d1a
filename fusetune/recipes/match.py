# SPDX-License-Identifier: GPL-2.0-or-later
"""Which recipe applies to a mount."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fusetune.mounts.mount import Mount
from fusetune.recipes.load import Loaded
from fusetune.text import printable


@dataclass(frozen=True)
class Match:
    """The recipe of a mount, None without one; ``note``: why this one, if several match."""

    found: Loaded | None
    note: str | None = None


def recipe_of(
    recipes: Sequence[Loaded], mount: Mount, program: str | None, library: str | None
) -> Match:
    """Return the most specific recipe that matches a mount.

    ``program``: the executable that serves it; ``library``: "libfuse2" or "libfuse3" if it uses
    one of them. None if unknown. A recipe is more specific if it names the program, then if it
    names the whole type, then if it names the library, then if it is the administrator's.
    """
    # A server takes the same options with either module.
    fstype = mount.fstype.replace("fusetuned", "fuse", 1)
    fitting = [
        (_rank(one, fstype, program, library), one)
        for one in recipes
        if one.recipe.server.fuse and _fits(one, fstype, program)
    ]
    if not fitting:
        return Match(None)
    fitting.sort(key=lambda pair: pair[0], reverse=True)
    first = fitting[0][1]
    if len(fitting) == 1:
        return Match(first)
    others = ", ".join(printable(str(one.file)) for _, one in fitting[1:])
    alike = fitting[0][0] == fitting[1][0]
    why = "comes first by name" if alike else "is the most specific"
    return Match(
        first, f"several recipes match; {printable(str(first.file))} {why}, not used: {others}"
    )


def _fits(one: Loaded, fstype: str, program: str | None) -> bool:
    server = one.recipe.server
    if not any(fnmatchcase(fstype, pattern) for pattern in server.fstype):
        return False
    if not server.program:
        return True
    # If the program is unknown, a type without subtype does not identify the server.
    return _is_program(one, program) if program else "." in fstype


def _is_program(one: Loaded, program: str) -> bool:
    name = os.path.basename(program)
    return any(fnmatchcase(name, pattern) for pattern in one.recipe.server.program)


def _rank(
    one: Loaded, fstype: str, program: str | None, library: str | None
) -> tuple[bool, bool, bool, bool]:
    return (
        program is not None and _is_program(one, program),
        fstype in one.recipe.server.fstype,
        library in one.recipe.server.library,
        one.admins,
    )
