# SPDX-License-Identifier: GPL-2.0-or-later
"""Building, loading and unloading our modules."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.kmod.kinds import DKMS, Kind, Runner, Words, run_program
from fusetune.kmod.signing import read_signing
from fusetune.kmod.state import (
    Report,
    built_for,
    installed_file,
    kernels,
    loaded,
    ours,
    skipped,
    sources_of,
    status,
)
from fusetune.mounts.control import control_mounted
from fusetune.mounts.daemons import open_devices, process_ids
from fusetune.mounts.mount import CONTROLS
from fusetune.mounts.mountinfo import fstypes, points_of
from fusetune.text import counted, printable


def build(
    host: Host,
    kinds: Sequence[Kind],
    kernel: str | None = None,
    *,
    dry_run: bool = False,
    run: Runner = run_program,
) -> Report:
    """Build and install with DKMS, for the running kernel or for ``kernel``.

    Raises FusetuneError if the source is missing, the kernel is skipped, or a build fails. What was
    installed before then stays.
    """
    kernel = kernel or host.read("proc/sys/kernel/osrelease")
    commands: list[Words] = []
    for kind in kinds:
        sources = sources_of(host, kind)
        if not sources:
            which = f" MODULE={kind.module}" if kind.replaces else ""
            raise FusetuneError(
                f"the source of {kind.name} is missing in /usr/src: install the package "
                f"{kind.name}-dkms, or run 'make install-dkms{which}' in a checkout"
            )
        if kernel not in kernels(host):
            raise FusetuneError(f"kernel {kernel} is not in /lib/modules")
        if why := skipped(host, kind, sources[-1], kernel, run):
            raise FusetuneError(f"{kind.name} is not built for {kernel}: {why}")
        source = f"{kind.name}/{sources[-1]}"
        install = ("dkms", "install", source, "-k", kernel)
        built = Path(host.path(DKMS), source, kernel)
        rebuilt = any(built.glob("*/module"))
        # Rebuilt, because a newer linux-source may be installed by now.
        steps = [("dkms", "unbuild", source, "-k", kernel), install] if rebuilt else [install]
        commands += steps
        if not dry_run:
            with _kept(host, kind, built, install, run) if rebuilt else nullcontext():
                for command in steps:
                    done = run(command)
                _dkms(host, kind, kernel, done, run)
    return _after(host, kinds, commands, run)


@contextmanager
def _kept(host: Host, kind: Kind, built: Path, install: Words, run: Runner) -> Iterator[None]:
    """Put back what DKMS has ``built`` for a kernel if the block does not replace it.

    Raises FusetuneError if it cannot be copied before.
    """
    kernel = built.name
    was_installed = installed_file(host, kind, kernel)
    with TemporaryDirectory(prefix="fusetune-") as directory:
        copy = Path(directory, kernel)
        try:
            shutil.copytree(built, copy, symlinks=True)
        except OSError as error:
            raise FusetuneError(
                f"{kind.name} was not rebuilt for {kernel}, because the present build could not be "
                f"copied: {error}"
            ) from error
        try:
            yield
        finally:
            is_there = installed_file(host, kind, kernel) if was_installed else built.exists()
            if not is_there:
                shutil.rmtree(built, ignore_errors=True)
                shutil.copytree(copy, built, symlinks=True)
                if was_installed:
                    run(install)


def _dkms(
    host: Host, kind: Kind, kernel: str, done: subprocess.CompletedProcess[str], run: Runner
) -> None:
    """Raise FusetuneError if dkms failed."""
    if done.returncode == 0 and installed_file(host, kind, kernel):
        return
    state = built_for(host, kind, sources_of(host, kind), kernel, run)
    why = state.reason if state.state == "failed" else _last_line(done)
    log = f"; see {state.log_file}" if state.log_file else ""
    raise FusetuneError(f"{kind.name} was not built for {kernel}: {why}{log}")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"status {done.returncode} without output"


def load(
    host: Host, kinds: Sequence[Kind], *, dry_run: bool = False, run: Runner = run_program
) -> Report:
    """Load modules and mount their control file systems, unless already done.

    Raises FusetuneError if one is not built for the running kernel, or the kernel refuses it.
    """
    kernel = host.read("proc/sys/kernel/osrelease")
    commands: list[Words] = []
    for kind in kinds:
        if not ours(host, kind):
            if kind.replaces and loaded(host, kind.stock):
                raise FusetuneError(
                    f"the kernel's own {kind.stock} is loaded: unmount its file systems and "
                    f"run 'rmmod {kind.stock}' first"
                )
            if not installed_file(host, kind, kernel):
                why = built_for(host, kind, sources_of(host, kind), kernel, run).reason
                raise FusetuneError(
                    f"{kind.name} is not installed for this kernel, {kernel}: {why}"
                )
            commands.append(("modprobe", kind.module))
        if kind.control and not control_mounted(host, kind.control):
            commands.append(_control_command(host, kind.control, mount=True))
    for command in () if dry_run else commands:
        done = run(command)
        if done.returncode:
            raise FusetuneError(f"{' '.join(command)}: {_refused(host, _last_line(done))}")
    return _after(host, kinds, commands, run)


def _refused(host: Host, said: str) -> str:
    """Return the kernel's message with a remedy."""
    if "Key was rejected" in said or "Required key" in said or "Operation not perm" in said:
        enrol = read_signing(host, all_loaded=False).enrol
        if enrol:
            return f"{said}; as root: {', then '.join(enrol)}, then reboot and confirm the key"
    if "Exec format" in said or "Invalid module format" in said:
        return f"{said}; it was built for another kernel: run 'fusetune module build'"
    return said if os.geteuid() == 0 else f"{said}; run fusetune as root"


def _control_command(host: Host, control: str, *, mount: bool) -> Words:
    unit = control.replace("/", "-") + ".mount"
    if os.path.isdir(host.path("run/systemd/system")) and any(
        os.path.exists(host.path(f"{directory}/systemd/system/{unit}"))
        for directory in ("usr/lib", "etc")
    ):
        return ("systemctl", "start" if mount else "stop", unit)
    if not mount:
        return ("umount", host.path(control))
    return ("mount", "-t", CONTROLS[control], CONTROLS[control], host.path(control))


def unload(
    host: Host, kinds: Sequence[Kind], *, dry_run: bool = False, run: Runner = run_program
) -> Report:
    """Unload modules that are loaded. Raises FusetuneError if one is in use."""
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
    """Return a clause: which processes use a module without mounts here."""
    users = []
    for pid in process_ids(host):
        with suppress(OSError, FusetuneError):  # it ended, or belongs to another user
            if _uses(host, kind, pid):
                users.append(f"{printable(host.read(f'proc/{pid}/comm'))} (PID {pid})")
    if not users:
        return ""
    more = f" and {len(users) - 3} more" if len(users) > 3 else ""
    return (
        f"; held by {', '.join(users[:3])}{more}, through an open device or a mount namespace "
        "of their own: end these first"
    )


def _uses(host: Host, kind: Kind, pid: str) -> bool:
    if kind.module in open_devices(host, pid):
        return True
    control = CONTROLS[kind.control] if kind.control else None
    return any(each == control or kind.types.fullmatch(each) for each in fstypes(host, pid))


def _check_unused(host: Host, kind: Kind) -> None:
    """Raise FusetuneError that names the module's mounts."""
    if points := points_of(host, kind.types):
        names = ", ".join(printable(point) for point in points)
        raise FusetuneError(f"{kind.name} serves {names}: unmount these first")
    connections = list(_connections(host, kind))
    if connections:
        raise FusetuneError(
            f"{kind.name} serves {counted(len(connections), 'mount')} in other mount namespaces "
            "(containers), or of servers that still run: end these first"
        )


def _connections(host: Host, kind: Kind) -> Iterator[str]:
    if kind.control:
        with suppress(OSError):
            yield from os.listdir(host.path(kind.control))


def _after(host: Host, kinds: Sequence[Kind], commands: Sequence[Words], run: Runner) -> Report:
    now = status(host, kinds, run)
    return Report(now.kernel, now.signing, now.states, tuple(commands))
