# SPDX-License-Identifier: GPL-2.0-or-later
"""Which recipe a mount has."""

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
    """Return the recipe of a mount; of several, the most specific.

    ``program``: the executable that serves it; ``library``: "libfuse2" or "libfuse3" where it uses
    that. None: not known. A recipe is the more specific one if it names the program, then if it
    names the whole type, then if it names the library, then if it is the administrator's.
    """
    # A server takes the same options whichever module it mounts by.
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
    # Without the program, a type without a subtype says nothing about the server.
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
