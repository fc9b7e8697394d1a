# SPDX-License-Identifier: GPL-2.0-or-later
"""What this kernel can report to bpftrace about a mount."""

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from fusetune.profile.btf import Types
from fusetune.profile.calls import (
    FUNCTIONS,
    KPROBE,
    SPLICE,
    CallProbes,
    by_system_calls,
    calls_by_functions,
)
from fusetune.profile.program import FAULT_FUNCTION, FAULTS, FAULTS_BY_FUNCTION, Abilities
from fusetune.profile.requests import Requests, by_functions, by_tracepoints

_TRACING = "sys/kernel/tracing"
_EVENTS = f"{_TRACING}/events"
_BTF = "sys/kernel/btf"
_KPROBES = f"{_TRACING}/kprobe_events"
#: This process's PID namespace, and the initial one (include/linux/proc_ns.h, PROC_PID_INIT_INO).
_PIDS, _FIRST_PIDS = "proc/self/ns/pid", f"pid:[{0xEFFFFFFC}]"
_LOCKDOWN = "sys/kernel/security/lockdown"


def abilities(host: Host, mount: Mount, entries: Callable[[], str]) -> Abilities:
    """Return what this kernel can report about a mount.

    ``entries``: returns bpftrace's name for probes that know the functions' parameters, empty if it
    cannot use them here. They take less time than kprobes.

    Raises FusetuneError with the remedy if it cannot report requests.
    """
    _refuse_untraceable(host)
    try:
        types = Types(Path(host.path(_BTF)), "fuse")
    except (OSError, ValueError, struct.error):
        types = None
    probe = (types and _has_kprobes(host) and entries()) or KPROBE
    return Abilities(
        pauses=_has(host, "writeback/balance_dirty_pages"),
        faults=_faults(host, types),
        calls=_calls(host, mount, types, probe),
        requests=_requests(host, types, probe),
    )


def _faults(host: Host, types: Types | None) -> str:
    if _has(host, "filemap/mm_filemap_fault"):
        return FAULTS
    return FAULTS_BY_FUNCTION if _traces_functions(host, types, FAULT_FUNCTION) else ""


def _traces_functions(
    host: Host, types: Types | None, functions: Mapping[str, tuple[str, ...]]
) -> bool:
    """Return whether probes can be put on functions with these parameters."""
    return bool(types and _has_kprobes(host) and types.parameters({*functions}) == functions)


def _has_kprobes(host: Host) -> bool:
    return os.path.exists(host.path(_KPROBES))


def _calls(host: Host, mount: Mount, types: Types | None, probe: str) -> CallProbes | None:
    """Return how this kernel reports reads and writes; BTF types identify their files."""
    if _traces_functions(host, types, FUNCTIONS):
        return calls_by_functions(probe, splice=_traces_functions(host, types, SPLICE))
    if not (_has(host, "raw_syscalls/sys_enter") and _has_types(host)):
        return None
    servers = Daemons(host).processes(mount) if _sees_all_processes(host) else ()
    return by_system_calls([int(pid) for pid in servers], os.uname().machine)


def _sees_all_processes(host: Host) -> bool:
    """Whether process IDs here are the ones that BPF programs see."""
    try:
        return os.readlink(host.path(_PIDS)) == _FIRST_PIDS
    except FileNotFoundError:  # a kernel without pid namespaces
        return True


def _has_types(host: Host) -> bool:
    return os.path.exists(host.path(f"{_BTF}/vmlinux"))


def _refuse_untraceable(host: Host) -> None:
    """Raise FusetuneError with the remedy if the kernel cannot be traced at all."""
    if "[confidentiality]" in _text(host, _LOCKDOWN):
        raise FusetuneError(
            "kernel lockdown (confidentiality) forbids tracing; boot without it to observe this "
            "mount, or mount it with the module fusetuned, which counts requests itself"
        )
    if not os.path.isdir(host.path(_EVENTS)):
        raise FusetuneError(
            f"tracefs is not mounted on /{_TRACING}; mount it: mount -t tracefs tracefs /{_TRACING}"
        )


def _requests(host: Host, types: Types | None, probe: str) -> Requests:
    """Return how this kernel reports requests. Raises FusetuneError if it does not."""
    if _has(host, "fuse/fuse_request_send") and (found := by_tracepoints(types, probe)):
        return found
    if types and (found := by_functions(types, probe)):
        return found
    raise FusetuneError(
        "this kernel has neither FUSE's tracepoints as of Linux 6.18 nor the functions and types "
        f"(/{_BTF}) of 5.10 to 6.12; boot such a kernel, or mount with the module fusetuned, which "
        "counts requests itself"
    )


def traces_faults(host: Host) -> bool:
    """Return whether this kernel reports page faults, besides system calls and their files.

    Raises FusetuneError with the remedy if it cannot report these calls.
    """
    _refuse_untraceable(host)
    if not (_has(host, "syscalls/sys_enter_pread64") and _has_types(host)):
        raise FusetuneError(
            "this kernel cannot report the file of a system call; use one with "
            "CONFIG_FTRACE_SYSCALLS and CONFIG_DEBUG_INFO_BTF"
        )
    return _has(host, "filemap/mm_filemap_map_pages")


def _has(host: Host, event: str) -> bool:
    return os.path.isdir(host.path(f"{_EVENTS}/{event}"))


def _text(host: Host, file: str) -> str:
    try:
        return host.read(file)
    except FileNotFoundError:  # a kernel without it
        return ""
