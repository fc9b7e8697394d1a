# SPDX-License-Identifier: GPL-2.0-or-later
"""history and explain on real mounts: a record of auto, set and reset that outlives the mount.

fio is a fake, so that auto takes no time; the values that auto writes to the kernel are real.
"""

import os
import signal
from pathlib import Path

from tests.native.conftest import sysfs_files, sysfs_values
from tests.native.made_up_fio import made_up_fio
from tests.native.mirror import Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires

pytestmark = requires("fio", "setpriv")

# The search ends long before the budget does, except on a busy host: each fio is a process.
_ALONE = ("-w", "seq-read", "--budget", "100", "--no-guard", "mmap-read", "--no-guard", "rand-read")


def _said(fusetune: Fusetune, point: Path, knob: str) -> list[str]:
    (one,) = fusetune.json("explain", point, knob)["knobs"]
    return list(one["sentences"])


def test_a_run_its_change_and_its_undoing(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    point = tmp_path / "mnt"
    with Mirror(tmpfs_dir, point) as mirror, made_up_fio(tmp_path, mirror) as environment:
        before = sysfs_values(mirror.bdi)["read_ahead_kb"]
        result = fusetune.json("auto", point, *_ALONE, environment=environment)
        after = sysfs_values(mirror.bdi)["read_ahead_kb"]
        assert after > before
        (run,) = fusetune.json("history", point)["entries"]
        assert (run["command"], run["workloads"]) == ("auto", ["seq-read"])
        assert {"knob": "read_ahead_kb", "old": before, "new": after} in run["changes"]
        assert run["gain_ratio"] == result["gain"]["ratio"]
        (curve,) = (one for one in result["curves"] if one["name"] == "read_ahead_kb")
        assert (curve["start"], curve["chosen"]) == (before, after)
        assert {before, after} <= {point["value"] for point in curve["points"]}
        said = _said(fusetune, point, "read_ahead_kb")
        assert said[0] == f"its value is {after} KiB; the kernel's default is 128"
        assert said[1].startswith("'fusetune auto' ")
        assert "gave seq-read " in said[1]
        assert said[2].startswith("it is saved for the next mount")
        assert f"measured seq-read: {before} -> {after}, " in said[3]

        mirror.suspend()  # nothing waits for the server
        try:
            fusetune.json("set", point, "read_ahead_kb=64")
            fusetune.json("reset", point)
            assert "changed it from 64" in _said(fusetune, point, "read_ahead_kb")[1]
        finally:
            os.kill(mirror.process.pid, signal.SIGCONT)
    entries = fusetune.json("history", point)["entries"]
    assert [entry["command"] for entry in entries] == ["auto", "set", "reset"]
    assert {"knob": "read_ahead_kb", "old": 64, "new": before} in entries[-1]["changes"]


def test_trials_are_no_changes(fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path) -> None:
    """If nothing is better, the run is recorded, but not the values that it only tried."""
    point = tmp_path / "mnt"
    with Mirror(tmpfs_dir, point) as mirror, made_up_fio(tmp_path, mirror) as environment:
        Path(sysfs_files(mirror.bdi)["read_ahead_kb"]).write_text("4096")
        fusetune.json("auto", point, *_ALONE, environment=environment, code=4)
        (run,) = fusetune.json("history", point)["entries"]
        assert (run["command"], run["changes"], run["gain_ratio"]) == ("auto", [], None)
        assert run["reasons"]
        said = _said(fusetune, point, "read_ahead_kb")
        assert said[1].startswith("fusetune did not set it")
        assert "measured seq-read: kept at 4096, " in said[-1]
