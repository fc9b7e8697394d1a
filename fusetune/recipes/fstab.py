# SPDX-License-Identifier: GPL-2.0-or-later
"""The line of fstab(5) that makes a mount, and its list of options."""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from fusetune.text import unescape

_QUOTED_COMMA = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
# Only spaces and tabs separate fields.
_FIELD, _GAP = r"[^ \t]+", r"[ \t]+"
_LINE = re.compile(
    rf"([ \t]*((?!#){_FIELD}){_GAP}({_FIELD}){_GAP})({_FIELD})({_GAP})({_FIELD})(.*)", re.DOTALL
)


@dataclass(frozen=True)
class FstabLine:
    """Line ``number``, counted from 0: its type, its options, and the text around them.

    ``others``: the sources of later lines for the same mount points.
    """

    number: int
    head: str
    fstype: str
    gap: str
    options: str
    tail: str
    source: str
    point: str
    others: tuple[str, ...] = ()

    def may_make(self, source: str) -> bool:
        """Return whether a mount of ``source`` is this line's: it is not that of another line."""
        return self.source == source or source not in self.others

    def put_into(self, text: str, options: str, fstype: str | None = None) -> str:
        """Return the text of fstab with new options in this line and, if given, a new type."""
        lines = text.split("\n")
        kind = fstype or self.fstype
        lines[self.number] = f"{self.head}{kind}{self.gap}{options or 'defaults'}{self.tail}"
        return "\n".join(lines)


def fstab_line(text: str, points: Collection[str]) -> FstabLine | None:
    """Return the first line that mounts a file system at one of ``points``; None without one.

    mount(8) and systemd-fstab-generator(8) use the first one.
    """
    found = []
    for number, line in enumerate(text.split("\n")):
        match = _LINE.fullmatch(line)
        if match is None or {"bind", "rbind"}.intersection(match[6].split(",")):
            continue
        head, first, second, fstype, gap, options, tail = match.groups()
        source, point = (unescape(os.fsencode(field)) for field in (first, second))
        if (point := os.path.normpath(point)) in points:
            found.append(FstabLine(number, head, fstype, gap, options, tail, source, point))
    if not found:
        return None
    return replace(found[0], others=tuple(line.source for line in found[1:]))


def split_items(text: str) -> list[str]:
    """Split a list of mount options like mount(8), which allows quoted values."""
    return _QUOTED_COMMA.split(text)
