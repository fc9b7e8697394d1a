# SPDX-License-Identifier: GPL-2.0-or-later
"""The processes of fusetune-intercept: number, size, and what remains if one is killed."""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.native.interception import (
    BINARY,
    OPTION,
    alive,
    answer,
    ask,
    parties_of,
    running,
)
from tests.native.mirror import PATIENCE, children, state_in, wait_for
from tests.native.requirements import requires
from tests.native.servers import mounts_at

pytestmark = requires("strace", binary=BINARY)


def test_memory_and_idleness(tmp_path: Path) -> None:
    """After 20 mounts, no process has ever had more than 2 MiB resident, and none wakes up."""
    with running(tmp_path / "mnt") as process:
        for _ in range(20):
            ask(process)
            assert answer(process) == "0"
        parties = parties_of(process.pid)
        wait_for(lambda: not children(parties[1]), "the last call's process to end")
        wait_for(lambda: all(map(_is_asleep, parties)), "the listener, which reaped it, to sleep")
        before = [_switches(pid) for pid in parties]
        time.sleep(0.3)  # long enough for a busy loop to show
        assert [_switches(pid) for pid in parties] == before
        for pid in parties:
            status = Path(f"/proc/{pid}/status").read_text()
            (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
            assert int(peak) <= 2048


def _is_asleep(pid: int) -> bool:
    return state_in(Path(f"/proc/{pid}/stat")) == "S"


def _switches(pid: int) -> list[str]:
    status = Path(f"/proc/{pid}/status").read_text()
    return re.findall(r"ctxt_switches:\s+(\d+)", status)


def test_listener_killed(tmp_path: Path) -> None:
    """A line says why later mounts fail; existing mounts stay."""
    with running(tmp_path / "mnt") as process:
        ask(process)
        assert answer(process) == "0"
        supervisor, listener = parties_of(process.pid)
        os.kill(listener, signal.SIGKILL)
        wait_for(lambda: supervisor not in alive(), "the supervisor to end")
        ask(process)
        assert answer(process) == "ENOSYS"
        assert len(mounts_at(tmp_path / "mnt")) == 1
        process.kill()
        _, errors = process.communicate()
    assert errors.count("\n") == 1
    assert "signal 9 ended the listener of" in errors


@pytest.mark.parametrize(
    ("party", "call", "answers", "mounts"),
    [
        # The descriptor is replaced after the mount is attached; both were done.
        ("caller", "move_mount", None, 0),
        ("request", "move_mount", "EIO", 0),
        ("listener", "move_mount", "0", 1),
        ("supervisor", "move_mount", "0", 1),
        # Nothing is attached yet.
        ("caller", "fsmount", None, 0),
        ("request", "fsmount", "EIO", 0),
        ("listener", "fsmount", "0", 1),
        # A source that is too long for fsmount(2). The request's process knows of the mount.
        ("caller", "mount", None, 0),
    ],
)
def test_killed_in_a_mount(
    party: str, call: str, answers: str | None, mounts: int, tmp_path: Path
) -> None:
    """If a process is killed just after a step, no mount without a server remains.

    strace delays the process of the call after the step, so the test does not depend on chance.
    """
    point = tmp_path / "mnt"
    source = "s" * 300 if call == "mount" else "s"
    with running(point, "ask", source) as process:
        supervisor, listener = parties_of(process.pid)
        tracer = _tracer(listener, call)
        ask(process)
        request = _held(listener)
        victims = {"caller": process.pid, "listener": listener, "supervisor": supervisor}
        os.kill(victims.get(party, request), signal.SIGKILL)
        if answers is not None:
            assert answer(process) == answers
        else:
            process.wait(PATIENCE)
        tracer.wait(PATIENCE) if party == "listener" else tracer.terminate()
        tracer.communicate(timeout=PATIENCE)
        _wait_for_mounts(point, mounts)


def test_calls_at_once(tmp_path: Path) -> None:
    """While one call is delayed, others are answered: all are delayed at the same time.

    None has a socket of another, which would keep the mount that this one has sent.
    """
    with running(tmp_path / "mnt", "at_once", "5") as process:
        listener = parties_of(process.pid)[1]
        before = _sockets(listener)
        tracer = _tracer(listener, "move_mount")
        ask(process)
        wait_for(lambda: len(children(listener)) == 5, "five calls at once")
        _held(listener)
        channels = _sockets(listener) - before
        assert len(channels) == 5
        assert not any(channels & _sockets(request) for request in children(listener))
        assert answer(process).count(OPTION) == 5
        process.wait(PATIENCE)
        tracer.terminate()
        tracer.communicate(timeout=PATIENCE)


def _sockets(pid: int) -> set[str]:
    names = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    return {name for name in names if name.startswith("socket:")}


def test_set_uid_program(open_path: Path) -> None:
    """A user's call gets no rights of a set-uid program that another thread has executed.

    The program takes over the thread's TID, so it must not be mistaken for the thread that mounts.
    """
    program, log, point = open_path / "program", open_path / "log", open_path / "mnt"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    with running(point, "executes", str(program)) as process:
        listener = parties_of(process.pid)[1]
        # The second time, it asks whether the call with these arguments still waits.
        tracer = _tracer(listener, "ioctl", ":when=2", traced=",setns,mount", log=log)
        ask(process)
        _held(listener)
        ask(process)
        wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") == str(program), "the program")
        wait_for(lambda: not children(listener), "the call's process to end")
        tracer.terminate()
        tracer.communicate(timeout=PATIENCE)
        assert "Uid:\t65534\t0\t0\t0\n" in Path(f"/proc/{process.pid}/status").read_text()
        assert not mounts_at(point)
    assert "ioctl(" in log.read_text()
    assert not re.findall("(?:setns|mount)[(].*", log.read_text())


@pytest.mark.parametrize("how", ["powerless", "users"])
def test_descriptors_of_a_calls_process(how: str, tmp_path: Path) -> None:
    """A caller with user ID 0 cannot use them, although the process has taken its rights."""
    secret = tmp_path / "hidden" / "secret"
    secret.parent.mkdir()
    secret.write_text("secret")
    with running(tmp_path / "mnt", "intrudes", str(secret), how) as process:
        listener = parties_of(process.pid)[1]
        tracer = _tracer(listener, "fsopen")
        ask(process)
        handler = _held(listener)
        assert _rights(handler) == _rights(process.pid) != _rights(listener)
        assert process.stdin
        process.stdin.write(f"{handler}\n")
        process.stdin.flush()
        assert answer(process) == "{''}"
        tracer.terminate()
        tracer.communicate(timeout=PATIENCE)


def _rights(pid: int) -> tuple[str, list[str]]:
    """Return the user namespace and the capabilities in it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return os.readlink(f"/proc/{pid}/ns/user"), re.findall(r"Cap(?:Prm|Eff):.*", status)


def _tracer(
    listener: int, call: str, when: str = "", traced: str = "", log: str | Path = "/dev/null"
) -> subprocess.Popen[bytes]:
    """Let strace delay each process of a call after that step."""
    words = ("-f", "-p", str(listener), "-e", f"trace={call}{traced}", "-o", str(log))
    hold = f"inject={call}:delay_exit=400000{when}"
    tracer = subprocess.Popen(["strace", *words, "-e", hold], stderr=subprocess.PIPE)
    assert tracer.stderr
    tracer.stderr.readline()  # attached
    return tracer


def _wait_for_mounts(point: Path, count: int) -> None:
    wait_for(lambda: len(mounts_at(point)) == count, f"{count} mounts to be left")


def _held(listener: int) -> int:
    """Return the process of a call once it must be in strace's delay."""
    since: dict[str, float] = {}

    def held() -> bool:
        with suppress(OSError, IndexError):  # not there yet
            pid = children(listener)[0]
            state = state_in(Path(f"/proc/{pid}/stat"))
            where = Path(f"/proc/{pid}/syscall").read_text() if state == "t" else "running"
            since.setdefault(where, time.monotonic())
            return where != "running" and time.monotonic() - since[where] > 0.05
        return False

    wait_for(held, "the step")
    return children(listener)[0]


@pytest.mark.parametrize("party", ["server", "supervisor", "listener", "request"])
def test_killed_at_random(party: str, tmp_path: Path) -> None:
    """Wherever the kill happens, no mount lacks a server.

    A server that is killed leaves the mount that it has made, as without interception.
    """
    draw = random.Random(party)
    for _ in range(6):
        with running(tmp_path / "mnt") as process:
            supervisor, listener = parties_of(process.pid)
            assert process.stdin
            process.stdin.write("\n" * 20)
            process.stdin.flush()
            assert answer(process) == "0"
            time.sleep(draw.uniform(0, 0.01))
            victims = {"server": process.pid, "supervisor": supervisor, "listener": listener}
            for pid in [victims[party]] if party in victims else children(listener):
                with suppress(ProcessLookupError):  # it has answered
                    os.kill(pid, signal.SIGKILL)
            if party == "server":
                continue
            process.stdin.close()
            process.stdin = None  # communicate() would flush it
            said = process.stdout.read().split() if process.stdout else []
            assert set(said) <= {"0", "EIO", "ENOSYS"}
            assert len(said) == 19
            _wait_for_mounts(tmp_path / "mnt", 1 + said.count("0"))
