# SPDX-License-Identifier: GPL-2.0-or-later
"""What on this host limits FUSE, and what to do about it."""

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EOPNOTSUPP
from pathlib import Path

from fusetune.changes.policy import dirty_share, excluded_reason, owners_named
from fusetune.changes.state import is_tuned, values_now
from fusetune.desired.config import load
from fusetune.desired.results import unusable
from fusetune.desired.sections import ConfigError, Settings
from fusetune.errors import FusetuneError, UsageError
from fusetune.host import Host
from fusetune.kmod import kinds, state
from fusetune.knobs import SYSTEM, Absent, Knob, knobs_of
from fusetune.knobs.remount import dirtied_bytes, remount_hint
from fusetune.libfuse import installed
from fusetune.mounts.control import waiting
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import CONTROLS, Mount
from fusetune.report.fiemap import interleaved
from fusetune.source_age import Age
from fusetune.text import printable, shell_word

# 256 pages and libfuse's header page: its buffer without further options (fuse_lowlevel.c), which
# a pipe must hold whole for splice.
LIBFUSE_BUFFER = 256 * 4096 + 4096
_UNANSWERED_SECONDS = 0.2


#: Each finding's name, which is also a label of a metric, and its meaning for the manual.
FINDINGS = {
    "fio": "fio is not installed, so nothing can be measured",
    "permission": "doctor does not run as root, so it cannot see every connection",
    "fusectl": "the control file system of the kernel's FUSE is not mounted",
    "fusetunedctl": "the control file system of the module fusetuned is not mounted",
    "pipe-max-size": "fs.pipe-max-size is smaller than a libfuse server's buffer, so a server "
    "without privileges copies data instead of splicing it",
    "max_pages_limit": "fs.fuse.max_pages_limit is 256 or less, so no request holds more pages",
    "damaged-journal": "a damaged undo journal was set aside",
    "old-module": "a module of ours is made from older code than the kernel's",
    "old-library": "the tuned libfuse3 is made from older code than the distribution's",
    "saved": "a saved result cannot be read",
    "configuration": "the configuration is wrong",
    "dirty-memory": "all tuned mounts together may keep more dirty memory than max_dirty_percent",
    "allow-users": "allow_users names a user who does not exist",
    "waiting": "requests wait for the server of a mount: it is busy, stopped or hung",
    "stock": "a mount has the kernel's default values",
    "writeback-cache": "no page of a mount was ever dirty, so it seems to have no writeback cache",
    "interleaved-files": "files in the directory of --backing have other files' blocks between "
    "theirs",
}


@dataclass(frozen=True)
class Finding:
    """One thing that limits FUSE here: ``what``, its ``remedy``, and on which mount, if on one.

    ``name`` is one of `FINDINGS`.
    """

    name: str
    what: str
    remedy: str
    mount: Mount | None = None

    def __post_init__(self) -> None:
        if self.name not in FINDINGS:
            raise ValueError(f"{self.name!r} is not in FINDINGS, which the manual is made from")


@dataclass(frozen=True)
class Feature:
    """A knob of this kernel, present with its value now or absent with the reason."""

    knob: Knob
    value: int | None
    absent: str | None


@dataclass(frozen=True)
class Diagnosis:
    """All that ``doctor`` has to say.

    ``dirty_percent``: what all tuned mounts together may keep dirty, in percent of the host's
    limit; ``max_dirty_percent``: the bound of the configuration, None where that is wrong.
    ``elsewhere``: how many FUSE mounts are in other mount namespaces, and so left alone. ``ages``:
    how old our copies of other projects' code are.
    """

    features: list[Feature]
    findings: list[Finding]
    dirty_percent: int
    max_dirty_percent: int | None
    elsewhere: int
    ages: Sequence[Age] = ()


def diagnose(
    host: Host,
    known: Sequence[tuple[Mount, Mapping[str, int]]] | None = None,
    backing: Path | None = None,
) -> Diagnosis:
    """Look at the host and at every FUSE mount; touches no path in a mount.

    ``known``: all mounts and their values by knob, where they were looked at already. ``backing``:
    where a server keeps its files, to be looked at too. Raises UsageError where that is in a FUSE
    mount, FusetuneError where it cannot be looked at.
    """
    if known is None:
        known = [(mount, values_now(host, mount)) for mount in discover(host)]
    mounts = [mount for mount, _ in known]
    values = {mount.device: one for mount, one in known}
    features = [_feature(host, knob, None) for knob in SYSTEM]
    if mounts:
        features += [_feature(host, knob, mounts[0]) for knob in knobs_of(host, mounts[0])]
    known_ages = ages(host)
    findings = [*_on_host(host, mounts), *_on_ages(known_ages), *_kept(host)]
    bound = None
    dirty = sum(dirty_share(one) for one in values.values())
    try:
        settings = load(host).settings
    except ConfigError as error:
        findings.append(Finding("configuration", str(error), "correct the file"))
    else:
        bound = settings.max_dirty_percent
        findings += _on_policy(settings, dirty)
    findings += _on_mounts(host, mounts, values)
    if backing:
        findings += _on_backing(mounts, backing)
    return Diagnosis(features, findings, dirty, bound, _elsewhere(host, mounts), known_ages)


def ages(host: Host) -> list[Age]:
    """Return how old the loaded modules of ours and each tuned libfuse3 are."""
    loaded = (state.age(host, kind) for kind in kinds.KINDS)
    return [*(one for one in loaded if one), *installed.ages(host)]


def _on_ages(known: Sequence[Age]) -> Iterator[Finding]:
    for one in known:
        if one.older:
            yield Finding(
                "old-library" if one.name == "libfuse3-tuned" else "old-module",
                f"{one.summary}: faults mended since then are still in it",
                _age_remedy(one),
            )


def _age_remedy(one: Age) -> str:
    if one.name == "libfuse3-tuned":
        return "install a newer libfuse3-tuned, then start the servers that use it again"
    # Where a package of the distribution's has the kernel's source, DKMS takes it from there.
    series = ".".join(map(str, one.current.numbers[:2])) if one.current else ""
    packaged = one.current is not None and one.current.package_version is not None
    newer = f"apt install linux-source-{series} coccinelle, or " if packaged else ""
    return (
        f"{newer}install a newer {one.name}-dkms; then 'fusetune module build {one.name}', "
        f"'unload {one.name}' and 'load {one.name}'"
    )


def _on_backing(mounts: Sequence[Mount], directory: Path) -> Iterator[Finding]:
    above = {str(path) for path in (directory, *directory.parents)}
    for mount in mounts:
        if mount.path in above:
            raise UsageError(
                f"{printable(str(directory))} is in the FUSE mount {printable(mount.path)}; give "
                "the directory that its server keeps its files in"
            )
    try:
        points = {point for mount in mounts for point in (mount.path, *mount.also_at)}
        files = interleaved(directory, besides=points)
    except OSError as error:
        why = "its file system does not tell" if error.errno == EOPNOTSUPP else error.strerror
        raise FusetuneError(
            f"cannot see where the files of {printable(str(directory))} lie: {why}"
        ) from error
    if files:
        worst = files[0]
        yield Finding(
            "interleaved-files",
            f"{len(files)} files in {printable(str(directory))} have other files' blocks between "
            f"theirs, {printable(str(worst.path))} at {worst.torn} places of its "
            f"{worst.pieces} extents: they were written at once",
            "let the server allocate ahead or one write at a time, as mirrorfs does with "
            "serialize_alloc and f2fs-tuned by itself",
        )


def _kept(host: Host) -> Iterator[Finding]:
    for what in unusable(host):
        yield Finding("saved", what, "'fusetune auto' or 'save' again, then remove the file")


def _on_policy(settings: Settings, dirty: int) -> Iterator[Finding]:
    if dirty > settings.max_dirty_percent:
        yield Finding(
            "dirty-memory",
            f"all tuned mounts together may keep {dirty} % of the host's dirty limit; "
            f"max_dirty_percent is {settings.max_dirty_percent}",
            "lower max_ratio of some, or raise max_dirty_percent in [policy] of fusetune.toml",
        )
    for name in settings.allow_users:
        if not owners_named([name]):
            yield Finding(
                "allow-users",
                f"allow_users names {printable(name)}, and there is no such user",
                "correct [policy] of fusetune.toml",
            )


def _feature(host: Host, knob: Knob, mount: Mount | None) -> Feature:
    try:
        return Feature(knob, knob.read(host, mount), None)
    except (Absent, FusetuneError) as why:
        return Feature(knob, None, str(why))


def _on_host(host: Host, mounts: list[Mount]) -> Iterator[Finding]:
    if not shutil.which("fio"):
        yield Finding("fio", "fio is not installed, so nothing can be measured", "apt install fio")
    if os.geteuid() != 0:
        yield Finding(
            "permission", "only root may change knobs and see every connection", "run it as root"
        )
    for control, kind in CONTROLS.items():
        served = [mount for mount in mounts if mount.control == control]
        if served and not any(mount.connection for mount in served):
            yield Finding(
                kind,
                f"no connection is shown under /{control}: max_background cannot be seen or set",
                f"mount -t {kind} {kind} /{control}",
            )
    now = values_now(host, None)
    if now.get("fs.pipe-max-size", LIBFUSE_BUFFER) < LIBFUSE_BUFFER:
        yield Finding(
            "pipe-max-size",
            f"fs.pipe-max-size is {now['fs.pipe-max-size']}, smaller than a libfuse server's "
            f"buffer of {LIBFUSE_BUFFER} bytes: an unprivileged server cannot splice and copies",
            "'fusetune set host fs.pipe-max-size=2M', for later boots with --persist; or "
            "pipe_max_size = '2M' in the mount's section of /etc/fusetune; then mount again",
        )
    limit = now.get("fs.fuse.max_pages_limit")
    if limit is not None and limit <= 256:
        yield Finding(
            "max_pages_limit",
            f"fs.fuse.max_pages_limit is {limit}: no request holds more pages, "
            "also of a server that asks for more",
            "'fusetune set host fs.fuse.max_pages_limit=1024', for later boots with --persist; "
            "or max_write = '4M' in the mount's section of /etc/fusetune; then mount again",
        )
    for kept in sorted((host.state_dir / "undo").glob("*.damaged-*")):
        yield Finding(
            "damaged-journal",
            f"a damaged undo journal is kept as {kept}",
            "look at the values with 'fusetune show', then remove the file",
        )


def _elsewhere(host: Host, mounts: list[Mount]) -> int:
    """Return how many connections belong to mounts of other mount namespaces, such as containers'.

    The kernel lists every connection (fs/fuse/control.c), but mountinfo only our mounts.
    """
    connections: set[tuple[str, str | None]] = set()
    for control in CONTROLS:
        with suppress(OSError):
            connections.update((control, name) for name in os.listdir(host.path(control)))
    return len(connections - {(mount.control, mount.connection) for mount in mounts})


def _on_mounts(
    host: Host, mounts: list[Mount], values: Mapping[str, Mapping[str, int]]
) -> Iterator[Finding]:
    counts = {mount.device: waiting(host, mount) for mount in mounts}
    if any(counts.values()):
        time.sleep(_UNANSWERED_SECONDS)
    for mount in mounts:
        if excluded_reason(mount):
            continue
        path = printable(mount.path)
        count = min(counts[mount.device], waiting(host, mount))
        if count:
            yield Finding(
                "waiting",
                f"{count} requests wait for the server of {path}: it is busy, stopped or hung",
                "see its process; 'echo 1 > "
                f"/{mount.control}/{mount.connection}/abort' ends a hung one",
                mount,
            )
        if not is_tuned(host, mount, values[mount.device]):
            yield Finding(
                "stock",
                f"{path} has the kernel's default values",
                f"fusetune auto {shell_word(mount.path)}",
                mount,
            )
        if mount.fstype != "virtiofs" and dirtied_bytes(host, mount) == 0:
            yield Finding(
                "writeback-cache",
                f"no page was ever dirtied in {path}: unless nothing was written yet, it has no "
                "writeback cache, and each small write is a request of its own",
                "if data does not change behind the mount, "
                + remount_hint(mount, "writeback_cache"),
                mount,
            )
