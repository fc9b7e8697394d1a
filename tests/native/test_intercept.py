# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified servers get another device and other mount options; nothing else changes.

The kernel's own FUSE stands for the module.
"""

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.native.conftest import AS_NOBODY
from tests.native.interception import BINARY, CASES, INTERCEPT, OPTION, alive, mount_at, run
from tests.native.mirror import CHECKOUT, PATIENCE, state_in, wait_for
from tests.native.mount_calls import lines_at
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.native.servers import command_of, missing, mounts_at, run_server

FILE_SYSTEMS = Path("/proc/filesystems").read_text().split()
#: The type that each server gives its mount.
TYPES = {
    "rclone": "fuse.rclone",
    "gocryptfs": "fuse.gocryptfs",
    "mergerfs": "fuse.mergerfs",
    "ntfs-3g": "fuse",  # of an image; fuseblk of a block device
    "bindfs": "fuse",
    "fuse-overlayfs": "fuse.fuse-overlayfs",
    "sshfs": "fuse.sshfs",
}

pytestmark = requires("gcc", binary=BINARY)


@pytest.mark.parametrize("server", TYPES)
def test_real_servers(server: str, tmpfs_dir: Path, tmp_path: Path) -> None:
    lacking = missing(server)
    if lacking:
        pytest.skip(f"missing: {', '.join(lacking)}")
    point, scratch = tmp_path / "mnt", tmp_path / "scratch"
    scratch.mkdir()
    command = command_of(server, tmpfs_dir / "source", point, scratch)
    with run_server([*INTERCEPT, *command], point, tmp_path / "log") as (process, _):
        fstype, options = mount_at(point)
        assert fstype == TYPES[server]
        assert OPTION in options.split(",")
        (point / "file").write_bytes(b"written" * 10_000)
        assert (point / "file").read_bytes() == b"written" * 10_000
        # A process that looks at every mount, such as another test, may use it for a moment.
        wait_for(lambda: run("umount", point).returncode == 0, "umount")
        process.wait(PATIENCE)


@pytest.mark.parametrize("number", [3, 4, 5, 9])
def test_proc_by_any_descriptor(number: int, tmpfs_dir: Path, tmp_path: Path) -> None:
    """Some of these numbers are the same as those of the listener's own descriptors."""
    point, scratch = tmp_path / "mnt", tmp_path / "scratch"
    scratch.mkdir()
    command = command_of("bindfs", tmpfs_dir / "source", point, scratch)
    opened = ("sh", "-c", f'exec "$0" --proc {number} "$@" {number}</proc', *INTERCEPT)
    with run_server([*opened, *command], point, tmp_path / "log"):
        _, options = mount_at(point)
        assert OPTION in options.split(",")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], ""),
        (["unshare", "--mount"], "cannot take the rights of the process that mounts; the kernel"),
    ],
)
def test_few_capabilities(command: Sequence[str], said: str, tmp_path: Path) -> None:
    """They suffice to mount, but not to enter another mount namespace, or to set what is set."""
    few = ("setpriv", "--bounding-set", "-sys_chroot,-setgid,-setuid", "--")
    done = run(*few, *INTERCEPT, *command, *CASES, "many", tmp_path, "1")
    assert (done.returncode, OPTION in done.stdout) == (0, not said), done.stderr
    assert "fuse" in done.stdout
    assert done.stderr.count("\n") == bool(said)
    assert said in done.stderr


@pytest.mark.skipif("autofs" not in FILE_SYSTEMS, reason="the kernel has no autofs")
def test_automount(tmpfs_dir: Path, tmp_path: Path) -> None:
    """The lookup of the mount point does not wait for the mount for which it is done.

    For that the listener is in the daemon's process group. Signals of a terminal do not matter.
    """
    if lacking := missing("bindfs"):
        pytest.skip(f"missing: {', '.join(lacking)}")
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    source.mkdir(exist_ok=True)
    (source / "found").touch()
    point.mkdir()
    words = (sys.executable, "-m", "tests.native.automount", str(point))
    daemon = subprocess.Popen(
        [*words, *INTERCEPT, "bindfs", str(source), str(point)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert daemon.stdout
        assert daemon.stdout.readline() == b"ready\n"
        assert run("ls", point).stdout == "found\n"
        assert OPTION in lines_at(point)[-1]
        assert daemon.wait(PATIENCE) == 0
        parties = [pid for pid in alive() if os.getpgid(pid) == daemon.pid]
        for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGINT):
            os.killpg(daemon.pid, number)
        states = [state_in(Path(f"/proc/{pid}/stat")) for pid in parties]
        assert (len(states), "T" in states) == (2, False)
    finally:
        daemon.kill()
        daemon.communicate()
        while mounts_at(point):
            run("umount", "--lazy", point)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors(closed: str, tmp_path: Path) -> None:
    """The interceptor's own descriptors then get their numbers."""
    options = "fd=9,rootmode=40000,user_id=0,group_id=0"
    mount = f'exec "$@" mount -i -t fuse -o {options} source {tmp_path} 9<>/dev/fuse {closed}'
    done = run("sh", "-c", mount, "sh", *INTERCEPT)
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert OPTION in mount_at(tmp_path)[1].split(",")
    finally:
        run("umount", "--lazy", tmp_path)


@pytest.mark.parametrize(
    "case",
    [
        *("flags new", "flags old", "pages", "refused", "kept", "served", "place", "user"),
        *("fds 1", "fds 300", "files 1", "files 300", "links"),
        *("user 300", "user_context text", "user_context number"),
        *("unprivileged", "context text", "context number", "many 100", "at_once 20"),
    ],
)
def test_as_without(case: str, tmp_path: Path) -> None:
    """A program sees and mounts the same as without it, except for our option."""
    name, *more = case.split(" ")
    said = []
    for number, before in enumerate(((), INTERCEPT)):
        point = tmp_path / f"mnt{number}"
        point.mkdir()
        done = run(*("unshare", "--mount"), *before, *CASES, name, point, *more)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.replace(str(point), "mnt"))
    stock, ours = said
    assert stock
    assert (OPTION in ours) == ("rw,user_id" in stock)
    assert ("other device" in ours) == ("own device" in stock)
    for same, text in (("own device", "other device"), ("", f",{OPTION}"), ("", ",max_read=8192")):
        stock, ours = (said.replace(text, same) for said in (stock, ours))
    assert ours == stock


@pytest.mark.parametrize(
    ("case", "calls"),
    [
        *(("user", 1), ("user 300", 1), ("user_context text", 2), ("user_context number", 2)),
        ("unprivileged", 0),
    ],
)
def test_type_that_refuses_user_namespaces(case: str, calls: int, tmp_path: Path) -> None:
    """The kernel's own FUSE mounts, with the device that the server has opened.

    sysfs stands for the module: in a user namespace, it also needs a network namespace. Nothing is
    said to a user who may not even mount the kernel's own FUSE.
    """
    words = ("--type", "sysfs", "--device", "/dev/fuse", "--options", OPTION)
    name, *more = case.split(" ")
    run_case = (*CASES, name, str(tmp_path), *more)
    stock = run("unshare", "--mount", *run_case)
    ours = run("unshare", "--mount", BINARY, *words, "--", *run_case)
    assert (ours.returncode, ours.stdout) == (0, stock.stdout), ours.stderr
    why = "cannot mount sysfs with /dev/fuse: it is not allowed in this user namespace; "
    said = f"fusetune-intercept: {why}the kernel's own FUSE is used"
    assert ours.stderr.splitlines() == [said] * calls
    required = run("unshare", "--mount", BINARY, *words, "--required", "--", *run_case)
    assert "user_id" not in required.stdout
    assert ("ENODEV" in required.stdout) == (calls > 0)


@pytest.mark.long
def test_a_thousand_mounts(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    done = run(*INTERCEPT, *CASES, "many", tmp_path / "mnt", "1000")
    assert (done.returncode, done.stdout.count(OPTION)) == (0, 1), done.stderr


@pytest.mark.long
def test_fifty_at_once(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    done = run(*INTERCEPT, *CASES, "at_once", tmp_path / "mnt", "50")
    assert (done.returncode, done.stdout.count(OPTION)) == (0, 50), done.stderr


def test_memory_that_changes(tmp_path: Path) -> None:
    """Whatever the caller changes during a call, the call ends and mounts only FUSE."""
    (tmp_path / "mnt").mkdir()
    done = run("unshare", "--mount", *INTERCEPT, *CASES, "changing", tmp_path / "mnt", "40")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(
    ("seed", "count"),
    [*((seed, 1000) for seed in (1, 2)), pytest.param(3, 10_000, marks=pytest.mark.long)],
)
def test_random_arguments(seed: int, count: int, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    words = ("fuzz", str(tmp_path / "mnt"), str(seed), str(count))
    done = run("unshare", "--mount", *INTERCEPT, *CASES, *words)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compat.c is for x86")
def test_32_bit_program(tmp_path: Path) -> None:
    program, point = tmp_path / "compat", tmp_path / "mnt"
    point.mkdir()
    flags = ["-m32", "-nostdlib", "-static", "-fno-stack-protector", "-fno-pic", "-no-pie"]
    source = CHECKOUT / "tests" / "native" / "compat.c"
    subprocess.run(["gcc", *flags, "-o", program, source], check=True, timeout=PATIENCE)
    done = run(*INTERCEPT, program, point)
    assert done.returncode == 0, os.strerror(done.returncode)
    fstype, options = mount_at(point)
    subprocess.run(["umount", "--lazy", point], check=True, timeout=PATIENCE)
    assert (fstype, OPTION in options) == ("fuse.compat", True)


def test_process_is_the_servers_own(tmp_path: Path) -> None:
    """Pid, parent, input, directory, signals and descriptors are the same as without it."""
    # The shell looks for children before it has any of its own to wait for. It reads its status
    # itself: while it starts a program, it blocks signals for a moment.
    show = (
        "read -r below </proc/$$/task/$$/children; set -- $below; cat; pwd; echo $$ $PPID; "
        "while read -r line; do case $line in "
        "Sig[!Q]*|Shd*|Groups*|Umask*) echo $line;; esac; done </proc/$$/status; "
        "echo children: $#; echo /proc/$$/fd/*; exit 7"
    )
    said = []
    for before in ((), INTERCEPT):
        process = subprocess.Popen(
            [*before, "bash", "-c", show],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        out, _ = process.communicate("input\n", PATIENCE)
        assert process.returncode == 7
        assert f"{process.pid} {os.getpid()}" in out
        said.append(out.replace(str(process.pid), "PID"))
    assert said[0] == said[1]
    assert said[0].startswith(f"input\n{tmp_path}\n")


def test_signal_ends_the_server() -> None:
    process = subprocess.Popen([*INTERCEPT, "sleep", "60"])
    wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "the server")
    process.terminate()
    assert process.wait(PATIENCE) == -signal.SIGTERM


def test_output_of_a_daemon_ends(tmp_path: Path) -> None:
    """A reader of the server's output does not have to wait for the listener."""
    daemon = "sleep 60 <&- >/dev/null 2>&1 & echo $!"
    done = run(*INTERCEPT, "sh", "-c", daemon)
    assert alive()
    os.kill(int(done.stdout), signal.SIGTERM)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--type", "no-such"], 0, "the kernel has no file system no-such; true mounts with the"),
        (["--type", "no-such", "--required"], 1, "true is not started, because of tuned_required"),
        (["--type", "fuse", "--device", "/no/such"], 0, "/no/such: No such file or directory;"),
        (["--type", "fuse", "--device", "/no/such", "--required"], 1, "true is not started"),
    ],
)
def test_without_the_module(words: Sequence[str], code: int, said: str) -> None:
    done = run(str(BINARY), *words, "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert said in done.stderr


@pytest.mark.skipif("fusetuned" in FILE_SYSTEMS, reason="the module is loaded here")
def test_run_without_the_module(fusetune: Fusetune) -> None:
    """By the command: the server still runs, unless the module is required."""
    done = fusetune("run", "-o", "tuned,no_file_caps", "--", "sh", "-c", "echo served; exit 7")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (7, "served\n", 1)
    assert "the kernel has no file system fusetuned; sh mounts with the kernel's" in done.stderr
    done = fusetune("run", "-o", "tuned_required", "--", "sh", "-c", "echo served")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "the module fusetuned is not loaded" in done.stderr
    done = fusetune("run", "-o", "tuned,splice=off", "--", "sh")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "'splice' is not an option of the module" in done.stderr


@pytest.mark.skipif("fusetuned" in FILE_SYSTEMS, reason="the module is loaded here")
@pytest.mark.parametrize("server", ["bindfs", "mergerfs", "ntfs-3g"])
def test_mount_of_any_name(server: str, tmpfs_dir: Path, tmp_path: Path) -> None:
    """By mount(8)'s helper, which starts the server's own helper, or its program."""
    lacking = missing(server)
    if lacking:
        pytest.skip(f"missing: {', '.join(lacking)}")
    point, source = tmp_path / "mnt", tmpfs_dir / "source"
    point.mkdir()
    if server == "ntfs-3g":
        source = tmp_path / "image"
        source.write_bytes(b"")
        os.truncate(source, 64 << 20)
        subprocess.run(["mkntfs", "-F", "-Q", "-q", source], check=True, timeout=PATIENCE)
    helper = "from fusetune.mount_helper import main; main()"
    words = (source, point, "-o", "tuned,noatime", "-t", f"fusetune.{server}")
    done = run(sys.executable, "-c", helper, *words)
    try:
        assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
        assert mount_at(point)[0] == TYPES[server]
    finally:
        while mounts_at(point):
            subprocess.run(["umount", point], check=True, timeout=PATIENCE)


def test_one_within_another() -> None:
    """The kernel allows one listener per process; the inner one says so and does nothing."""
    done = run(*INTERCEPT, *INTERCEPT, "true")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "another program listens to its system calls already" in done.stderr


def test_wrong_use() -> None:
    assert run(str(BINARY)).returncode == 2
    assert run(str(BINARY), "--no-such", "true").returncode == 2
    missing_program = run(*INTERCEPT, "/no/such/program")
    assert missing_program.returncode == 1
    assert "cannot run /no/such/program: No such file" in missing_program.stderr


def test_root_only(open_path: Path) -> None:
    program = open_path / "intercept"
    program.write_bytes(BINARY.read_bytes())
    program.chmod(0o755)
    done = run(*AS_NOBODY, program, "--type", "fuse", "--", "true")
    assert done.returncode == 1
    assert "only root may choose a device" in done.stderr
