# SPDX-License-Identifier: GPL-2.0-or-later
"""The results of the checks of guest/ on debug kernels: ``make test-debug-kernel``."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.kernel.debug import Kernel, Mistake, functions, is_ours, run_checks
from tests.kernel.guest.__main__ import checks
from tests.kernel.machine import Results
from tests.kernel.suites import USERLAND

#: Which files of guest/ share a machine, so that a crash does not affect the other checks.
#: Without those of f2fs, because all but a few lines of that module are the kernel's.
_MACHINES = (
    ("module", "options", "writes", "pages"),
    ("extend", "extend_async", "passthrough"),
    ("forced", "forced_writeback"),
    ("forced_data",),
    ("programs",),
    ("atomic_open", "atomic_open_faults"),
    ("statistics", "fuzz"),
    ("hostile", "library", "library_atomic_open", "tool"),
)
#: It sanitizes the library, which is the same on every kernel.
_NOT_HERE = "check_library_atomic_open_sanitized"
_ALLOCATIONS = "check_failed_allocations"
_LEAKS = "check_nothing_leaked"


def _checks_of(files: tuple[str, ...]) -> tuple[str, ...]:
    """Return the checks that a machine runs, the last of which looks for leaks of the others."""
    named = {name: check.__module__.rpartition(".")[2] for name, check in checks().items()}
    found = (name for name, file in named.items() if file in files and name != _NOT_HERE)
    return (*found, *((_ALLOCATIONS,) if "hostile" in files else ()), _LEAKS)


#: By the machine.
CHECKS = {"+".join(files): _checks_of(files) for files in _MACHINES}

#: Checks with concurrent actions, for two machines.
RACES = {
    "writes": (
        *("check_max_pages_changes_under_load", "check_parallel_direct_writes"),
        *("check_parallel_extend", "check_extending_writers"),
        *("check_extending_writers_with_faults", "check_extending_writers_with_writeback"),
        *("check_failed_append", "check_short_append", "check_append_behind_write"),
        *("check_truncate_waits_for_extending_writes", "check_truncates_among_appends"),
        *("check_failed_asynchronous_write", "check_asynchronous_writes_extend"),
        *("check_direct_writes_wait_for_writeback", "check_parallel_passthrough_writes"),
    ),
    "requests": (
        *("check_killed_server", "check_atomic_open_at_once"),
        *("check_atomic_open_of_killed_openers", "check_atomic_open_when_the_server_dies"),
        *("check_statistics_agree_with_the_server", "check_statistics_file_and_its_connection"),
        *("check_statistics_agree_while_requests_end", "check_hostile_server"),
    ),
}

#: The kernel's own races, between its own lines, in functions that we change.
KERNELS = {
    # Whether to read ahead: fc->num_background is read without its lock.
    "data-race in fuse_readahead [fusetuned] / fuse_request_end [fusetuned]",
    "data-race in fuse_readahead [fusetuned] / fuse_request_queue_background [fusetuned]",
    # An entry's expiry time, which is read without a lock.
    "data-race in fuse_dentry_revalidate [fusetuned] / fuse_dentry_settime [fusetuned]",
    # The type of an inode, which inode_wrong_type() reads and every reply writes as it was.
    "data-race in fuse_change_attributes_common [fusetuned] / fuse_dentry_revalidate [fusetuned]",
}

#: A function of the kernel's that writes the attributes of an inode, which others read without its
#: lock. Our hook there changes only which time it writes to i_time.
_ATTRIBUTES = "fuse_change_attributes_common"

#: Planted mistakes, the checks that must find them, and what must be reported.
_FREED = Mistake(
    "open_request.c",
    "out_free:\n\tkfree(lookup->forget);\n",
    "out_free:\n\tkfree(lookup->forget);\n"
    "\tif (lookup->forget)\n\t\tlookup->forget->next = NULL;\n",
)
_LEAKED = Mistake("revalidate.c", "\tkfree(fc->tuned.notes);\n", "")
_COUNTED = Mistake(
    "statistics.c",
    "\treq->tuned_begin = ktime_get_ns();\n",
    "\tstatic u64 begun;\n\n\treq->tuned_begin = ktime_get_ns() + !++begun;\n",
)
FOUND = {
    "check_hostile_server": "KASAN: slab-use-after-free",
    _ALLOCATIONS: "KASAN: slab-use-after-free",
    _LEAKS: "unreferenced object",
}
_RACING = (
    *("check_atomic_open_at_once", "check_statistics_agree_with_the_server"),
    "check_hostile_server",
)

Machine = Callable[..., Results]


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Build the module, with any mistakes given, for a kind of kernel, once."""

    @cache
    def made(kind: str, *mistakes: Mistake) -> Path:
        directory = tmp_path_factory.mktemp(kind)
        Kernel(USERLAND, kind).module(directory, *mistakes)
        return directory

    return made


@pytest.fixture(scope="session")
def said(modules: Callable[..., Path]) -> Machine:
    """Return the results of some checks in a machine with a kind of kernel; run once."""

    @cache
    def run(kind: str, names: tuple[str, ...], *mistakes: Mistake) -> Results:
        return run_checks(Kernel(USERLAND, kind), modules(kind, *mistakes), *names)

    return run


def _entry(results: Results, name: str) -> dict[str, object]:
    assert name in results.checks, f"not reached; the machine said: {results.console[-4000:]}"
    return results.checks[name]


@pytest.mark.parametrize(
    ("machine", "name"),
    [(machine, name) for machine, names in CHECKS.items() for name in names],
)
def test_memory(machine: str, name: str, said: Machine, figure: Callable[[str], None]) -> None:
    """Nothing fails with KASAN, lockdep, UBSAN, kmemleak and allocations that fail."""
    entry = _entry(said("memory", CHECKS[machine]), name)
    assert not entry["failure"], entry["failure"]
    if name == _ALLOCATIONS:
        figure(str(entry["value"]))


@pytest.mark.parametrize(
    ("machine", "name"),
    [(machine, name) for machine, names in RACES.items() for name in names],
)
def test_races(
    machine: str,
    name: str,
    said: Machine,
    modules: Callable[..., Path],
    figure: Callable[[str], None],
) -> None:
    """KCSAN sees no race that involves one of our functions; others are the kernel's."""
    entry = _entry(said("races", RACES[machine]), name)
    assert not entry["failure"], entry["failure"]
    races: dict[str, str] = entry["races"]  # type: ignore[assignment]
    watched = functions(USERLAND.series, modules("races")) - {_ATTRIBUTES}
    ours = {
        race: report
        for race, report in races.items()
        if is_ours(race, watched) and race not in KERNELS
    }
    for race in races.keys() - ours.keys():
        figure(race)
    assert not ours, "\n".join(f"{race}\n{report}" for race, report in ours.items())


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_found(name: str, said: Machine) -> None:
    results = said("memory", tuple(FOUND), _FREED, _LEAKED)
    assert FOUND[name] in str(_entry(results, name)["failure"])


def test_a_planted_race_is_found(said: Machine, modules: Callable[..., Path]) -> None:
    """By at least one of the checks, because KCSAN watches only a few accesses."""
    results = said("races", _RACING, _COUNTED)
    watched = functions(USERLAND.series, modules("races", _COUNTED))
    races = [race for name in _RACING for race in dict(_entry(results, name)["races"])]  # type: ignore[call-overload]
    ours = [race for race in races if is_ours(race, watched)]
    assert any("tuned_request_begin" in race for race in ours), races
