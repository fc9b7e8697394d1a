# SPDX-License-Identifier: GPL-2.0-or-later
"""auto and bench under attack: nothing outside the mount is touched, and one line reports it.

The attackers are a user who owns a directory above root's mount, and a server. They replace names
between two system calls. openat2(2) and an open descriptor of the directory withstand that.
"""

import os
import random
import secrets
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusetune.bench.note import scratch_note
from tests.native.conftest import AS_NOBODY, NOBODY, sysfs_values
from tests.native.hostile import Fault, HostileServer, as_another, as_kind, as_size
from tests.native.mirror import Mirror, wait_for
from tests.native.program import Fusetune, Started
from tests.native.requirements import requires

pytestmark = requires("fio", "setpriv", "nsenter", "losetup")

SECRET = b"root's alone\n" * 1000
BUDGET = 5  # seconds, the least
AT_ONCE = 10
#: Files that fio writes and reads, and that a removal by path would remove.
NAMES = ("write-data", "read-data", "small.0", "shared")


@dataclass
class Home:
    """A directory of user ``NOBODY`` with root's mount at ``d/mnt`` in it."""

    path: Path
    mirror: Mirror

    @property
    def scratch(self) -> list[Path]:
        return list(self.mirror.source.glob(".fusetune-*"))


@pytest.fixture
def secret(open_path: Path) -> Iterator[Path]:
    """A file that only root may read and write."""
    file = open_path / "secret"
    file.write_bytes(SECRET)
    file.chmod(0o600)
    yield file
    assert file.read_bytes() == SECRET


@contextmanager
def home(path: Path, source: Path) -> Iterator[Home]:
    point = path / "d" / "mnt"
    point.mkdir(parents=True)
    source.mkdir()
    for directory in (path, path / "d", point):
        os.chown(directory, NOBODY, NOBODY)
    try:
        with Mirror(source, point, "delay=1ms", "served=8", "allow_other") as mirror:
            yield Home(path, mirror)
    finally:
        if (path / "e").exists():  # to where the attack has moved it
            subprocess.run(["umount", "--lazy", path / "e" / "mnt"], check=True)


ATTACK = """
set -eu
cd "$1"
mv d e
mkdir -p "d/mnt/$2"
cd "d/mnt/$2"
for name in $4; do ln -s "$3" "$name"; done
"""


def attacked(here: Home, run: Started, secret: Path, delay: float) -> bool:
    """Attack as the user, ``delay`` s after the directory was created.

    The attack replaces the directory above the mount with a tree of links. Return whether the run
    was still going on.
    """
    wait_for(lambda: bool(here.scratch) or run.poll() is not None, "the scratch directory")
    time.sleep(delay)
    found = here.scratch
    if not found:
        return False  # it was over too soon
    words = [str(here.path), found[0].name, str(secret), " ".join(NAMES)]
    subprocess.run([*AS_NOBODY, "sh", "-c", ATTACK, "attack", *words], check=True)
    return bool(here.scratch)


def assert_told(here: Home, code: int, stderr: str, before: dict[str, int]) -> None:
    """The attack ended the run, everything is restored, and the user's tree is untouched."""
    *progress, line = stderr.splitlines()
    assert all(" of the budget used, " in told for told in progress), stderr
    assert code == 1, stderr
    assert line == (
        f"fusetune: cannot measure in {here.mirror.mountpoint}: the path no longer leads to this "
        "mount; a directory above it was renamed or covered"
    )
    assert sysfs_values(here.mirror.bdi) == before
    wait_for(lambda: not here.scratch, "the removal of the scratch directory", 10)
    (directory,) = (here.path / "d" / "mnt").iterdir()
    assert {file.name for file in directory.iterdir() if file.is_symlink()} == set(NAMES)


def attack_one(
    fusetune: Fusetune, here: Path, source: Path, secret: Path, command: str, delay: float
) -> bool:
    """Start ``command`` and attack it; return whether it was attacked while it measured."""
    with home(here, source) as one:
        before = sysfs_values(one.mirror.bdi)
        words = ("-w", "mixed", "--size", "8M", "--budget", f"{BUDGET}")
        run = fusetune.start(command, one.mirror.mountpoint, *words)
        counts = attacked(one, run, secret, delay)
        stderr = run.communicate(timeout=BUDGET + 15)[1]
        assert secret.read_bytes() == SECRET
        if counts:
            assert_told(one, run.returncode, stderr, before)
    return counts


def attack_many(
    fusetune: Fusetune, directory: Path, source: Path, secret: Path, command: str, count: int
) -> None:
    """Attack ``count`` runs, each at a random moment, ``AT_ONCE`` of them at a time."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    told = turn = 0
    with ThreadPoolExecutor(AT_ONCE) as threads:
        while told < count:
            turn += 1
            # A run whose budget is too small ends before it is attacked.
            assert turn <= 20 * count // AT_ONCE, f"seed {seed}: only {told} runs were attacked"
            delays = [dice.uniform(0, 2) for _ in range(min(AT_ONCE, count - told))]
            results = [
                threads.submit(attack_one, fusetune, directory / name, source / name, secret, *what)
                for number, delay in enumerate(delays)
                for name, what in [(f"{turn}-{number}", (command, delay))]
            ]
            told += sum(result.result() for result in results)
    print(f"{told} attacks on {command}: exit 1, nothing outside the mount changed")


@pytest.mark.parametrize("command", ["bench", "auto"])
@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.long)])
def test_a_directory_above_is_renamed(
    fusetune: Fusetune, open_path: Path, tmpfs_dir: Path, secret: Path, command: str, count: int
) -> None:
    attack_many(fusetune, open_path, tmpfs_dir, secret, command, count)


# A hostile server

CALM = 12  # number of correct replies, so that measuring has begun


@pytest.fixture
def disk(secret: Path) -> Iterator[int]:
    """The number of a block device that is backed by the secret file."""
    made = subprocess.run(
        ["losetup", "--find", "--show", secret], check=True, capture_output=True, text=True
    )
    device = made.stdout.strip()
    yield os.stat(device).st_rdev
    subprocess.run(["losetup", "--detach", device], check=True)


def faults(disk: int) -> dict[str, Fault]:
    """Return what a server can show under one of our names, by kind."""
    kinds = {
        "link": as_kind(stat.S_IFLNK),
        "disk": as_kind(stat.S_IFBLK, disk),
        "terminal": as_kind(stat.S_IFCHR, os.makedev(5, 0)),
        "fifo": as_kind(stat.S_IFIFO),
        "socket": as_kind(stat.S_IFSOCK),
        "directory": as_kind(stat.S_IFDIR),
        "file": as_kind(stat.S_IFREG),
    }
    found = {}
    for name in ("write-data", "read-data", ".fusetune-"):
        for kind, change in kinds.items():
            if kind != ("directory" if name == ".fusetune-" else "file"):
                found[f"{name} {kind} at once"] = Fault(name, change)
                found[f"{name} {kind}"] = Fault(name, change, CALM)
    return found | {
        "read-data shrinks": Fault("read-data", as_size(5), CALM),
        "read-data grows": Fault("read-data", as_size(1 << 60), CALM),
        "read-data is another": Fault("read-data", as_another(), CALM),
        "directory is another": Fault(".fusetune-", as_another(), CALM),
        "directory never ends": Fault(".fusetune-", lambda shown: shown, endless=True),
        "root link": Fault("", as_kind(stat.S_IFLNK), 4),
        "root file": Fault("", as_kind(stat.S_IFREG), 4),
    }


@pytest.mark.parametrize("fault", faults(0))
def test_a_server_lies(
    fusetune: Fusetune, tmp_path: Path, secret: Path, disk: int, fault: str
) -> None:
    command = "auto" if fault in ("write-data link", "read-data link") else "bench"
    with HostileServer(tmp_path / "mnt", faults(disk)[fault], secret) as server:
        before = sysfs_values(server.device)
        words = ("-w", "seq-read", "-w", "seq-write", "--size", "4M", "--budget", f"{BUDGET}")
        began = time.monotonic()
        line = fusetune.fails(command, server.point, *words)
        print(line)
        cannot = ("fusetune: cannot measure in ", "fusetune: cannot create a scratch directory in ")
        assert line.startswith(cannot) or f"{server.point}/.fusetune-" in line
        assert time.monotonic() - began < BUDGET + 5
        assert sysfs_values(server.device) == before
        assert secret.read_bytes() == SECRET


# What fio may do

# Instead of fio: prints what it could do, as its last line.
INSIDE = """#!/bin/sh
cd /
writable=$(for directory in / /usr /dev /bin/. /tmp /scratch; do
    (echo x >"$directory/escape") 2>/dev/null && echo "$directory"
done
[ -e /scratch/file-0 ] && (echo x >>/scratch/file-0) 2>/dev/null && echo file)
ln -s /usr/bin/env /scratch/link && (cat /scratch/link) >/dev/null 2>&1 && echo followed
interfaces=$(cat /proc/net/dev 2>/dev/null)
rm -f /scratch/escape /scratch/link
echo "[$(id -u) $(id -g)] [$writable] [$interfaces]" \
    $(setpriv --dump | grep -i -e no_new -e capabilit | tr '\n' ';')
"""


@pytest.fixture
def inside(open_path: Path) -> dict[str, str]:
    """An environment whose fio is `INSIDE`."""
    program = open_path / "bin" / "fio"
    program.parent.mkdir()
    program.write_text(INSIDE)
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def confined(uid: int) -> str:
    """The output of `INSIDE` if only the scratch directory is writable and no rights are left."""
    return (
        f"[{uid} {uid}] [/scratch] [] no_new_privs: 1;Inheritable capabilities: [none];"
        "Ambient capabilities: [none];Capability bounding set: "
    )


@pytest.mark.parametrize(
    ("options", "uid"), [(("allow_other",), NOBODY), ((), 0)], ids=["allow_other", "root's"]
)
def test_what_fio_may_do(
    fusetune: Fusetune,
    tmpfs_dir: Path,
    tmp_path: Path,
    inside: dict[str, str],
    options: tuple[str, ...],
    uid: int,
) -> None:
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", *options) as mirror:
        line = fusetune.fails("bench", mirror.mountpoint, environment=inside)
    assert line.endswith(confined(uid) + "[none];")


@pytest.mark.parametrize(
    ("options", "uid"), [(("allow_other",), NOBODY), ((), 0)], ids=["allow_other", "root's"]
)
def test_fio_can_write_nothing_where_it_reads(
    fusetune: Fusetune,
    tmpfs_dir: Path,
    tmp_path: Path,
    inside: dict[str, str],
    options: tuple[str, ...],
    uid: int,
) -> None:
    file = tmpfs_dir / "source" / "file"
    file.write_bytes(bytes(1 << 20))
    file.chmod(0o666)
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt", *options) as mirror:
        words = ("bench", mirror.mountpoint, "--files", mirror.mountpoint / "file")
        line = fusetune.fails(*words, environment=inside)
    assert line.endswith(confined(uid).replace("[/scratch]", "[]") + "[none];")
    assert file.read_bytes() == bytes(1 << 20)
    assert os.listdir(file.parent) == ["file"]


def test_a_user_measures_an_own_mount(
    user_mirror: Mirror, open_path: Path, inside: dict[str, str]
) -> None:
    """fio is also confined there, by a user namespace; without rights it cannot gain any."""
    theirs = Fusetune(open_path)
    words = ("bench", user_mirror.mountpoint, "-w", "seq-write", "--budget", "5")
    assert confined(NOBODY) in theirs.fails(*words, before=AS_NOBODY, environment=inside)
    assert theirs(*words, before=AS_NOBODY).returncode == 0
    assert not list(user_mirror.source.iterdir())


def test_what_others_put_there_is_left_and_told(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    with Mirror(tmpfs_dir / "source", tmp_path / "mnt") as mirror:
        run = fusetune.start("bench", mirror.mountpoint, "-w", "seq-write", "--budget", "5")
        wait_for(lambda: any(mirror.source.glob(".fusetune-*/write-data")), "the first sample")
        (directory,) = mirror.source.iterdir()
        (directory / "letter").write_text("dear\n")
        stderr = run.communicate(timeout=30)[1]
        assert run.returncode == 1
        assert stderr.splitlines()[-1] == (
            f"fusetune: {mirror.mountpoint / directory.name} was not removed, because it has files "
            "that fusetune did not create: letter"
        )
        assert [file.name for file in directory.iterdir()] == ["letter"]


@pytest.mark.parametrize(
    "words", [lambda mirror: [mirror.mountpoint], lambda mirror: ["--all"]], ids=["M", "--all"]
)
def test_what_a_killed_run_left_is_removed_through_no_link(
    fusetune: Fusetune, mirror: Mirror, secret: Path, words: Callable[[Mirror], list[Path | str]]
) -> None:
    """By the next run; one file was replaced by a link, which is kept."""
    mount = fusetune.find(mirror.mountpoint)
    directory = mirror.source / ".fusetune-0123456789abcdef"
    directory.mkdir()
    (directory / "read-data").write_bytes(b"x")
    (directory / "write-data").symlink_to(secret)
    fusetune.run.mkdir()
    scratch_note(fusetune.host, mount).write_text(f'[{mount.instance}, "{directory.name}"]')
    assert "was not removed, because" in fusetune.fails("bench", mirror.mountpoint)
    assert [file.name for file in directory.iterdir()] == ["write-data"]
    (directory / "write-data").unlink()
    scratch_note(fusetune.host, mount).write_text(f'[{mount.instance}, "{directory.name}"]')
    assert fusetune("reset", *words(mirror)).returncode == 0
    wait_for(lambda: not directory.exists(), "the removal, which reset does not wait for")
