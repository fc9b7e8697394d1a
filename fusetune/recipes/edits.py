# SPDX-License-Identifier: GPL-2.0-or-later
"""What to change in the files that say how a mount is made: fstab, a mount unit, a service."""

import difflib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetune.host import Host
from fusetune.masking import mask_fstab_line, mask_items, mask_line, mask_words
from fusetune.mounts.mount import Mount
from fusetune.mounts.mountinfo import mountinfo
from fusetune.recipes.command_line import (
    Changes,
    CommandLine,
    Part,
    changed_items,
    item_part,
    split_items,
)
from fusetune.recipes.recipe import ServerFacts
from fusetune.recipes.served import Served
from fusetune.recipes.spelling import Spellings
from fusetune.recipes.units import (
    GENERATED,
    command_text,
    command_words,
    drop_in,
    mount_unit,
    unit_files,
    value_of,
)
from fusetune.text import printable, unescape


@dataclass(frozen=True)
class Edit:
    """A file's text before and after; before is None if the file is to be made."""

    file: Path
    before: str | None
    after: str

    def diff(self, secrets: Collection[str]) -> str:
        """Return the change as a unified diff for ``patch -p1 -d /``, without secrets."""
        name = str(self.file).lstrip("/")
        lines = difflib.unified_diff(
            self._masked(self.before or "", secrets),
            self._masked(self.after, secrets),
            "/dev/null" if self.before is None else f"a/{name}",
            f"b/{name}",
        )
        return "".join(lines)

    def _masked(self, text: str, secrets: Collection[str]) -> list[str]:
        mask = mask_fstab_line if self.file.name == "fstab" else mask_line
        return [f"{mask(line, secrets)}\n" for line in text.splitlines()]


@dataclass(frozen=True)
class Making:
    """How a mount is made, by its files: what they set, how to change them, what to say.

    ``settings``: options that its line in fstab or its mount unit sets.
    """

    settings: Mapping[str, str]
    edits: Sequence[Edit]
    notes: Sequence[str]


class Files:
    """The files of one mount, and the options that are to be known in them."""

    def __init__(
        self,
        host: Host,
        mount: Mount,
        process: Served,
        facts: ServerFacts,
        known: Sequence[Spellings],
    ) -> None:
        self._host, self._mount, self._process = host, mount, process
        self._facts, self._known = facts, known

    def making(self, changes: Changes, variables: Mapping[str, str]) -> Making:
        """Return what the files say, and their edits for ``changes`` and environment variables.

        A change to None leaves the option out.
        """
        found = self._fstab(changes) or self._mount_unit(changes)
        if found is None:
            found = self._service(changes, variables) or self._automount()
        return found or Making({}, (), ())

    def _fstab(self, changes: Changes) -> Making | None:
        path = Path(self._host.path("etc/fstab"))
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
        lines = text.split("\n")
        numbers = [n for n, line in enumerate(lines) if self._is_about(line)]
        if not numbers:
            return None
        pieces = re.split(r"(\s+)", lines[numbers[-1]].strip())
        pieces[6], settings, notes = self._options(pieces[6], changes)
        lines[numbers[-1]] = "".join(pieces)
        after = "\n".join(lines)
        return Making(settings, [Edit(path, text, after)] if after != text else (), notes)

    def _is_about(self, line: str) -> bool:
        fields = line.split()
        if len(fields) < 4 or fields[0].startswith("#"):
            return False
        point = os.path.normpath(unescape(os.fsencode(fields[1])))
        bound = {"bind", "rbind"}.intersection(fields[3].split(","))
        return point in (self._mount.path, *self._mount.also_at) and not bound

    def _options(self, text: str, changes: Changes) -> tuple[str, dict[str, str], list[str]]:
        """Return a list of mount options with changes, what it set before, and what to say."""
        items = [item_part(item, self._known) for item in split_items(text)]
        settings = {item.option: item.value for item in items if item.option}
        todo = dict(changes)
        new = list(changed_items(items, self._known, todo, changes))
        unsaid = []
        for option in self._known:
            value = todo.get(option.name)
            if value is not None and option.fstab is None:
                unsaid.append(f"{option.name} cannot be set in fstab")
            elif value is not None and option.fstab:
                new.append(Part(option.fstab.words(value)))
        return ",".join(word for item in new for word in item.words), settings, unsaid

    def _mount_unit(self, changes: Changes) -> Making | None:
        unit = mount_unit(self._mount.path)
        files = unit_files(self._host, unit)
        if not files or str(files[0]).startswith(self._host.path(GENERATED)):
            return None
        values = value_of(files, "Mount", "Options")
        options, settings, notes = self._options(values[-1] if values else "", changes)
        options = options.lstrip(",")
        if not changes or (values and options == values[-1]):
            return Making(settings, (), notes)
        if mask_items(options, self._facts.secrets) != options:
            return Making(settings, (), [*notes, _secret(unit)])
        text = f"[Mount]\nOptions={options}\n"
        return Making(settings, [self._drop_in(unit, text)], notes)

    def _service(self, changes: Changes, variables: Mapping[str, str]) -> Making | None:
        unit = self._process.unit
        files = unit_files(self._host, unit) if unit else []
        if unit is None or not files:
            return None
        values = value_of(files, "Service", "ExecStart")
        written = command_words(values[0]) if len(values) == 1 else []
        words = [word for word, _ in written]
        if not words or not self._runs_server(words[0]):
            return Making(
                {}, (), [f"{unit} starts the server by another program; see 'systemctl cat {unit}'"]
            )
        line = CommandLine(words, self._known, self._facts.options, self._facts.subcommands)
        after = line.changed(changes)
        lines = [f"Environment={name}={value}\n" for name, value in variables.items()]
        if after != words:
            lines += ["ExecStart=\n", f"ExecStart={command_text(after, dict(written))}\n"]
        if not lines:
            return Making({}, (), ())
        if mask_words(after, self._facts.secrets) != after:
            return Making({}, (), [_secret(unit)])
        return Making({}, [self._drop_in(unit, "".join(["[Service]\n", *lines]))], ())

    def _runs_server(self, word: str) -> bool:
        """Whether the first word of ExecStart= is the program that serves the mount."""
        if not self._process.words:
            return False
        names = {os.path.basename(self._process.words[0]), os.path.basename(self._program)}
        return os.path.basename(word.lstrip("@-:+!")) in names

    @property
    def _program(self) -> str:
        return self._process.program or ""

    def _drop_in(self, unit: str, text: str) -> Edit:
        path = drop_in(self._host, unit)
        try:
            before: str | None = path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            before = None
        return Edit(path, before, text)

    def _automount(self) -> Making | None:
        """Return what to say of a mount that automount(8) makes."""
        for line in mountinfo(self._host):
            inside = f"{self._mount.path}/".startswith(f"{line.path.rstrip('/')}/")
            if line.fstype == "autofs" and inside and line.source != "systemd-1":
                where = printable(line.source)
                return Making({}, (), [f"autofs mounts it: change its options in the map {where}"])
        return None


def _secret(unit: str) -> str:
    return (
        f"{unit} has secrets in its options, so no drop-in is shown; change the options by "
        f"'systemctl edit {unit}'"
    )
