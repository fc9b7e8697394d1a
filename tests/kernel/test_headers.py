# SPDX-License-Identifier: GPL-2.0-or-later
"""DKMS builds the module with the headers of every kernel in the archive."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.by_suite import by_suite
from tests.kernel.headers import build, series_of
from tests.kernel.suites import SUITES, WHOLE, Suite


@by_suite(WHOLE, seldom=("bookworm", "sid"))
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_builds_on_the_archives_headers(
    suite: Suite,
    every: bool,
    modules: dict[str, Path],
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    """For each point release and flavour that a host may run; a new series is skipped."""
    supported = {suite.series for suite in SUITES}
    states: dict[str, str] = {}
    said = build(suite, modules["fusetuned"], tmp_path, every=every)
    for line in said:
        if line.startswith("="):
            state, release = line[1:].split()
            states[release] = state
            figure(f"{release}: {state}")
    wanted = {
        release: "built" if series_of(release) in supported else "skipped" for release in states
    }
    assert states == wanted, "\n".join(said)
    assert [release for release in states if series_of(release) == suite.series]
    assert [release for release in states if release.endswith("-rt-amd64")]
