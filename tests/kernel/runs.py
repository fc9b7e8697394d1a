# SPDX-License-Identifier: GPL-2.0-or-later
"""Which checks of guest/ run on which kernel, for each change and by ``make test-long``."""

from dataclasses import dataclass

from tests.kernel.guest.__main__ import checks
from tests.kernel.suites import SUITES, USERLAND, Suite

#: Poison and red zones in the slabs, with users tracked; and KFENCE samples.
WATCHED = "slub_debug=FZPU kfence.sample_interval=20"
#: Possible CPUs, so that per-CPU allocations show; Linux 6.1 has this parameter.
ROOMY = "possible_cpus=128"
MEMORY_CHECK = "check_statistics_take_memory_when_they_are_read"
#: Checks that take long with memory debugging, and test no more of the module's memory than others.
_LONG = {
    "check_atomic_open_is_one_request",
    "check_atomic_open_at_once",
    "check_atomic_open_gives_what_stock_gives",
    "check_atomic_open_keeps_no_notes_of_failed_opens",
    "check_pjdfstest",
    "check_pages_a_request_by_parameter",
    "check_max_pages_in_a_user_namespace",
    "check_statistics_go_with_their_connection",
    "check_statistics_agree_while_requests_end",
}
#: Checks that only ``make test-long`` runs, on each kernel.
SELDOM = (
    "check_atomic_open_gives_what_stock_gives_by_other_timeouts",
    "check_data_with_a_writeback_cache_of_the_servers",
    # With other numbers of writers than check_f2fs_threshold.
    "check_f2fs_keeps_a_writes_blocks_together",
    "check_forced_data_of_pjdfstest",
    "check_library_atomic_open_gives_what_stock_gives",
    "check_library_atomic_open_sanitized",
    # Most checks load the module and unload it.
    "check_rounds",
    # Its programs take minutes to build.
    "check_seaweedfs",
    "check_tool_tries_options_of_the_module",
)
WATCHED_CHECKS = tuple(
    name
    for name in checks()
    if name not in {*_LONG, *SELDOM}
    and not any(part in name for part in ("f2fs", "interception", "library", "servers", "tool"))
)
#: On series other than the userland's, each change is tested only with these, at least one for each
#: hook; ``make test-long`` runs the others.
BRIEF = (
    "check_loads_beside_stock",
    "check_carries_data",
    "check_behaves_as_stock_without_options",
    "check_max_pages_of_a_mount",
    "check_max_pages_file",
    "check_what_init_negotiated",
    "check_no_file_caps",
    "check_parallel_direct_writes",
    "check_append_behind_write",
    "check_failed_asynchronous_write",
    "check_direct_writes_wait_for_writeback",
    "check_forced_options_show",
    "check_big_writes",
    "check_timeouts",
    "check_keep_cache",
    "check_no_xattr_and_no_access",
    "check_requests_at_once",
    "check_forced_limits",
    "check_writeback_cache_gathers_writes",
    "check_writeback_cache_of_what_the_server_lets_nobody_read",
    "check_statistics_agree_with_the_server",
    "check_atomic_open_is_one_request",
    "check_atomic_open_with_passthrough",
    "check_parallel_passthrough_writes",
    "check_f2fs_threshold",
    "check_f2fs_data",
    # Where series have different code, and what must never fail.
    "check_user_namespaces_may_not_mount",
    "check_interception_of_long_sources",
    "check_killed_server",
    "check_hostile_server",
    "check_extending_writers",
    "check_truncate_waits_for_extending_writes",
    "check_tool_profiles_the_kernels_own",
)


@dataclass(frozen=True)
class Run:
    """What a machine runs: a suite's kernel, the checks, and extra kernel parameters."""

    suite: Suite
    checks: tuple[str, ...]
    parameters: str = ""


def _runs() -> dict[str, Run]:
    """Return the machines by name; those that end in "repeating" are for ``make test-long``.

    On one series, every check that can bear it runs with memory debugging.
    """
    runs = {
        f"{USERLAND.series} watched": Run(
            USERLAND, (*WATCHED_CHECKS, "check_slabs_are_watched_and_sound"), WATCHED
        ),
        USERLAND.series: Run(
            USERLAND, tuple(name for name in checks() if name not in {*WATCHED_CHECKS, *SELDOM})
        ),
        f"{USERLAND.series} repeating": Run(USERLAND, SELDOM),
    }
    for suite in (suite for suite in SUITES if suite != USERLAND):
        others = tuple(name for name in checks() if name not in BRIEF)
        runs[suite.series] = Run(suite, BRIEF)
        runs[f"{suite.series} repeating"] = Run(suite, others)
    # A mount takes no memory for statistics of absent processors.
    runs["6.1 roomy"] = Run(SUITES[0], (MEMORY_CHECK,), ROOMY)
    return runs


RUNS = _runs()
