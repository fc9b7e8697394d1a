# SPDX-License-Identifier: GPL-2.0-or-later
"""What to change in the files that define a mount: fstab, a mount unit, a service."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetune.host import Host
from fusetune.kmod.options import OPTIONS as MODULE_OPTIONS
from fusetune.masking import mask_items, mask_words
from fusetune.mounts.mount import Mount
from fusetune.mounts.mountinfo import mountinfo
from fusetune.recipes.by_module import Means, is_by_module, tuned_type, words_of
from fusetune.recipes.command_line import (
    Changes,
    CommandLine,
    Part,
    changed_items,
    item_part,
)
from fusetune.recipes.edit import Edit, text_of
from fusetune.recipes.fstab import fstab_line, split_items
from fusetune.recipes.recipe import ServerFacts
from fusetune.recipes.served import Served
from fusetune.recipes.spelling import Spellings
from fusetune.recipes.units import (
    GENERATED,
    TRANSIENT,
    command_text,
    command_words,
    drop_in,
    later_drop_in,
    merged,
    mount_unit,
    unit_files,
    value_of,
)
from fusetune.text import printable


@dataclass(frozen=True)
class Way:
    """What makes a mount: systemd with ``unit``, or mount(8) at ``point`` from its line in fstab.

    ``options``: those of the line in fstab.
    """

    unit: str | None = None
    point: str = ""
    options: str = ""


@dataclass(frozen=True)
class Making:
    """The files that define a mount: what they set, how to change them, and notes.

    ``settings``: options that they set. ``way``: None if no file defines the mount, or none that
    can be changed. ``unsaid``: options that the files cannot set.
    """

    settings: Mapping[str, str]
    edits: Sequence[Edit]
    notes: Sequence[str]
    way: Way | None = None
    unsaid: Sequence[str] = ()


class Files:
    """The files of one mount, and the options to look for in them.

    ``means``: how servers get the module, None if its options are not proposed.
    """

    def __init__(
        self,
        host: Host,
        mount: Mount,
        process: Served,
        facts: ServerFacts,
        known: Sequence[Spellings],
        means: Means | None = None,
    ) -> None:
        self._host, self._mount, self._process = host, mount, process
        self._facts, self._known, self._means = facts, known, means

    def making(self, changes: Changes, variables: Mapping[str, str]) -> Making:
        """Return what the files set, and their edits for ``changes`` and environment variables.

        None leaves an option out.
        """
        found = self._service(changes, variables) or self._fstab(changes)
        found = found or self._mount_unit(changes)
        return found or self._script() or self._automount() or Making({}, (), ())

    def _fstab(self, changes: Changes) -> Making | None:
        path = Path(self._host.path("etc/fstab"))
        text = text_of(path)
        line = fstab_line(text or "", (self._mount.path, *self._mount.also_at))
        if text is None or line is None or not line.may_make(self._mount.source):
            return None
        options, settings, unsaid = self._options(line.options, changes)
        fstype, options, lacks = self._by_module(line.fstype, options, changes)
        unsaid += lacks
        after = line.put_into(text, options, fstype)
        edits = [Edit(path, text, after)] if after != text else []
        way = Way(point=line.point, options=line.options)
        return Making(settings, edits, _unsaid(unsaid), way, unsaid)

    def _options(self, text: str, changes: Changes) -> tuple[str, dict[str, str], list[str]]:
        """Return changed mount options, the previous settings, and options that cannot be set."""
        items = [item_part(item, self._known) for item in split_items(text)]
        settings = {item.option: item.value for item in items if item.option}
        todo = dict(changes)
        new = list(changed_items(items, self._known, todo, changes))
        unsaid = []
        for option in self._known:
            value = todo.get(option.name)
            if value is not None and option.fstab is None:
                unsaid.append(option.name)
            elif value is not None and option.fstab:
                new.append(Part(option.fstab.words(value)))
        return ",".join(word for item in new for word in item.words), settings, unsaid

    def _by_module(self, fstype: str, options: str, changes: Changes) -> tuple[str, str, list[str]]:
        """Return type and options with the module's options of ``changes``, and missing ones.

        mount.fusetune(8) takes each option with the name of a module option.
        """
        names = [name for name, value in changes.items() if is_by_module(name) and value]
        given = {item.partition("=")[0] for item in split_items(options)}
        kind, library = tuned_type(fstype), self._process.library
        servers = set() if fstype == kind else given & MODULE_OPTIONS.keys()
        if not names or not self._means:
            return fstype, options, []
        if not kind or servers or not self._means.can_write(names, library):
            return fstype, options, names
        words = [word for word in words_of(changes) if word.partition("=")[0] not in given]
        return kind, ",".join(filter(None, (options, *words))), []

    def _mount_unit(self, changes: Changes) -> Making | None:
        unit = mount_unit(self._mount.path)
        files = unit_files(self._host, unit)
        if not files or str(files[0]).startswith(self._host.path(GENERATED)):
            return None
        values = value_of(files, "Mount", "Options")
        options, settings, unsaid = self._options(values[-1] if values else "", changes)
        options = options.lstrip(",")
        types = value_of(files, "Mount", "Type")[-1:] or ["auto"]
        fstype, options, lacks = self._by_module(types[0], options, changes)
        unsaid += lacks
        notes, way = _unsaid(unsaid), Way(unit)
        if not changes or (values and options == values[-1] and [fstype] == types):
            return Making(settings, (), notes, way, unsaid)
        if mask_items(options, self._facts.secrets) != options:
            return Making(settings, (), [*notes, _secret(unit)])
        if later := later_drop_in(self._host, unit, "Mount", "Options"):
            return Making(settings, (), [*notes, _outweighed(later, "Options")])
        kind = [f"Type={fstype}"] if [fstype] != types else []
        edit = self._drop_in(unit, "Mount", [*kind, f"Options={options}"])
        return Making(settings, [edit], notes, way, unsaid)

    def _service(self, changes: Changes, variables: Mapping[str, str]) -> Making | None:
        """Return the edits of the service whose command starts the server."""
        unit = self._process.unit
        files = unit_files(self._host, unit) if unit else []
        if unit is None or not files or str(files[0]).startswith(self._host.path(TRANSIENT)):
            return None
        values = value_of(files, "Service", "ExecStart")
        written = command_words(values[0]) if len(values) == 1 else []
        words = [word for word, _ in written]
        if not words or not self._runs_server(words[0]):
            return None
        line = CommandLine(words, self._known, self._facts.options, self._facts.subcommands)
        settings, after = line.settings(), line.changed(changes)
        unsaid = [o.name for o in self._known if changes.get(o.name) is not None and not o.main]
        lines = [f"Environment={name}={value}" for name, value in variables.items()]
        if after != words:
            lines += ["ExecStart=", f"ExecStart={command_text(after, dict(written))}"]
        if not lines:
            return Making(settings, (), (), Way(unit), unsaid)
        if mask_words(after, self._facts.secrets) != after:
            return Making(settings, (), [_secret(unit)])
        later = later_drop_in(self._host, unit, "Service", "ExecStart")
        if later and after != words:
            return Making(settings, (), [_outweighed(later, "ExecStart")])
        return Making(settings, [self._drop_in(unit, "Service", lines)], (), Way(unit), unsaid)

    def _script(self) -> Making | None:
        """Return a note on a service that starts the server through another program."""
        unit = self._process.unit
        if unit is None or not unit_files(self._host, unit):
            return None
        why = f"{unit} starts the server through another program; see 'systemctl cat {unit}'"
        return Making({}, (), [why])

    def _runs_server(self, word: str) -> bool:
        """Whether the first word of ExecStart= is the program that serves the mount."""
        if not self._process.words:
            return False
        names = {os.path.basename(self._process.words[0]), os.path.basename(self._program)}
        return os.path.basename(word.lstrip("@-:+!")) in names

    @property
    def _program(self) -> str:
        return self._process.program or ""

    def _drop_in(self, unit: str, section: str, lines: Sequence[str]) -> Edit:
        path = drop_in(self._host, unit)
        before = text_of(path)
        return Edit(path, before, merged(before or "", section, lines))

    def _automount(self) -> Making | None:
        """Return a note on a mount that automount(8) makes."""
        for line in mountinfo(self._host):
            inside = f"{self._mount.path}/".startswith(f"{line.path.rstrip('/')}/")
            if line.fstype == "autofs" and inside and line.source != "systemd-1":
                where = printable(line.source)
                return Making({}, (), [f"autofs mounts it: change its options in the map {where}"])
        return None


def _secret(unit: str) -> str:
    return (
        f"{unit} has secrets in its options, so no drop-in is shown; change the options with "
        f"'systemctl edit {unit}'"
    )


def _outweighed(later: Path, key: str) -> str:
    return f"{later} sets {key}=, and systemd reads it after fusetune's: change the options there"


def _unsaid(names: Sequence[str]) -> list[str]:
    return [f"{name} cannot be set in fstab" for name in names]
