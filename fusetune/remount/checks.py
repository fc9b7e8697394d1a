# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks of an edit by the programs that read the file, before it is made; and their reload."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fusetune.deadline import each_in_time
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.masking import mask_line
from fusetune.recipes.edit import Edit
from fusetune.recipes.units import unit_directories
from fusetune.remount.commands import run
from fusetune.remount.replacing import as_bytes
from fusetune.text import printable

_SECONDS = 20.0
_RELOAD_SECONDS = 90.0
_COUNTS = re.compile(r"(\d+) parse errors?, (\d+) errors?, (\d+) warnings?")


def check(host: Host, edit: Edit) -> None:
    """Raise FusetuneError if the edit adds problems, according to the reader's own check."""
    with tempfile.TemporaryDirectory(prefix="fusetune-check-") as name:
        if not edit.concerns_systemd:
            _check_by_server(edit, Path(name))
        elif edit.is_fstab:
            _check_fstab(edit, Path(name))
        else:
            _check_unit(host, edit, Path(name))


def _check_fstab(edit: Edit, scratch: Path) -> None:
    """Compare findmnt(8)'s counts: the administrator's fstab may already have warnings."""
    found = []
    for name, text in (("before", edit.before), ("after", edit.after)):
        file = scratch / name
        file.write_bytes(as_bytes(text or ""))
        status, output = run(["findmnt", "--verify", "--tab-file", str(file)], _SECONDS)
        counts = _COUNTS.search(output)
        if counts is None and status:
            raise FusetuneError(f"findmnt --verify failed: {_last(output)}; nothing was written")
        found.append([int(one) for one in counts.groups()] if counts else [0, 0, 0])
    before, after = found
    if any(new > old for old, new in zip(before, after, strict=True)):
        raise FusetuneError(
            f"findmnt --verify finds more problems in the new {edit.file} than in the old one, so "
            "nothing was written; see 'fusetune remount --dry-run'"
        )


def _check_unit(host: Host, edit: Edit, scratch: Path) -> None:
    """Compare the output of systemd-analyze(1) on the unit without and with the drop-in."""
    unit = edit.file.parent.name.removesuffix(".d")
    path = ":".join(map(str, (scratch, *unit_directories(host))))
    drop_in = scratch / edit.file.parent.name / edit.file.name
    said = []
    for text in (edit.before, edit.after):
        if text is not None:
            drop_in.parent.mkdir(exist_ok=True)
            drop_in.write_bytes(as_bytes(text))
        command = ["systemd-analyze", "verify", "--man=no", unit]
        _, output = run(command, _SECONDS, SYSTEMD_UNIT_PATH=path)
        said.append(output.replace(str(scratch), str(edit.file.parent.parent)).splitlines())
    if more := [line for line in said[1] if line not in said[0]]:
        raise FusetuneError(
            f"systemd-analyze verify: {printable(more[0])}; {edit.file} was not written"
        )


def _check_by_server(edit: Edit, scratch: Path) -> None:
    """Compare the values that the server reads, if possible without a mount, with the edits."""
    file = scratch / edit.file.name
    file.write_bytes(as_bytes(edit.after or ""))
    for one in edit.settings if edit.check else ():
        words = [word.replace("{file}", str(file)).replace("{key}", one.key) for word in edit.check]
        status, output = run(words, _SECONDS)
        if status or one.now not in (None, *output.splitlines()):
            said = mask_line(_last(output))
            raise FusetuneError(
                f"{words[0]} does not read {one.key} as {one.now or 'its default'} from the new "
                f"file; it reports: {said}; {edit.file} was not written"
            )


def _last(output: str) -> str:
    return printable((output.splitlines() or ["no output"])[-1])


def runs_systemd(host: Host) -> bool:
    """Whether systemd is this host's process 1 (sd_booted(3))."""
    return host.real and os.path.isdir(host.path("run/systemd/system"))


def needs_reload(host: Host, edits: Sequence[Edit]) -> bool:
    """Whether systemd runs and reads one of the files."""
    return any(one.concerns_systemd for one in edits) and runs_systemd(host)


def replies(path: str, seconds: float) -> bool:
    """Whether the server of the mount at ``path`` replies to statfs(2) in time."""
    return bool(each_in_time(_statfs, [path], seconds, seconds))


def _statfs(path: str) -> int:
    return os.statvfs(path).f_namemax


def reload_systemd(host: Host, edits: Sequence[Edit]) -> None:
    """Make systemd, if it runs, reload its units after edits. Raises FusetuneError."""
    if needs_reload(host, edits):
        status, output = run(["systemctl", "daemon-reload"], _RELOAD_SECONDS)
        if status:
            raise FusetuneError(f"systemctl daemon-reload failed: {_last(output)}")
