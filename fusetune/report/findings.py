# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of findings: what can limit FUSE on a host, each with its meaning and its check.

A new finding needs only an entry in a table. Its name is a metric label and must never change.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import EOPNOTSUPP
from functools import partial
from pathlib import Path
from typing import Generic, ParamSpec

from fusetune.changes.policy import owners_named
from fusetune.changes.state import is_tuned
from fusetune.desired.drivers import left_to_driver
from fusetune.desired.history import found_nothing_better
from fusetune.desired.results import unusable
from fusetune.desired.sections import Settings
from fusetune.errors import FusetuneError, UsageError
from fusetune.files import files_in
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME, Absent
from fusetune.knobs.base import DEAD
from fusetune.knobs.remount import dirtied_bytes, remount_hint
from fusetune.mounts.discover import lexical
from fusetune.mounts.mount import CONTROLS, Mount
from fusetune.mounts.stack import Layer
from fusetune.report.fiemap import interleaved
from fusetune.source_age import Age
from fusetune.text import printable, shell_word

# 256 pages and libfuse's header page: its default buffer (fuse_lowlevel.c), which must fit into a
# pipe for splice.
LIBFUSE_BUFFER = 256 * 4096 + 4096
P = ParamSpec("P")


@dataclass(frozen=True)
class Finding:
    """One thing that limits FUSE here: ``what``, its ``remedy``, and the mount concerned, if any.

    ``name`` is one of `FINDINGS`.
    """

    name: str
    what: str
    remedy: str
    mount: Mount | None = None

    def __post_init__(self) -> None:
        if self.name not in FINDINGS:
            raise ValueError(
                f"{self.name!r} is not in FINDINGS; the manual is made from that table"
            )


@dataclass(frozen=True)
class Seen:
    """The input of the checks.

    ``values``: those of each mount, by device, then by knob; ``below``: the layers directly below
    each mount, by device; ``host_values``: the host's by knob; ``waiting``: how many requests
    wait for the server, by device. ``settings``: the configuration, None if it is invalid;
    ``problem`` then says why. ``dirty_percent``: the dirty memory allowed to all tuned mounts
    together. ``left_alone``: the devices of mounts on which nothing is set; ``covered``: those of
    mounts to which no path leads, because another one covers them. ``backing``: a server's backing
    directory, if given.
    """

    host: Host
    mounts: Sequence[Mount]
    values: Mapping[str, Mapping[str, int]]
    below: Mapping[str, Sequence[Layer]]
    host_values: Mapping[str, int]
    waiting: Mapping[str, int]
    ages: Sequence[Age]
    settings: Settings | None
    problem: str
    dirty_percent: int
    left_alone: Collection[str]
    covered: Collection[str]
    backing: Path | None


#: What was found, and its remedy.
Found = tuple[str, str]


@dataclass(frozen=True)
class Check(Generic[P]):
    """A finding's ``meaning``, a clause for the manual, and its check."""

    meaning: str
    find: Callable[P, Iterator[Found]]


def found(seen: Seen) -> Iterator[Finding]:
    """Yield the findings: on the host, then on each mount, then below ``backing``."""
    for name, check in HOST_CHECKS.items():
        yield from (Finding(name, what, remedy) for what, remedy in check.find(seen))
    for mount in seen.mounts:
        if mount.device in seen.left_alone:
            continue
        for name, on_mount in MOUNT_CHECKS.items():
            for what, remedy in on_mount.find(seen, mount):
                yield Finding(name, what, remedy, mount)
    for name, on_files in BACKING_CHECKS.items():
        if seen.backing:
            for what, remedy in on_files.find(seen, seen.backing):
                yield Finding(name, what, remedy)


# Checks of the host


def _fio(seen: Seen) -> Iterator[Found]:
    if not shutil.which("fio"):
        yield (
            "fio is not installed, so nothing can be measured",
            "apt install fio, or dnf install fio",
        )


def _permission(seen: Seen) -> Iterator[Found]:
    if os.geteuid() != 0:
        yield "only root can change knobs and see every connection", "run fusetune as root"


def _control(kind: str, seen: Seen) -> Iterator[Found]:
    (control,) = (place for place, its_kind in CONTROLS.items() if its_kind == kind)
    served = [mount for mount in seen.mounts if mount.control == control]
    if served and not any(mount.connection for mount in served):
        yield (
            f"/{control} shows no connections: max_background cannot be read or set",
            f"mount -t {kind} {kind} /{control}",
        )


def _pipe_size(seen: Seen) -> Iterator[Found]:
    size = seen.host_values.get("fs.pipe-max-size", LIBFUSE_BUFFER)
    if size < LIBFUSE_BUFFER:
        yield (
            f"fs.pipe-max-size is {size}, less than a libfuse server's buffer of {LIBFUSE_BUFFER} "
            "bytes: an unprivileged server copies data instead of splicing it",
            "'fusetune set host fs.pipe-max-size=2M', with --persist for later boots; or "
            "pipe_max_size = '2M' in the mount's section of /etc/fusetune; then remount",
        )


def _pages_limit(seen: Seen) -> Iterator[Found]:
    limit = seen.host_values.get("fs.fuse.max_pages_limit")
    if limit is not None and limit <= 256:
        yield (
            f"fs.fuse.max_pages_limit is {limit}: no request can have more pages, even if the "
            "server asks for more",
            "'fusetune set host fs.fuse.max_pages_limit=1024', with --persist for later boots; "
            "or max_write = '4M' in the mount's section of /etc/fusetune; then remount",
        )


def _damaged_journal(seen: Seen) -> Iterator[Found]:
    try:
        damaged = files_in(seen.host.state_dir / "undo", "*.damaged-*")
    except FusetuneError as error:
        yield str(error), "run fusetune as root"
        return
    for kept in damaged:
        yield (
            f"a damaged undo journal was moved to {kept}",
            "check the values with 'fusetune show', then remove the file",
        )


def _old_source(libraries: bool, seen: Seen) -> Iterator[Found]:
    for one in seen.ages:
        if one.older and one.is_library == libraries:
            yield f"{one.summary}: it lacks later fixes", one.remedy


def _saved(seen: Seen) -> Iterator[Found]:
    for what in unusable(seen.host):
        yield what, "run 'fusetune auto' or 'fusetune save' again, or remove the file"


def _configuration(seen: Seen) -> Iterator[Found]:
    if seen.problem:
        yield seen.problem, "correct the file"


def _dirty_memory(seen: Seen) -> Iterator[Found]:
    if seen.settings and seen.dirty_percent > seen.settings.max_dirty_percent:
        yield (
            f"all tuned mounts together may use {seen.dirty_percent} % of the host's dirty "
            f"limit; max_dirty_percent is {seen.settings.max_dirty_percent}",
            "lower max_ratio on some mounts, or raise max_dirty_percent in [policy] of "
            "fusetune.toml",
        )


def _allow_users(seen: Seen) -> Iterator[Found]:
    for name in seen.settings.allow_users if seen.settings else ():
        if not owners_named([name]):
            yield (
                f"allow_users names {printable(name)}, but there is no such user",
                "correct [policy] of fusetune.toml",
            )


# Checks of a mount


def _waiting(seen: Seen, mount: Mount) -> Iterator[Found]:
    if count := seen.waiting[mount.device]:
        wait = "request waits" if count == 1 else "requests wait"
        yield (
            f"{count} {wait} for the server of {printable(mount.path)}: it is busy, "
            "stopped or hung",
            "check its process; if it is hung, end the connection with 'echo 1 > "
            f"/{mount.control}/{mount.connection}/abort'",
        )


def _dead(seen: Seen, mount: Mount) -> Iterator[Found]:
    if _is_dead(seen, mount):
        path = shell_word(mount.path)
        yield (
            f"the server of {printable(mount.path)} has died, or its connection was aborted",
            f"'umount {path}', then mount it again",
        )


def _is_dead(seen: Seen, mount: Mount) -> bool:
    try:
        LIVE_BY_NAME["max_background"].read(seen.host, mount)
    except Absent as why:
        return str(why) == DEAD
    except FusetuneError:  # another user's
        pass
    return False


def _stock(seen: Seen, mount: Mount) -> Iterator[Found]:
    stock = not is_tuned(seen.host, mount, seen.values[mount.device])
    if not stock or mount.device in seen.covered or _is_dead(seen, mount):
        return  # `auto` cannot measure what is covered or dead
    if not found_nothing_better(seen.host, mount):
        yield (
            f"{printable(mount.path)} has the kernel's default values",
            f"fusetune auto {shell_word(mount.path)}",
        )


def _writeback_cache(seen: Seen, mount: Mount) -> Iterator[Found]:
    # In the sandbox of fusetune-report.service, every mount point is read-only.
    if mount.fstype == "virtiofs" or "ro" in mount.options:
        return
    if dirtied_bytes(seen.host, mount) == 0:
        yield (
            f"no page of {printable(mount.path)} was ever dirty: either nothing was written yet, "
            "or it has no writeback cache and each small write is a separate request",
            "if the data changes only through this mount, "
            + remount_hint(mount, "writeback_cache"),
        )


def _readahead_below(seen: Seen, mount: Mount) -> Iterator[Found]:
    own = seen.values[mount.device].get("read_ahead_kb", 0)
    for layer in seen.below[mount.device]:
        under = seen.values.get(layer.device, {}).get("read_ahead_kb", own)
        if under < own:
            point = shell_word(layer.path)
            yield (
                f"{printable(mount.path)} has read_ahead_kb={own} and lies on "
                f"{printable(layer.path)}, which has {under}: the lower mount reads ahead less "
                "and splits the larger requests",
                f"'fusetune auto {point}' first, or 'fusetune set {point} read_ahead_kb={own}'",
            )


def _csi_driver(seen: Seen, mount: Mount) -> Iterator[Found]:
    for why in left_to_driver(seen.host, mount).values():
        yield f"{printable(mount.path)}: {why}", "set it with mountOptions of the volume"


# Checks of a server's backing directory


def _interleaved_files(seen: Seen, directory: Path) -> Iterator[Found]:
    points = {point for mount in seen.mounts for point in (mount.path, *mount.also_at)}
    # Links are resolved first, without accessing any FUSE mount.
    resolved = Path(lexical(str(directory), frozenset(points)))
    above = {str(path) for path in (resolved, *resolved.parents)}
    for mount in seen.mounts:
        if above.intersection((mount.path, *mount.also_at)):
            raise UsageError(
                f"{printable(str(directory))} is in the FUSE mount {printable(mount.path)}; give "
                "the backing directory of its server",
            )
    try:
        files = interleaved(resolved, besides=points)
    except OSError as error:
        why = (
            "its file system does not support FIEMAP"
            if error.errno == EOPNOTSUPP
            else error.strerror
        )
        raise FusetuneError(
            f"cannot locate the blocks of files in {printable(str(directory))}: {why}"
        ) from error
    if files:
        worst = files[0]
        yield (
            f"{len(files)} files in {printable(str(directory))} are interleaved with other files, "
            f"{printable(str(worst.path))} at {worst.torn} places in {worst.pieces} extents: they "
            "were written concurrently",
            "let the server preallocate or serialize writes, like mirrorfs with serialize_alloc; "
            "f2fs-tuned does so by itself",
        )


HOST_CHECKS: dict[str, Check[[Seen]]] = {
    "fio": Check("fio is not installed, so nothing can be measured", _fio),
    "permission": Check(
        "doctor does not run as root, so it cannot see every connection", _permission
    ),
    "fusectl": Check(
        "the control file system of the kernel's FUSE is not mounted", partial(_control, "fusectl")
    ),
    "fusetunedctl": Check(
        "the control file system of the module fusetuned is not mounted",
        partial(_control, "fusetunedctl"),
    ),
    "pipe-max-size": Check(
        "fs.pipe-max-size is smaller than a libfuse server's buffer, so an unprivileged server "
        "copies data instead of splicing it",
        _pipe_size,
    ),
    "max_pages_limit": Check(
        "fs.fuse.max_pages_limit is 256 or less, so no request can have more pages", _pages_limit
    ),
    "damaged-journal": Check("a damaged undo journal was set aside", _damaged_journal),
    "old-module": Check(
        "one of our modules was made from older code than the running kernel's",
        partial(_old_source, False),
    ),
    "old-library": Check(
        "the tuned libfuse3 was made from older code than the distribution's",
        partial(_old_source, True),
    ),
    "saved": Check("a saved result cannot be read", _saved),
    "configuration": Check("the configuration is invalid", _configuration),
    "dirty-memory": Check(
        "all tuned mounts together may use more dirty memory than max_dirty_percent",
        _dirty_memory,
    ),
    "allow-users": Check("allow_users names a user who does not exist", _allow_users),
}
MOUNT_CHECKS: dict[str, Check[[Seen, Mount]]] = {
    "waiting": Check(
        "requests wait for the server of a mount: it is busy, stopped or hung", _waiting
    ),
    "dead": Check("the server of a mount has died, or its connection was aborted", _dead),
    "stock": Check(
        "a mount has the kernel's default values, and the last thing done to it was not a run of "
        "auto that found nothing better",
        _stock,
    ),
    "writeback-cache": Check(
        "no page of a mount was ever dirty: nothing was written yet, or it has no writeback cache",
        _writeback_cache,
    ),
    "readahead-below": Check(
        "a mount lies on a FUSE mount with a smaller readahead, which splits larger requests",
        _readahead_below,
    ),
    "csi-driver": Check("a CSI driver sets a value of a mount itself", _csi_driver),
}
BACKING_CHECKS: dict[str, Check[[Seen, Path]]] = {
    "interleaved-files": Check(
        "files in the directory of --backing are interleaved with blocks of other files",
        _interleaved_files,
    ),
}
#: The meaning of each finding by its name.
FINDINGS = {
    name: check.meaning
    for checks in (HOST_CHECKS, MOUNT_CHECKS, BACKING_CHECKS)
    for name, check in checks.items()
}
