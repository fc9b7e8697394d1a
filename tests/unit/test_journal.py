# SPDX-License-Identifier: GPL-2.0-or-later
"""Journal, locks and notes survive crashes, and what was damaged is never believed.

A crash may leave any prefix of an append, for the file is synced after each (fsync(2)). flock(2)
ends with the process that holds it.
"""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fusetune.bench.note import noted, scratch_note
from fusetune.changes.journal import Damaged, Journal, Record, key_of
from fusetune.changes.lock import Busy, Lock, clear_after_crash
from fusetune.changes.overrides import note_overrides, overrides
from fusetune.changes.stale import remove_stale
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from tests.unit.conftest import CHECKOUT, Tree

RECORDS = [
    Record("max_ratio", 1, 20, "set", 1.5),
    Record("read_ahead_kb", 128, 1024, "set", 1.5),
    Record("max_ratio", 20, 50, 'why "not"\n\x00 größe', 2.5),
]
ORIGINALS = {"max_ratio": 1, "read_ahead_kb": 128}


def journal_with(host: Host, mount: Mount | None, records: list[Record]) -> Path:
    journal = Journal(host, mount)
    journal.append(records)
    return journal.path


# The undo journal


def test_without_a_file_there_is_nothing(tree: Tree, mounted: Mount) -> None:
    journal = Journal(tree.host, mounted)
    assert (journal.records, journal.originals) == ([], {})
    assert not tree.host.state_dir.exists()
    journal.remove()


def test_what_is_appended_is_read_again(tree: Tree, mounted: Mount) -> None:
    first = Journal(tree.host, mounted)
    first.append(RECORDS[:1])
    second = Journal(tree.host, mounted)
    assert second.records == RECORDS[:1]
    second.append(RECORDS[1:])
    third = Journal(tree.host, mounted)
    assert third.records == second.records == RECORDS
    assert third.originals == ORIGINALS
    for knob, value in (("max_ratio", 50), ("read_ahead_kb", 1024)):
        assert third.wrote(knob, value)
        assert third.to_undo(knob, value)
    assert tree.journals() == [third.path]


@pytest.mark.parametrize(
    ("written", "now", "undone"),
    [
        ([], 5, False),
        ([5], 5, True),
        ([5], 1, False),  # put back by hand
        ([5], 7, True),  # changed by hand, and never put back by us
        ([5, 9], 5, True),  # killed before the second write
        ([5, 1], 1, False),
        ([5, 1], 5, True),  # killed, or refused, on the way back
        ([5, 1], 7, False),  # put back by us, then changed by hand: the administrator's
        ([5, 1, 9], 7, True),
    ],
)
def test_what_is_to_be_put_back(
    tree: Tree, mounted: Mount, written: list[int], now: int, undone: bool
) -> None:
    """The value found before the first change is 1; these were written since, and one stands."""
    journal = Journal(tree.host, mounted)
    old = 1
    for new in written:
        journal.append([Record("max_ratio", old, new, "set", 0.0)])
        old = new
    again = Journal(tree.host, mounted)
    assert again.to_undo("max_ratio", now) is undone
    assert again.wrote("max_ratio", now) is (now in written and now != 1)
    assert not again.to_undo("read_ahead_kb", now)


def test_only_root_may_read_it(tree: Tree, mounted: Mount) -> None:
    path = journal_with(tree.host, mounted, RECORDS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_is_on_disk_before_append_returns(tree: Tree, mounted: Mount) -> None:
    journal = Journal(tree.host, mounted)
    with mock.patch("os.fsync", wraps=os.fsync) as fsync:
        journal.append(RECORDS[:1])
        assert fsync.call_count == 2  # the new file, and the directory that names it
        journal.append(RECORDS[1:])
        assert fsync.call_count == 3


def test_mounts_and_host_have_their_own(tree: Tree, mounted: Mount) -> None:
    other = replace(mounted, bdi="0:41", device="0:41")
    journal_with(tree.host, mounted, RECORDS[:1])
    journal_with(tree.host, other, RECORDS[1:2])
    journal_with(tree.host, None, RECORDS[2:])
    assert Journal(tree.host, mounted).records == RECORDS[:1]
    assert Journal(tree.host, other).records == RECORDS[1:2]
    assert Journal(tree.host, None).records == RECORDS[2:]
    assert [path.name for path in tree.journals()] == [
        "0:40.journal",
        "0:41.journal",
        "host.journal",
    ]


def test_remove_forgets(tree: Tree, mounted: Mount) -> None:
    journal_with(tree.host, mounted, RECORDS)
    journal = Journal(tree.host, mounted)
    journal.remove()
    assert (journal.records, journal.originals) == ([], {})
    assert Journal(tree.host, mounted).records == []
    journal.append(RECORDS[:1])
    assert Journal(tree.host, mounted).records == RECORDS[:1]


@pytest.mark.parametrize("target", ["mount", "host"])
def test_after_a_reboot_it_is_void(tree: Tree, mounted: Mount, target: str) -> None:
    mount = mounted if target == "mount" else None
    journal_with(tree.host, mount, RECORDS)
    later = Journal(tree.reboot(), mount)
    assert later.records == []
    later.append(RECORDS[:1])
    assert Journal(tree.reboot(), mount).records == RECORDS[:1]


def test_of_another_super_block_it_is_void(tree: Tree, mounted: Mount) -> None:
    """Device numbers are reused at once: a new mount's values are not the old one's."""
    path = journal_with(tree.host, mounted, RECORDS)
    assert mounted.instance is not None
    again = replace(mounted, instance=mounted.instance + 1)
    journal = Journal(tree.host, again)
    assert journal.records == []
    journal.append(RECORDS[:1])
    assert Journal(tree.host, again).records == RECORDS[:1]
    assert len(path.read_bytes().splitlines()) == 2


@settings(max_examples=40)
@given(st.data())
def test_an_unfinished_last_append_is_dropped(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever part of the last lines reached the disk, those before them count."""
    tree = Tree(tmp_path_factory.mktemp("tree"))
    journal = Journal(tree.host, None)
    journal.append(RECORDS[:2])
    size = journal.path.stat().st_size
    journal.append(RECORDS[2:])
    whole = journal.path.read_bytes()
    cut = data.draw(st.integers(size, len(whole) - 1))
    journal.path.write_bytes(whole[:cut])
    after = Journal(tree.host, None)
    assert after.records == RECORDS[:2]
    after.append(RECORDS[2:])
    assert journal.path.read_bytes() == whole


def test_a_first_append_cut_anywhere_is_nothing_or_a_prefix(tree: Tree, mounted: Mount) -> None:
    path = journal_with(tree.host, mounted, RECORDS)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        read = Journal(tree.host, mounted).records
        assert read == RECORDS[: len(read)]
        assert read != RECORDS


def noticed_or_harmless(tree: Tree, position: int, byte: int) -> None:
    """Replace one byte of a journal: it is kept aside as it is, or reads as it was."""
    path = journal_with(tree.host, None, RECORDS)
    text = bytearray(path.read_bytes())
    text[position % len(text)] = byte
    path.write_bytes(text)
    try:
        journal = Journal.to_change(tree.host, None)
    except Damaged as error:
        told = str(error)
    else:
        assert journal.records == RECORDS
        return
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == text
    assert str(kept) in told
    assert not path.exists()


@given(st.integers(0, 10_000), st.integers(0, 255))
@example(-1, ord("x"))  # the end of the last line: not an unfinished append, which lacks more
def test_any_corrupted_byte_is_noticed_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int
) -> None:
    noticed_or_harmless(Tree(tmp_path_factory.mktemp("tree")), position, byte)


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"garbage\n",
        b"00000000 \n",
        b"zzzzzzzz {}\n",
        b"\xff\xfe\n",
        b'a3830348 {}\na3830348 {"x"}\n',
    ],
)
def test_what_was_never_a_journal_is_kept_aside(tree: Tree, mounted: Mount, text: bytes) -> None:
    path = journal_with(tree.host, mounted, RECORDS)
    path.write_bytes(text)
    with pytest.raises(Damaged, match="the undo journal of /mnt/one is damaged"):
        Journal(tree.host, mounted)
    with pytest.raises(Damaged, match="the undo journal of /mnt/one was damaged and is kept as"):
        Journal.to_change(tree.host, mounted)
    assert Journal(tree.host, mounted).records == []


def test_a_journal_of_another_version_is_kept_aside(tree: Tree, mounted: Mount) -> None:
    """Well formed, but of a version that says so in the first line: its lines may mean anything."""
    path = journal_with(tree.host, mounted, RECORDS)
    about, *rest = path.read_bytes().splitlines(keepends=True)
    fields = json.loads(about.split(b" ", 2)[2]) | {"schema": 2}
    text = json.dumps(fields).encode()
    whole = b"%08x %d %s\n" % (zlib.crc32(text), len(text), text) + b"".join(rest)
    path.write_bytes(whole)
    with pytest.raises(Damaged, match="the undo journal of /mnt/one is damaged"):
        Journal(tree.host, mounted)
    with pytest.raises(Damaged, match="is kept as"):
        Journal.to_change(tree.host, mounted)
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == whole


def test_a_mount_that_is_gone_is_not_changed(tree: Tree, mounted: Mount) -> None:
    """Its device number may be another's by now, whose journal has the same name."""
    assert mounted.instance is not None
    another = replace(mounted, instance=mounted.instance + 1)
    with pytest.raises(FusetuneError, match=r"^/mnt/one is (no longer mounted|not mounted)"):
        Journal.to_change(tree.host, another)
    assert Journal.to_change(tree.host, mounted).records == []
    shutil.rmtree(tree.root / "sys/class/bdi/0:40")
    with pytest.raises(FusetuneError, match=r"^/mnt/one is (no longer mounted|not mounted)"):
        Journal.to_change(tree.host, mounted)


@pytest.mark.parametrize(
    ("writes", "why", "value"),
    [
        ([], "a", None),
        ([(1, 5, "a")], "a", 1),
        ([(1, 5, "a")], "b", None),
        ([(1, 5, "a"), (5, 9, "a")], "a", 1),
        ([(1, 5, "b"), (5, 9, "a")], "a", 5),
        ([(1, 5, "a"), (5, 9, "b")], "a", None),
        ([(1, 5, "a"), (7, 9, "a")], "a", 7),  # changed by somebody else in between
    ],
)
def test_what_a_knob_was_before_the_last_writes_for_one_reason(
    tree: Tree, writes: list[tuple[int, int, str]], why: str, value: int | None
) -> None:
    journal = Journal(tree.host, None)
    for old, new, reason in writes:
        journal.append([Record("max_ratio", old, new, reason, 0.0)])
        journal.append([Record("read_ahead_kb", 128, 256, "other", 0.0)])
    assert journal.before("max_ratio", why) == value


def test_the_last_write_of_each_knob(tree: Tree, mounted: Mount) -> None:
    journal_with(tree.host, mounted, RECORDS)
    journal = Journal(tree.host, mounted)
    assert journal.last("max_ratio") == RECORDS[2]
    assert journal.last("read_ahead_kb") == RECORDS[1]
    assert journal.last("strict_limit") is None


def test_two_damaged_ones_are_both_kept(tree: Tree, mounted: Mount) -> None:
    for text in (b"one\n", b"two\n"):
        path = journal_with(tree.host, mounted, RECORDS)
        path.write_bytes(text)
        with pytest.raises(Damaged):
            Journal.to_change(tree.host, mounted)
    kept = sorted(file.read_bytes() for file in path.parent.glob("*.damaged-*"))
    assert kept == [b"one\n", b"two\n"]


def test_a_journal_that_cannot_be_written_says_that_nothing_changed(
    tree: Tree, mounted: Mount
) -> None:
    tree.host.state_dir.mkdir(parents=True)
    (tree.host.state_dir / "undo").mkdir()
    (tree.host.state_dir / "undo" / "0:40.journal").symlink_to("elsewhere")
    with pytest.raises(FusetuneError, match=r"cannot write the undo journal .*; nothing was cha"):
        Journal(tree.host, mounted).append(RECORDS)
    assert not (tree.host.state_dir / "undo" / "elsewhere").exists()


def test_a_full_disk_leaves_the_journal_as_it_was(tree: Tree, mounted: Mount) -> None:
    """A short write, as a nearly full file system gives; the native tests fill a real one."""
    journal = Journal(tree.host, mounted)
    journal.append(RECORDS[:1])
    before = journal.path.read_bytes()
    real = os.pwrite
    with (
        mock.patch("os.pwrite", lambda fd, text, at: real(fd, text[:10], at)),
        pytest.raises(FusetuneError, match="No space left on device; nothing was changed"),
    ):
        journal.append(RECORDS[1:])
    assert journal.path.read_bytes() == before
    assert journal.records == RECORDS[:1]


def test_a_state_directory_that_cannot_be_made(tree: Tree, mounted: Mount) -> None:
    tree.write("var/lib", "a file in its place")
    with pytest.raises(FusetuneError, match=r"(cannot (create|write|read)) "):
        Journal(tree.host, mounted).append(RECORDS)


# Locks

_HOLDER = """
import sys
from pathlib import Path
from fusetune.host import Host
from fusetune.changes.lock import Lock
root = sys.argv[1]
with Lock(Host(root, Path(root, "var", "lib"), Path(root, "run")), None):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(tree: Tree) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the host's lock until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tree.root)],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait(10)


def test_a_lock_is_gone_afterwards(tree: Tree, mounted: Mount) -> None:
    path = tree.host.run_dir / "0:40.lock"
    with Lock(tree.host, mounted):
        assert path.read_text() == f"{os.getpid()} {mounted.instance}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


def test_a_link_in_the_place_of_a_lock_is_not_followed(tree: Tree) -> None:
    """Opening it would truncate what it leads to."""
    victim = tree.root / "victim"
    victim.write_text("text")
    tree.host.make_dir(tree.host.run_dir)
    (tree.host.run_dir / "host.lock").symlink_to(victim)
    with pytest.raises(FusetuneError, match=r"cannot lock this host: .*Too many levels"):
        Lock(tree.host, None)
    assert victim.read_text() == "text"


def test_a_second_taker_is_told_who_has_it(tree: Tree) -> None:
    with holder(tree) as process:
        for _ in range(2):
            with pytest.raises(
                FusetuneError,
                match=rf"^another fusetune \(pid {process.pid}\) is working on this host; wait",
            ):
                Lock(tree.host, None)
        process.communicate(timeout=10)  # ends its stdin
        assert process.returncode == 0
        with Lock(tree.host, None):
            pass


def test_kill_frees_it(tree: Tree) -> None:
    with holder(tree) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert (tree.host.run_dir / "host.lock").exists()
        with Lock(tree.host, None):
            assert (tree.host.run_dir / "host.lock").read_text() == str(os.getpid())
    assert not (tree.host.run_dir / "host.lock").exists()


def test_what_a_killed_one_left_behind_is_known(tree: Tree) -> None:
    with Lock(tree.host, None) as lock:
        assert not lock.left_behind
    with holder(tree) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with Lock(tree.host, None) as lock:
        assert lock.left_behind
    with Lock(tree.host, None) as lock:
        assert not lock.left_behind


def test_a_process_id_of_one_digit_was_left_behind_too(tree: Tree) -> None:
    """In a container a killed fusetune may have had such an id."""
    tree.write("run/host.lock", "7")
    with Lock(tree.host, None) as lock:
        assert lock.left_behind


def test_locks_of_different_mounts_do_not_meet(tree: Tree, mounted: Mount) -> None:
    with Lock(tree.host, None), Lock(tree.host, mounted):
        with Lock(tree.host, replace(mounted, bdi="0:41")):
            pass
        with pytest.raises(FusetuneError, match="is working on /mnt/one"):
            Lock(tree.host, mounted)


def test_a_file_removed_between_open_and_lock_is_not_taken(tree: Tree) -> None:
    """Its holder unlinks it after our open: the lock must be on the file that has the name."""
    path = tree.host.run_dir / "host.lock"
    real = fcntl.flock
    calls = []

    def racing(fd: int, operation: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            path.unlink()
        elif len(calls) == 2:
            path.unlink()
            path.write_text("another process's")
        real(fd, operation)

    before = len(os.listdir("/proc/self/fd"))
    with mock.patch("fcntl.flock", racing), Lock(tree.host, None) as lock:
        assert len(calls) == 3
        assert len(os.listdir("/proc/self/fd")) == before + 1
        assert os.fstat(lock._fd).st_ino == path.stat().st_ino
        assert path.read_text() == str(os.getpid())


def test_a_lock_whose_file_is_gone_is_released_all_the_same(tree: Tree) -> None:
    """Whoever clears /run meanwhile does no harm."""
    with Lock(tree.host, None) as lock:
        (tree.host.run_dir / "host.lock").unlink()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lock._fd)


def test_a_lock_is_not_inherited_and_no_link_is_followed(tree: Tree, tmp_path: Path) -> None:
    with Lock(tree.host, None) as lock:
        assert not os.get_inheritable(lock._fd)
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tree.host.run_dir / "host.lock").symlink_to(victim)
    with pytest.raises(FusetuneError, match=r"cannot lock this host: .*; run it as root"):
        Lock(tree.host, None)
    assert victim.read_text() == "kept"


def test_the_lock_that_a_killed_one_left_is_cleared(tree: Tree, mounted: Mount) -> None:
    clear_after_crash(tree.host, mounted)
    assert not tree.host.run_dir.exists()
    tree.write("run/0:40.lock", "4242")
    clear_after_crash(tree.host, mounted)
    assert files_of_run(tree) == []
    with Lock(tree.host, mounted):
        clear_after_crash(tree.host, mounted)
        assert files_of_run(tree) == ["0:40.lock"]


def test_a_run_directory_that_cannot_be_made(tree: Tree) -> None:
    tree.write("run", "a file in its place")
    with pytest.raises(FusetuneError, match=r"cannot create .*/run: File exists"):
        Lock(tree.host, None)


@given(st.integers(0, 4095), st.integers(0, 1 << 20))
def test_keys_are_file_names(major: int, minor: int) -> None:
    device = f"{major}:{minor}"
    for bdi in (device, f"{device}-fuseblk", None):
        key = key_of(Mount("/mnt/a/b", "fuse", "source", device, bdi=bdi))
        assert "/" not in key
        assert key not in ("", ".", "..", "host")
    assert key_of(None) == "host"


# What is left alone


def test_what_is_left_alone_is_known_for_as_long_as_the_mount_lives(
    tree: Tree, mounted: Mount
) -> None:
    assert overrides(tree.host, mounted) == {}
    note_overrides(tree.host, mounted, {"max_ratio": 7})
    assert overrides(tree.host, mounted) == {"max_ratio": 7}
    assert mounted.instance
    assert overrides(tree.host, replace(mounted, instance=mounted.instance + 1)) == {}
    note_overrides(tree.host, mounted, {})
    note_overrides(tree.host, mounted, {})
    assert list(tree.host.run_dir.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"instance": 1}', '{"instance": 1, "values": 7}']
)
def test_a_note_that_a_crash_cut_short_says_nothing(tree: Tree, mounted: Mount, text: str) -> None:
    tree.write("run/0:40.left", text)
    assert overrides(tree.host, mounted) == {}
    remove_stale(tree.host)
    assert list(tree.host.run_dir.iterdir()) == []


# What is gone


def remembered(tree: Tree, mount: Mount) -> set[str]:
    """Remember all there is to remember of a mount, as if killed; return the files' names."""
    journal_with(tree.host, mount, RECORDS)
    note_overrides(tree.host, mount, {"max_ratio": 7})
    tree.write(f"run/{key_of(mount)}.lock", "4242")
    return {f"{key_of(mount)}.{kind}" for kind in ("journal", "left", "lock")}


def files(tree: Tree) -> set[str]:
    return {
        path.name
        for directory in (tree.host.state_dir / "undo", tree.host.run_dir)
        for path in directory.iterdir()
    }


def two_mounts(tree: Tree) -> tuple[Mount, Mount]:
    tree.mount("/mnt/one")
    tree.mount("/mnt/two", device="0:41")
    tree.live()
    tree.live(bdi="0:41", connection="41")
    one, two = discover(tree.host)
    return one, two


def test_what_is_remembered_of_gone_mounts_is_removed(tree: Tree) -> None:
    living, gone = two_mounts(tree)
    kept = remembered(tree, living) | {"host.journal"}
    journal_with(tree.host, None, RECORDS)
    of_gone = remembered(tree, gone)
    remove_stale(tree.host)
    assert files(tree) == kept | of_gone
    shutil.rmtree(tree.root / "sys/class/bdi/0:41")
    remove_stale(tree.host, key_of(living))
    assert files(tree) == kept | of_gone
    remove_stale(tree.host)
    assert files(tree) == kept


def test_a_note_that_another_fusetune_removes_meanwhile_is_no_error(
    tree: Tree, mounted: Mount
) -> None:
    note_overrides(tree.host, mounted, {"max_ratio": 7})

    def removing(path: Path) -> dict[str, int]:
        path.unlink()
        return {"instance": -1}

    with mock.patch("fusetune.changes.stale.read_overrides", removing):
        remove_stale(tree.host)
    assert files_of_run(tree) == []


def test_a_reused_device_number_is_another_mount(tree: Tree, mounted: Mount) -> None:
    remembered(tree, mounted)
    assert mounted.instance
    again = replace(mounted, instance=mounted.instance + 1)
    journal_with(tree.host, again, RECORDS)
    note_overrides(tree.host, again, {"max_ratio": 7})
    remove_stale(tree.host)
    assert files(tree) == {"0:40.lock"}  # nothing tells that it is another's


def killed_at(tree: Tree, mount: Mount) -> None:
    """Leave the lock of a process that was killed while it worked on the mount."""
    tree.write(f"run/{key_of(mount)}.lock", f"4242 {mount.instance}")


def test_a_lock_of_an_earlier_mount_with_this_number_is_removed(tree: Tree, mounted: Mount) -> None:
    assert mounted.instance
    killed_at(tree, replace(mounted, instance=mounted.instance + 1))
    remove_stale(tree.host)
    assert files_of_run(tree) == []
    killed_at(tree, mounted)
    remove_stale(tree.host)
    assert files_of_run(tree) == ["0:40.lock"]


def test_what_was_left_behind_at_an_earlier_mount_is_not_this_ones(
    tree: Tree, mounted: Mount
) -> None:
    assert mounted.instance
    for instance, is_ours in ((mounted.instance, True), (mounted.instance + 1, False)):
        killed_at(tree, replace(mounted, instance=instance))
        with Lock(tree.host, mounted) as lock:
            assert lock.left_behind is is_ours


def test_what_is_of_the_boot_before_is_removed(tree: Tree, mounted: Mount) -> None:
    journal_with(tree.host, mounted, RECORDS)
    journal_with(tree.host, None, RECORDS)
    remove_stale(tree.reboot())
    assert tree.journals() == []


def test_the_hosts_lock_is_no_gone_mounts(tree: Tree) -> None:
    """It tells the next holder that a killed one may have left its work unfinished."""
    tree.write("run/host.lock", "4242")
    remove_stale(tree.host)
    with Lock(tree.host, None) as lock:
        assert lock.left_behind


def test_a_lock_that_is_held_stays(tree: Tree) -> None:
    _, gone = two_mounts(tree)
    with Lock(tree.host, gone):
        shutil.rmtree(tree.root / "sys/class/bdi/0:41")
        remove_stale(tree.host)
        with pytest.raises(Busy):
            Lock(tree.host, gone)
    assert files_of_run(tree) == []


def files_of_run(tree: Tree) -> list[str]:
    return [path.name for path in tree.host.run_dir.iterdir()]


def test_a_damaged_journal_of_a_gone_mount_is_not_lost(tree: Tree, mounted: Mount) -> None:
    path = journal_with(tree.host, mounted, RECORDS)
    path.write_bytes(b"garbage\n")
    shutil.rmtree(tree.root / "sys/class/bdi/0:40")
    remove_stale(tree.host)
    assert path.read_bytes() == b"garbage\n"


# The note of a scratch directory


def test_a_scratch_note_lasts_as_long_as_its_context(tree: Tree, mounted: Mount) -> None:
    note = scratch_note(tree.host, mounted)
    tree.host.make_dir(note.parent)
    with noted(note, "/mnt/\udcff"):
        assert note.read_bytes() == b"/mnt/\xff"
    assert not note.exists()
    with pytest.raises(ZeroDivisionError), noted(note, "/mnt"):
        raise ZeroDivisionError
    assert not note.exists()
