# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line of a shadow mount: that of the live one, with another mount point."""

import os
from collections.abc import Sequence

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.discover import discover, lexical
from fusetune.mounts.mount import Mount
from fusetune.shadow.guard import POINT
from fusetune.text import printable


def with_point(host: Host, mount: Mount, words: Sequence[str], directory: str) -> list[str]:
    """Return ``words`` with `POINT` instead of the mount point.

    ``directory``: the server's working directory. Raises FusetuneError unless exactly one word, or
    the value of one option such as ``-a=b``, is the mount point.
    """
    points = frozenset(p for one in discover(host) for p in (one.path, *one.also_at))
    places = (mount.path, *mount.also_at)
    found = [
        number
        for number, word in enumerate(words)
        if number and lexical(os.path.join(directory, _path(word)), points) in places
    ]
    if len(found) != 1:
        why = "names it more than once" if found else "does not name it"
        raise FusetuneError(
            f"no second instance can be mounted elsewhere than {printable(mount.path)}: the "
            f"server's command line {why}"
        )
    changed = list(words)
    word = words[found[0]]
    changed[found[0]] = word.removesuffix(_path(word)) + POINT
    return changed


def _path(word: str) -> str:
    """Return the part of a word that can be a path: the value of an option, or the whole word."""
    option, equals, value = word.partition("=")
    return value if equals and option.startswith("-") else word
