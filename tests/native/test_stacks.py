# SPDX-License-Identifier: GPL-2.0-or-later
"""Stacks of real servers: their layers are found, and the bottleneck is named.

The servers are Debian's packages, and mirrorfs with a bandwidth limit, so the bottleneck is known.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import NOBODY, requires, write_sysfs
from tests.native.mirror import BINARY, PATIENCE, Mirror, wait_for
from tests.native.new_values import AT_ONCE
from tests.native.program import Fusetune
from tests.native.servers import also_mounted, command_of, mounts_at, run_server, serve, stopped

pytestmark = requires(
    *(
        "bindfs",
        "fuse-overlayfs",
        "gocryptfs",
        "losetup",
        "mergerfs",
        "mkntfs",
        "nsenter",
        "ntfs-3g",
    ),
    "sshfs",
)

#: Bytes per second of the slowest layer; the others are at least ten times as fast.
_SLOW = "4M"


class Tower:
    """Mounts, each on the previous one; unmounted in reverse order at the end."""

    def __init__(self, directory: Path, source: Path, contexts: ExitStack) -> None:
        self.directory = directory
        self.top = source
        self.points: list[Path] = []
        self._contexts = contexts

    def add(self, server: str, *options: str, on: str = "") -> Path:
        """Mount ``server`` with more options on the top, or on ``on``; return the mount point."""
        number = len(self.points)
        point, scratch = self.directory / f"{number}-{server}", self.directory / f"scratch{number}"
        scratch.mkdir()
        command = command_of(server, Path(on) if on else self.top, point, scratch)
        command[1:1] = options
        self._contexts.enter_context(run_server(command, point, scratch / "log"))
        self.points.append(point)
        self.top = point
        return point


@pytest.fixture
def tower(tmp_path: Path, tmpfs_dir: Path) -> Iterator[Tower]:
    """A tower on a tmpfs."""
    with ExitStack() as contexts:
        yield Tower(tmp_path, tmpfs_dir / "source", contexts)


def _slow_bottom(tower: Tower) -> Path:
    slow = tower.add("mirrorfs", "-o", f"bandwidth={_SLOW}")
    tower.add("mergerfs")
    tower.add("bindfs")
    return slow


def _slow_middle(tower: Tower) -> Path:
    tower.add("bindfs")
    slow = tower.add("mirrorfs", "-o", f"bandwidth={_SLOW}")
    tower.add("gocryptfs")
    return slow


def _slow_top(tower: Tower) -> Path:
    tower.add("mirrorfs")
    tower.add("mergerfs")
    return tower.add("mirrorfs", "-o", f"bandwidth={_SLOW}")


def _slow_network(tower: Tower) -> Path:
    # Not a layer of the stack: on a real host it is the remote end.
    tower.add("mirrorfs", "-o", f"bandwidth={_SLOW}")
    slow = tower.add("sshfs")
    tower.add("mergerfs")
    tower.add("gocryptfs")
    return slow


def _slow_branch(tower: Tower) -> Path:
    source = tower.top
    fast = tower.add("mirrorfs")
    slow = tower.add("mirrorfs", "-o", f"bandwidth={_SLOW}", on=str(source))
    tower.add("mergerfs", "-o", "category.create=ff", on=f"{slow}:{fast}")
    return slow


@pytest.mark.alone
@pytest.mark.parametrize(
    "build", [_slow_bottom, _slow_middle, _slow_top, _slow_network, _slow_branch]
)
def test_the_layer_that_limits_is_named(
    fusetune: Fusetune, tower: Tower, build: Callable[[Tower], Path]
) -> None:
    slow = build(tower)
    words = ("--measure-layers", "-w", "seq-write", "--size", "4M")
    for budget in ("10s", "60s"):  # other load on this host may hide the difference for a while
        found = fusetune.json("advise", tower.top, *words, "--budget", budget)
        if found["limits"]:
            break
    shares = {one["path"]: one["share"] and one["share"]["share"] for one in found["layers"]}
    assert found["limits"], shares
    assert found["limits"]["path"] == str(slow), shares
    assert shares[str(slow)] > 0.5


def _stack(fusetune: Fusetune) -> dict[str, list[tuple[str, str]]]:
    """Return what each mount lies on, and how ``list --tree`` found that."""
    found = fusetune.json("list", "--tree", timeout=AT_ONCE)
    return {
        one["path"]: [(layer["path"], layer["found_by"]) for layer in one["below"]]
        for one in (*found["mounts"], *found["layers"])
    }


def test_a_stack_is_shown(fusetune: Fusetune, tower: Tower) -> None:
    sshfs, mergerfs = tower.add("sshfs"), tower.add("mergerfs")
    bound = tower.directory / "bound"
    bound.mkdir()
    with also_mounted("--bind", mergerfs, bound):
        gocryptfs = tower.add("gocryptfs", on=str(bound))
        shown = _stack(fusetune)
        # Its source is on another host.
        assert shown[str(sshfs)] == []
        assert shown[str(mergerfs)] == [(str(sshfs), "argument")]
        assert [path for path, _ in shown[str(gocryptfs)]] == [str(mergerfs)]
        lines = fusetune("list", "--tree").stdout.splitlines()[1:]
        drawn = [line.partition("  ")[0] if line[0] == "/" else line.split()[0] for line in lines]
        assert drawn == [str(gocryptfs), f"└─{mergerfs}", "└─" + str(sshfs)]
        assert f"  lies on {sshfs} (fuse.sshfs, found by argument)\n" in fusetune("report").stdout
        labels = f'mount="{mergerfs}"'
        metrics = fusetune("report", "--format", "prometheus").stdout.splitlines()
        (line,) = (one for one in metrics if one.startswith("fusetune_layer") and labels in one)
        assert f'below="{sshfs}",below_device=' in line
        text = fusetune("advise", gocryptfs).stdout
        assert text.startswith("layers, from the bottom up:\n")
        commands = f"'fusetune advise {sshfs}', then 'fusetune advise {mergerfs}'"
        assert f"tune from the bottom up: first {commands}\n" in text


def test_an_overlay(fusetune: Fusetune, tower: Tower) -> None:
    lower, overlay = tower.add("mirrorfs"), tower.add("fuse-overlayfs")
    assert str(lower) in dict(_stack(fusetune)[str(overlay)])


def test_a_loop_device(fusetune: Fusetune, tower: Tower, tmp_path: Path) -> None:
    lower = tower.add("mirrorfs")
    with (lower / "image").open("wb") as stream:
        stream.truncate(16 << 20)
    _run("mkntfs", "-F", "-Q", "-q", lower / "image")
    device = _run("losetup", "--find", "--show", lower / "image").strip()
    try:
        point = tmp_path / "image"
        with run_server(["ntfs-3g", "-o", "no_detach", device, point], point, tmp_path / "log"):
            assert _stack(fusetune)[str(point)] == [(str(lower), "loop device")]
    finally:
        _run("losetup", "--detach", device)


def _run(*words: str | Path) -> str:
    done = subprocess.run(words, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True)
    return done.stdout


def test_a_server_below_that_hangs_is_not_waited_for(
    fusetune: Fusetune, mirror: Mirror, tower: Tower
) -> None:
    upper = tower.add("bindfs", on=str(mirror.mountpoint))
    with stopped(mirror):
        assert _stack(fusetune)[str(upper)][0][0] == str(mirror.mountpoint)
        fusetune.json("advise", upper, timeout=AT_ONCE)
        fusetune.json("doctor", timeout=AT_ONCE)


# The server has the epoll instance, and another process lets it poll a file. That is not the test's
# own, where each new child would close the file, which waits as well.
POLLING = """
import os, select, subprocess, sys, threading
binary, source, point, file = sys.argv[1:]
epoll = select.epoll()
server = subprocess.Popen([binary, "-f", source, point], pass_fds=[epoll.fileno()])
polled = os.open(file, os.O_RDONLY)
print("open", flush=True)
sys.stdin.readline()
threading.Thread(target=epoll.register, args=[polled], daemon=True).start()
sys.stdin.readline()
server.terminate()
server.wait()
"""


def test_an_epoll_instance_of_a_server_is_not_waited_for(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path
) -> None:
    """Its fdinfo waits, even for SIGKILL, while it polls a file that does not reply."""
    (mirror.source / "file").touch()
    waiting = Path(f"/sys/fs/fuse/connections/{mirror.bdi.partition(':')[2]}/waiting")
    point = tmp_path / "other"
    point.mkdir()
    words: list[str | Path] = [sys.executable, "-c", POLLING, BINARY, mirror.source, point]
    words.append(mirror.mountpoint / "file")
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as poller:
        assert poller.stdin
        assert poller.stdout
        assert poller.stdout.readline() == "open\n"
        wait_for(lambda: bool(mounts_at(point)), "the mount")
        with stopped(mirror):
            before = int(waiting.read_text())
            print(file=poller.stdin, flush=True)
            wait_for(lambda: int(waiting.read_text()) > before, "the poll")
            for asked in (["list", "--tree"], ["doctor"], ["advise", point]):
                fusetune.json(*asked, timeout=AT_ONCE)
        poller.communicate("\n", PATIENCE)


def test_a_layer_in_another_mount_namespace(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    _run("mount", "--make-rshared", tmp_path / "tmpfs")
    hidden, point, log = tmp_path / "hidden", tmpfs_dir / "mnt", tmp_path / "log"
    hidden.mkdir()
    apart = ["unshare", "--mount", "--propagation", "unchanged", "--"]
    with subprocess.Popen([*apart, BINARY, "-f", tmpfs_dir / "source", hidden]) as process:
        try:
            mountinfo = Path(f"/proc/{process.pid}/mountinfo")
            wait_for(lambda: f" {hidden} " in mountinfo.read_text(), "the hidden mount")
            inside = ["nsenter", f"--mount=/proc/{process.pid}/ns/mnt", "--"]
            with run_server([*inside, BINARY, "-f", hidden, point], point, log):
                found = fusetune.json("list", "--tree")
                (one,) = found["mounts"]
                assert [(each["path"], each["elsewhere"]) for each in one["below"]] == [
                    (str(hidden), True)
                ]
                line = fusetune.fails("advise", point, "--measure-layers")
                assert f"{hidden}: it is in another mount namespace" in line
        finally:
            process.terminate()


def test_a_readahead_below_splits_the_requests_of_the_layer_above(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    (tmpfs_dir / "source" / "file").write_bytes(b"x" * (8 << 20))

    def largest_read() -> int:
        lower.reset_counters()
        subprocess.run(["cat", upper.mountpoint / "file"], check=True, stdout=subprocess.DEVNULL)
        size: int = lower.counters()["ops"]["READ"]["largest_bytes"]
        return size

    with (
        Mirror(tmpfs_dir / "source", tmp_path / "lower") as lower,
        Mirror(lower.mountpoint, tmp_path / "upper") as upper,
    ):
        write_sysfs(upper.bdi, read_ahead_kb=1024)
        (finding,) = _readahead_findings(fusetune)
        assert finding["mount"] == str(upper.mountpoint)
        assert largest_read() == 128 << 10
        command = finding["remedy"].rpartition(", or '")[2].rstrip("'").split()
        assert fusetune(*command[1:]).returncode == 0
        assert _readahead_findings(fusetune) == []
        assert largest_read() > 128 << 10


def _readahead_findings(fusetune: Fusetune) -> list[dict[str, Any]]:
    findings = fusetune.json("doctor")["findings"]
    return [one for one in findings if one["name"] == "readahead-below"]


def test_layers_that_cannot_be_measured_are_left_out(fusetune: Fusetune, tower: Tower) -> None:
    locked = tower.add("mirrorfs", "-o", "ro")
    tower.add("bindfs")
    line = fusetune.fails("advise", tower.top, "--measure-layers", "--budget", "5s")
    assert line.endswith(f"no mount below it can be measured: {locked}: it is read-only")


def test_a_user_cannot_have_roots_mount_measured(
    fusetune: Fusetune, mirror: Mirror, open_path: Path
) -> None:
    source, point = open_path / "source", open_path / "mnt"
    for directory in (source, point):
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
    with serve("mirrorfs", source, point, uid=NOBODY, options=f"fsname={mirror.mountpoint}"):
        shown = _stack(fusetune)
        assert (str(mirror.mountpoint), "argument") in shown[str(point)]
        mirror.reset_counters()
        line = fusetune.fails("advise", point, "--measure-layers")
        assert "it is known only from the server of another user's mount" in line
        assert mirror.counters()["ops"]["MKDIR"]["count"] == 0
