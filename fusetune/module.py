# SPDX-License-Identifier: GPL-2.0-or-later
"""Our kernel modules, beside or in place of the kernel's own: their state, and how it is changed.

They are built by DKMS; what it did is read from its folders, for ``dkms status`` names no failure.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fusetune.age import OLDER, Age, Source, loaded_source, parse, running_kernel
from fusetune.errors import FusetuneError, UsageError
from fusetune.host import Host
from fusetune.mounts import (
    CONTROLS,
    FUSETUNEDCTL,
    control_mounted,
    fstypes,
    points_of,
    printable,
)
from fusetune.servers import open_devices

DKMS = "var/lib/dkms"
KEY = f"{DKMS}/mok.pub"
_MODULES = "usr/lib/modules"
#: Where DKMS installs, by distribution.
_INSTALLED = ("updates/dkms", "extra", "updates")
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_LOG_LINES = 8
#: Bytes that a build needs at least, source and objects.
_ROOM = 16 << 20
#: Of dkms/build.sh, before the reason why it built nothing.
_REFUSED = "fusetune: error: "
_MISTAKE = re.compile(r"error:|not found|No space left|\*\*\*|Error!", re.IGNORECASE)

Words = tuple[str, ...]
Runner = Callable[[Words], subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Kind:
    """A module of ours.

    ``name``: as DKMS knows it; ``module``: as the kernel does. ``stock``: the kernel's own that it
    runs beside, or replaces where that has the same name. ``types``, ``stock_types``: what the
    mounts of either are in mountinfo. ``control``: place of its control file system, if it has one.
    """

    name: str
    module: str
    stock: str
    types: re.Pattern[str]
    stock_types: re.Pattern[str]
    control: str | None = None

    @property
    def replaces(self) -> bool:
        """Whether it is loaded in place of the kernel's own."""
        return self.module == self.stock


KINDS = (
    Kind(
        "fusetuned",
        "fusetuned",
        "fuse",
        re.compile(r"fusetuned(blk)?(\..*)?", re.DOTALL),
        re.compile(r"fuse(blk)?(\..*)?", re.DOTALL),
        FUSETUNEDCTL,
    ),
    Kind("f2fs-tuned", "f2fs", "f2fs", re.compile("f2fs"), re.compile("f2fs")),
)


@dataclass(frozen=True)
class Loaded:
    """A module in the kernel; ``version``, ``srcversion``: None where it names none, as stock."""

    name: str
    built_in: bool
    version: str | None
    srcversion: str | None


@dataclass(frozen=True)
class Built:
    """What there is of a module for one kernel.

    ``state``: "installed", "built" (not installed), "skipped", "failed" or "none". ``reason``: why
    it is not installed; ``log``: the last lines of a build that failed, and ``log_file``.
    ``source``: where the code of what is installed was taken from, None where that is not known;
    ``source_reason``: why that is older than the kernel, None where it is not.
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

    ``sources``: versions whose source is there. ``as_installed``: whether what is loaded is what is
    installed for the running kernel, None where that cannot be told. ``points``: where its mounts
    are; ``stock``: the kernel's own, None if that is not loaded, and ``stock_points`` those of it.
    ``age``: how old its code is, None where it is not loaded or does not tell.
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
class Signing:
    """Whether the kernel takes signed modules alone; ``secure_boot``, ``lockdown``: None: unknown.

    ``enrol``: what makes it take ours, empty where nothing is needed or it is loaded.
    """

    secure_boot: bool | None
    lockdown: str | None
    enforced: bool
    enrol: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """All modules of ours; ``commands``: what was run before (or would be)."""

    kernel: str
    signing: Signing
    states: Sequence[State]
    commands: Sequence[Words] = field(default=())


def run_program(words: Words) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises FusetuneError where it is not installed."""
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise FusetuneError(f"{words[0]} is not installed: apt install dkms kmod") from error


def named(name: str | None) -> tuple[Kind, ...]:
    """Return our modules, or the one of that name. Raises UsageError for another name."""
    kinds = tuple(kind for kind in KINDS if name in (None, kind.name))
    if not kinds:
        known = ", ".join(kind.name for kind in KINDS)
        raise UsageError(f"no module of ours is called {name!r}; there is {known}")
    return kinds


# What there is


def loaded(host: Host, name: str) -> Loaded | None:
    """Return the module of that name if the kernel has it, loaded or built in."""
    folder = f"sys/module/{name}"
    if not os.path.isdir(host.path(folder)):
        return None
    facts: dict[str, str | None] = {"version": None, "srcversion": None}
    for fact in facts:
        with suppress(OSError):
            facts[fact] = host.read(f"{folder}/{fact}")
    # Only a loaded module has a state (kernel/module/sysfs.c).
    built_in = not os.path.exists(host.path(f"{folder}/initstate"))
    return Loaded(name, built_in, facts["version"], facts["srcversion"])


def status(host: Host, kinds: Sequence[Kind] = KINDS, run: Runner = run_program) -> Report:
    """Return the state of modules of ours; changes nothing."""
    kernel = host.read("proc/sys/kernel/osrelease")
    states = [_state(host, kind, kernel, run) for kind in kinds]
    return Report(kernel, _signing(host, all(state.loaded for state in states)), states)


def ours(host: Host, kind: Kind) -> Loaded | None:
    """Return our module if it is loaded; the kernel's own of the same name has no version."""
    now = loaded(host, kind.module)
    return None if kind.replaces and now and now.version is None else now


def age(host: Host, kind: Kind) -> Age | None:
    """Return how old our module's code is beside the running kernel.

    None where it is not loaded, or does not name its source.
    """
    source = loaded_source(host, kind.module) if ours(host, kind) else None
    return Age(kind.name, source, running_kernel(host)) if source else None


def _stock(host: Host, kind: Kind) -> Loaded | None:
    return None if kind.replaces and ours(host, kind) else loaded(host, kind.stock)


def _state(host: Host, kind: Kind, kernel: str, run: Runner) -> State:
    sources = _sources(host, kind)
    kernels = [
        _with_source(host, kind, _built(host, kind, sources, release, run), run)
        for release in _kernels(host)
    ]
    now, stock = ours(host, kind), _stock(host, kind)
    as_installed = None
    file = _installed_file(host, kind, kernel)
    if now and now.srcversion and file:
        said = run(("modinfo", "-F", "srcversion", str(file)))
        as_installed = said.stdout.strip() == now.srcversion if said.returncode == 0 else None
    return State(
        kind,
        now,
        stock,
        as_installed,
        sources,
        kernels,
        points_of(host, kind.types) if now else [],
        points_of(host, kind.stock_types) if stock else [],
        bool(kind.control and control_mounted(host, kind.control)),
        age(host, kind),
    )


def _refused_as_older(host: Host, kind: Kind, version: str, kernel: str, run: Runner) -> str | None:
    """Return why DKMS builds nothing in place of a kernel's own, newer module; None if it does.

    Its dkms.conf, which bash reads for DKMS too, knows.
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
    file = _installed_file(host, kind, built.kernel)
    if not file:
        return built
    said = run(("modinfo", "-F", "tuned_source", str(file)))
    log = f"{DKMS}/{kind.name}/{built.version}/{built.kernel}/*/log/make.log"
    why = None
    for path in Path(host.root).glob(log):
        # Of dkms/build.sh.
        found = re.search(r"^fusetune: (older .*)$", path.read_text(errors="replace"), re.MULTILINE)
        why = found[1] if found else None
    return replace(built, source=parse(said.stdout), source_reason=why)


def _kernels(host: Host) -> list[str]:
    """Return the releases of the kernels that are installed."""
    folder = Path(host.path(_MODULES))
    if not folder.is_dir():
        return []
    found = [path.name for path in folder.iterdir() if path.is_dir()]
    return sorted(found, key=_by_number)


def _by_number(text: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d+|\D+", text)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _sources(host: Host, kind: Kind) -> list[str]:
    """Return the versions whose source DKMS knows, or would find, the newest last."""
    found = {path.parent.name for path in Path(host.path(DKMS), kind.name).glob("*/source")}
    for path in Path(host.path("usr/src")).glob(f"{kind.name}-*/dkms.conf"):
        found.add(path.parent.name.removeprefix(f"{kind.name}-"))
    return sorted(found, key=_by_number)


def _installed_file(host: Host, kind: Kind, kernel: str) -> Path | None:
    for folder in _INSTALLED:
        for path in Path(host.path(_MODULES), kernel, folder).glob(f"{kind.module}.ko*"):
            return path
    return None


def _built(host: Host, kind: Kind, sources: Sequence[str], kernel: str, run: Runner) -> Built:
    """Return what there is for one kernel, and why there is not more."""
    tree = Path(host.path(DKMS), kind.name)
    # DKMS's own note of what it installed: kernel-RELEASE-MACHINE -> VERSION/RELEASE/MACHINE.
    links = [os.readlink(path) for path in tree.glob(f"kernel-{kernel}-*") if path.is_symlink()]
    if _installed_file(host, kind, kernel):
        return Built(kernel, "installed", links[0].split("/")[0] if links else None)
    version = sources[-1] if sources else None
    if version is None:
        return Built(kernel, "none", None, "its source is not there")
    if any((tree / version / kernel).glob(f"*/module/{kind.module}.ko*")):
        return Built(kernel, "built", version, "built, but not installed")
    if why := _skipped(host, kind, version, kernel, run):
        return Built(kernel, "skipped", None, why)
    return _failed(host, tree / version / "build" / "make.log", kernel) or Built(
        kernel, "none", None, f"not built: fusetune module build --kernel {kernel}"
    )


def _skipped(host: Host, kind: Kind, version: str, kernel: str, run: Runner) -> str | None:
    """Return why DKMS does not try to build for a kernel, None if it does."""
    conf = Path(host.path("usr/src"), f"{kind.name}-{version}", "dkms.conf")
    try:
        only = re.search(r'^BUILD_EXCLUSIVE_KERNEL="(.*)"', conf.read_text(), re.MULTILINE)
    except OSError:
        only = None
    if only and not re.search(only[1], kernel):
        return f"not for this kernel, but for those that match {only[1]}"
    if not os.path.isdir(host.path(f"{_MODULES}/{kernel}/build/include")):
        return f"its headers are not there: apt install linux-headers-{kernel}"
    return _refused_as_older(host, kind, version, kernel, run)


def _failed(host: Host, log: Path, kernel: str) -> Built | None:
    """Return what the last build for this kernel failed with, None if it is not known to have."""
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
    why = wrong[0] if wrong else "dkms names no error"
    if free < _ROOM:
        why = _no_room(log, free)
    return Built(kernel, "failed", None, why, lines[-_LOG_LINES:], str(log))


def _no_room(log: Path, free: int) -> str:
    return f"no space left: {free >> 10} KiB are free in {log.parent}"


def _signing(host: Host, all_loaded: bool) -> Signing:
    secure_boot = lockdown = None
    with suppress(OSError):
        # Four bytes of attributes, then the value (Documentation/filesystems/efivarfs.rst).
        secure_boot = Path(host.path(_SECURE_BOOT)).read_bytes()[4:] == b"\x01"
    with suppress(OSError):
        chosen = re.search(r"\[(\w+)\]", host.read("sys/kernel/security/lockdown"))
        lockdown = chosen[1] if chosen else None
    enforced = lockdown not in (None, "none")
    with suppress(OSError):
        enforced |= host.read("sys/module/module/parameters/sig_enforce") == "Y"
    if not enforced or all_loaded:
        return Signing(secure_boot, lockdown, enforced)
    key = host.path(KEY)
    if not os.path.exists(key):
        enrol = ["apt install openssl mokutil", "fusetune module build", f"mokutil --import {key}"]
    else:
        enrol = [f"mokutil --import {key}"]
    return Signing(secure_boot, lockdown, enforced, enrol)


# What changes it


def build(
    host: Host,
    kinds: Sequence[Kind],
    kernel: str | None = None,
    *,
    dry_run: bool = False,
    run: Runner = run_program,
) -> Report:
    """Build and install by DKMS, for the running kernel or for ``kernel``.

    Raises FusetuneError where the source is not there, the kernel is skipped, or a build fails.
    """
    kernel = kernel or host.read("proc/sys/kernel/osrelease")
    commands: list[Words] = []
    for kind in kinds:
        sources = _sources(host, kind)
        if not sources:
            raise FusetuneError(
                f"there is no source of {kind.name} in /usr/src: "
                "'make install-dkms' in fusetune's source puts it there"
            )
        if kernel not in _kernels(host):
            raise FusetuneError(f"no kernel {kernel} in /lib/modules")
        if why := _skipped(host, kind, sources[-1], kernel, run):
            raise FusetuneError(f"{kind.name} is not built for {kernel}: {why}")
        source = f"{kind.name}/{sources[-1]}"
        command = ("dkms", "install", source, "-k", kernel)
        if any(Path(host.path(DKMS), source, kernel).glob("*/module")):
            # Made again: a newer linux-source may be there by now.
            commands.append(("dkms", "unbuild", source, "-k", kernel))
            if not dry_run:
                run(commands[-1])
        commands.append(command)
        if not dry_run:
            _dkms(host, kind, kernel, run(command), run)
    return _after(host, kinds, commands, run)


def _dkms(
    host: Host, kind: Kind, kernel: str, done: subprocess.CompletedProcess[str], run: Runner
) -> None:
    """Raise FusetuneError where dkms failed."""
    if done.returncode == 0 and _installed_file(host, kind, kernel):
        return
    state = _built(host, kind, _sources(host, kind), kernel, run)
    why = state.reason if state.state == "failed" else _last_line(done)
    log = f"; see {state.log_file}" if state.log_file else ""
    raise FusetuneError(f"{kind.name} was not built for {kernel}: {why}{log}")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"status {done.returncode}, without a word"


def load(
    host: Host, kinds: Sequence[Kind], *, dry_run: bool = False, run: Runner = run_program
) -> Report:
    """Load modules, and mount their control file systems; what is done already stays.

    Raises FusetuneError where one is not built for the running kernel, or the kernel refuses it.
    """
    kernel = host.read("proc/sys/kernel/osrelease")
    commands: list[Words] = []
    for kind in kinds:
        if not ours(host, kind):
            if kind.replaces and loaded(host, kind.stock):
                raise FusetuneError(
                    f"the kernel's own {kind.stock} is loaded: unmount what it serves and "
                    f"'rmmod {kind.stock}' first"
                )
            if not _installed_file(host, kind, kernel):
                why = _built(host, kind, _sources(host, kind), kernel, run).reason
                raise FusetuneError(f"{kind.name} is not there for this kernel, {kernel}: {why}")
            commands.append(("modprobe", kind.module))
        if kind.control and not control_mounted(host, kind.control):
            commands.append(_control_command(host, kind.control, mount=True))
    for command in () if dry_run else commands:
        done = run(command)
        if done.returncode:
            raise FusetuneError(f"{' '.join(command)}: {_refused(host, _last_line(done))}")
    return _after(host, kinds, commands, run)


def _refused(host: Host, said: str) -> str:
    """Return the kernel's words with what to do about them."""
    if "Key was rejected" in said or "Required key" in said or "Operation not perm" in said:
        enrol = _signing(host, all_loaded=False).enrol
        if enrol:
            return f"{said}; as root: {', then '.join(enrol)}, then restart and confirm the key"
    if "Exec format" in said or "Invalid module format" in said:
        return f"{said}; it is of another kernel: fusetune module build"
    return said if os.geteuid() == 0 else f"{said}; run it as root"


def _control_command(host: Host, control: str, *, mount: bool) -> Words:
    unit = control.replace("/", "-") + ".mount"
    if os.path.isdir(host.path("run/systemd/system")) and any(
        os.path.exists(host.path(f"{folder}/systemd/system/{unit}"))
        for folder in ("usr/lib", "etc")
    ):
        return ("systemctl", "start" if mount else "stop", unit)
    if not mount:
        return ("umount", host.path(control))
    return ("mount", "-t", CONTROLS[control], CONTROLS[control], host.path(control))


def unload(
    host: Host, kinds: Sequence[Kind], *, dry_run: bool = False, run: Runner = run_program
) -> Report:
    """Take modules out of the kernel; one that is not loaded stays so.

    Raises FusetuneError where one is in use.
    """
    commands: list[Words] = []
    for kind in kinds:
        if ours(host, kind):
            _check_unused(host, kind)
            if kind.control and control_mounted(host, kind.control):
                commands.append(_control_command(host, kind.control, mount=False))
            commands.append(("rmmod", kind.module))
    for command in () if dry_run else commands:
        done = run(command)
        if done.returncode:
            said = _last_line(done)
            for kind in (kind for kind in kinds if command == ("rmmod", kind.module)):
                said += _users(host, kind) if "in use" in said else ""
                if kind.control:
                    run(_control_command(host, kind.control, mount=True))
            raise FusetuneError(f"{' '.join(command)}: {said}")
    return _after(host, kinds, commands, run)


def _users(host: Host, kind: Kind) -> str:
    """Return, as the end of a sentence, which processes keep a module that has no mount here."""
    users = []
    for pid in sorted(filter(str.isdigit, os.listdir(host.path("proc"))), key=int):
        with suppress(OSError, FusetuneError):  # it ended, or it is not ours to look at
            if _uses(host, kind, pid):
                users.append(f"{printable(host.read(f'proc/{pid}/comm'))} (PID {pid})")
    if not users:
        return ""
    more = f" and {len(users) - 3} more" if len(users) > 3 else ""
    return (
        f"; kept by {', '.join(users[:3])}{more}, by an open device or in a mount namespace of "
        "their own: end these first"
    )


def _uses(host: Host, kind: Kind, pid: str) -> bool:
    if kind.module in open_devices(host, pid):
        return True
    control = CONTROLS[kind.control] if kind.control else None
    return any(each == control or kind.types.fullmatch(each) for each in fstypes(host, pid))


def _check_unused(host: Host, kind: Kind) -> None:
    """Raise FusetuneError naming what is mounted by the module."""
    if points := points_of(host, kind.types):
        names = ", ".join(printable(point) for point in points)
        raise FusetuneError(f"{kind.name} serves {names}: unmount first")
    connections = list(_connections(host, kind))
    if connections:
        raise FusetuneError(
            f"{kind.name} serves {len(connections)} mounts of other mount namespaces (containers), "
            "or of servers that still run: end these first"
        )


def _connections(host: Host, kind: Kind) -> Iterator[str]:
    if kind.control:
        with suppress(OSError):
            yield from os.listdir(host.path(kind.control))


def _after(host: Host, kinds: Sequence[Kind], commands: Sequence[Words], run: Runner) -> Report:
    now = status(host, kinds, run)
    return Report(now.kernel, now.signing, now.states, tuple(commands))
