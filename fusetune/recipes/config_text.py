# SPDX-License-Identifier: GPL-2.0-or-later
"""The text of a server's configuration file: what it sets, and the text with changed values.

Nothing else in the text changes: comments, order, spaces and line ends are kept.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

#: Prefix of a line that is commented out.
TAKEN_OUT = "# fusetune: "
_PLAIN = re.compile(r"[\w.,:/+@%-]+")
_END = r"[ \t]*\r?"


@dataclass(frozen=True)
class Format:
    """The syntax of lines.

    ``setting``: a line that sets a key, with the groups key, raw (the value as written) and joint.
    ``odd``: any other line that sets a key, which is never changed; its group value is everything
    after the key. ``section``: the line that begins a section, with a group for each way to write
    its name; None if the format has no sections. ``joint``: what a new line has between key and
    value. ``continued``: whether a backslash at the end of a line continues it. ``alike``: whether
    spaces and underscores in keys are equivalent.
    """

    setting: re.Pattern[str]
    odd: re.Pattern[str]
    section: re.Pattern[str] | None
    joint: str
    continued: bool = False
    alike: bool = False

    def key(self, written: str) -> str:
        """Return a key in the form used for comparison."""
        return re.sub(r"[\s_]+", "_", written.strip()) if self.alike else written


_WORD = r'(?:[^\s#"\\]|\\.|"(?:[^"\\]|\\.)*")+'
_EXPORT = r"[ \t]*(?:(?:export|readonly|eval)[ \t]+)?"
FORMATS = MappingProxyType(
    {
        # davfs2.conf(5), General Syntax Rules
        "space": Format(
            re.compile(
                rf'[ \t]*(?P<key>[^\s#"\\\[]+)(?P<joint>[ \t]+)(?P<raw>{_WORD})(?:[ \t]*#.*)?{_END}'
            ),
            re.compile(r'[ \t]*(?P<key>[^\s#"\\\[]+)(?P<value>.*)'),
            re.compile(
                rf'[ \t]*(?:\[((?:[^\]"\\]|\\.)+)\]|"\[((?:[^"\\]|\\.)+)\]")(?:[ \t]*#.*)?{_END}'
            ),
            " ",
        ),
        # cvmfs 2.11 cvmfs/options.cc, BashOptionsManager::ParsePath()
        "shell": Format(
            re.compile(
                rf"{_EXPORT}(?P<key>\w+)(?P<joint>=)"
                rf"(?P<raw>\"[^\"$`\\]*\"|'[^']*'|[^\s#\"'$`\\;&|()<>]*)(?:[ \t]+#.*)?{_END}"
            ),
            re.compile(rf"{_EXPORT}(?P<key>\w+)=(?P<value>.*)"),
            None,
            "=",
            continued=True,
        ),
        # ceph.conf: "Configuring Ceph" in the manual of Ceph; ceph-fuse 16.2 to 20.2 rejects
        # keys with dashes there.
        "ini": Format(
            re.compile(
                r"[ \t]*(?P<key>[^\s=#;\[\]][^=#;\[\]]*?)(?P<joint>[ \t]*=[ \t]*)"
                r"(?P<raw>\"[^\"\\]*\"|'[^'\\]*'|[^\s\"'#;\\](?:[^#;\\]*[^\s#;\\])?)"
                rf"(?:[ \t]*[#;].*)?{_END}"
            ),
            re.compile(r"[ \t]*(?P<key>[^\s=#;\[\]][^=#;\[\]]*?)[ \t]*=(?P<value>.*)"),
            re.compile(rf"[ \t]*\[[ \t]*([^\]]+?)[ \t]*\](?:[ \t]*[#;].*)?{_END}"),
            " = ",
            continued=True,
            alike=True,
        ),
    }
)


@dataclass(frozen=True)
class Setting:
    """A change of one line: the raw value of ``key`` before and after, None for no line.

    ``made``: whether the line that begins ``section`` was added as well.
    """

    section: str
    key: str
    was: str | None
    now: str | None
    made: bool = False


@dataclass(frozen=True)
class Line:
    """A line that sets ``key``; ``raw``: its value as written; ``plain``: it can be changed.

    ``begin``, ``end``: position of the value in the line.
    """

    number: int
    section: str
    key: str
    raw: str
    begin: int
    end: int
    plain: bool

    @property
    def value(self) -> str:
        """The value without quotes and escapes."""
        return re.sub(r"\\(.)|[\"']", lambda match: match[1] or "", self.raw)


class ConfigText:
    """A text in one of `FORMATS`. The part before all sections has the name ""."""

    def __init__(self, text: str, form: str) -> None:
        self._rows = text.split("\n")
        self._name, self._form = form, FORMATS[form]
        #: Row and name of each section.
        self.sections: list[tuple[int, str]] = [(-1, "")]
        self.lines = list(self._read())

    def _read(self) -> Iterator[Line]:
        goes_on = False
        for number, row in enumerate(self._rows):
            inside, goes_on = goes_on, self._form.continued and row.rstrip().endswith("\\")
            if inside:
                continue
            if self._form.section and (match := self._form.section.fullmatch(row)):
                name = next(filter(None, match.groups()))
                name = re.sub(r"\\(.)", r"\1", name)
                self.sections.append((number, name.rstrip("/") or name))
            elif line := self._line(number, row):
                yield line

    def _line(self, number: int, row: str) -> Line | None:
        section = self.sections[-1][1]
        if match := self._form.setting.fullmatch(row):
            key = self._form.key(match["key"])
            return Line(number, section, key, match["raw"], *match.span("raw"), True)
        if match := self._form.odd.fullmatch(row):
            key = self._form.key(match["key"])
            return Line(number, section, key, match["value"].strip(), 0, 0, False)
        return None

    def __str__(self) -> str:
        return "\n".join(self._rows)

    def of(self, key: str, sections: Collection[str]) -> list[Line]:
        """Return the lines that set a key in these sections, in the order of the text."""
        key = self._form.key(key)
        return [one for one in self.lines if one.key == key and one.section in sections]

    def changes(self, key: str, value: str | None, sections: Sequence[str]) -> list[Setting] | None:
        """Return the changes that set ``key`` in the last of ``sections``; None if impossible.

        Without a value, every line in any of them is commented out.
        """
        found = self.of(key, sections)
        section = sections[-1]
        if value is None:
            changes = [Setting(one.section, key, one.raw, None) for one in reversed(found)]
        elif found := [one for one in found if one.section == section][-1:]:
            changes = [Setting(section, key, found[0].raw, value)]
        else:
            made = section not in (name for _, name in self.sections)
            changes = [Setting(section, key, None, value, made)]
            if not self._can_add(section):
                return None
        plain = all(one.plain for one in found) and (value is None or _PLAIN.fullmatch(value))
        return changes if plain else None

    def _can_add(self, section: str) -> bool:
        at = self._end_of(section)
        goes_on = self._form.continued and at > 0 and self._rows[at - 1].rstrip().endswith("\\")
        return not goes_on and "\n" not in section

    def _end_of(self, section: str) -> int:
        """Return the row for a new line of a section; without the section, the end of the text."""
        end = len(self._rows) - (self._rows[-1] == "")
        number = max((n for n, (_, name) in enumerate(self.sections) if name == section), default=0)
        if number + 1 == len(self.sections) or self.sections[number][1] != section:
            return end
        begin, stop = self.sections[number][0], self.sections[number + 1][0]
        inside = [one.number for one in self.lines if begin < one.number < stop]
        return max(inside, default=begin if begin >= 0 else stop - 1) + 1

    def changed(self, change: Setting) -> "ConfigText":
        """Return the text with one of `changes`, which must have been made for it."""
        rows = list(self._rows)
        found = self.of(change.key, [change.section])
        if change.was is None:
            at = self._end_of(change.section)
            new = [f"{change.key}{self._form.joint}{change.now}"]
            if change.made:
                new = [_header(change.section), *new]
            ending = "\r" if rows[0].endswith("\r") else ""
            rows[at:at] = [f"{row}{ending}" for row in new]
        else:
            line = [one for one in found if one.raw == change.was][-1]
            rows[line.number] = self._rewritten(line, change.now)
        return ConfigText("\n".join(rows), self._name)

    def _rewritten(self, line: Line, value: str | None) -> str:
        row = self._rows[line.number]
        if value is None:
            return TAKEN_OUT + row
        return row[: line.begin] + value + row[line.end :]

    def without(self, change: Setting) -> "ConfigText | None":
        """Return the text from before a change; None if the line has been changed since.

        Return the same text if it does not contain the change.
        """
        found = self.of(change.key, [change.section])
        if change.now is None:
            return self._put_back(change) or (self if found else None)
        line = next((one for one in reversed(found) if one.raw == change.now), None)
        rows = list(self._rows)
        if line is None:
            gone = not found or found[-1].raw == change.was
            return self if gone else None
        if change.was is not None:
            rows[line.number] = self._rewritten(line, change.was)
            return ConfigText("\n".join(rows), self._name)
        del rows[line.number]
        text = ConfigText("\n".join(rows), self._name)
        return text._without_section(change.section) if change.made else text

    def _put_back(self, change: Setting) -> "ConfigText | None":
        """Return the text with a commented-out line restored, None if it is not there."""
        rows = list(self._rows)
        for number in reversed(range(len(rows))):
            if rows[number].startswith(TAKEN_OUT):
                rows[number] = rows[number].removeprefix(TAKEN_OUT)
                text = ConfigText("\n".join(rows), self._name)
                lines = text.of(change.key, [change.section])
                if any((one.number, one.raw) == (number, change.was) for one in lines):
                    return text
                rows[number] = self._rows[number]
        return None

    def _without_section(self, section: str) -> "ConfigText":
        """Return the text without the line that begins a section, if the section is empty."""
        number = max(n for n, (_, name) in enumerate(self.sections) if name == section)
        begin = self.sections[number][0]
        ends = [row for row, _ in self.sections[number + 1 :]] or [len(self._rows)]
        if any(row.strip() for row in self._rows[begin + 1 : ends[0]]):
            return self
        return ConfigText("\n".join([*self._rows[:begin], *self._rows[begin + 1 :]]), self._name)


def _header(section: str) -> str:
    if _PLAIN.fullmatch(section):
        return f"[{section}]"
    escaped = re.sub(r'(["\\])', r"\\\1", section)
    return f'"[{escaped}]"'
