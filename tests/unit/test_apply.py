# SPDX-License-Identifier: GPL-2.0-or-later
"""A set of knobs changes wholly or not at all, and reset returns to what was found.

Each write is journalled first and read back after. A write that the kernel refuses is an OSError
of write(2), which the tests raise in its place.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetune.changes.apply import drop_if_undone, enforce, make, plan, set_knobs
from fusetune.changes.journal import KEEPING, Journal, Record
from fusetune.changes.lock import Lock
from fusetune.changes.overrides import note_overrides, overrides
from fusetune.desired.reset import reset, reset_all
from fusetune.desired.results import save, saved_for
from fusetune.errors import FusetuneError
from fusetune.knobs import LIVE, SYSTEM, Knob
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from tests.unit.conftest import STOCK, Tree

KNOBS = {knob.name: knob for knob in (*LIVE, *SYSTEM)}
# As long as the defaults: a file of a tree, unlike sysfs, keeps what is not written over.
NEW = {
    "read_ahead_kb": 256,
    "max_background": 64,
    "congestion_threshold": 8,
    "max_ratio": 5,
    "strict_limit": 0,
}


def knobs(**values: int) -> dict[Knob, int]:
    return {KNOBS[name]: value for name, value in values.items()}


def refuse(tree: Tree, name: str, device: str = "/dev/full") -> Path:
    """Make a knob's file one that can be opened but takes no write; return it."""
    file = tree.root / KNOBS[name].file.format(
        bdi="0:40", control="sys/fs/fuse/connections", connection="40"
    )
    file.unlink()
    file.symlink_to(device)
    return file


def test_a_plan_names_what_would_change(tree: Tree, mounted: Mount) -> None:
    (change,) = plan(tree.host, mounted, knobs(max_ratio=5, strict_limit=1))
    assert (change.knob, change.old, change.new) == (KNOBS["max_ratio"], 1, 5)
    assert change.file == str(tree.root / "sys/class/bdi/0:40/max_ratio")
    assert tree.values() == STOCK
    assert not tree.host.state_dir.exists()


def test_a_plan_with_an_absent_knob(tree: Tree, mounted: Mount) -> None:
    bare = replace(mounted, connection=None)
    with pytest.raises(FusetuneError, match="max_background is absent: no connection under"):
        plan(tree.host, bare, knobs(max_background=5))


def test_set_and_reset_everything(tree: Tree, mounted: Mount) -> None:
    changes = set_knobs(tree.host, mounted, knobs(**NEW))
    assert {change.knob.name: change.new for change in changes} == NEW
    assert tree.values() == NEW
    assert Journal(tree.host, mounted).originals == STOCK
    undone = reset(tree.host, mounted)
    assert {change.knob.name: (change.old, change.new) for change in undone} == {
        name: (NEW[name], STOCK[name]) for name in NEW
    }
    assert tree.values() == STOCK
    assert tree.journals() == []
    assert reset(tree.host, mounted) == []


def test_nothing_to_change_writes_no_journal(tree: Tree, mounted: Mount) -> None:
    assert set_knobs(tree.host, mounted, knobs(max_ratio=1)) == []
    assert tree.journals() == []


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from(sorted(NEW)), st.integers(0, 1)), max_size=6))
def test_reset_goes_back_before_the_first_change(
    tmp_path_factory: pytest.TempPathFactory, steps: list[dict[str, int]]
) -> None:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    tree.mount("/mnt/one")
    tree.live(values={"strict_limit": 0, "max_background": 99})
    mount = tree.only()
    before = tree.values()
    choices = {name: (before[name], NEW[name]) for name in NEW}
    choices["strict_limit"] = (0, 1)
    for step in steps:
        wanted = {name: choices[name][which] for name, which in step.items()}
        set_knobs(tree.host, mount, knobs(**wanted))
        assert tree.values() == tree.values() | wanted
    if tree.values() == before:
        assert tree.journals() == []  # settled: nothing to undo
    reset(tree.host, mount)
    assert tree.values() == before
    assert tree.journals() == []


def test_values_set_by_hand_between_are_put_back_too(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(max_ratio=5))
    tree.live(values={"max_ratio": 7})
    set_knobs(tree.host, mounted, knobs(max_ratio=9))
    tree.live(values={"max_ratio": 8})
    reset(tree.host, mounted)
    assert tree.values()["max_ratio"] == 1


@pytest.mark.parametrize("position", range(len(NEW)))
def test_a_refused_write_undoes_those_before_it(
    tree: Tree, mounted: Mount, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = list(NEW)[position]
    real = type(tree.host).write
    written = []

    def write(host: object, relative: str, text: str, once_open: object) -> None:
        if relative.endswith(name) and text == str(NEW[name]):
            raise OSError(22, "Invalid argument")
        written.append(relative)
        real(tree.host, relative, text)

    monkeypatch.setattr(type(tree.host), "write", write)
    with pytest.raises(FusetuneError, match=rf"the kernel refused {name}={NEW[name]} in /sys/"):
        set_knobs(tree.host, mounted, knobs(**NEW))
    assert tree.values() == STOCK
    assert len(written) == 2 * position
    assert tree.journals() == []


def test_a_real_refusal_undoes_those_before_it(tree: Tree, mounted: Mount) -> None:
    """/dev/full reads as zero bytes, so only the write itself can be refused."""
    journal = Journal(tree.host, mounted)
    changes = plan(tree.host, mounted, knobs(**NEW))
    refuse(tree, "max_ratio")
    with pytest.raises(FusetuneError, match=r"refused max_ratio=5 .*: No space left on device"):
        make(tree.host, journal, changes, "set")
    Path(tree.root / "sys/class/bdi/0:40/max_ratio").unlink()
    tree.write("sys/class/bdi/0:40/max_ratio", "1\n")
    assert tree.values() == STOCK


def test_a_value_that_does_not_stick_is_undone(tree: Tree, mounted: Mount) -> None:
    tree.live(values={"max_ratio": 100})
    with pytest.raises(FusetuneError, match="max_ratio reads 500 after 5 was written to it"):
        set_knobs(tree.host, mounted, knobs(read_ahead_kb=256, max_ratio=5))
    assert tree.values() == STOCK | {"max_ratio": 100}
    assert tree.journals() == []


def test_where_undoing_fails_too_the_journal_remembers(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = type(tree.host).write

    def write(host: object, relative: str, text: str, once_open: object) -> None:
        if relative.endswith("read_ahead_kb") and text == "256":
            real(tree.host, relative, text)
            return
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(type(tree.host), "write", write)
        with pytest.raises(FusetuneError, match="refused max_ratio=5"):
            set_knobs(tree.host, mounted, knobs(read_ahead_kb=256, max_ratio=5))
    assert tree.values()["read_ahead_kb"] == 256
    assert Journal(tree.host, mounted).originals == {"read_ahead_kb": 128, "max_ratio": 1}
    reset(tree.host, mounted)
    assert tree.values() == STOCK


def test_a_mount_that_goes_away_meanwhile(tree: Tree, mounted: Mount) -> None:
    changes = plan(tree.host, mounted, knobs(read_ahead_kb=256, max_ratio=5))
    (tree.root / "sys/class/bdi/0:40/max_ratio").unlink()
    with pytest.raises(FusetuneError, match=r"^/mnt/one went away meanwhile: "):
        make(tree.host, Journal(tree.host, mounted), changes, "set")


def test_an_unwritable_journal_means_no_write(tree: Tree, mounted: Mount) -> None:
    (tree.host.state_dir / "undo" / "0:40.journal").mkdir(parents=True)
    with pytest.raises(FusetuneError, match="undo journal"):
        set_knobs(tree.host, mounted, knobs(**NEW))
    assert tree.values() == STOCK


def test_a_dry_run_writes_nothing(tree: Tree, mounted: Mount) -> None:
    changes = set_knobs(tree.host, mounted, knobs(**NEW), dry_run=True)
    assert {change.knob.name: change.new for change in changes} == NEW
    assert tree.values() == STOCK
    assert not tree.host.state_dir.exists()
    assert not tree.host.run_dir.exists()
    set_knobs(tree.host, mounted, knobs(**NEW))
    changes = reset(tree.host, mounted, dry_run=True)
    assert {change.knob.name: change.new for change in changes} == STOCK
    assert tree.values() == NEW


def test_policy_comes_before_everything(tree: Tree) -> None:
    tree.mount("/mnt/one", options="rw,user_id=1000,group_id=1000")
    tree.live(owner=1000)
    mount = tree.only()
    for dry_run in (True, False):
        with pytest.raises(FusetuneError, match="uid 1000"):
            set_knobs(tree.host, mount, knobs(read_ahead_kb=256, max_ratio=5), dry_run=dry_run)
    assert tree.values() == STOCK
    set_knobs(tree.host, mount, knobs(max_ratio=5), {1000})
    assert tree.values()["max_ratio"] == 5


@pytest.mark.parametrize("dry_run", [False, True])
def test_no_more_than_init_negotiated(tree: Tree, by_module: Mount, dry_run: bool) -> None:
    """Nor is another knob set with it."""
    wanted = knobs(read_ahead_kb=256, max_pages=257)
    with pytest.raises(FusetuneError, match="max_pages=257: INIT negotiated 256"):
        set_knobs(tree.host, by_module, wanted, dry_run=dry_run)
    assert not tree.host.state_dir.exists()
    assert tree.read("sys/class/bdi/0:41/read_ahead_kb") == "128\n"


def test_a_held_lock_means_no_write(tree: Tree, mounted: Mount) -> None:
    with Lock(tree.host, mounted):
        with pytest.raises(FusetuneError, match=r"another fusetune \(pid \d+\)"):
            set_knobs(tree.host, mounted, knobs(**NEW))
        with pytest.raises(FusetuneError, match=r"another fusetune \(pid \d+\)"):
            reset(tree.host, mounted)
    assert tree.values() == STOCK


def test_enforce_tries_every_knob(tree: Tree, mounted: Mount) -> None:
    tree.live(values=NEW)
    tree.write("sys/class/bdi/0:40/read_ahead_kb", "garbage\n")
    (tree.root / "sys/class/bdi/0:40/max_ratio").unlink()
    with pytest.raises(FusetuneError, match="read_ahead_kb holds 'garbage'"):
        enforce(tree.host, mounted, STOCK)
    tree.write("sys/class/bdi/0:40/read_ahead_kb", "128\n")
    tree.write("sys/class/bdi/0:40/max_ratio", "1\n")
    assert tree.values() == STOCK


def test_a_failed_reset_keeps_the_journal(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(**NEW))
    tree.write("sys/class/bdi/0:40/max_ratio", "garbage\n")
    with pytest.raises(FusetuneError, match="holds 'garbage'"):
        reset(tree.host, mounted)
    assert Journal(tree.host, mounted).originals == STOCK


def test_settle_keeps_a_journal_that_is_needed(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(max_ratio=5, strict_limit=0))
    set_knobs(tree.host, mounted, knobs(max_ratio=1))
    assert Journal(tree.host, mounted).originals == {"max_ratio": 1, "strict_limit": 1}
    tree.live(values={"strict_limit": 1})
    drop_if_undone(tree.host, Journal(tree.host, mounted), mounted)
    assert tree.journals() == []


def test_a_value_put_back_and_then_set_by_hand_is_the_administrators(
    tree: Tree, mounted: Mount
) -> None:
    set_knobs(tree.host, mounted, knobs(max_ratio=5, strict_limit=0))
    set_knobs(tree.host, mounted, knobs(max_ratio=1))
    tree.live(values={"max_ratio": 7, "strict_limit": 0})
    reset(tree.host, mounted)
    assert tree.values() == STOCK | {"max_ratio": 7}


def test_a_refused_way_back_is_not_forgotten(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal speaks of a write that was refused: the value before it still stands."""
    set_knobs(tree.host, mounted, knobs(max_ratio=5))

    def write(host: object, relative: str, text: str, once_open: object) -> None:
        raise OSError(22, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr(type(tree.host), "write", write)
        with pytest.raises(FusetuneError, match="refused max_ratio=1"):
            set_knobs(tree.host, mounted, knobs(max_ratio=1))
    assert tree.values()["max_ratio"] == 5
    reset(tree.host, mounted)
    assert tree.values() == STOCK


def test_a_way_back_that_a_crash_cut_short_is_not_forgotten(tree: Tree, mounted: Mount) -> None:
    """Journalled, but killed before the value was written."""
    set_knobs(tree.host, mounted, knobs(max_ratio=5))
    Journal(tree.host, mounted).append([Record("max_ratio", 5, 1, "set", 0.0)])
    reset(tree.host, mounted)
    assert tree.values() == STOCK


def test_reset_forgets_what_is_saved(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 5}, "auto", 1.5)
    reset(tree.host, mounted, dry_run=True)
    assert saved_for(tree.host, mounted)
    reset(tree.host, mounted)
    assert saved_for(tree.host, mounted) is None


@pytest.mark.parametrize("command", ["set", "reset"])
def test_what_is_known_to_be_the_administrators_stays_known(
    tree: Tree, mounted: Mount, command: str
) -> None:
    """What was put back is added to it: configuration is not to overrule either."""
    note_overrides(tree.host, mounted, {"read_ahead_kb": 512})
    change = plan(tree.host, mounted, knobs(max_ratio=5))
    make(tree.host, Journal(tree.host, mounted), change, KEEPING)
    if command == "set":
        set_knobs(tree.host, mounted, knobs(max_ratio=1))
    else:
        reset(tree.host, mounted)
    assert tree.journals() == []
    assert overrides(tree.host, mounted) == {"read_ahead_kb": 512, "max_ratio": 1}


def test_where_nothing_was_kept_nothing_is_noted(tree: Tree, mounted: Mount) -> None:
    for _ in range(2):
        set_knobs(tree.host, mounted, knobs(max_ratio=5))
        set_knobs(tree.host, mounted, knobs(max_ratio=1))
        reset(tree.host, mounted)
    assert overrides(tree.host, mounted) == {}


def test_while_something_is_to_undo_the_journal_tells_it(tree: Tree, mounted: Mount) -> None:
    wanted = plan(tree.host, mounted, knobs(max_ratio=5, max_background=64))
    make(tree.host, Journal(tree.host, mounted), wanted, KEEPING)
    set_knobs(tree.host, mounted, knobs(max_ratio=1))
    assert overrides(tree.host, mounted) == {}
    assert Journal(tree.host, mounted).originals["max_background"] == 12


def test_after_a_remount_or_reboot_old_values_are_not_written(tree: Tree, mounted: Mount) -> None:
    set_knobs(tree.host, mounted, knobs(max_ratio=5))
    assert mounted.instance is not None
    for host, mount in (
        (tree.host, replace(mounted, instance=mounted.instance + 1)),
        (tree.reboot(), mounted),
    ):
        assert reset(host, mount, dry_run=True) == []
        assert tree.values()["max_ratio"] == 5


def test_host_knobs(tree: Tree) -> None:
    tree.system()
    changes = set_knobs(tree.host, None, {KNOBS["fs.pipe-max-size"]: 1 << 21})
    assert [(change.mount, change.new) for change in changes] == [(None, 1 << 21)]
    assert tree.read("proc/sys/fs/pipe-max-size") == "2097152\n"
    reset(tree.host, None)
    assert tree.read("proc/sys/fs/pipe-max-size") == "1048576\n"


def two_mounts(tree: Tree) -> tuple[Mount, Mount]:
    tree.system()
    for number in (40, 41):
        tree.mount(f"/mnt/{number}", device=f"0:{number}")
        tree.live(bdi=f"0:{number}", connection=str(number))
    one, two = discover(tree.host)
    return one, two


def test_reset_all(tree: Tree) -> None:
    one, two = two_mounts(tree)
    set_knobs(tree.host, one, knobs(max_ratio=5))
    set_knobs(tree.host, two, knobs(max_ratio=6))
    set_knobs(tree.host, None, {KNOBS["fs.pipe-max-size"]: 1 << 21})
    save(tree.host, two, {"max_ratio": 6}, "auto", 1.5)
    save(tree.host, replace(two, path="/mnt/unmounted"), {"max_ratio": 6}, "auto", 1.5)
    gone = replace(two, bdi="0:99", device="0:99")
    Journal(tree.host, gone).append([])
    assert len(reset_all(tree.host, dry_run=True)) == 3
    assert len(tree.journals()) == 4
    assert len(reset_all(tree.host)) == 3
    assert tree.values() == STOCK
    assert tree.read("sys/class/bdi/0:41/max_ratio") == "1\n"
    assert tree.read("proc/sys/fs/pipe-max-size") == "1048576\n"
    assert tree.journals() == []
    assert list((tree.host.state_dir / "saved").iterdir()) == []


def test_reset_all_goes_on_after_a_failure(tree: Tree) -> None:
    one, two = two_mounts(tree)
    set_knobs(tree.host, one, knobs(max_ratio=5))
    set_knobs(tree.host, two, knobs(max_ratio=6))
    with (
        Lock(tree.host, one),
        pytest.raises(FusetuneError, match="working on /mnt/40"),
    ):
        reset_all(tree.host)
    assert tree.values()["max_ratio"] == 5
    assert tree.read("sys/class/bdi/0:41/max_ratio") == "1\n"
    assert Journal(tree.host, one).originals == {"max_ratio": 1}
