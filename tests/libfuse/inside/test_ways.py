# SPDX-License-Identifier: GPL-2.0-or-later
"""Ways to use the installed tuned library: mount(8), run, the whole host."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusetune.host import Host
from fusetune.libfuse.switch import carry_out, disable, enable
from fusetune.libfuse.users import libfuse_users
from tests.libfuse.inside.libfuse_servers import LIBRARY, TUNED, command, gocryptfs, scratch, serve
from tests.native.mirror import CHECKOUT, PATIENCE, mounted_at, unmount, wait_for

_CONNECTIONS = Path("/sys/fs/fuse/connections")
#: As the command does; Debian 12's tree lacks the command's packages.
_RUN = (
    "import sys; sys.path.insert(0, '/usr/share/fusetune'); from fusetune.host import Host;"
    "from fusetune.libfuse.installed import run;"
    "run(Host(), sys.argv[1:], 'max_background=78', lambda text: print(text, file=sys.stderr))"
)


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[None]:
    """The library at the package's path, and the files of `make install`."""
    directory = Path("/") / TUNED.relative_to("/out/new")
    shutil.copytree(TUNED, directory)
    subprocess.run(["make", "-s", "-C", CHECKOUT, "install"], check=True, timeout=60)
    subprocess.run(["mount", "-t", "fusectl", "none", _CONNECTIONS], check=True, timeout=10)
    yield
    subprocess.run(["umount", _CONNECTIONS], check=True, timeout=10)
    shutil.rmtree(directory)


def background(point: Path) -> int:
    """Return max_background of the mount, once its server has replied to INIT."""
    device = mounted_at(point)
    assert device is not None
    directory = _CONNECTIONS / device.partition(":")[2]
    wait_for(lambda: int((directory / "waiting").read_text()) == 0, "INIT")
    return int((directory / "max_background").read_text())


def uses() -> list[str]:
    return [server.uses for server in libfuse_users(Host())]


def test_fstab() -> None:
    """mount(8) starts mount.fusetune for the type, and handles its own options itself."""
    with scratch() as (source, point):
        (source / "file").write_text("seen")
        ssh = command("sshfs", source, point)[3]
        line = f"localhost:{source} {point} fusetune.sshfs ro,noauto,max_background=77,{ssh} 0 0\n"
        Path("/etc/fstab").write_text(line)
        try:
            subprocess.run(["mount", point], check=True, timeout=PATIENCE)
            assert (point / "file").read_text() == "seen"
            assert background(point) == 77
            assert uses() == ["tuned"]
            with pytest.raises(OSError, match="Read-only"):
                (point / "new").touch()
        finally:
            unmount(point)
        wait_for(lambda: uses() == [], "the server to end")


def test_a_refusal_reaches_mount() -> None:
    with scratch() as (source, point):
        words = ["mount", "-t", "fusetune.sshfs", "-o", "max_pages=0"]
        words += [f"localhost:{source}", str(point)]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1
        assert "mount.fusetune: 'max_pages=0'" in done.stderr or "takes a number" in done.stderr
        assert mounted_at(point) is None


def test_run() -> None:
    """As `fusetune run` does; the program keeps its environment."""
    with scratch() as (source, point):
        prefix = ["/usr/bin/python3", "-IB", "-c", _RUN]
        with serve(command("hello", source, point), point, tuned=False, prefix=prefix) as served:
            assert background(point) == 78
            assert uses() == ["tuned"]
            assert "not linked" not in served.log


def test_a_server_without_libfuse() -> None:
    """gocryptfs does not use libfuse: `run` and `lib status` say so, and it works as usual."""
    prefix = ["/usr/bin/python3", "-IB", "-c", _RUN]
    with (
        scratch() as (source, point),
        serve(gocryptfs(source, point), point, tuned=False, prefix=prefix) as served,
    ):
        assert "gocryptfs is not linked with libfuse3" in served.log
        (point / "file").write_text("seen")
        assert (point / "file").read_text() == "seen"
        assert background(point) != 78
        assert [(server.library, server.uses) for server in libfuse_users(Host())] == [
            (None, "none")
        ]


def test_the_whole_host_and_back() -> None:
    """An unconfigured server, before, between and after."""
    for expected in ("stock", "tuned", "stock"):
        change = enable(Host(), None) if expected == "tuned" else disable(Host(), None)
        carry_out(Host(), change)
        with (
            scratch() as (source, point),
            serve(command("sshfs", source, point), point, tuned=False),
        ):
            assert os.listdir(point) == []  # by now its child has become another program
            assert uses() == [expected]
    assert LIBRARY.exists()
    assert not os.path.exists("/etc/ld.so.conf.d/00-fusetune.conf")
