# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --live from its first trial to its last write, on a tree of files with simulated traffic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

import pytest

from fusetune.bench.worker import Interrupted, Interruption
from fusetune.changes.journal import Journal
from fusetune.changes.state import values_now
from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import saved_for
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.profile.waits import Mark
from fusetune.profile.waits_program import Kind
from fusetune.report.documents.auto import auto_result
from fusetune.tuner import auto_live as auto_live_module
from fusetune.tuner.auto import Outcome
from fusetune.tuner.auto_live import auto_live
from tests.unit.conftest import STOCK, Tree
from tests.unit.simulated_traffic import MIB, Setting, SimulatedTraffic, by_readahead


class Traffic(SimulatedTraffic):
    """Replaces `Waits`: the traffic depends on the values in the mount's files."""

    at_mark: Callable[[Traffic], None] = staticmethod(lambda traffic: None)
    ended: bool = False

    def __init__(self, host: Host, mount: Mount, check: Callable[[], None]) -> None:
        super().__init__(lambda setting, second: {Kind.READ: self.speed(setting)})
        self._host, self._mount = host, mount

    def speed(self, setting: Setting) -> float:
        return by_readahead(setting)

    def __enter__(self) -> Self:
        type(self).ended = False
        return self

    def __exit__(self, *exception: object) -> None:
        type(self).ended = True

    def next(self) -> Mark:
        self.at_mark(self)
        self.set(values_now(self._host, self._mount))
        return super().next()


@pytest.fixture(autouse=True)
def traffic(monkeypatch: pytest.MonkeyPatch, knob_files: None) -> type[Traffic]:
    """The test's own traffic instead of bpftrace."""

    class Own(Traffic):
        pass

    monkeypatch.setattr(auto_live_module, "Waits", Own)
    return Own


def run(tree: Tree, mount: Mount, seconds: float = 60) -> Outcome:
    return auto_live(Resolver(tree.host, load(tree.host)), mount, seconds)


def test_what_is_proven_is_set_and_saved(tree: Tree, mounted: Mount) -> None:
    outcome = run(tree, mounted)
    assert outcome.choice.changed
    assert outcome.before == STOCK
    assert outcome.after == tree.values()
    assert tree.values()["read_ahead_kb"] == 2048
    saved = saved_for(tree.host, mounted)
    assert saved
    assert saved.values["read_ahead_kb"] == 2048
    assert Journal(tree.host, mounted).originals["read_ahead_kb"] == STOCK["read_ahead_kb"]
    document = auto_result(outcome)
    assert document.source == "live"
    assert document.weights == {"read": 1.0}
    assert [(one.name, one.unit) for one in document.per_workload] == [("read", "bytes_per_second")]
    assert "blocks of traffic" in document.as_text(long=False)


def test_nothing_better_changes_nothing(
    tree: Tree, mounted: Mount, traffic: type[Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "speed", lambda self, setting: 10 * MIB)
    outcome = run(tree, mounted)
    assert len(outcome.trials) > 3
    assert not outcome.choice.changed
    assert outcome.after == outcome.before == STOCK == tree.values()
    assert saved_for(tree.host, mounted) is None
    assert not tree.journals()
    assert not auto_result(outcome).better


def test_every_value_is_journalled_before_it_is_set(
    tree: Tree, mounted: Mount, traffic: type[Traffic]
) -> None:
    def look(one: Traffic) -> None:
        changed = {n: v for n, v in tree.values().items() if v != STOCK[n]}
        if changed:
            originals: Mapping[str, int] = Journal(tree.host, mounted).originals
            assert {name: originals[name] for name in changed} == {n: STOCK[n] for n in changed}
            seen.append(changed)

    seen: list[dict[str, int]] = []
    traffic.at_mark = staticmethod(look)
    run(tree, mounted)
    assert seen


def test_the_threshold_follows_max_background(
    tree: Tree, mounted: Mount, traffic: type[Traffic]
) -> None:
    def look(one: Traffic) -> None:
        values = tree.values()
        assert values["congestion_threshold"] == values["max_background"] * 3 // 4
        seen.add(values["max_background"])

    seen: set[int] = set()
    traffic.at_mark = staticmethod(look)
    run(tree, mounted)
    assert len(seen) > 1


@pytest.mark.parametrize(("second", "ahead"), [(5.0, None), (15.0, 512), (55.0, 2048)])
def test_a_signal_puts_everything_back(
    tree: Tree,
    mounted: Mount,
    traffic: type[Traffic],
    monkeypatch: pytest.MonkeyPatch,
    second: float,
    ahead: int | None,
) -> None:
    runs: list[Interruption] = []
    enter = Interruption.__enter__

    def entered(self: Interruption) -> Interruption:
        runs.append(self)
        return enter(self)

    def stop(one: Traffic) -> None:
        runs[0].requested = one.elapsed > second

    monkeypatch.setattr(Interruption, "__enter__", entered)
    traffic.at_mark = staticmethod(stop)
    with pytest.raises(Interrupted, match="everything was restored; ") as raised:
        run(tree, mounted)
    if ahead:
        assert f"read_ahead_kb={ahead} " in str(raised.value)
    else:
        assert str(raised.value).endswith("nothing was proven to be better so far")
    assert tree.values() == STOCK
    assert not tree.journals()
    assert saved_for(tree.host, mounted) is None
    assert traffic.ended


def test_a_source_that_ends_puts_everything_back(
    tree: Tree, mounted: Mount, traffic: type[Traffic]
) -> None:
    def end(one: Traffic) -> None:
        if tree.values() != STOCK and one.elapsed > 20:
            raise FusetuneError("bpftrace ended: no output")

    traffic.at_mark = staticmethod(end)
    with pytest.raises(FusetuneError, match="bpftrace ended"):
        run(tree, mounted)
    assert tree.values() == STOCK
    assert not tree.journals()
    assert traffic.ended


def test_what_the_configuration_leaves_alone_is_not_watched(
    tree: Tree, mounted: Mount, traffic: type[Traffic]
) -> None:
    tree.write("etc/fusetune.toml", '[[mount]]\npath = "/mnt/one"\nleave_alone = true\n')
    traffic.ended = False
    with pytest.raises(FusetuneError, match="/mnt/one is left alone"):
        run(tree, mounted)
    assert not traffic.ended
