# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of our modules: loaded, built, in use.

DKMS builds them. Its directories are read, because ``dkms status`` does not show failures.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fusetune.host import Host
from fusetune.kmod.kinds import DKMS, KINDS, Kind, Runner, Words, run_program
from fusetune.kmod.signing import Signing, read_signing
from fusetune.mounts.control import control_mounted
from fusetune.mounts.mountinfo import points_of
from fusetune.source_age import OLDER, Age, Source, loaded_source, parse, running_kernel

_MODULES = "usr/lib/modules"
#: Where DKMS installs, by distribution.
_INSTALLED = ("updates/dkms", "extra", "updates")
_LOG_LINES = 8
#: Minimum disk space for a build, in bytes.
_ROOM = 16 << 20
#: Prefix of dkms/build.sh for the reason why it built nothing.
_REFUSED = "fusetune: error: "
_MISTAKE = re.compile(r"error:|not found|No space left|\*\*\*|Error!", re.IGNORECASE)


@dataclass(frozen=True)
class Loaded:
    """A module in the kernel; ``version``, ``srcversion``: None for modules without one."""

    name: str
    built_in: bool
    version: str | None
    srcversion: str | None


@dataclass(frozen=True)
class Built:
    """The state of a module for one kernel.

    ``state``: "installed", "built" (not installed), "skipped", "failed" or "none". ``reason``: why
    it is not installed; ``log``: the last lines of a build that failed, and ``log_file``.
    ``source``: the kernel source of what is installed, None if unknown; ``source_reason``: why that
    is older than the kernel, None if it is not.
    """

    kernel: str
    state: str
    version: str | None = None
    reason: str | None = None
    log: Sequence[str] = ()
    log_file: str | None = None
    source: Source | None = None
    source_reason: str | None = None


@dataclass(frozen=True)
class State:
    """A module of ours: in the kernel, on disk, in use.

    ``sources``: versions whose source is installed. ``as_installed``: whether the loaded module is
    the one installed for the running kernel, None if unknown. ``points``: its mount points.
    ``stock``: the kernel's own module, None if it is not loaded; ``stock_points``: its mount
    points. ``age``: how old its code is, None if not loaded or without a named source.
    """

    kind: Kind
    loaded: Loaded | None
    stock: Loaded | None
    as_installed: bool | None
    sources: Sequence[str]
    kernels: Sequence[Built]
    points: Sequence[str]
    stock_points: Sequence[str]
    control_mounted: bool
    age: Age | None = None


@dataclass(frozen=True)
class Report:
    """All modules of ours; ``commands``: what was run before (or would be)."""

    kernel: str
    signing: Signing
    states: Sequence[State]
    commands: Sequence[Words] = field(default=())


def loaded(host: Host, name: str) -> Loaded | None:
    """Return the module of that name if the kernel has it, loaded or built in."""
    directory = f"sys/module/{name}"
    if not os.path.isdir(host.path(directory)):
        return None
    facts: dict[str, str | None] = {"version": None, "srcversion": None}
    for fact in facts:
        with suppress(OSError):
            facts[fact] = host.read(f"{directory}/{fact}")
    # Only a loaded module has a state (kernel/module/sysfs.c).
    built_in = not os.path.exists(host.path(f"{directory}/initstate"))
    return Loaded(name, built_in, facts["version"], facts["srcversion"])


def status(host: Host, kinds: Sequence[Kind] = KINDS, run: Runner = run_program) -> Report:
    """Return the state of our modules; changes nothing."""
    kernel = host.read("proc/sys/kernel/osrelease")
    states = [_state(host, kind, kernel, run) for kind in kinds]
    return Report(kernel, read_signing(host, all(state.loaded for state in states)), states)


def ours(host: Host, kind: Kind) -> Loaded | None:
    """Return our module if it is loaded. Unlike the kernel's own, it has a version."""
    now = loaded(host, kind.module)
    return None if kind.replaces and now and now.version is None else now


def age(host: Host, kind: Kind) -> Age | None:
    """Return how old our module's code is compared with the running kernel.

    None if it is not loaded, or does not name its source.
    """
    source = loaded_source(host, kind.module) if ours(host, kind) else None
    return Age(kind.name, source, running_kernel(host)) if source else None


def _stock(host: Host, kind: Kind) -> Loaded | None:
    return None if kind.replaces and ours(host, kind) else loaded(host, kind.stock)


def _state(host: Host, kind: Kind, kernel: str, run: Runner) -> State:
    sources = sources_of(host, kind)
    built = [
        _with_source(host, kind, built_for(host, kind, sources, release, run), run)
        for release in kernels(host)
    ]
    now, stock = ours(host, kind), _stock(host, kind)
    as_installed = None
    file = installed_file(host, kind, kernel)
    if now and now.srcversion and file:
        said = run(("modinfo", "-F", "srcversion", str(file)))
        as_installed = said.stdout.strip() == now.srcversion if said.returncode == 0 else None
    return State(
        kind,
        now,
        stock,
        as_installed,
        sources,
        built,
        points_of(host, kind.types) if now else [],
        points_of(host, kind.stock_types) if stock else [],
        bool(kind.control and control_mounted(host, kind.control)),
        age(host, kind),
    )


def refused_as_older(host: Host, kind: Kind, version: str, kernel: str, run: Runner) -> str | None:
    """Return why dkms.conf refuses to replace a kernel's own, newer module; None if it does not.

    dkms.conf is sourced by bash, as DKMS does.
    """
    conf = host.path(f"usr/src/{kind.name}-{version}/dkms.conf")
    if not kind.replaces or not os.path.exists(conf):
        return None
    ask = 'kernelver=$2 kernel_source_dir=$3 older_conf=$4 sources=$5; . "$1"; printf %s "$refused"'
    roots = (
        host.path(f"{_MODULES}/{kernel}/build"),
        str(host.admin_dir / OLDER),
        host.path("usr/src"),
    )
    return run(("bash", "-c", ask, "bash", conf, kernel, *roots)).stdout or None


def _with_source(host: Host, kind: Kind, built: Built, run: Runner) -> Built:
    file = installed_file(host, kind, built.kernel)
    if not file:
        return built
    said = run(("modinfo", "-F", "tuned_source", str(file)))
    log = f"{DKMS}/{kind.name}/{built.version}/{built.kernel}/*/log/make.log"
    why = None
    for path in Path(host.root).glob(log):
        # From dkms/build.sh.
        found = re.search(r"^fusetune: (older .*)$", path.read_text(errors="replace"), re.MULTILINE)
        why = found[1] if found else None
    return replace(built, source=parse(said.stdout), source_reason=why)


def kernels(host: Host) -> list[str]:
    """Return the releases of the kernels that are installed."""
    directory = Path(host.path(_MODULES))
    if not directory.is_dir():
        return []
    found = [path.name for path in directory.iterdir() if path.is_dir()]
    return sorted(found, key=by_number)


def by_number(text: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d+|\D+", text)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def sources_of(host: Host, kind: Kind) -> list[str]:
    """Return the versions whose source DKMS has registered or would find, the newest last."""
    found = {path.parent.name for path in Path(host.path(DKMS), kind.name).glob("*/source")}
    for path in Path(host.path("usr/src")).glob(f"{kind.name}-*/dkms.conf"):
        found.add(path.parent.name.removeprefix(f"{kind.name}-"))
    return sorted(found, key=by_number)


def installed_file(host: Host, kind: Kind, kernel: str) -> Path | None:
    for directory in _INSTALLED:
        for path in Path(host.path(_MODULES), kernel, directory).glob(f"{kind.module}.ko*"):
            return path
    return None


def built_for(host: Host, kind: Kind, sources: Sequence[str], kernel: str, run: Runner) -> Built:
    """Return the state for one kernel, with the reason if nothing is installed."""
    tree = Path(host.path(DKMS), kind.name)
    # DKMS records what it installed: kernel-RELEASE-MACHINE -> VERSION/RELEASE/MACHINE.
    links = [os.readlink(path) for path in tree.glob(f"kernel-{kernel}-*") if path.is_symlink()]
    if installed_file(host, kind, kernel):
        return Built(kernel, "installed", links[0].split("/")[0] if links else None)
    version = sources[-1] if sources else None
    if version is None:
        return Built(kernel, "none", None, "its source is missing")
    if any((tree / version / kernel).glob(f"*/module/{kind.module}.ko*")):
        return Built(kernel, "built", version, "built, but not installed")
    if why := skipped(host, kind, version, kernel, run):
        return Built(kernel, "skipped", None, why)
    return _failed(host, tree / version / "build" / "make.log", kernel) or Built(
        kernel, "none", None, f"not built: run 'fusetune module build --kernel {kernel}'"
    )


def skipped(host: Host, kind: Kind, version: str, kernel: str, run: Runner) -> str | None:
    """Return why DKMS skips a kernel, None if it does not."""
    conf = Path(host.path("usr/src"), f"{kind.name}-{version}", "dkms.conf")
    try:
        only = re.search(r'^BUILD_EXCLUSIVE_KERNEL="(.*)"', conf.read_text(), re.MULTILINE)
    except OSError:
        only = None
    if only and not re.search(only[1], kernel):
        return f"it is not for this kernel, only for those that match {only[1]}"
    if not os.path.isdir(host.path(f"{_MODULES}/{kernel}/build/include")):
        return (
            f"its headers are missing: apt install linux-headers-{kernel}, or dnf install "
            f"kernel-devel-{kernel}"
        )
    return refused_as_older(host, kind, version, kernel, run)


def _failed(host: Host, log: Path, kernel: str) -> Built | None:
    """Return why the last build for this kernel failed, None if no failure is known."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return None
    room = os.statvfs(log.parent)
    free = room.f_bavail * room.f_frsize
    if f"for kernel {kernel} " not in "".join(lines[:1]):
        if lines or free >= _ROOM:
            return None  # of another kernel
        return Built(kernel, "failed", None, _no_room(log, free), (), str(log))
    refused = [line for line in lines if line.startswith(_REFUSED)]
    wrong = [line.removeprefix(_REFUSED) for line in refused] or [
        line.strip() for line in lines if _MISTAKE.search(line)
    ]
    why = wrong[0] if wrong else "dkms reports no error"
    if free < _ROOM:
        why = _no_room(log, free)
    return Built(kernel, "failed", None, why, lines[-_LOG_LINES:], str(log))


def _no_room(log: Path, free: int) -> str:
    return f"no space left: {free >> 10} KiB are free in {log.parent}"
