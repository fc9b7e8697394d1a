# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything about FUSE on this host, gathered once for `report`."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fusetune.changes.state import KnobState
from fusetune.desired.config import load
from fusetune.desired.history import History, history_of
from fusetune.desired.inspect import inspect
from fusetune.desired.resolve import Expected, Resolver
from fusetune.desired.results import Saved
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.kmod.state import Loaded, loaded
from fusetune.mounts.bdi import DirtyPages, dirty_pages
from fusetune.mounts.control import waiting_if_known
from fusetune.mounts.discover import discover, find
from fusetune.mounts.mount import Mount
from fusetune.profile.module import Counters, read_counters
from fusetune.report.doctor import Diagnosis, diagnose

MODULES = ("fuse", "fusetuned")
_LIBRARIES = ("lib*/libfuse*.so.*", "lib/*/libfuse*.so.*")


@dataclass(frozen=True)
class InventoriedMount:
    """A mount: its knobs, their desired values, what is saved, and the kernel's counts.

    ``waiting``: how many requests wait. ``differing``: names of knobs without the desired value.
    ``dirty``: its dirty pages. ``counters``: the module's counters, by operation. None if the
    kernel does not show it. ``history``: what was done to it, oldest first.
    """

    mount: Mount
    states: Sequence[KnobState]
    expected: Mapping[str, Expected]
    left_alone: str | None
    saved: Saved | None
    waiting: int | None
    differing: frozenset[str]
    dirty: DirtyPages | None = None
    counters: Mapping[str, Counters] | None = None
    history: History = field(default_factory=History)


@dataclass(frozen=True)
class Inventory:
    """The whole host.

    ``memory_bytes``: of the machine; ``libfuse``: the installed versions of libfuse;
    ``problems``: configuration and saved results that cannot be used, one sentence each.
    """

    kernel: str
    machine: str
    cores: int
    memory_bytes: int
    modules: list[Loaded]
    libfuse: list[str]
    mounts: list[InventoriedMount]
    diagnosis: Diagnosis
    problems: list[str]


def take_inventory(host: Host, name: str | None = None) -> Inventory:
    """Examine the host and every mount, or the one named, without touching a path in a mount."""
    problems: list[str] = []
    resolver = None
    try:
        resolver = Resolver(host, load(host))
    except FusetuneError as error:
        problems.append(str(error))
    mounts = [find(host, name)] if name is not None else discover(host)
    surveys = [_mount(host, resolver, mount, problems) for mount in mounts]
    known = None if name is not None else [(one.mount, _values(one)) for one in surveys]
    meminfo = re.search(r"^MemTotal: +(\d+) kB", host.read("proc/meminfo"), re.MULTILINE)
    return Inventory(
        kernel=host.read("proc/sys/kernel/osrelease"),
        machine=os.uname().machine,
        cores=os.cpu_count() or 1,
        memory_bytes=int(meminfo[1]) * 1024 if meminfo else 0,
        modules=[one for name in MODULES if (one := loaded(host, name))],
        libfuse=_libfuse(host),
        mounts=surveys,
        diagnosis=diagnose(host, known, resolver=resolver),
        problems=problems,
    )


def _values(one: InventoriedMount) -> dict[str, int]:
    return {state.knob.name: state.value for state in one.states if state.value is not None}


def _mount(
    host: Host, resolver: Resolver | None, mount: Mount, problems: list[str]
) -> InventoriedMount:
    found = inspect(host, mount, resolver)
    history = history_of(host, mount)
    problems += [*found.problems, *history.problems]
    return InventoriedMount(
        mount,
        found.states,
        found.expected,
        found.left_alone,
        found.saved,
        waiting_if_known(host, mount),
        frozenset(check.state.knob.name for check in found.checks if check.differs),
        dirty_pages(host, mount),
        _counters(host, mount),
        history,
    )


def _counters(host: Host, mount: Mount) -> Mapping[str, Counters] | None:
    if not mount.is_tuned_type or mount.connection is None:
        return None
    with suppress(FusetuneError):  # an older module, or no permission to read them
        return read_counters(host, mount)
    return None


def _libfuse(host: Host) -> list[str]:
    """Return the versions from the file names: libfuse3.so.3.14.0 is 3.14.0."""
    names = (path.name for glob in _LIBRARIES for path in Path(host.path("usr")).glob(glob))
    matches = (re.fullmatch(r"libfuse3?\.so\.(\d+(?:\.\d+)+)", name) for name in names)
    return sorted({match[1] for match in matches if match})
