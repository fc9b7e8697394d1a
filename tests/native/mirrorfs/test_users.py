# SPDX-License-Identifier: GPL-2.0-or-later
"""Files belong to the user who creates them, and their modes apply to other users.

The server runs as root, creates files with the user and group ID of the caller (setfsuid(2)), and
mounts with default_permissions, so the kernel checks modes. A set-group-ID directory passes on its
group (inode(7)). A write by a user other than root clears set-ID bits (write(2)).
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.mirrorfs.calls import (
    NOBODY,
    Mount,
)
from tests.native.requirements import requires

pytestmark = requires()


def as_nobody(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )


@pytest.mark.usefixtures("reachable")
def test_what_a_caller_makes_is_the_callers(mount: Mount, source: Path) -> None:
    source.chmod(0o777)
    (source / "shared").mkdir()
    os.chown(source / "shared", 0, 77)
    (source / "shared").chmod(0o2777)
    mirror = mount("allow_other")
    root = mirror.mountpoint
    made = as_nobody(
        f"cd '{root}' && umask 022 && echo x > file && mkdir directory && ln -s file link &&"
        " mkfifo fifo && touch shared/file && mkdir shared/directory"
    )
    assert made.returncode == 0, made.stderr
    for name in ("file", "directory", "link", "fifo"):
        found = (source / name).lstat()
        assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY), name
    # A set-group-ID directory passes on its group.
    for name in ("shared/file", "shared/directory"):
        found = (source / name).stat()
        assert (found.st_uid, found.st_gid) == (NOBODY, 77), name
    # An existing file keeps its owner, also with O_CREAT.
    (source / "roots").write_text("r")
    (source / "roots").chmod(0o666)
    assert as_nobody(f"echo x >> '{root}/roots'").returncode == 0
    assert (source / "roots").stat().st_uid == 0


@pytest.mark.usefixtures("reachable")
def test_what_a_caller_makes_has_the_mode_that_was_asked_for(mount: Mount, source: Path) -> None:
    source.chmod(0o777)
    root = mount("allow_other").mountpoint
    program = (
        "import os, socket, stat; os.umask(0);"
        " os.close(os.open('file', os.O_CREAT | os.O_WRONLY, 0o6751));"
        " os.close(os.open('closed', os.O_CREAT | os.O_WRONLY, 0));"
        " os.mknod('node', stat.S_IFREG | 0o4711); os.mkfifo('fifo', 0o2622);"
        " os.mkdir('directory', 0o1707); os.symlink('target', 'link');"
        " socket.socket(socket.AF_UNIX).bind('socket')"
    )
    made = as_nobody(f"cd '{root}' && {sys.executable} -c \"{program}\"")
    assert made.returncode == 0, made.stderr
    states = {path.name: path.lstat() for path in source.iterdir()}
    assert {name: oct(state.st_mode) for name, state in states.items()} == {
        "file": oct(stat.S_IFREG | 0o6751),
        "closed": oct(stat.S_IFREG),
        "node": oct(stat.S_IFREG | 0o4711),
        "fifo": oct(stat.S_IFIFO | 0o2622),
        "directory": oct(stat.S_IFDIR | 0o1707),
        "link": oct(stat.S_IFLNK | 0o777),
        "socket": oct(stat.S_IFSOCK | 0o777),
    }
    assert {(state.st_uid, state.st_gid) for state in states.values()} == {(NOBODY, NOBODY)}


@pytest.mark.usefixtures("reachable")
def test_the_server_stays_root_after_a_caller_has_made_something(
    mount: Mount, source: Path
) -> None:
    """Also after a failure: all threads create, read and remove what only root may."""
    (source / "open").mkdir(0o777)
    (source / "open").chmod(0o777)
    root = mount("allow_other").mountpoint
    made = as_nobody(f"cd '{root}/open' && for n in 1 2 3 4; do echo x >$n; mkdir 1 $n.d; done")
    assert "File exists" in made.stderr
    (root / "roots").mkdir(0o700)
    (root / "roots" / "file").write_text("r")
    os.chown(root / "roots" / "file", 77, 77)
    for path in (source / "roots", source / "open" / "1"):
        path.chmod(0)
    assert (root / "roots" / "file").read_text() == "r"
    assert (source / "roots").stat().st_uid == 0
    assert (root / "open" / "1").read_text() == "x\n"


@pytest.mark.parametrize("kind", ["create", "mknod", "fifo", "mkdir", "symlink"])
@pytest.mark.usefixtures("reachable")
def test_a_file_swapped_in_while_another_is_made_keeps_owner_and_mode(
    mount: Mount, source: Path, kind: str
) -> None:
    """A user who can rename in the source gets neither root's file nor a set-ID bit on it."""
    victim = source.parent / "victim"
    bait = source / "bait"
    victim.write_text("root's")
    if kind == "mkdir":
        bait.mkdir(0o755)
    elif kind in ("create", "mknod"):  # their mode was set through a symbolic link
        bait.symlink_to(victim)
    else:
        bait.write_text("root's")
    source.chmod(0o777)
    before = [(path.lstat().st_mode, path.lstat().st_uid) for path in (victim, bait)]
    root = mount("allow_other").mountpoint
    script = Path(__file__).with_name("swapping.py")
    here = source.parent  # relative paths: another test run may close pytest's directories
    words = f"'{script}' {kind} '{root.relative_to(here)}' '{source.relative_to(here)}' 1"
    made = as_nobody(f"cd '{here}' && {sys.executable} {words}")
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) > 0
    assert [(path.lstat().st_mode, path.lstat().st_uid) for path in (victim, bait)] == before


_RENAMING = """
import os, sys, threading, time
for n in range(40):
    def rename():
        time.sleep(n / 1000)
        os.rename("source/secret", f"source/{n}")
    thread = threading.Thread(target=rename)
    thread.start()
    try:
        fd = os.open(f"mnt/{n}", os.O_CREAT | os.O_RDWR)
        print(os.read(fd, 9))
    except PermissionError:
        print("refused")
    thread.join()
    os.rename(f"source/{n}", "source/secret")
"""


@pytest.mark.usefixtures("reachable")
def test_a_file_renamed_to_the_name_of_a_new_one_is_not_opened(mount: Mount, source: Path) -> None:
    """The kernel asks for a new file after its lookup, and then checks no permission."""
    (source / "secret").write_text("root's")
    (source / "secret").chmod(0o600)
    source.chmod(0o777)
    root = mount("allow_other", "delay=10ms").mountpoint
    assert (root.name, source.name) == ("mnt", "source")
    made = as_nobody(f"cd '{source.parent}' && {sys.executable} -c '{_RENAMING}'")
    assert made.returncode == 0, made.stderr
    said = made.stdout.splitlines()
    assert len(said) == 40
    assert set(said) == {"b''", "refused"}


@pytest.mark.usefixtures("reachable")
def test_permissions_hold_for_other_users(mount: Mount, source: Path) -> None:
    (source / "secret").write_text("s")
    (source / "secret").chmod(0o600)
    mirror = mount("allow_other")
    assert "Permission denied" in as_nobody(f"cat '{mirror.mountpoint}/secret'").stderr
    assert "Permission denied" in as_nobody(f"touch '{mirror.mountpoint}/new'").stderr
    assert not (source / "new").exists()


@pytest.mark.parametrize(
    "options", ["timeout=1", "direct_io", "direct_io,splice=off", "direct_io,splice=write+move"]
)
@pytest.mark.parametrize(
    "change",
    [
        "printf x 1<>program",
        "dd if=/dev/zero of=program bs=4096 count=1 conv=notrunc oflag=direct",
        ": >program",
    ],
    ids=["write", "O_DIRECT", "O_TRUNC"],
)
@pytest.mark.usefixtures("reachable")
def test_set_id_bits_end_when_another_user_changes_the_file(
    mount: Mount, source: Path, options: str, change: str
) -> None:
    program = source / "program"
    program.touch()
    root = mount(*options.split(","), "allow_other").mountpoint
    for _ in range(4):  # by several threads of the server
        program.chmod(0o6777)
        changed = as_nobody(f"cd '{root}' && {change}")
        assert changed.returncode == 0, changed.stderr
        assert oct(stat.S_IMODE(program.stat().st_mode)) == oct(0o777)
        # Root has CAP_FSETID, and all threads still have it too.
        program.chmod(0o6777)
        with (root / "program").open("r+b", buffering=0) as file:
            file.write(b"x")
        assert oct(stat.S_IMODE(program.stat().st_mode)) == oct(0o6777)


@pytest.mark.usefixtures("reachable")
def test_a_set_id_program_that_another_user_overwrote_runs_as_its_caller(
    mount: Mount, source: Path
) -> None:
    """The kernel must not use the bits that it has cached."""
    program = Path(shutil.copy("/usr/bin/id", source / "program"))
    program.chmod(0o6777)
    root = mount("direct_io", "timeout=60", "suid", "allow_other").mountpoint
    run = f"'{root}/program' -u"
    assert as_nobody(run).stdout == "0\n"
    assert as_nobody(f"dd if=/usr/bin/id of='{root}/program' bs=1M conv=notrunc").returncode == 0
    assert as_nobody(run).stdout == f"{NOBODY}\n"
