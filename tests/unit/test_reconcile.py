# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount gets the values that policy allows, and keeps those that somebody else has set since.

It stands on the journal: a value that was written last to keep it is fusetune's. /proc/PID/fdinfo
names a server's connection on kernels that tell it (fs/fuse/dev.c, fuse_dev_show_fdinfo()).
"""

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from fusetune.bench.worker import Owner
from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.apply import set_knobs
from fusetune.changes.journal import KEEPING, Journal, Record
from fusetune.changes.lock import Busy, Lock
from fusetune.changes.overrides import overrides
from fusetune.desired.config import load
from fusetune.desired.reconcile import Reconciled, reconcile, reconcile_all
from fusetune.desired.reset import reset
from fusetune.desired.resolve import Resolver, bounds_of_set
from fusetune.desired.results import Unusable, save, saved_path
from fusetune.errors import FusetuneError
from fusetune.knobs import LIVE
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.toml.file import ConfigError
from fusetune.tuner.auto import preview
from tests.unit.conftest import STOCK, Tree, process

KNOBS = {knob.name: knob for knob in LIVE}
BOTH = "[[mount]]\nmax_ratio = 20\nmax_background = 64\n"
NOW = STOCK | {"max_ratio": 20, "max_background": 64}
OWNED = "rw,user_id=1000,group_id=1000"


def resolver(tree: Tree, text: str | None = None) -> Resolver:
    """Return a new one, as of a new process."""
    if text is not None:
        tree.write("etc/fusetune.toml", text)
    return Resolver(tree.host, load(tree.host))


def made(kept: Reconciled) -> dict[str, int]:
    return {change.knob.name: change.new for change in kept.changes}


def by_hand(tree: Tree, name: str, value: int) -> None:
    tree.live(values=tree.values() | {name: value})


def die(tree: Tree) -> None:
    """Leave a lock as one does that is killed."""
    tree.write("run/0:40.lock", "4242")


# What is set


def test_what_is_kept_is_set_once_and_journalled(tree: Tree, mounted: Mount) -> None:
    assert made(reconcile(resolver(tree, BOTH), mounted)) == {"max_ratio": 20, "max_background": 64}
    assert tree.values() == NOW
    records = Journal(tree.host, mounted).records
    assert [(r.knob, r.new, r.why) for r in records] == [
        ("max_background", 64, KEEPING),
        ("max_ratio", 20, KEEPING),
    ]
    assert reconcile(resolver(tree), mounted) == Reconciled()
    assert Journal(tree.host, mounted).records == records
    assert list(tree.host.run_dir.iterdir()) == []
    reset(tree.host, mounted, dry_run=True)


def test_a_journal_that_has_nothing_to_undo_is_removed(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_background = 64\n"), mounted)
    assert len(tree.journals()) == 1
    back = reconcile(resolver(tree, "[[mount]]\nmax_background = 12\n"), mounted)
    assert made(back) == {"max_background": 12}
    assert tree.journals() == []


def test_nothing_kept_touches_nothing(tree: Tree, mounted: Mount) -> None:
    assert reconcile(resolver(tree, ""), mounted) == Reconciled()
    assert not tree.host.run_dir.exists()
    assert not tree.host.state_dir.exists()


def test_a_dry_run_tells_and_writes_nothing(tree: Tree, mounted: Mount) -> None:
    assert made(reconcile(resolver(tree, BOTH), mounted, dry_run=True)) == {
        "max_ratio": 20,
        "max_background": 64,
    }
    assert tree.values() == STOCK
    assert not tree.host.run_dir.exists()
    assert not tree.host.state_dir.exists()


def test_a_knob_that_is_absent_hinders_no_other(tree: Tree) -> None:
    tree.mount("/mnt/one")
    tree.live(connection=None)
    text = "[[mount]]\nread_ahead_kb = 4096\nmax_background = 64\n"
    assert made(reconcile(resolver(tree, text), tree.only())) == {"read_ahead_kb": 4096}


def test_one_that_is_at_work_is_not_disturbed(tree: Tree, mounted: Mount) -> None:
    with Lock(tree.host, mounted), pytest.raises(Busy):
        reconcile(resolver(tree, BOTH), mounted)
    assert tree.values() == STOCK


def test_a_saved_result_that_cannot_be_read_stops_the_mount(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 5}, "auto")
    saved_path(tree.host, mounted).write_text("garbage")
    with pytest.raises(Unusable):
        reconcile(resolver(tree, BOTH), mounted)
    assert tree.values() == STOCK


def test_a_saved_result_that_cannot_be_read_does_not_hinder_a_new_one(
    tree: Tree, mounted: Mount
) -> None:
    saved_path(tree.host, mounted).parent.mkdir(parents=True)
    saved_path(tree.host, mounted).write_text("garbage")
    assert preview(resolver(tree, BOTH), mounted, [WORKLOADS["mixed"]])
    assert resolver(tree, BOTH).left_alone_reason(mounted) is None


def test_all_are_tried_before_the_first_failure_is_told(tree: Tree, mounted: Mount) -> None:
    tree.mount("/mnt/two", device="0:41")
    tree.live(bdi="0:41", connection="41")
    save(tree.host, mounted, {"max_ratio": 5}, "auto")
    saved_path(tree.host, mounted).write_text("garbage")
    told: list[str] = []
    with pytest.raises(Unusable):
        reconcile_all(
            resolver(tree, BOTH),
            discover(tree.host),
            dry_run=False,
            tell=lambda mount, kept: told.append(mount.path),
        )
    assert told == ["/mnt/two"]
    assert tree.values() == STOCK
    assert tree.read("sys/class/bdi/0:41/max_ratio").strip() == "20"


# What is left alone


def test_what_was_found_before_anything_was_kept_is_overwritten(tree: Tree, mounted: Mount) -> None:
    by_hand(tree, "max_ratio", 7)
    assert made(reconcile(resolver(tree, BOTH), mounted)) == {"max_ratio": 20, "max_background": 64}


def test_ours_moves_with_the_configuration(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, BOTH), mounted)
    assert made(reconcile(resolver(tree, BOTH.replace("20", "30")), mounted)) == {"max_ratio": 30}


@pytest.mark.parametrize("value", [7, 1])
def test_what_was_set_by_hand_since_is_left_alone_and_told_once(
    tree: Tree, mounted: Mount, value: int
) -> None:
    """Also where it is the value found before ours, and so nothing is left to undo."""
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 20\n"), mounted)
    by_hand(tree, "max_ratio", value)
    assert reconcile(resolver(tree), mounted) == Reconciled([], {"max_ratio": value})
    for _ in range(2):
        assert reconcile(resolver(tree), mounted) == Reconciled()
    assert tree.values()["max_ratio"] == value
    by_hand(tree, "max_ratio", 9)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 9}
    assert reconcile(resolver(tree), mounted).overridden == {}


def test_what_is_not_left_alone_is_still_set(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 20\n"), mounted)
    by_hand(tree, "max_ratio", 7)
    kept = reconcile(resolver(tree, BOTH), mounted)
    assert (made(kept), kept.overridden) == ({"max_background": 64}, {"max_ratio": 7})


def test_apply_does_not_ask_whose_it_is(tree: Tree, mounted: Mount) -> None:
    """And then it is ours again."""
    reconcile(resolver(tree, BOTH), mounted)
    by_hand(tree, "max_ratio", 7)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 7}
    assert made(reconcile(resolver(tree), mounted, respect=False)) == {"max_ratio": 20}
    assert overrides(tree.host, mounted) == {}
    assert made(reconcile(resolver(tree, BOTH.replace("20", "30")), mounted)) == {"max_ratio": 30}


@pytest.mark.parametrize("value", [7, 1])
def test_what_was_set_by_command_is_left_alone(tree: Tree, mounted: Mount, value: int) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 5\n"), mounted)
    set_knobs(tree.host, mounted, {KNOBS["max_ratio"]: value})
    reconcile(resolver(tree), mounted)
    assert tree.values()["max_ratio"] == value


def test_what_was_reset_is_left_alone(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 5\n"), mounted)
    reset(tree.host, mounted)
    assert tree.values() == STOCK
    assert reconcile(resolver(tree), mounted) == Reconciled()
    assert tree.values() == STOCK


def test_a_killed_one_is_finished_by_the_next(tree: Tree, mounted: Mount) -> None:
    """Journalled and not yet written: without the lock left behind it looks set by hand."""
    Journal(tree.host, mounted).append(
        [Record("max_ratio", 1, 20, KEEPING, 0.0), Record("max_background", 12, 64, KEEPING, 0.0)]
    )
    by_hand(tree, "max_background", 64)
    die(tree)
    assert made(reconcile(resolver(tree, BOTH), mounted)) == {"max_ratio": 20}
    assert tree.values() == NOW


def test_one_killed_after_its_work_excuses_nothing_later(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, BOTH), mounted)
    die(tree)
    assert reconcile(resolver(tree), mounted) == Reconciled()
    by_hand(tree, "max_ratio", 7)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 7}
    assert tree.values()["max_ratio"] == 7


def test_what_the_answer_to_init_overwrote_is_set_again(tree: Tree, mounted: Mount) -> None:
    reconcile(resolver(tree, BOTH), mounted)
    by_hand(tree, "max_background", 30)
    assert made(reconcile(resolver(tree), mounted, since_init=True)) == {"max_background": 64}
    by_hand(tree, "max_ratio", 7)
    assert reconcile(resolver(tree), mounted).overridden == {"max_ratio": 7}
    by_hand(tree, "max_background", 30)
    assert made(reconcile(resolver(tree), mounted, since_init=True)) == {"max_background": 64}
    assert tree.values()["max_ratio"] == 7


def test_a_section_may_say_leave_alone(tree: Tree, mounted: Mount) -> None:
    with_all = "[[mount]]\npath = '/mnt/*'\nleave_alone = true\nmax_ratio = 20\n"
    one = resolver(tree, with_all)
    assert one.left_alone_reason(mounted) == f"{tree.root}/etc/fusetune.toml:3 says leave_alone"
    assert (one.expected(mounted), reconcile(one, mounted)) == ({}, Reconciled())
    but_one = with_all + "[[mount]]\npath = '/mnt/one'\nleave_alone = false\n"
    assert resolver(tree, but_one).left_alone_reason(mounted) is None
    assert made(reconcile(resolver(tree), mounted)) == {"max_ratio": 20}


# Policy


@pytest.mark.parametrize("fstype", ["fuse.lxcfs", "fuse.rclone", "fuse.rclone2"])
def test_excluded_types_are_left_alone(tree: Tree, fstype: str) -> None:
    tree.mount("/mnt/one", fstype=fstype)
    tree.live()
    one = resolver(tree, BOTH + "[policy]\nexclude = ['fuse.rclone*']\n")
    assert one.left_alone_reason(tree.only())
    assert reconcile(one, tree.only()) == Reconciled()


def test_a_users_mount_gets_no_more_dirty_memory(tree: Tree) -> None:
    tree.mount("/mnt/one", options=OWNED)
    tree.live(owner=1000)
    kept = reconcile(resolver(tree, BOTH + "strict_limit = 0\n"), tree.only())
    assert made(kept) == {"max_background": 64}
    assert len(kept.refused) == 2
    assert all("unprivileged user's mount (uid 1000)" in why for why in kept.refused)


def test_a_mount_of_a_user_namespace_is_not_roots(tree: Tree) -> None:
    """There user_id=0 is the user's own; the connection's directory has the real owner."""
    tree.mount("/mnt/one", options="rw,user_id=0,group_id=0")
    tree.live(owner=1000)
    kept = reconcile(resolver(tree, BOTH), tree.only())
    assert made(kept) == {"max_background": 64}
    assert ["unprivileged user's mount (uid 1000)" in why for why in kept.refused] == [True]


def test_a_mount_of_nobody_knows_whom_gets_no_more_dirty_memory(tree: Tree) -> None:
    tree.mount("/mnt/one", options="rw,user_id=0,group_id=0")
    tree.live(connection=None)
    kept = reconcile(resolver(tree, "[policy]\nallow_users = [0]\n" + BOTH), tree.only())
    assert made(kept) == {}
    assert ["the owner of /mnt/one is unknown" in why for why in kept.refused] == [True]
    with pytest.raises(FusetuneError, match="mount -t fusectl fusectl /sys/fs/fuse/connections"):
        Owner.of(tree.only())


@pytest.mark.parametrize("name", ["1000", "'root', 'no-such-user', 1000", "'1000'"])
def test_but_an_owner_named_in_the_configuration_does(tree: Tree, name: str) -> None:
    tree.mount("/mnt/one", options=OWNED)
    tree.live(owner=1000)
    kept = reconcile(resolver(tree, f"[policy]\nallow_users = [{name}]\n{BOTH}"), tree.only())
    assert (made(kept), kept.refused) == ({"max_ratio": 20, "max_background": 64}, [])


def test_an_owner_may_be_named_by_name(tree: Tree) -> None:
    uid = pwd.getpwnam("daemon").pw_uid
    tree.mount("/mnt/one", options=OWNED.replace("1000", str(uid)))
    tree.live(owner=uid)
    assert reconcile(resolver(tree, BOTH), tree.only()).refused
    allowing = f"[policy]\nallow_users = ['daemon']\n{BOTH}"
    assert reconcile(resolver(tree, allowing), tree.only()).refused == []


def three(tree: Tree) -> list[Mount]:
    for number in (40, 41, 42):
        tree.mount(f"/mnt/{number}", device=f"0:{number}")
        tree.live(bdi=f"0:{number}", connection=str(number))
    return discover(tree.host)


def test_the_sum_of_dirty_memory_is_bounded(tree: Tree) -> None:
    one, two, last = three(tree)
    text = "[policy]\nmax_dirty_percent = 50\n[[mount]]\nmax_ratio = 20\n"
    ours = resolver(tree, text)
    assert [len(reconcile(ours, mount).refused) for mount in (one, two, last)] == [0, 0, 1]
    assert ours.room(last) == 10
    assert reconcile(ours, one) == Reconciled()  # its own share does not count against it
    (why,) = reconcile(ours, last).refused
    assert "max_dirty_percent" in why
    assert "10 % remain" in why
    for mount in (one, two, last):
        assert bool(reconcile(resolver(tree), mount).refused) == (mount == last)
    assert ours.room(replace(last, device="0:43")) == 10  # one that was not there yet
    ours.gone(one)
    assert reconcile(ours, last).refused == []


def test_what_others_set_counts_once_it_is_looked_at_again(tree: Tree) -> None:
    one, two, _ = three(tree)
    ours = resolver(tree, "[policy]\nmax_dirty_percent = 50\n[[mount]]\nmax_ratio = 20\n")
    assert reconcile(ours, one).refused == []
    tree.live(bdi="0:42", connection="42", values={"strict_limit": 0})
    ours.forget_sum()
    assert ours.room(two) == 50 - 20 - 100
    assert len(reconcile(ours, two).refused) == 1
    lines = tree.read("proc/self/mountinfo").splitlines(keepends=True)
    tree.write("proc/self/mountinfo", "".join(line for line in lines if "/mnt/42" not in line))
    ours.forget_sum()
    assert ours.room(two) == 50 - 20


@pytest.mark.parametrize(
    ("wanted", "force", "done"),
    [
        ({"max_ratio": 31}, False, False),
        ({"max_ratio": 30}, False, True),
        ({"max_ratio": 31}, True, True),
        ({"strict_limit": 0}, False, False),
        ({"max_ratio": 1, "read_ahead_kb": 4096}, False, True),
    ],
)
def test_what_is_set_is_bounded_too(
    tree: Tree, wanted: dict[str, int], force: bool, done: bool
) -> None:
    one, two, _ = three(tree)
    tree.write("etc/fusetune.toml", "[policy]\nmax_dirty_percent = 50\n")
    set_knobs(tree.host, one, {KNOBS["max_ratio"]: 20})
    values = {KNOBS[name]: value for name, value in wanted.items()}
    owners, room = bounds_of_set(tree.host, two, values, force=force)
    if done:
        set_knobs(tree.host, two, values, owners, room)
    else:
        with pytest.raises(FusetuneError, match=r"30 % remain; .*'fusetune set --force'"):
            set_knobs(tree.host, two, values, owners, room)


def test_a_wrong_configuration_matters_to_more_dirty_memory_alone(
    tree: Tree, mounted: Mount
) -> None:
    tree.write("etc/fusetune.toml", "garbage")
    ahead, ratio = {KNOBS["read_ahead_kb"]: 4096}, {KNOBS["max_ratio"]: 20}
    assert bounds_of_set(tree.host, mounted, ahead, force=False) == (frozenset(), None)
    assert bounds_of_set(tree.host, mounted, ratio, force=True) == (frozenset(), None)
    with pytest.raises(ConfigError):
        bounds_of_set(tree.host, mounted, ratio, force=False)


def test_what_a_mount_has_already_is_not_refused_it(tree: Tree) -> None:
    """Lowering helps, also where the sum is above the bound."""
    one, two, _ = three(tree)
    for mount in (one, two):
        set_knobs(tree.host, mount, {KNOBS["max_ratio"]: 40})
    tree.write("etc/fusetune.toml", "[policy]\nmax_dirty_percent = 50\n")
    for value in (40, 30):
        values = {KNOBS["max_ratio"]: value}
        set_knobs(tree.host, two, values, *bounds_of_set(tree.host, two, values, force=False))
    more = {KNOBS["max_ratio"]: 31}
    bounds = bounds_of_set(tree.host, two, more, force=False)
    with pytest.raises(FusetuneError, match="30 % remain"):
        set_knobs(tree.host, two, more, *bounds)


def test_without_strict_limit_a_mount_may_fill_it_all(tree: Tree, mounted: Mount) -> None:
    for bound, refused in ((99, 1), (100, 0)):
        text = f"[policy]\nmax_dirty_percent = {bound}\n[[mount]]\nstrict_limit = 0\n"
        assert len(reconcile(resolver(tree, text), mounted).refused) == refused


def test_nothing_may_be_kept_dirty(tree: Tree, mounted: Mount) -> None:
    """Less than the default is never refused."""
    text = "[policy]\nmax_dirty_percent = 0\n[[mount]]\nmax_ratio = 0\nmax_background = 64\n"
    assert made(reconcile(resolver(tree, text), mounted)) == {"max_ratio": 0, "max_background": 64}


# What save and auto say


def test_what_later_mounts_would_not_get_is_said(tree: Tree, mounted: Mount) -> None:
    text = "[[mount]]\nmax_background = 64\nread_ahead_kb = 512\n"
    ours = resolver(tree, text)
    assert list(ours.caveats(mounted, {"max_background": 64, "max_ratio": 5})) == []
    (why,) = ours.caveats(mounted, {"max_background": 32})
    assert why.startswith(f"{tree.root}/etc/fusetune.toml:2 sets max_background=64, which ")


def test_what_policy_refuses_is_said_of_what_is_saved_alone(tree: Tree, mounted: Mount) -> None:
    text = "[policy]\nmax_dirty_percent = 5\n[[mount]]\nmax_ratio = 20\nmax_background = 64\n"
    ours = resolver(tree, text)
    assert list(ours.caveats(mounted, {"max_background": 64})) == []
    (why,) = ours.caveats(mounted, {"max_background": 64, "max_ratio": 20})
    assert "max_dirty_percent" in why


def test_that_the_mount_is_left_alone_is_said(tree: Tree, mounted: Mount) -> None:
    ours = resolver(tree, "[policy]\nexclude = ['fuse.m*']\n")
    assert list(ours.caveats(mounted, {"max_ratio": 5})) == [
        "/mnt/one is left alone: the configuration excludes fuse.m*"
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing is kept for /mnt/one: 'fusetune auto' or 'save' keeps values"),
        (
            "[policy]\nexclude = ['fuse.m*']\n" + BOTH,
            "nothing is kept for /mnt/one: the configuration excludes fuse.m*",
        ),
        (BOTH, None),
    ],
)
def test_why_nothing_is_kept(tree: Tree, mounted: Mount, text: str, why: str | None) -> None:
    assert resolver(tree, text).nothing_kept(mounted) == why


# Which program serves a mount


def served_by(tree: Tree, program: str, mount: Mount) -> bool:
    ours = resolver(tree, f"[[mount]]\nserver = '{program}'\nmax_ratio = 20\n")
    return bool(ours.expected(mount))


def test_a_server_that_closes_a_file_meanwhile(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tree, 10, "one", "/mnt/one", fds={4: "40"})
    real = os.listdir

    def late(path: str) -> list[str]:
        return [*["3"] * path.endswith("proc/10/fd"), *real(path)]

    monkeypatch.setattr(os, "listdir", late)
    assert served_by(tree, "one", mounted)


def test_the_server_that_the_kernel_names(tree: Tree, mounted: Mount) -> None:
    process(tree, 10, "one", "/mnt/two", fds={3: "7", 4: "40"})
    process(tree, 11, "other", "/mnt/one", fds={3: "41"})
    assert served_by(tree, "one", mounted)
    assert served_by(tree, "/usr/bin/o?e", mounted)
    assert not served_by(tree, "/usr/sbin/one", mounted)
    assert not served_by(tree, "other", mounted)


def test_the_server_of_a_block_device(tree: Tree) -> None:
    tree.mount("/mnt/one", device="8:1", fstype="fuseblk.ntfs")
    tree.live(bdi="8:1-fuseblk", connection=str(8 << 20 | 1))
    process(tree, 10, "ntfs-3g", fds={3: str(8 << 20 | 1)})
    process(tree, 11, "other", fds={3: "1"})
    assert served_by(tree, "ntfs-3g", tree.only())
    assert not served_by(tree, "other", tree.only())


@pytest.mark.parametrize(
    ("word", "cwd"), [("/mnt/one", "/"), ("one/", "/mnt"), ("./../one", "/mnt/a")]
)
def test_the_server_where_the_kernel_does_not_name_it(
    tree: Tree, mounted: Mount, word: str, cwd: str
) -> None:
    process(tree, 10, "one", "-o", "x", word, fds={3: ""}, cwd=cwd)
    process(tree, 11, "no-server", word, fds={}, cwd=cwd)
    process(tree, 12, "elsewhere", "/mnt/two", fds={3: ""})
    assert served_by(tree, "one", mounted)
    assert not served_by(tree, "no-server", mounted)
    assert not served_by(tree, "elsewhere", mounted)


def test_a_process_that_ends_meanwhile_and_one_replaced(tree: Tree, mounted: Mount) -> None:
    tree.write("proc/9/cmdline", "gone\0")
    process(tree, 10, "half", fds={3: "40"})
    (tree.root / "proc/10/exe").unlink()
    process(tree, 11, "new (deleted)", fds={3: "40"})
    assert served_by(tree, "new", mounted)
    assert not served_by(tree, "half", mounted)


def test_a_file_that_is_only_named_fuse_is_no_device(
    tree: Tree, mounted: Mount, tmp_path: Path
) -> None:
    file = tmp_path / "fuse"
    file.write_text("any")
    process(tree, 10, "spoof", "/mnt/one", fds={3: ""}, device=file)
    process(tree, 11, "liar", fds={3: "40"}, device=file)
    assert not served_by(tree, "spoof", mounted)
    assert not served_by(tree, "liar", mounted)


def test_lines_that_a_process_may_word_itself_tell_no_connection(
    tree: Tree, mounted: Mount
) -> None:
    """The name of a dma-buf, which may have taken the descriptor's number meanwhile."""
    process(tree, 10, "liar", fds={3: "40"})
    with (tree.root / "proc/10/fdinfo/3").open("a") as file:
        file.write("name:\tx\n")
    assert not served_by(tree, "liar", mounted)


@pytest.mark.parametrize(
    ("owner", "uids", "counts"),
    [
        (0, "0\t0\t0\t0", True),
        (0, "1000\t1000\t1000\t1000", False),
        (0, "1000\t0\t0\t0", False),  # a setuid program that uid 1000 started
        (1000, "1000\t1000\t1000\t1000", True),
        (1000, "0\t0\t0\t0", True),
        (1000, "1001\t1001\t1001\t1001", False),
    ],
)
def test_a_stranger_is_no_mounts_server(tree: Tree, owner: int, uids: str, counts: bool) -> None:
    """Where the kernel names no connection, a user has no say in another one's mount."""
    tree.mount("/mnt/one", options=f"rw,user_id={owner},group_id={owner}")
    tree.live(owner=owner)
    process(tree, 10, "one", "/mnt/one", fds={3: ""}, uids=uids)
    assert served_by(tree, "one", tree.only()) is counts


def test_a_process_that_lets_one_wait_hides_no_other(tree: Tree, mounted: Mount) -> None:
    """Its arguments are a FIFO that nobody writes to, as its mmap_lock could make them."""
    for pid in (10, 11, 12):
        process(tree, pid, f"server{pid}", "/mnt/one", fds={3: ""})
    file = tree.root / "proc/11/cmdline"
    file.unlink()
    os.mkfifo(file)
    found = Daemons(tree.host).of(mounted)
    assert found == {"/usr/bin/server10", "/usr/bin/server12"}


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("fstype = 'fuse.mirrorfs'", "server = 'o*'"),
        ("server = 'one'", "source = '*'"),
        ("server = 'one'", "path = '**'"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_server_counts_more_than_a_type_and_less_than_a_source(
    tree: Tree, mounted: Mount, less: str, more: str, order: int
) -> None:
    process(tree, 10, "one", fds={3: "40"})
    sections = [f"[[mount]]\n{less}\nmax_ratio = 1\n", f"[[mount]]\n{more}\nmax_ratio = 2\n"]
    expected = resolver(tree, "".join(sections[::order])).expected(mounted)
    assert expected["max_ratio"].value == 2


def test_new_servers_are_seen_once_asked_for(tree: Tree, mounted: Mount) -> None:
    ours = resolver(tree, "[[mount]]\nserver = 'one'\nmax_ratio = 20\n")
    assert ours.expected(mounted) == {}
    process(tree, 10, "one", fds={3: "40"})
    ours.forget_daemons()
    assert ours.expected(mounted)["max_ratio"].value == 20


def test_where_the_journal_cannot_be_written_nothing_changes(tree: Tree, mounted: Mount) -> None:
    tree.write("var/lib", "a file in its place")
    with pytest.raises(FusetuneError):
        reconcile(resolver(tree, BOTH), mounted)
    assert tree.values() == STOCK
