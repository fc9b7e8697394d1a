# SPDX-License-Identifier: GPL-2.0-or-later
"""The line of fstab(5) that makes a mount, and its list of options."""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass

from fusetune.text import unescape

_QUOTED_COMMA = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
_LINE = re.compile(r"(\s*[^\s#]\S*\s+(\S+)\s+)(\S+)(\s+)(\S+)(.*)", re.DOTALL)


@dataclass(frozen=True)
class FstabLine:
    """Line ``number``, counted from 0: its type, its options, and the text around them."""

    number: int
    head: str
    fstype: str
    gap: str
    options: str
    tail: str
    point: str

    def put_into(self, text: str, options: str, fstype: str | None = None) -> str:
        """Return the text of fstab with new options in this line and, if given, a new type."""
        lines = text.split("\n")
        kind = fstype or self.fstype
        lines[self.number] = f"{self.head}{kind}{self.gap}{options or 'defaults'}{self.tail}"
        return "\n".join(lines)


def fstab_line(text: str, points: Collection[str]) -> FstabLine | None:
    """Return the last line that mounts a file system at one of ``points``; None without one."""
    found = None
    for number, line in enumerate(text.split("\n")):
        match = _LINE.fullmatch(line)
        if match is None or {"bind", "rbind"}.intersection(match[5].split(",")):
            continue
        point = os.path.normpath(unescape(os.fsencode(match[2])))
        if point in points:
            head, _, fstype, gap, options, tail = match.groups()
            found = FstabLine(number, head, fstype, gap, options, tail, point)
    return found


def split_items(text: str) -> list[str]:
    """Split a list of mount options like mount(8), which allows quoted values."""
    return _QUOTED_COMMA.split(text)
