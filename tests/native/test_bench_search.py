# SPDX-License-Identifier: GPL-2.0-or-later
"""The search reaches its goals on simulated mounts; the bench fails if it does not."""

import pytest

from tests.bench import bench_search
from tests.bench.contenders import Run

#: One process makes the runs for all of them.
pytestmark = pytest.mark.xdist_group("search")


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """The search's runs, which take long; judging them takes no time."""
    return bench_search.measure_short()


@pytest.fixture
def measured(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_search, "measure_short", lambda: runs)


@pytest.mark.usefixtures("measured")
def test_the_search_reaches_what_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_search.main(["--short"]) == 0
    assert capsys.readouterr().out.count(" reached") == 3


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("name", ["WANTED_MEDIAN", "WANTED_BY_NOISE", "WANTED_FALSE"])
def test_what_is_not_reached_fails_the_bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    unreachable = (
        dict.fromkeys(bench_search.WANTED_BY_NOISE, -1.0) if name == "WANTED_BY_NOISE" else -1.0
    )
    monkeypatch.setattr(bench_search, name, unreachable)
    assert bench_search.main(["--short"]) == 1
    assert capsys.readouterr().out.count("NOT REACHED") == 1


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_search, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="apt install python3-optuna"):
        bench_search.main(["--runs", "1"])
