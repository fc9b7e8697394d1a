# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmark of the search's constants varies each of them and restores it."""

import pytest

from fusetune.tuner import constants
from tests.bench import constants as bench
from tests.bench.bench_search import HILLS


def test_every_constant_that_chooses_has_alternatives() -> None:
    """NO_EFFECT only affects the wording."""
    named = {name for name in vars(constants) if name.isupper()}
    assert named - {"NO_EFFECT"} <= set(bench.ALTERNATIVES)
    for name, values in bench.ALTERNATIVES.items():
        assert bench.present(name) not in values


@pytest.mark.parametrize("name", bench.ALTERNATIVES)
def test_a_constant_is_set_and_put_back(name: str) -> None:
    before = bench.present(name)
    with bench.set_to(name, 12345.0):
        assert bench.present(name) == 12345.0
    assert bench.present(name) == before


@pytest.mark.slow
def test_a_value_that_matters_is_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing may be explored, hardly anything is measured."""
    monkeypatch.setattr(bench, "NOISES", (0.02,))
    monkeypatch.setattr(bench, "HILLS", HILLS[:1])
    monkeypatch.setattr(bench, "ALTERNATIVES", {"MOST_EXPLORED": (0,)})
    assert bench.main(["--runs", "2", "--flat", "1"]) == 0
    *_, now, other = capsys.readouterr().out.splitlines()
    assert now.split("|")[5].strip() == "1.00"
    assert float(other.split("|")[5]) < 0.9
