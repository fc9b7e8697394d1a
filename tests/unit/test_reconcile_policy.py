# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount gets those kept values that policy allows."""

import pwd
from dataclasses import replace

import pytest

from fusetune.bench.worker import Owner
from fusetune.changes.apply import set_knobs
from fusetune.desired.reconcile import Reconciled, reconcile
from fusetune.desired.resolve import bounds_of_set
from fusetune.errors import FusetuneError
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.toml.file import ConfigError
from tests.unit.conftest import Tree
from tests.unit.kept_values import BOTH, KNOBS, made, resolver

OWNED = "rw,user_id=1000,group_id=1000"


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
    """There user_id=0 is the user; the connection's directory has the real owner."""
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


def test_a_name_may_become_known_later(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """At boot, before a directory service replies."""
    uid = pwd.getpwnam("daemon").pw_uid
    tree.mount("/mnt/one", options=OWNED.replace("1000", str(uid)))
    tree.live(owner=uid)
    with monkeypatch.context() as early:
        early.setattr(pwd, "getpwnam", {}.__getitem__)
        resolved = resolver(tree, f"[policy]\nallow_users = ['daemon']\n{BOTH}")
        assert reconcile(resolved, tree.only()).refused
    assert reconcile(resolved, tree.only()).refused == []


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
    assert ours.room(replace(last, device="0:43")) == 10  # a new one
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
    """Lowering is allowed even if the sum is above the bound."""
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


# Messages of save and auto


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
        ("", "nothing is kept for /mnt/one: keep values with 'fusetune auto' or 'fusetune save'"),
        (
            "[policy]\nexclude = ['fuse.m*']\n" + BOTH,
            "nothing is kept for /mnt/one: the configuration excludes fuse.m*",
        ),
        (BOTH, None),
    ],
)
def test_why_nothing_is_kept(tree: Tree, mounted: Mount, text: str, why: str | None) -> None:
    assert resolver(tree, text).nothing_kept(mounted) == why
