# SPDX-License-Identifier: GPL-2.0-or-later
"""An unprivileged user's mount gets no additional dirty memory, and some mounts are left alone.

The kernel gives FUSE 1 percent with strict accounting, so that a stuck server cannot pin memory
(fs/fuse/inode.c, fuse_bdi_init(); mm/page-writeback.c).
"""

import os
import pwd
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.changes.policy import (
    dirty_share,
    excluded_reason,
    more_dirty_memory,
    owners_named,
    parse_owners,
    refusal,
)
from fusetune.errors import ExitCode, UsageError
from fusetune.knobs import LIVE, Knob
from fusetune.mounts.mount import Mount

KNOBS = {knob.name: knob for knob in LIVE}
RISKY = {"max_ratio", "strict_limit"}


def owned_by(uid: int) -> Mount:
    return Mount("/mnt", "fuse.x", "source", "0:40", owner_uid=uid)


@pytest.mark.parametrize(
    ("name", "value", "more"),
    [
        ("max_ratio", 0, False),
        ("max_ratio", 1, False),
        ("max_ratio", 2, True),
        ("max_ratio", 100, True),
        ("strict_limit", 1, False),
        ("strict_limit", 0, True),
        ("read_ahead_kb", 1 << 20, False),
        ("max_background", 65535, False),
        ("congestion_threshold", 65535, False),
    ],
)
def test_what_means_more_dirty_memory(name: str, value: int, more: bool) -> None:
    assert more_dirty_memory(KNOBS[name], value) is more
    assert (refusal(owned_by(1000), KNOBS[name], value) is not None) is more


@given(st.sampled_from(LIVE), st.integers(0, 100), st.integers(0, 1 << 31))
def test_roots_and_allowed_owners_mounts_may_get_anything(knob: Knob, value: int, uid: int) -> None:
    assert refusal(owned_by(0), knob, value) is None
    assert refusal(owned_by(uid), knob, value, {uid}) is None


@given(st.sampled_from(LIVE), st.integers(0, 100), st.sets(st.integers(0, 5)))
def test_another_owner_allowed_does_not_help(knob: Knob, value: int, others: set[int]) -> None:
    refused = refusal(owned_by(1000), knob, value, others) is not None
    assert refused == more_dirty_memory(knob, value)


def test_the_refusal_says_how_to_allow_it() -> None:
    why = refusal(owned_by(1000), KNOBS["max_ratio"], 20)
    assert why is not None
    assert "max_ratio=20" in why
    assert "uid 1000" in why
    assert "--allow-owner 1000" in why


@given(st.sampled_from(sorted(RISKY)), st.integers(0, 100))
def test_less_dirty_memory_is_never_refused(name: str, value: int) -> None:
    knob = KNOBS[name]
    assert knob.stock is not None
    safer = min(value, knob.stock) if name == "max_ratio" else 1
    assert refusal(owned_by(1000), knob, safer) is None


@pytest.mark.parametrize(
    "fstype",
    [
        "fuse.lxcfs",
        "fuse.portal",
        "fuse.gvfsd-fuse",
        "fuse.kio-fuse",
        "fuse.vmware-vmblock",
        "fuse.xrdp-chansrv",
    ],
)
def test_left_alone(fstype: str) -> None:
    assert excluded_reason(Mount("/mnt", fstype, "source", "0:40"))


@pytest.mark.parametrize("fstype", ["fuse", "fuse.sshfs", "fuseblk", "virtiofs", "fuse.lxcfs2"])
def test_not_left_alone(fstype: str) -> None:
    assert excluded_reason(Mount("/mnt", fstype, "source", "0:40")) is None


def test_the_administrators_patterns_come_first() -> None:
    lxcfs = Mount("/mnt", "fuse.lxcfs", "source", "0:40")
    assert excluded_reason(lxcfs, ["fuse.s*", "fuse.l*"]) == "the configuration excludes fuse.l*"


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ({}, 0),
        ({"max_ratio": 0}, 0),
        ({"max_ratio": 1, "strict_limit": 1}, 0),
        ({"max_ratio": 2}, 2),
        ({"max_ratio": 100, "strict_limit": 1}, 100),
        ({"strict_limit": 0}, 100),
        ({"max_ratio": 5, "strict_limit": 0}, 100),
    ],
)
def test_what_a_mount_may_keep_dirty(values: dict[str, int], share: int) -> None:
    """1 percent is the kernel's default (fs/fuse/inode.c, fuse_bdi_init()), so it is allowed."""
    assert dirty_share(values) == share


@pytest.mark.parametrize(("room", "refused"), [(20, False), (19, True), (-5, True), (None, False)])
def test_the_room_that_other_mounts_leave(room: int | None, refused: bool) -> None:
    why = refusal(owned_by(0), KNOBS["max_ratio"], 20, (), room)
    assert (why is not None) is refused
    if why is not None and room is not None:
        assert f"20 % of the host's limit, {max(0, room)} % " in why


def test_who_owns_it_must_be_known() -> None:
    """Also if everybody is allowed, because the owner is unknown."""
    unknown = replace(owned_by(1000), owner_known=False)
    why = refusal(unknown, KNOBS["max_ratio"], 20, {0, 1000})
    assert why
    assert why == f"max_ratio=20 would allow more dirty memory, but {unknown.owner_unknown}"
    assert refusal(unknown, KNOBS["max_ratio"], 1) is None


def test_names_that_are_not_known_have_no_uid() -> None:
    me = pwd.getpwuid(os.getuid())
    assert owners_named(["no-such-user", me.pw_name, "4242"]) == {me.pw_uid, 4242}


def test_owners_by_name_and_number() -> None:
    me = pwd.getpwuid(os.getuid())
    assert parse_owners([me.pw_name, "4242", str(me.pw_uid)]) == {me.pw_uid, 4242}
    assert parse_owners([]) == frozenset()


@pytest.mark.parametrize("name", ["no-such-user", "", "-1", "10 00", "\u00b2"])
def test_an_unknown_owner_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="there is no such user") as raised:
        parse_owners([name])
    assert raised.value.exit_code is ExitCode.USAGE
