# SPDX-License-Identifier: GPL-2.0-or-later
"""A journal survives crashes and full disks, and damaged lines are never trusted.

A crash may leave any prefix of an append, because the file is synced after each (fsync(2)).
"""

import json
import os
import zlib
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fusetune.changes.journal import Damaged, Journal
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree
from tests.unit.journals import RECORDS, journal_with


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
    """Replace one byte of a journal: it is moved aside unchanged, or reads as before."""
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
    with pytest.raises(Damaged, match="the undo journal of /mnt/one was damaged and was moved to"):
        Journal.to_change(tree.host, mounted)
    assert Journal(tree.host, mounted).records == []


def test_a_journal_of_another_version_is_kept_aside(tree: Tree, mounted: Mount) -> None:
    """Well formed, but the first line has another version, so its lines may mean anything."""
    path = journal_with(tree.host, mounted, RECORDS)
    about, *rest = path.read_bytes().splitlines(keepends=True)
    fields = json.loads(about.split(b" ", 2)[2]) | {"schema": 2}
    text = json.dumps(fields).encode()
    whole = b"%08x %d %s\n" % (zlib.crc32(text), len(text), text) + b"".join(rest)
    path.write_bytes(whole)
    with pytest.raises(Damaged, match="the undo journal of /mnt/one is damaged"):
        Journal(tree.host, mounted)
    with pytest.raises(Damaged, match="was moved to"):
        Journal.to_change(tree.host, mounted)
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == whole


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
