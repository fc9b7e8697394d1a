# SPDX-License-Identifier: GPL-2.0-or-later
"""The service on real mounts: values are in place as mounts come, whatever happens meanwhile.

It runs as udev starts it, but without systemd: the tests read what it tells its supervisor
(sd_notify(3)). The bdi's event comes before the mount is visible, and the reply to INIT overwrites
values (fs/fuse/inode.c, process_init_reply()).
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fusetune.desired.reset import reset
from tests.native.conftest import STOCK, Fusetune, requires, sysfs_files, sysfs_values, write_sysfs
from tests.native.mirror import CHECKOUT, PATIENCE, Mirror, wait_for
from tests.native.raw import RawMounts, RawServer
from tests.native.servers import missing, mounts_at, serve
from tests.tmpfs import tmpfs

pytestmark = requires("strace")

KEPT = {
    "read_ahead_kb": 4096,
    "max_background": 64,
    "congestion_threshold": 48,
    "max_ratio": 20,
    "strict_limit": 1,
}
PIPE = Path("/proc/sys/fs/pipe-max-size")
LIMIT = Path("/proc/sys/fs/fuse/max_pages_limit")
SECTION = "[[mount]]\n" + "".join(
    f"{name} = {value}\n" for name, value in KEPT.items() if name != "strict_limit"
)


class Watching:
    """A running ``fusetune watch``, ready once constructed; killed at the end of the context."""

    def __init__(self, fusetune: Fusetune, idle: float = 600.0) -> None:
        self._stack = ExitStack()
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="watch-")))
        self._log = directory / "stderr"
        self._socket = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._socket.bind(str(directory / "notify"))
        self.notified: list[str] = []
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                fusetune.command("watch", "--idle", f"{idle}"),
                cwd=CHECKOUT,
                env={**os.environ, "NOTIFY_SOCKET": str(directory / "notify")},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            wait_for(lambda: self.told("READY=1") or self.process.poll() is not None, "it")
        except BaseException:
            self.__exit__()
            raise

    def told(self, word: str) -> bool:
        """Whether it has told its supervisor ``word``."""
        try:
            while True:
                text = self._socket.recv(4096, socket.MSG_DONTWAIT).decode()
                self.notified += text.split()
        except BlockingIOError:
            return word in self.notified

    def said(self, text: str = "") -> list[str]:
        """Return the lines on stderr that hold ``text``."""
        return [line for line in self._log.read_text().splitlines() if text in line]

    def saying(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait for such a line."""
        wait_for(lambda: bool(self.said(text)), f"{text!r} in {self.said()}", timeout)

    def saying_lines(self, count: int, text: str = "") -> list[str]:
        """Wait for ``count`` such lines and return them: values are there before they are told."""
        wait_for(lambda: len(self.said(text)) >= count, f"{count} lines in {self.said()}")
        assert len(self.said(text)) == count
        return self.said(text)

    def reload(self) -> None:
        """Send SIGHUP and wait until it has taken effect."""
        count = self.notified.count("READY=1")
        self.process.send_signal(signal.SIGHUP)
        wait_for(
            lambda: self.told("READY=1") and self.notified.count("READY=1") > count, "a reload"
        )

    def end(self, number: signal.Signals | None = None) -> None:
        """Let it end, by idleness or by ``number``; it must end well."""
        if number:
            self.process.send_signal(number)
        assert self.process.wait(60) == 0, "\n".join(self.said()[-20:])
        assert self.told("STOPPING=1")
        assert not self.said("Traceback")

    def __enter__(self) -> "Watching":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(PATIENCE)
        self._stack.close()


def has(bdi: str, **values: int) -> None:
    """Wait until the mount has the values, the others being stock."""
    wanted = STOCK | values
    wait_for(lambda: sysfs_values(bdi) == wanted, f"{wanted}, not {sysfs_values(bdi)}")


def _left(fusetune: Fusetune) -> list[Path]:
    directories = (fusetune.run, fusetune.state / "undo")
    return [file for directory in directories if directory.exists() for file in directory.iterdir()]


def nothing_left(fusetune: Fusetune) -> None:
    assert _left(fusetune) == []


def cleared(fusetune: Fusetune) -> None:
    """Wait until the service has forgotten the mounts that are gone: its end may come sooner."""
    wait_for(lambda: not _left(fusetune), "the end of what is remembered")


# Mounts as they come


@pytest.mark.parametrize("server", ["mirrorfs", "sshfs", "bindfs"])
def test_values_are_in_place_after_the_mount(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path, server: str
) -> None:
    if lacking := missing(server):
        pytest.skip(f"missing: {', '.join(lacking)}")
    file = fusetune.configure(SECTION)
    with Watching(fusetune) as watching:
        for _ in range(3):
            with serve(server, tmpfs_dir / "source", tmp_path / "mnt") as bdi:
                has(bdi, **KEPT)
        lines = watching.saying_lines(3, str(tmp_path / "mnt"))
        assert all(f"read_ahead_kb 128 -> 4096 ({file}:2)" in line for line in lines)
        cleared(fusetune)
        watching.end(signal.SIGTERM)
    nothing_left(fusetune)


def test_a_mount_that_was_there_before(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.configure(SECTION)
    with Watching(fusetune, idle=0.2) as watching:
        watching.end()
        assert len(watching.said()) == 1
    assert sysfs_values(mirror.bdi) == KEPT
    fusetune.json("verify")
    with Watching(fusetune, idle=0.2) as watching:
        watching.end()
        assert watching.said() == []
    fusetune.json("reset", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == STOCK


def test_what_auto_or_save_kept_is_in_place_at_the_next_mount(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "mnt") as bdi:
        fusetune.json("set", bdi, "read_ahead_kb=1M")
        fusetune.json("save", bdi)
    with Watching(fusetune), serve("mirrorfs", tmpfs_dir / "source", tmp_path / "mnt") as bdi:
        has(bdi, read_ahead_kb=1024)
        with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "other") as other:
            assert sysfs_values(other) == STOCK


def test_an_unanswered_init_hinders_no_other_mount(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    fusetune.configure(SECTION)
    with RawServer(tmp_path / "raw") as raw, Watching(fusetune, idle=0.2) as watching:
        has(raw.device, **KEPT)
        with serve("mirrorfs", tmpfs_dir / "source", tmp_path / "mnt") as bdi:
            has(bdi, **KEPT)
        assert watching.process.poll() is None
        watching.saying("its server has not replied to INIT for 30 s", 45)
        # Nor does it wait for that by looking all the time, where its idle end would be sooner.
        fields = Path(f"/proc/{watching.process.pid}/stat").read_text().rpartition(")")[2].split()
        assert sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") < 10
        watching.end()
        assert len(watching.said(str(raw.point))) == 2


def test_a_server_with_values_of_its_own(fusetune: Fusetune, tmp_path: Path) -> None:
    """What it answers to INIT overwrites ours, also long after they were set."""
    fusetune.configure(SECTION)
    with Watching(fusetune) as watching:
        with RawServer(tmp_path / "raw") as raw:
            raw.answer(64 << 10, 30)
            has(raw.device, **KEPT)
            watching.saying_lines(1)
        with RawServer(tmp_path / "raw") as raw:
            has(raw.device, **KEPT)  # after half a second
            watching.saying_lines(2)
            raw.answer(64 << 10, 30)
            last = watching.saying_lines(3)[-1]
            assert sysfs_values(raw.device) == KEPT
            assert re.search(r"read_ahead_kb 64 -> 4096 .*max_background 30 -> 64", last)
            assert "max_ratio" not in last
        cleared(fusetune)
        watching.end(signal.SIGTERM)
        assert len(watching.said()) == 3
    nothing_left(fusetune)


def test_a_server_that_asks_for_more_than_we_want(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    fusetune.configure("[[mount]]\nmax_background = 16\nread_ahead_kb = 32\n")
    options = ("max_background=100", "max_readahead=64K")
    with Watching(fusetune), Mirror(tmpfs_dir / "source", tmp_path / "mnt", *options) as mirror:
        has(mirror.bdi, max_background=16, read_ahead_kb=32, congestion_threshold=75)


# Whose values they are


def test_what_was_set_by_hand_since_is_left_alone_and_said_once(
    fusetune: Fusetune, mirror: Mirror
) -> None:
    fusetune.configure(SECTION)
    told = "max_ratio=7 was set by somebody else and is left alone"
    with Watching(fusetune) as watching:
        has(mirror.bdi, **KEPT)
        write_sysfs(mirror.bdi, max_ratio=7)
        for _ in range(2):
            watching.reload()
        watching.saying(told)
        watching.end(signal.SIGTERM)
        assert len(watching.said(told)) == 1
    with Watching(fusetune, idle=0.2) as watching:
        watching.end()
        assert watching.said() == []
    assert sysfs_values(mirror.bdi) == KEPT | {"max_ratio": 7}
    assert fusetune.json("verify", code=3)["differences"] == 1
    fusetune.json("apply", mirror.mountpoint)
    assert sysfs_values(mirror.bdi) == KEPT


def test_a_number_that_is_reused_at_once(fusetune: Fusetune, tmp_path: Path) -> None:
    """Unmounted, and another mounted with its number, while the service looks away."""
    fusetune.configure(
        "[[mount]]\nfstype = 'fuse.raw'\nmax_ratio = 20\n"
        "[[mount]]\nfstype = 'fuse.other'\nmax_background = 33\n"
    )
    with Watching(fusetune) as watching:
        with RawServer(tmp_path / "one") as one:
            one.answer()
            has(one.device, max_ratio=20)
            write_sysfs(one.device, max_ratio=7)
            watching.reload()
            watching.saying("left alone")
            watching.process.send_signal(signal.SIGSTOP)
        with RawServer(tmp_path / "one", "fuse.other") as other:
            other.answer()
            assert other.device == one.device
            watching.process.send_signal(signal.SIGCONT)
            has(other.device, max_background=33)
            watching.saying_lines(1, "fuse.other")
        cleared(fusetune)
        watching.end(signal.SIGTERM)
    nothing_left(fusetune)


def test_two_file_systems_on_one_mount_point(fusetune: Fusetune, tmp_path: Path) -> None:
    fusetune.configure(
        f"[[mount]]\npath = '{tmp_path}/mnt'\nmax_ratio = 20\n"
        f"[[mount]]\npath = '{tmp_path}/mnt'\nfstype = 'fuse.other'\nmax_background = 33\n"
    )
    with (
        Watching(fusetune),
        RawServer(tmp_path / "mnt") as below,
        RawServer(tmp_path / "mnt", "fuse.other") as above,
    ):
        for raw in (above, below):
            raw.answer()
        has(below.device, max_ratio=20)
        has(above.device, max_ratio=20, max_background=33)


def test_the_directory_of_the_mount_point_is_renamed(fusetune: Fusetune, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    fusetune.configure(
        f"[[mount]]\npath = '{tmp_path}/old/mnt'\nmax_ratio = 20\n"
        f"[[mount]]\npath = '{tmp_path}/new/mnt'\nmax_ratio = 30\n"
    )
    with Watching(fusetune) as watching, RawServer(tmp_path / "old" / "mnt") as raw:
        raw.answer()
        has(raw.device, max_ratio=20)
        (tmp_path / "old").rename(tmp_path / "new")
        raw.point = tmp_path / "new" / "mnt"
        watching.reload()
        has(raw.device, max_ratio=30)


# What goes wrong meanwhile


def test_a_storm_of_mounts_that_are_gone_at_once(fusetune: Fusetune, tmp_path: Path) -> None:
    fusetune.configure(SECTION)
    with Watching(fusetune, idle=1.0) as watching:
        for number in range(150):
            with RawServer(tmp_path / f"{number % 7}") as raw:
                if number % 3:
                    raw.answer()
                time.sleep(number % 5 / 100)
        watching.end()
        assert [line for line in watching.said() if " -> " not in line] == []
        assert watching.said()
    nothing_left(fusetune)


def test_garbage_in_the_configuration_while_it_runs(fusetune: Fusetune, tmp_path: Path) -> None:
    file = fusetune.configure(SECTION)
    with Watching(fusetune) as watching:
        file.write_bytes(b"\xff[[mount\n")
        watching.reload()
        (line,) = watching.said()
        assert str(file) in line
        assert line.endswith("the previous configuration stays in force")
        with RawServer(tmp_path / "one") as raw:
            raw.answer()
            has(raw.device, **KEPT)
        file.write_text("[[mount]]\nmax_ratio = 101\n")  # seen at the next mount, unasked
        with RawServer(tmp_path / "two") as raw:
            raw.answer()
            has(raw.device, **KEPT)
        assert len(watching.said(f"{file}:2: max_ratio=101 is out of range")) == 1
        file.write_text("[[mount]]\nmax_ratio = 30\n")
        with RawServer(tmp_path / "three") as raw:
            raw.answer()
            has(raw.device, max_ratio=30)
        watching.end(signal.SIGTERM)


def test_a_state_directory_that_is_read_only(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path
) -> None:
    fusetune.configure(SECTION)
    fusetune.state.mkdir()
    with tmpfs(fusetune.state, "size=1M") as state:
        subprocess.run(["mount", "-o", "remount,ro", state], check=True)
        with Watching(fusetune, idle=0.2) as watching:
            watching.end()
            (line,) = watching.said()
            assert "nothing was changed" in line or "cannot create" in line
        assert sysfs_values(mirror.bdi) == STOCK
        assert fusetune.json("verify", code=3)["differences"] == 4
    nothing_left(fusetune)


def test_a_wrong_configuration_at_the_start(fusetune: Fusetune, mirror: Mirror) -> None:
    file = fusetune.configure("[[mount]]\nmax_ration = 1\n")
    assert f"{file}:2: unknown key" in fusetune.fails("watch")
    assert sysfs_values(mirror.bdi) == STOCK


CALLS = ["openat", "write", "pwrite64", "fsync", "flock", "?unlink,?unlinkat"]


def killed(fusetune: Fusetune, bdi: str, call: str) -> Iterator[int]:
    """Run it once for each such call on its files, killed as it enters it, until it is not."""
    paths = [
        *(fusetune.state, fusetune.state / "undo", fusetune.state / "undo" / f"{bdi}.journal"),
        *(fusetune.run, fusetune.run / f"{bdi}.lock", *sysfs_files(bdi).values()),
    ]
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    strace += [word for path in paths for word in ("-P", str(path))]
    for number in range(1, 100):
        write_sysfs(bdi, **STOCK)
        for directory in (fusetune.state, fusetune.run):
            shutil.rmtree(directory, ignore_errors=True)
        inject = ["-e", f"inject={call}:signal=KILL:when={number}", "--"]
        done = fusetune("watch", "--idle", "0.05", before=[*strace, *inject])
        if done.returncode == 0:
            return
        assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
        yield number
    pytest.fail("it was killed every time")


@pytest.mark.parametrize("call", CALLS)
def test_what_a_killed_one_began_the_next_one_finishes(
    fusetune: Fusetune, mirror: Mirror, call: str
) -> None:
    fusetune.configure(SECTION)
    kills = 0
    for kills in killed(fusetune, mirror.bdi, call):
        done = fusetune("watch", "--idle", "0.05")
        assert done.returncode == 0
        assert "left alone" not in done.stderr, (call, kills)
        assert sysfs_values(mirror.bdi) == KEPT, (call, kills)
        assert list(fusetune.run.iterdir()) == [], (call, kills)
        reset(fusetune.host, fusetune.find(mirror.bdi))
        assert sysfs_values(mirror.bdi) == STOCK, (call, kills)
    assert kills >= {"openat": 4, "write": 4, "flock": 1}.get(call, 0)
    assert sysfs_values(mirror.bdi) == KEPT


# Its end


def test_it_ends_when_idle(fusetune: Fusetune) -> None:
    with Watching(fusetune, idle=0.3) as watching:
        watching.end()
        assert watching.said() == []
    nothing_left(fusetune)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_on_a_signal(fusetune: Fusetune, number: signal.Signals) -> None:
    with Watching(fusetune) as watching:
        watching.end(number)


def test_a_mount_at_its_idle_end_is_not_lost(fusetune: Fusetune, tmp_path: Path) -> None:
    """One that is there before it tells that it stops gets its values; for others udev starts
    the next."""
    fusetune.configure(SECTION)
    idle, delay, rounds, served = 0.3, 0.25, 0, 0
    # Towards the moment at which it ends, which is another one on each host.
    while rounds < 12 or not 0 < served < rounds:
        assert rounds < 60, (served, delay)
        rounds += 1
        with ExitStack() as mounts, Watching(fusetune, idle=idle) as watching:
            time.sleep(delay)
            raw = mounts.enter_context(RawServer(tmp_path / "raw"))
            raw.answer()
            in_time = not watching.told("STOPPING=1")
            watching.end()
            served += in_time
            delay = max(0, delay + (0.02 if in_time else -0.02))
            if in_time:
                assert sysfs_values(raw.device) == KEPT
            else:
                with Watching(fusetune, idle=0.1) as again:
                    again.end()
                assert sysfs_values(raw.device) == KEPT


def test_many_mounts_are_one_small_process(fusetune: Fusetune, tmp_path: Path) -> None:
    fusetune.configure(f"[policy]\nmax_dirty_percent = 2000\n{SECTION}")
    with Watching(fusetune) as watching:
        with RawMounts(100, tmp_path) as raw:
            for point in raw.points:
                has(mounts_at(point)[-1], **KEPT)
            status = Path(f"/proc/{watching.process.pid}/status").read_text()
            peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
            assert peak
            assert int(peak[1]) <= 64 << 10
            children = Path(f"/proc/{watching.process.pid}/task/{watching.process.pid}/children")
            assert children.read_text() == ""
        cleared(fusetune)
        watching.end(signal.SIGTERM)
        assert len(watching.said(" -> ")) == 100
    nothing_left(fusetune)


# Limits of the host


def test_the_hosts_limits_follow_a_mount_that_needs_more(
    fusetune: Fusetune, mirror: Mirror, tmp_path: Path
) -> None:
    """Raised when it appears, for its next mount; put back when no mount needs them any more."""
    pages = [LIMIT] * LIMIT.exists()
    found = [int(file.read_text()) for file in (PIPE, *pages)]
    fusetune.configure(f"[[mount]]\npath = '{mirror.mountpoint}'\nmax_write = '2M'\n")
    with Watching(fusetune, idle=1.0) as watching:
        line = f"fs.pipe-max-size {found[0]} -> {4 << 20}, for its next mount"
        assert watching.saying_lines(1 + len(pages), "for its next mount")[0].endswith(line)
        watching.end()
    raised = [int(file.read_text()) for file in (PIPE, *pages)]
    assert raised == [4 << 20, 512][: len(found)]
    with serve("mirrorfs", mirror.source, tmp_path / "other") as other:
        fusetune.json("set", other, "max_ratio=5")
        fusetune.json("reset", other)
        assert [int(file.read_text()) for file in (PIPE, *pages)] == raised
        changes = fusetune.json("reset", mirror.mountpoint)["changes"]
    assert [change["after"] for change in changes] == found[::-1]
    assert [int(file.read_text()) for file in (PIPE, *pages)] == found


def test_a_larger_limit_stays(fusetune: Fusetune, mirror: Mirror) -> None:
    fusetune.configure(f"[[mount]]\npath = '{mirror.mountpoint}'\npipe_max_size = '4M'\n")
    before = PIPE.read_text()
    try:
        PIPE.write_text(f"{16 << 20}\n")
        with Watching(fusetune, idle=1.0) as watching:
            watching.end()
            assert watching.said("for its next mount") == []
        assert int(PIPE.read_text()) == 16 << 20
    finally:
        PIPE.write_text(before)
