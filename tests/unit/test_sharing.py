# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount without its own values gets those of a similar volume, if that is allowed."""

from dataclasses import replace
from pathlib import Path

import pytest

from fusetune.bench.intervals import Interval
from fusetune.changes.apply import set_knobs
from fusetune.changes.journal import Journal
from fusetune.changes.state import values_now
from fusetune.desired import results
from fusetune.desired.config import load
from fusetune.desired.history import history_of
from fusetune.desired.persist import save_now
from fusetune.desired.reconcile import reconcile
from fusetune.desired.resolve import Expected, Resolver
from fusetune.desired.results import Saved, save, saved_path, store
from fusetune.desired.sharing import SharedResults
from fusetune.desired.volume import Volume
from fusetune.knobs import LIVE_BY_NAME
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.report.documents.expected import origin_of
from fusetune.tuner.values import Values
from tests.unit.conftest import Tree, process

PODS = "/var/lib/kubelet/pods"
VOLUME = Volume("fuse.mirrorfs", "mirrorfs", None, "6.12", 0, (), "bucket-7")


def saved(path: str, value: int, time: float = 1.0, volume: Volume | None = VOLUME) -> Saved:
    values = {"read_ahead_kb": value}
    return Saved(path, "fuse.mirrorfs", "bucket-7", values, "auto", time, volume=volume)


@pytest.fixture
def pod(tree: Tree) -> Mount:
    """A mount of a pod, served by mirrorfs."""
    tree.write("proc/sys/kernel/osrelease", "6.12.9-amd64\n")
    tree.mount(f"{PODS}/2/volumes/x/mount", source="bucket-7")
    tree.live()
    process(tree, 7, "mirrorfs", fds={3: "40"})
    return tree.only()


def expected(tree: Tree, mount: Mount) -> Expected | None:
    return Resolver(tree.host, load(tree.host)).expected(mount).get("read_ahead_kb")


def test_a_new_pod_gets_what_an_earlier_one_was_tuned_to(tree: Tree, pod: Mount) -> None:
    assert expected(tree, pod) is None
    store(tree.host, saved(f"{PODS}/1/volumes/x/mount", 4096))
    found = expected(tree, pod)
    assert found
    assert found.shared
    assert (found.value, found.refused) == (4096, None)
    origin = origin_of(found)
    assert (origin.shared_by, origin.others_as_like) == (f"{PODS}/1/volumes/x/mount", 0)
    assert str(origin).startswith(f"shared by {PODS}/1/volumes/x/mount: {tree.host.state_dir}")
    reconcile(Resolver(tree.host, load(tree.host)), pod)
    assert tree.values()["read_ahead_kb"] == 4096
    (entry,) = history_of(tree.host, pod).entries
    assert entry.reasons[0].startswith(f"shared by {PODS}/1/volumes/x/mount: ")


def test_own_values_come_first_and_are_not_mixed(tree: Tree, pod: Mount) -> None:
    store(tree.host, saved(f"{PODS}/1/volumes/x/mount", 4096, 9e9))
    save(tree.host, pod, {"max_background": 20}, "save")
    found = Resolver(tree.host, load(tree.host)).expected(pod)
    assert {name: one.value for name, one in found.items()} == {"max_background": 20}


def test_so_does_the_administrators_section(tree: Tree, pod: Mount) -> None:
    store(tree.host, saved(f"{PODS}/1/volumes/x/mount", 4096))
    tree.write("etc/fusetune.toml", '[[mount]]\nsource = "bucket-*"\nmax_background = 20\n')
    found = Resolver(tree.host, load(tree.host)).expected(pod)
    assert {name: one.value for name, one in found.items()} == {"max_background": 20}
    assert all(one.shared is None for one in found.values())


@pytest.mark.parametrize(("patterns", "shares"), [("[]", False), ('["/srv/*"]', True)])
def test_it_is_for_the_administrator_to_say_where(tree: Tree, patterns: str, shares: bool) -> None:
    tree.write("proc/sys/kernel/osrelease", "6.12.9-amd64\n")
    tree.mount("/srv/x", source="bucket-7")
    tree.live()
    process(tree, 7, "mirrorfs", fds={3: "40"})
    store(tree.host, saved("/elsewhere", 4096))
    assert expected(tree, tree.only()) is None, "shared outside the kubelet's directory by default"
    tree.write("etc/fusetune.toml", f"[policy]\nshare_results = {patterns}\n")
    assert (expected(tree, tree.only()) is not None) == shares


def test_where_the_defaults_were_found_best_nothing_is_shared(tree: Tree, pod: Mount) -> None:
    store(tree.host, saved(f"{PODS}/1/volumes/x/mount", 4096))
    save(tree.host, pod, {}, "auto", 1.1, (1.05, 1.2))
    assert expected(tree, pod) is None
    tree.mount(f"{PODS}/3/volumes/x/mount", device="0:41", source="bucket-7")
    tree.live("0:41", "41")
    process(tree, 8, "mirrorfs", fds={3: "41"})
    third = next(one for one in discover(tree.host) if one.device == "0:41")
    assert expected(tree, third) is None, "the newest result says so of the volume"


def test_a_users_mount_gets_no_more_dirty_memory_by_it(tree: Tree, pod: Mount) -> None:
    mine = replace(saved("/elsewhere", 4096), values={"max_ratio": 70})
    assert mine.volume
    store(tree.host, replace(mine, volume=replace(mine.volume, owner_uid=1000)))
    user = replace(pod, owner_uid=1000)
    found = Resolver(tree.host, load(tree.host)).expected(user)["max_ratio"]
    assert found.refused
    assert "allow_users" in found.refused


def test_what_is_saved_tells_the_volume(tree: Tree, pod: Mount) -> None:
    save(tree.host, pod, {"read_ahead_kb": 512}, "save")
    found = results.saved_for(tree.host, pod)
    assert found
    assert found.volume == VOLUME


def test_of_equals_the_newest_counts_and_others_are_told(tree: Tree, pod: Mount) -> None:
    for number, time in enumerate((2.0, 3.0, 1.0)):
        store(tree.host, saved(f"{PODS}/old{number}", 1024 << number, time))
    found = expected(tree, pod)
    assert found
    assert found.shared
    assert (found.value, found.shared.others) == (2048, 2)
    assert "the newest of 3 equally similar ones" in str(origin_of(found))


def test_of_equals_the_same_version_comes_first(tree: Tree) -> None:
    for number in (1, 2):
        volume = replace(VOLUME, version=f"{number}.0")
        store(tree.host, saved(f"/old{number}.0", 1024 * number, float(number), volume))
    asked: list[str] = []

    def version() -> str:
        asked.append("")
        return "1.0"

    found = SharedResults(tree.host).best(VOLUME, version)
    assert found
    assert (found.saved.path, found.others, len(asked)) == ("/old1.0", 0, 1)


def test_a_result_that_is_added_or_removed_counts_at_once(tree: Tree) -> None:
    shared = SharedResults(tree.host)
    assert shared.best(VOLUME, lambda: None) is None
    store(tree.host, saved("/old", 1024))
    assert shared.best(VOLUME, lambda: None)
    saved_path(tree.host, saved("/old", 1024)).unlink()
    assert shared.best(VOLUME, lambda: None) is None


def test_a_damaged_result_and_one_of_an_earlier_version_are_no_hindrance(tree: Tree) -> None:
    store(tree.host, saved("/known", 1024))
    store(tree.host, saved("/unknown", 2048, 9.0, None))
    damaged = saved_path(tree.host, saved("/damaged", 1))
    Path(damaged).write_text('{"schema": 4, "volume": {"fstype": 3}}')
    found = SharedResults(tree.host).best(VOLUME, lambda: None)
    assert found
    assert found.saved.path == "/known"


def test_results_are_read_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        volume = replace(VOLUME, source=f"bucket-{number}")
        store(tree.host, saved(f"/old{number}", 1024, volume=volume))
    shared = SharedResults(tree.host)
    assert shared.best(VOLUME, lambda: None)
    monkeypatch.setattr(results, "_read", None)  # nothing is read again
    assert shared.best(VOLUME, lambda: None)


@pytest.mark.usefixtures("knob_files")
def test_auto_saves_that_the_defaults_are_best(tree: Tree, mounted: Mount) -> None:
    tree.live()
    set_knobs(tree.host, mounted, {LIVE_BY_NAME["read_ahead_kb"]: 4096})
    before = values_now(tree.host, mounted)
    values = Values(tree.host, mounted, before, Journal.to_change(tree.host, mounted))
    values.keep({**before, "read_ahead_kb": 128}, Interval(1.1, 1.05, 1.2))
    found = results.saved_for(tree.host, mounted)
    assert found
    assert (found.values, found.gain) == ({}, 1.1)


@pytest.mark.usefixtures("knob_files")
@pytest.mark.parametrize("by", ["auto", "save"])
def test_a_default_that_the_server_changed_is_saved(tree: Tree, mounted: Mount, by: str) -> None:
    """Later mounts would get the server's value again."""
    tree.live(values={"read_ahead_kb": 4096})
    before = values_now(tree.host, mounted)
    values = Values(tree.host, mounted, before, Journal.to_change(tree.host, mounted))
    if by == "auto":
        values.keep({**before, "read_ahead_kb": 128}, Interval(1.1, 1.05, 1.2))
    else:
        values.set({"read_ahead_kb": 128}, "set")
        save_now(tree.host, mounted, admin=False, dry_run=False)
    found = results.saved_for(tree.host, mounted)
    assert found
    assert (found.by, found.values) == (by, {"read_ahead_kb": 128})
