# SPDX-License-Identifier: GPL-2.0-or-later
"""libfuse/own_tests.sh distinguishes faults of the tuned library from timing-dependent tests."""

import subprocess
from pathlib import Path

import pytest

from tests.native.mirror import CHECKOUT

#: Each test fails in the runs given by its digits, with the library of its first or second row.
_TESTS = """
import os
from pathlib import Path

import pytest

ROWS = {rows!r}


@pytest.mark.parametrize("name", ROWS)
def test_one(name):
    row = int("LD_LIBRARY_PATH" in os.environ)
    runs = Path(__file__).with_name(f"{{name}}.{{row}}")
    run = len(runs.read_text()) if runs.exists() else 0
    runs.write_text("." * (run + 1))
    assert ROWS[name][row][run] == "."
"""
_BY_TIMING = {
    "steady": (".", ""),
    "once": ("F....", "...."),
    "at-first-as-if-ours": ("FFFFF", ".F..."),
    "late-as-if-ours": ("FFFFF", "...F"),
    "nowhere": ("FFFFF", "FFFF"),
}


def _own_tests(root: Path, rows: dict[str, tuple[str, str]]) -> subprocess.CompletedProcess[str]:
    (root / "test").mkdir()
    (root / "test" / "test_examples.py").write_text(_TESTS.format(rows=rows))
    return subprocess.run(
        [CHECKOUT / "libfuse" / "own_tests.sh", root, root, root / "stock"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_what_the_distributions_library_fails_too_is_no_fault(tmp_path: Path) -> None:
    ended = _own_tests(tmp_path, _BY_TIMING)
    assert ended.returncode == 0, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert [name in last for name in _BY_TIMING] == [False, True, True, True, True]


@pytest.mark.slow
def test_what_only_the_tuned_library_fails_is_an_error(tmp_path: Path) -> None:
    ended = _own_tests(tmp_path, {**_BY_TIMING, "ours": ("FFFFF", "....")})
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "test_one[ours];" in last
    assert not any(f"test_one[{name}]" in last for name in _BY_TIMING)
