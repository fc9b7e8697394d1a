# SPDX-License-Identifier: GPL-2.0-or-later
"""Every knob of every table: its description, and how it is read and written.

The ranges are the kernel's: mm/backing-dev.c, fs/fuse/control.c, fs/fuse/inode.c.
"""

import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from fusetune.changes.apply import make, plan, set_knobs
from fusetune.changes.journal import Journal
from fusetune.errors import FusetuneError, UsageError
from fusetune.knobs import (
    LIVE,
    REMOUNT,
    SYSTEM,
    Absent,
    Knob,
    RemountKnob,
    Scope,
    knobs_of,
    named,
)
from fusetune.knobs.remount import SPELLINGS, dirtied_bytes, remount_hint
from fusetune.mounts.control import waiting
from fusetune.mounts.mount import Mount
from tests.unit.conftest import STOCK, Tree

KNOBS = (*LIVE, *SYSTEM)
MAX_RATIO = next(knob for knob in LIVE if knob.name == "max_ratio")
URING = next(knob for knob in SYSTEM if knob.name == "enable_uring")
UNITS = {"percent", "KiB", "requests", "bytes", "pages", "switch"}

by_name = pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)


# The tables


def test_names_are_unique_over_all_tables() -> None:
    names = [knob.name for knob in (*KNOBS, *REMOUNT)]
    # What INIT negotiates needs a remount; below that it can change live on some mounts.
    assert [name for name in set(names) if names.count(name) > 1] == ["max_pages"]
    assert isinstance(named("max_pages"), Knob)


@by_name
def test_a_knob_says_what_it_is(knob: Knob) -> None:
    assert knob.unit in UNITS
    for text in (knob.summary, knob.risk, knob.source, knob.absent):
        assert text == " ".join(text.split()) != ""
    assert not knob.file.startswith("/")
    assert knob.scope is (Scope.MOUNT if knob in LIVE else Scope.HOST)
    assert ("{" in knob.file) == (knob.scope is Scope.MOUNT)


@by_name
def test_a_knobs_values_are_legal(knob: Knob) -> None:
    assert knob.low >= 0
    assert knob.high is None or knob.high > knob.low
    assert (knob.unit == "switch") == ((knob.low, knob.high) == (0, 1))
    assert knob.stock is None or knob.parse(str(knob.stock)) == knob.stock
    if knob.words:
        assert set(knob.words) == {knob.low, knob.high}


@pytest.mark.parametrize("knob", REMOUNT, ids=lambda knob: knob.name)
def test_a_remount_knob_says_what_it_is(knob: RemountKnob) -> None:
    for text in (knob.summary, knob.remedy, knob.risk, knob.source):
        assert text == " ".join(text.split()) != ""
        assert "{" not in text


def test_spellings_are_of_knobs_that_there_are() -> None:
    assert {name for table in SPELLINGS.values() for name in table} <= {k.name for k in REMOUNT}


# Reading and writing


def as_long(knob: Knob, stock: int) -> int:
    """Return a legal value as long as ``stock``: unlike sysfs, a tree's file keeps its tail."""
    return {"read_ahead_kb": 256, "fs.pipe-max-size": 1 << 21}.get(
        knob.name, stock - 1 if stock else 1
    )


@pytest.mark.parametrize(
    "knob", [knob for knob in LIVE if not knob.init_line], ids=lambda knob: knob.name
)
def test_a_live_knob_in_its_file(tree: Tree, mounted: Mount, knob: Knob) -> None:
    before = tree.values()
    assert knob.read(tree.host, mounted) == knob.stock == before[knob.name]
    value = as_long(knob, before[knob.name])
    knob.write(tree.host, mounted, value)
    assert knob.read(tree.host, mounted) == value
    assert tree.values() == before | {knob.name: value}


def test_a_limit_that_is_finer_than_its_knob_stays(tree: Tree, mounted: Mount) -> None:
    """Linux 6.2 has max_bytes and max_ratio_fine, in parts per million."""
    (knob,) = (one for one in LIVE if one.name == "max_ratio")
    finer = "sys/class/bdi/0:40/max_ratio_fine"
    tree.write(finer, "10000\n")
    assert knob.read(tree.host, mounted) == 1
    tree.write(finer, "13000\n")
    with pytest.raises(Absent, match=f"^/{finer} has a finer value; .* a whole number to /sys/"):
        knob.read(tree.host, mounted)
    with pytest.raises(FusetuneError, match=r"^max_ratio is absent: "):
        set_knobs(tree.host, mounted, {knob: 20})
    assert (tree.read(finer), tree.values()["max_ratio"]) == ("13000\n", 1)


def test_background_requests_cannot_be_forbidden() -> None:
    """They would wait for ever, and with them every fsync."""
    (knob,) = (one for one in LIVE if one.name == "max_background")
    assert knob.parse("1") == 1
    with pytest.raises(UsageError, match="max_background=0 is out of range: 1 to 65535 requests"):
        knob.parse("0")


@pytest.mark.parametrize("knob", SYSTEM, ids=lambda knob: knob.name)
def test_a_host_knob_in_its_file(tree: Tree, knob: Knob) -> None:
    tree.system()
    value = as_long(knob, knob.read(tree.host, None))
    knob.write(tree.host, None, value)
    assert knob.read(tree.host, None) == value
    assert tree.read(knob.file).strip() == (knob.words or {value: str(value)})[value]


def test_words_for_a_switch(tree: Tree) -> None:
    tree.system()
    assert URING.read(tree.host, None) == 0
    URING.write(tree.host, None, 1)
    assert tree.read(URING.file) == "Y\n"
    assert URING.read(tree.host, None) == 1


@by_name
def test_an_absent_knob_says_why(tree: Tree, mounted: Mount, knob: Knob) -> None:
    mount = mounted if knob.scope is Scope.MOUNT else None
    if not knob.init_line:
        (tree.root / knob.location(mount)).unlink(missing_ok=True)
    for call in (lambda: knob.read(tree.host, mount), lambda: knob.write(tree.host, mount, 1)):
        with pytest.raises(Absent) as raised:
            call()
        assert str(raised.value) == knob.absent


def test_a_connection_that_goes_after_its_file_was_opened(tree: Tree, mounted: Mount) -> None:
    """The kernel then returns no text at all."""
    directory = f"{mounted.control}/{mounted.connection}"
    for name in ("max_background", "waiting"):
        tree.write(f"{directory}/{name}", "")
    with pytest.raises(Absent, match="it was unmounted"):
        next(k for k in LIVE if k.name == "max_background").read(tree.host, mounted)
    assert waiting(tree.host, mounted) == 0


def test_without_bdi_or_connection_a_knob_is_absent(tree: Tree, mounted: Mount) -> None:
    bare = replace(mounted, bdi=None, connection=None)
    for knob in LIVE:
        with pytest.raises(Absent):
            knob.read(tree.host, bare)
    with pytest.raises(Absent, match="no connection under /sys/fs/fuse/connections"):
        next(k for k in LIVE if k.name == "max_background").location(bare)


def test_a_mount_whose_number_is_reused_at_once_is_not_written_to(
    tree: Tree, mounted: Mount
) -> None:
    """The files exist but belong to another mount: its bdi and connection stay unchanged."""
    planned = plan(tree.host, mounted, dict.fromkeys(LIVE[:2], 64))
    (tree.root / "sys/class/bdi/0:40").rename(tree.root / "sys/class/bdi/gone")
    tree.live()
    for knob in knobs_of(tree.host, mounted):
        with pytest.raises(Absent, match="it was unmounted"):
            knob.write(tree.host, mounted, knob.low)
    with pytest.raises(FusetuneError, match="/mnt/one disappeared meanwhile: it was unmounted"):
        make(tree.host, Journal(tree.host, mounted), planned, "set")
    assert tree.values() == STOCK


def test_a_mount_that_goes_between_open_and_write(tree: Tree, mounted: Mount) -> None:
    """Identity is checked after opening the file; an earlier check would prove nothing."""
    real = os.open

    def late(path: str, flags: int) -> int:
        fd = real(path, flags)
        if flags & os.O_WRONLY:
            (tree.root / "sys/class/bdi/0:40").rename(tree.root / "sys/class/bdi/gone")
            tree.live()
        return fd

    with mock.patch("os.open", late), pytest.raises(Absent, match="it was unmounted"):
        MAX_RATIO.write(tree.host, mounted, 5)
    assert tree.values() == STOCK
    assert tree.read("sys/class/bdi/gone/max_ratio") == "1\n"


def test_garbage_in_a_file(tree: Tree, mounted: Mount) -> None:
    tree.write(MAX_RATIO.location(mounted), "seven\n")
    with pytest.raises(FusetuneError, match="contains 'seven' instead of a number"):
        MAX_RATIO.read(tree.host, mounted)


def test_another_value_read_back(tree: Tree, mounted: Mount) -> None:
    """As for a value that the kernel rounds: /dev/null takes anything and keeps nothing."""
    file = tree.root / MAX_RATIO.location(mounted)
    file.unlink()
    file.symlink_to("/dev/null")
    with pytest.raises(FusetuneError, match="instead of a number"):
        MAX_RATIO.write(tree.host, mounted, 5)
    file.unlink()
    # Written over a longer text, the rest of the old value stays.
    tree.write(MAX_RATIO.location(mounted), "100\n")
    with pytest.raises(FusetuneError, match="reads 500 after 5 was written to it"):
        MAX_RATIO.write(tree.host, mounted, 5)


def test_a_value_that_is_refused(tree: Tree, mounted: Mount) -> None:
    file = tree.root / MAX_RATIO.location(mounted)
    file.unlink()
    file.symlink_to("/dev/full")
    with pytest.raises(FusetuneError, match="the kernel refused max_ratio=5 in /sys/class/bdi"):
        MAX_RATIO.write(tree.host, mounted, 5)


def test_a_file_that_is_a_directory(tree: Tree, mounted: Mount) -> None:
    file = tree.root / MAX_RATIO.location(mounted)
    file.unlink()
    file.mkdir()
    with pytest.raises(FusetuneError, match="cannot read /sys/class/bdi/0:40/max_ratio: Is a dir"):
        MAX_RATIO.read(tree.host, mounted)


def test_permission_is_told_with_the_remedy(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        # In a directory tree nothing is refused to root; the native tests run as another user.
        def refused(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(type(tree.host), "write", refused)
    else:
        (tree.root / MAX_RATIO.location(mounted)).chmod(0o444)
    with pytest.raises(FusetuneError, match="Permission denied; run fusetune as root"):
        MAX_RATIO.write(tree.host, mounted, 5)


# What only a remount can change


def test_a_remount_hint_uses_the_servers_own_spelling() -> None:
    mirror = Mount("/mnt", "fuse.mirrorfs", "source", "0:40")
    assert "'-o writeback' added" in remount_hint(mirror, "writeback_cache")
    other = replace(mirror, fstype="fuse.sshfs")
    for knob in REMOUNT:
        assert knob.remedy in remount_hint(other, knob.name)


def test_dirtied_bytes(tree: Tree, mounted: Mount) -> None:
    assert dirtied_bytes(tree.host, mounted) is None
    stats = "sys/kernel/debug/bdi/0:40/stats"
    tree.write(stats, "BdiWriteback:     0 kB\nBdiDirtied:     12 kB\nBdiWritten:   8 kB\n")
    assert dirtied_bytes(tree.host, mounted) == 12 * 1024
    tree.write(stats, "another kernel's words\n")
    assert dirtied_bytes(tree.host, mounted) is None


def test_host_reads_are_bounded_and_stripped(tree: Tree, tmp_path: Path) -> None:
    tree.write("proc/long", "x" * 100_000)
    assert len(tree.host.read("proc/long")) == 65536
    tree.write("proc/padded", "  7 \n")
    assert tree.host.read("proc/padded") == "7"
