# SPDX-License-Identifier: GPL-2.0-or-later
"""Writers of one shared file compared with writers of one file each; for tests/bench."""

import json
from functools import partial
from typing import Any

from tests.kernel.guest.rig import SOURCE, count, fresh_source, load, run, stock, tuned
from tests.native.mirror import Mirror

WRITERS = (1, 2, 4, 8, 16, 32)
ROUNDS = 5
_BLOCKS = 128


def _seconds(mirror: Mirror, writers: int, shared: bool) -> float:
    """Let each of ``writers`` extend a file by 128 blocks of 4 KiB; return how long that took."""
    job = ["--name=extend", "--rw=write", "--bs=4k", f"--size={_BLOCKS * 4}k", "--thread"]
    job += [f"--numjobs={writers}", "--fallocate=none", "--group_reporting", "--unlink=1"]
    if shared:
        job += [f"--filename={mirror.mountpoint}/shared", f"--offset_increment={_BLOCKS * 4}k"]
    else:
        job += [f"--directory={mirror.mountpoint}"]
    mirror.reset_counters()
    said = run("fio", "--output-format=json", *job)
    report: dict[str, Any] = json.loads(said.stdout[said.stdout.index("{") :])
    assert count(mirror, "WRITE") == writers * _BLOCKS
    # Only the writes have extended the file.
    assert count(mirror, "SETATTR") == 0
    return float(report["jobs"][0]["write"]["runtime"]) / 1000


def measure_shared_file() -> list[dict[str, Any]]:
    """Return for each mount and number of writers the ratios of speed, and the most in flight."""
    load()
    found = []
    for name, mounting in (
        ("stock", stock),
        ("parallel_extend", partial(tuned, mount="parallel_extend")),
    ):
        fresh_source()
        with mounting("direct_io", "write_delay=1ms", "no_xattr") as mirror:
            for writers in WRITERS:
                ratios, most = [], 0
                for number in range(ROUNDS):
                    seconds = {}
                    for one in (False, True) if number % 2 else (True, False):
                        seconds[one] = _seconds(mirror, writers, shared=one)
                        if one:
                            most = max(most, count(mirror, "WRITE", "most_in_flight"))
                    ratios.append(seconds[False] / seconds[True])
                found.append(
                    {"mount": name, "writers": writers, "ratios": ratios, "in_flight": most}
                )
        assert not list(SOURCE.iterdir())
    return found
