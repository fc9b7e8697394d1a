# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --try-options on real servers: what it proves on shadow mounts, and that nothing remains.

A shadow mount is a second instance of the server, with the same source. bindfs writes one page per
request unless ``big_writes`` is set (libfuse 2, do_init).
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.daemons import Daemons, words_of
from fusetune.mounts.discover import find
from fusetune.recipes.advice import Advice, examine
from fusetune.recipes.load import load_recipes
from fusetune.recipes.served import Served, _began, is_still
from fusetune.shadow.conditions import conditions_of
from fusetune.shadow.guard import POINT
from fusetune.shadow.shadows import Shadows
from fusetune.tuner.options import _check_server
from tests.native.conftest import sysfs_values
from tests.native.interception import INTERCEPT, OPTION
from tests.native.mirror import MOUNTINFO, PATIENCE, Mirror, wait_for
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.native.servers import command_of, run_server
from tests.tmpfs import tmpfs

pytestmark = [
    requires("fio", "setpriv", "bindfs", "sshfs", "rclone"),
    pytest.mark.xdist_group("private"),
]

TRY = ("--try-options", "--budget", "40", "--budget-bytes", "500M")


#: Where second instances get their own directories.
PRIVATE = Path("/var/tmp")  # noqa: S108 - as the program has it


@pytest.fixture(autouse=True)
def no_directory_left() -> Iterator[None]:
    before = set(PRIVATE.glob("fusetune-*"))
    yield
    assert set(PRIVATE.glob("fusetune-*")) == before


@pytest.mark.alone
def test_bindfs_gains_by_big_writes(fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path) -> None:
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    command = command_of("bindfs", source, point, tmp_path)
    with run_server(command, point, tmp_path / "log") as (process, bdi):
        values, called = sysfs_values(bdi), _calls(process.pid)
        # On a noisy host, the proof of a smaller budget leaves nothing for the gain of each option.
        try_ = ("--try-options", "--budget", "60", "--budget-bytes", "1G")
        found = fusetune.json("auto", point, "-w", "seq-write", *try_, timeout=90)
        assert _calls(process.pid) == called  # the live mount gets no requests
        assert sysfs_values(bdi) == values
    gain = {one["option"]: one["gain"] for one in found["advice"]["changes"]}["big_writes"]
    assert found["gain"]["ci95"][0] > 1
    assert gain["ratio"] > 1
    assert not found["applied"]
    assert found["advice"]["commands"]["then"].startswith("bindfs -o big_writes")
    tried = [one["options"] for one in found["trials"]]
    assert {} in tried
    assert any(one.get("big_writes") == "true" for one in tried)
    assert list(source.iterdir()) == []
    assert list(fusetune.run.iterdir()) == []


def _calls(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscr:"))


def test_a_second_rclone_has_a_cache_of_its_own(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    source, point, cache = tmpfs_dir / "source", tmp_path / "mnt", tmp_path / "cache"
    command: list[str | Path] = ["rclone", "mount", source, point, "--config", ""]
    command += ["--vfs-cache-mode", "writes", "--cache-dir", cache]
    with run_server(command, point, tmp_path / "log"):
        before = sorted(cache.rglob("*"))
        process = fusetune.start("auto", point, "-w", "small-write", *TRY)
        wait_for(lambda: any(PRIVATE.glob("fusetune-*/vfs*/**/write-data")), "a private cache")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 1
        assert process.stderr is not None
        assert "interrupted" in process.stderr.read().splitlines()[-1]
        assert sorted(cache.rglob("*")) == before
    assert list(source.iterdir()) == []


def test_nothing_to_try_is_told(fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path) -> None:
    """Without a cache, rclone only writes new files from start to end, which fio does not do."""
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    with run_server(command_of("rclone", source, point, tmp_path), point, tmp_path / "log"):
        found = fusetune.json("auto", point, "-w", "seq-write", *TRY, code=4)
        failed = fusetune("auto", point, "-w", "seq-write")
    assert found["reasons"] == ["recipe rclone proposes no option for these workloads"]
    assert found["trials"] == []
    assert failed.returncode == 2
    assert "does not permit it (rclone does with --vfs-cache-mode=writes); reading" in failed.stderr


def test_an_option_that_does_not_mount_is_told(fusetune: Fusetune, mirror: Mirror) -> None:
    shipped = Path("fusetune/recipes/mirrorfs.toml").read_text()
    broken = shipped.replace('name = "no_xattr"', 'name = "no_xatr"', 1)
    fusetune.configure(broken, "recipes/mirrorfs.toml")
    words = ("auto", mirror.mountpoint, "-w", "small-write", "--try-options", "--budget", "6")
    done = fusetune(*words, "--json")
    assert done.returncode in (0, 4), done.stderr
    told = [one for one in json.loads(done.stdout)["reasons"] if one.startswith("no_xatr: ")]
    assert len(told) == 1
    assert "exited with status" in told[0]
    assert "no_xatr" in told[0].partition("not tried")[2]


@pytest.mark.parametrize(
    ("ssh", "what"),
    [
        ("read password </dev/tty && sleep 600", "/dev/tty"),
        ("kill -STOP -1", "did not mount and reply within 10 s"),
        ("sh -c 'sleep 600 & sleep 600'", "did not mount and reply within 10 s"),
    ],
    ids=["asks-for-a-password", "is-stopped", "forks"],
)
def test_a_server_that_does_not_mount_is_told_and_ended(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path, ssh: str, what: str
) -> None:
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    command = command_of("sshfs", source, point, tmp_path)
    with run_server(command, point, tmp_path / "log"):
        (tmp_path / "ssh").write_text(f"#!/bin/sh\n{ssh}\n")
        line = fusetune.fails("auto", point, *TRY, timeout=60)
        assert "no second instance can be mounted with the current options: the server " in line
        assert what in line
    assert list(fusetune.run.iterdir()) == []


def test_a_second_instance_does_not_get_variables_of_the_first_alone(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the number of a descriptor that its supervisor passes to it."""
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    shipped = Path("fusetune/recipes/sshfs.toml").read_text()
    unset = 'second_unset = ["_SSHFS_*"]\nsecond_because'
    fusetune.configure(shipped.replace("second_because", unset, 1), "recipes/sshfs.toml")
    monkeypatch.setenv("_SSHFS_SUPERVISOR", "7")
    monkeypatch.setenv("SSHFS_USER", "8")
    with run_server(command_of("sshfs", source, point, tmp_path), point, tmp_path / "log"):
        tell = "echo has=${_SSHFS_SUPERVISOR-no},${SSHFS_USER-no} >&2; exit 1"
        (tmp_path / "ssh").write_text(f"#!/bin/sh\n{tell}\n")
        assert "has=no,8" in fusetune.fails("auto", point, *TRY, timeout=60)


#: What a process reports about itself, except for what always differs.
_TELL = (
    "id; umask; ulimit -a; pwd; env | grep -v ^_= | sort; "
    'grep -E "^(Cap|Groups|NoNew|Seccomp)" /proc/self/status; '
    "readlink /proc/self/ns/net /proc/self/ns/uts /proc/self/ns/ipc /proc/self/ns/mnt"
)


@contextmanager
def waiting_process(*before: str, tell: Path | None = None) -> Iterator[int]:
    """Yield a shell that runs until the end of the context, and writes what it must ``tell``."""
    script = f"{{ {_TELL}; }} >$0; echo; read x" if tell else "echo; read x"
    process = subprocess.Popen(
        [*before, "sh", "-c", script, str(tell)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "TOKEN": "x"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process.pid
    finally:
        process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    "before",
    [
        (),
        ("setpriv", "--reuid=65534", "--regid=65534", "--groups=65534,12", "--"),
        ("setpriv", "--no-new-privs", "--bounding-set=-all,+setuid", "--"),
        ("unshare", "--net", "--uts", "--ipc", "--", "sh", "-c", 'umask 7; ulimit -n 77; "$@"', ""),
        ("env", "--chdir=/usr", "-u", "PATH"),
    ],
    ids=["root", "a-user", "few-rights", "namespaces", "directory"],
)
def test_a_second_instance_runs_as_the_first(open_path: Path, before: tuple[str, ...]) -> None:
    first, second = open_path / "first", open_path / "second"
    for path in (first, second):
        path.touch(mode=0o666)
        path.chmod(0o666)
    with waiting_process(*before, tell=first) as pid:
        words = (Path(f"/proc/{pid}/environ").read_bytes()).split(b"\0")[:-1]
        environment = dict(os.fsdecode(word).partition("=")[::2] for word in words)
        conditions = conditions_of(Host(), pid)
        output = os.open(second, os.O_WRONLY)
        child = os.fork()
        if child == 0:
            try:
                conditions.run(["sh", "-c", _TELL], environment, output)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, second.read_text()
        os.close(output)
        conditions.close()
    assert second.read_text() == first.read_text() != ""


def _intercepted(host: Host, pid: int, words: list[str], line: Path) -> None:
    """Mount a second instance that is intercepted, and write its options and command line."""
    with (
        closing(conditions_of(host, pid)) as conditions,
        Shadows(host, conditions) as shadows,
    ):
        shadow = shadows.mount(words, dict(os.environ), INTERCEPT)
        processes = Daemons(host).processes(shadow.mount)
        (server,) = processes
        command = Path(f"/proc/{server}/cmdline").read_text().split("\0")[0]
        options = ",".join(shadow.mount.options)
        line.write_text(f"{shadow.mount.fstype} {command} {processes[server]} {options}")
        opened = os.listdir(f"/proc/{server}/fd")
        assert len(opened) <= 5, opened  # input, output, errors, the device, and the source
        shadows.end(shadow)


def test_a_second_instance_that_is_intercepted(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    """Its pids belong to its own namespace, but /proc does not."""
    source, point, line = tmpfs_dir / "source", tmp_path / "mnt", tmp_path / "line"
    command = command_of("bindfs", source, point, tmp_path)
    host = Host(run_dir=fusetune.run)
    before = Path("/proc/self/mountinfo").read_text()
    with run_server(command, point, tmp_path / "log") as (process, _):
        # A server may use its argv[0], which need not be the name of a program.
        words = ["renamed", *(POINT if word == point else str(word) for word in command[1:])]
        child = os.fork()
        if child == 0:
            try:
                _intercepted(host, process.pid, words, line)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    fstype, word, program, options = line.read_text().split()
    assert (fstype, word, program) == ("fuse", "renamed", shutil.which("bindfs"))
    assert OPTION in options.split(",")
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (("unshare", "--mount", "--"), "another mount namespace"),
        (("unshare", "--user", "--map-root-user", "--"), "another user namespace"),
    ],
    ids=["mount", "user"],
)
def test_what_would_gain_rights_is_refused(before: tuple[str, ...], why: str) -> None:
    with waiting_process(*before) as pid, pytest.raises(FusetuneError, match=why):
        conditions_of(Host(), pid)


def test_a_process_that_changes_its_rights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be root's when its user is read, and run a user's program when that is opened."""
    with waiting_process() as root, waiting_process("setpriv", "--reuid", "1000", "--") as user:
        read, statuses = Host.lines, iter([root, user])

        def lines(host: Host, relative: str) -> list[str]:
            if relative == f"proc/{user}/status":
                relative = f"proc/{next(statuses)}/status"
            return read(host, relative)

        monkeypatch.setattr(Host, "lines", lines)
        with pytest.raises(FusetuneError, match="it is just changing them"):
            conditions_of(Host(), user)


def test_another_process_of_the_same_number_is_another() -> None:
    host = Host()
    with waiting_process() as pid, waiting_process("env", "MORE=1") as other:
        words = tuple(words_of(host, "cmdline", str(pid)))
        variables = dict(one.split("=") for one in words_of(host, "environ", str(pid)))
        began = _began(host, str(pid))
        process = Served("sh", words, variables, pid=pid, began=began, given=words)
        assert is_still(host, process)
        assert not is_still(host, replace(process, began="1"))
        assert not is_still(host, replace(process, given=(*words, "x")))
        assert not is_still(host, replace(process, pid=other))
    assert not is_still(host, process)


@pytest.mark.parametrize(
    ("owner", "known", "why"),
    [
        (1000, True, "belongs to uid 1000, but its server runs as uid 0"),
        (0, False, "the owner of .* is unknown"),
    ],
)
def test_a_users_mount_is_only_served_as_that_user(
    mirror: Mirror, owner: int, known: bool, why: str
) -> None:
    host = Host()
    mount = find(host, str(mirror.mountpoint))
    seen = examine(host, mount, load_recipes(host))
    assert not isinstance(seen, Advice)
    with closing(conditions_of(host, mirror.process.pid)) as conditions:
        _check_server(host, seen, conditions)
        other = replace(mount, owner_uid=owner, owner_known=known)
        with pytest.raises(FusetuneError, match=why):
            _check_server(host, replace(seen, mount=other), conditions)
        ended = replace(seen.process, began="1")
        with pytest.raises(FusetuneError, match="has changed; try again"):
            _check_server(host, replace(seen, process=ended), conditions)


def test_a_program_with_its_owners_rights_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "sh"
    shutil.copy("/bin/sh", program)
    program.chmod(0o4755)
    process = subprocess.Popen([program, "-c", "read x"], stdin=subprocess.PIPE)
    try:
        wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") == str(program), "exec")
        with pytest.raises(FusetuneError, match="set-user-ID"):
            conditions_of(Host(), process.pid)
    finally:
        process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--try-unsafe", "x"), "--try-unsafe needs --try-options"),
        (("--try-options", "--try-unsafe", "x"), "mirrorfs has no unsafe option 'x'"),
        (("--try-options", "--dry-run"), "shows what --try-options would try"),
        (("--try-options", "--cold"), "--cold has no effect with --try-options"),
    ],
)
def test_wrong_use(fusetune: Fusetune, mirror: Mirror, words: tuple[str, ...], line: str) -> None:
    assert line in fusetune.fails("auto", mirror.mountpoint, *words, code=2)


def test_a_full_disk_is_told(fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path) -> None:
    source, point = tmp_path / "small", tmp_path / "mnt"
    source.mkdir()
    with tmpfs(source, "size=8M"), Mirror(source, point):
        line = fusetune.fails("auto", point, *TRY, timeout=60)
        assert "MiB of free space, less than the scratch files need" in line
        assert list(source.iterdir()) == []


def killed_at(fusetune: Fusetune, point: Path, source: Path, seconds: float) -> None:
    """Kill a run after some time; nothing of it may remain."""
    mounts = MOUNTINFO.read_text()
    process = fusetune.start("auto", point, "-w", "small-write", *TRY)
    time.sleep(seconds)
    process.kill()
    process.wait(PATIENCE)
    wait_for(lambda: not processes_of(fusetune), f"the end of all, killed after {seconds} s")
    assert list(source.iterdir()) == []
    assert MOUNTINFO.read_text() == mounts
    assert not [one for one in fusetune.run.rglob("*") if one.suffix != ".lock"]


def processes_of(fusetune: Fusetune) -> dict[int, str]:
    """Return the command lines of a run's processes, which contain its directory."""
    found: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found |= {int(path.parent.name): words} if str(fusetune.run) in words else {}
    return found


def test_nothing_remains_of_runs_that_were_killed(fusetune: Fusetune, mirror: Mirror) -> None:
    for seconds in (0.5, 2.0, 5.0):
        killed_at(fusetune, mirror.mountpoint, mirror.source, seconds)


@pytest.mark.long
def test_nothing_remains_of_many_runs_that_were_killed(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    chance = random.Random(1)
    for _ in range(20):  # a server is killed after `Mirror.lifetime`
        with Mirror(tmpfs_dir / "source", tmp_path / "mnt") as mirror:
            for _ in range(10):
                killed_at(fusetune, mirror.mountpoint, mirror.source, chance.uniform(0.2, 8.0))
            assert mirror.process.poll() is None


def test_a_shadow_that_is_stopped_ends_the_run(fusetune: Fusetune, mirror: Mirror) -> None:
    process = fusetune.start("auto", mirror.mountpoint, "-w", "small-write", *TRY)

    def servers() -> list[int]:
        found = processes_of(fusetune)
        return [pid for pid, words in found.items() if words.partition(" ")[0].endswith("mirrorfs")]

    wait_for(lambda: list(mirror.source.glob(".fusetune-*")) != [], "a measurement")
    for pid in servers():
        os.kill(pid, signal.SIGSTOP)
    assert process.wait(PATIENCE) == 1
    assert processes_of(fusetune) == {}
