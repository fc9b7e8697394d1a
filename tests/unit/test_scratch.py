# SPDX-License-Identifier: GPL-2.0-or-later
"""The scratch directory by descriptor, on a real directory; the process that replies.

A descriptor refers to the opened directory, whatever its name now refers to (openat(2)).
"""

import errno
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusetune.bench.holder import Directory, is_scratch_file
from fusetune.bench.papers.catalogue import PAPERS
from fusetune.bench.sandbox import ROOT_OVER_MODES, command
from fusetune.bench.worker import Companion, Owner, Unanswered, forked, hear, respond
from fusetune.bench.workloads import WORKLOADS
from fusetune.errors import FusetuneError
from fusetune.syscalls import RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, openat2

NAME = ".fusetune-0123456789abcdef"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Directory]:
    (tmp_path / NAME).mkdir()
    top = os.open(tmp_path, os.O_PATH)
    fd = os.open(tmp_path / NAME, os.O_RDONLY | os.O_DIRECTORY)
    yield Directory(top, NAME, fd)
    os.close(fd)
    os.close(top)


def test_removal_takes_the_files_of_workloads(held: Directory, tmp_path: Path) -> None:
    for name in ("read-data", "write-data", "small.0", "own-4.3", "w.9", "shared"):
        (tmp_path / NAME / name).write_bytes(b"x")
    assert held.remove() == []
    assert list(tmp_path.iterdir()) == []


def test_removal_goes_on_where_one_file_resists(
    held: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, tried = os.unlink, list[str]()

    def resist(name: str, dir_fd: int) -> None:
        tried.append(name)
        if name == tried[0]:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", resist)
    for number in range(3):
        (tmp_path / held.name / f"small.{number}").touch()
    with pytest.raises(PermissionError):
        held.remove()
    assert os.listdir(tmp_path / held.name) == tried[:1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["write-data", "letter"])
def test_removal_leaves_what_fusetune_did_not_make(
    held: Directory, tmp_path: Path, name: str
) -> None:
    """A link represents everything that is not a regular file."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    (tmp_path / NAME / name).symlink_to(outside)
    (tmp_path / NAME / "read-data").write_bytes(b"x")
    assert held.remove() == [name]
    assert os.listdir(tmp_path / NAME) == [name]
    assert outside.read_bytes() == b"kept"


def test_another_directory_by_the_name_is_left(held: Directory, tmp_path: Path) -> None:
    (tmp_path / NAME / "write-data").write_bytes(b"x")
    (tmp_path / NAME).rename(tmp_path / "moved")
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "write-data").write_bytes(b"theirs")
    assert held.examine(["write-data"]) is None
    assert held.remove() == []
    assert (tmp_path / NAME / "write-data").read_bytes() == b"theirs"
    assert os.listdir(tmp_path / "moved") == []


def test_a_look_tells_kind_size_and_what_was_replaced(held: Directory, tmp_path: Path) -> None:
    file, pipe = tmp_path / NAME / "read-data", tmp_path / NAME / "write-data"
    file.write_bytes(b"12345")
    os.mkfifo(pipe)
    names = ["read-data", "write-data", "shared"]
    assert held.examine(names) == {"read-data": ("-", 5, False), "write-data": ("p", 0, False)}
    file.rename(tmp_path / "old")
    file.write_bytes(b"1")
    found = held.examine(names)
    assert found
    assert found["read-data"] == ("-", 1, True)


def test_a_look_follows_no_link(held: Directory, tmp_path: Path) -> None:
    (tmp_path / NAME / "write-data").symlink_to("/etc/passwd")
    assert held.examine(["write-data"]) == {"write-data": ("l", len("/etc/passwd"), False)}


def test_openat2_keeps_beneath(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(".")
    top = os.open(tmp_path, os.O_PATH)
    try:
        for path in ("..", "/", "link/."):
            with pytest.raises(OSError, match=r"Invalid cross-device link|Too many levels"):
                openat2(top, path, os.O_PATH, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
    finally:
        os.close(top)


def test_every_job_makes_files_that_are_known() -> None:
    jobs = [w.job for w in WORKLOADS.values()]
    jobs += [w.job for work in PAPERS.values() for w in work.workloads]
    named = [name for job in jobs for name in re.findall(r"^filename(?:_format)?=(.+)$", job, re.M)]
    assert len(named) > 20
    for name in named:
        assert is_scratch_file(re.sub(r"\$(jobnum|filenum)", "7", name)), name
    assert not any(map(is_scratch_file, ("read-data2", "small.", "../w.1", "own-.1", "fusetune")))


def serve(line: socket.socket) -> None:
    """Answer each question with its argument, after that many seconds."""
    while question := line.recv(1000):
        seconds = float(question.decode().strip("[]").split(",")[1])
        time.sleep(seconds)
        respond(line, lambda seconds=seconds: seconds)  # type: ignore[misc]


def test_a_late_answer_is_not_taken_for_the_next() -> None:
    companion = Companion(serve)
    with pytest.raises(Unanswered):
        companion.ask(0.0, "wait", 0.2)
    assert companion.ask(10.0, "wait", 0.1) == 0.1
    companion.close()
    assert not os.path.exists(f"/proc/{companion.pid}")


def test_what_goes_wrong_there_is_raised_here() -> None:
    def fail(line: socket.socket) -> None:
        respond(line, lambda: os.stat("/nonexistent"))
        respond(line, lambda: (_ for _ in ()).throw(FusetuneError("no way")))

    companion = Companion(fail)
    with pytest.raises(FileNotFoundError):
        companion.hear(10.0)
    with pytest.raises(FusetuneError, match="no way"):
        companion.hear(10.0)
    with pytest.raises(OSError, match="Input/output error"):
        companion.hear(10.0)
    companion.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_the_owner_cannot_keep_a_process_waiting(number: int) -> None:
    """The child that acts as the owner of a mount may get any signal from the owner."""

    def serve(line: socket.socket) -> None:
        line.send(json.dumps({"value": os.getpid()}).encode())
        signal.pause()

    def wait_for_the_child() -> None:
        with forked(Owner(os.geteuid(), os.getegid()), serve) as line:
            pid = hear(line)
            threading.Timer(0.2, os.kill, (pid, number)).start()
            hear(line)

    with pytest.raises(OSError, match="Input/output error"):
        wait_for_the_child()
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_the_command_line_gives_away_every_right_but_those_named() -> None:
    words = command(7, True, ROOT_OVER_MODES, ["fio", "-"])
    assert words[:2] == ["nsenter", "--target=7"]
    assert "--bounding-set=-all,+dac_override" in words
    assert "--no-new-privs" in words
    assert words[-4:] == ["--chdir=/scratch", "--", "fio", "-"]
    assert "nsenter" not in command(7, False, None, ["fio"])
