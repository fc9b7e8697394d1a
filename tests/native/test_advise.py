# SPDX-License-Identifier: GPL-2.0-or-later
"""advise on real servers: it knows each, and the command that it prints mounts and takes effect.

The servers are Debian's packages; their manuals describe the options.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import AS_NOBODY, requires
from tests.native.mirror import PATIENCE, Mirror
from tests.native.new_values import AT_ONCE
from tests.native.program import Fusetune
from tests.native.servers import SECRET, SERVERS, command_of, missing, run_server, serve, stopped

pytestmark = requires("setpriv")

KNOWN = [server for server in SERVERS if server != "passthrough_ll"]
#: The library of each on Debian 12, and whether a package has its version.
_BUILT = {"mirrorfs": "libfuse3", "sshfs": "libfuse3", "bindfs": "libfuse2", "mergerfs": "own"}
_BUILT |= {"rclone": "go", "gocryptfs": "go", "ntfs-3g": "own", "fuse-overlayfs": "libfuse3"}


def needed(server: str) -> None:
    """Skip the test if a server cannot be run."""
    if lacking := missing(server):
        pytest.skip(f"missing: {', '.join(lacking)}")


@pytest.mark.parametrize("server", KNOWN)
def test_the_printed_line_mounts_with_all_that_was_proposed(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path, server: str
) -> None:
    needed(server)
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    command = command_of(server, source, point, tmp_path)
    with run_server(command, point, tmp_path / "log"):
        found = fusetune.json("advise", point)
        assert found["recipe"] == server
        assert found["server"]["library"] == _BUILT[server]
        assert (found["server"]["version"] is None) is (server == "mirrorfs")
        assert os.path.basename(found["server"]["program"]) == server
        now = shlex.split(found["commands"]["now"])
        assert now == ["***" if SECRET in str(word) else str(word) for word in command]
        shown = fusetune("advise", point)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert SECRET not in shown.stdout
        assert f"then: {found['commands']['then']}\n" in shown.stdout
    assert found["changes"]
    then = found["commands"]["then"].replace("'***'", shlex.quote(f"echo {SECRET}"))
    with run_server(["sh", "-c", f"exec {then}"], point, tmp_path / "log"):
        again = fusetune.json("advise", point, code=4)
        assert (again["changes"], again["commands"]["then"]) == ([], None)
        (point / "file").write_text("text")
        assert (point / "file").read_text() == "text"


def _writes_of(command: list[str | Path], point: Path, log: Path, size: int) -> int:
    """Return how often the server calls write(2) and the like for 1 MiB in writes of ``size``.

    It writes a reply to each request, and the data of each WRITE.
    """
    with run_server(command, point, log) as (process, _):
        with (point / "file").open("wb", buffering=0) as stream:
            before = _calls(process.pid)
            for _ in range((1 << 20) // size):
                stream.write(b"x" * size)
            os.fsync(stream.fileno())
        return _calls(process.pid) - before


def _calls(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscw:"))


@pytest.mark.parametrize(
    ("server", "workload", "size"),
    [("bindfs", "seq-write", 1 << 20), ("mergerfs", "small-write", 4096)],
)
def test_advice_makes_requests_of_128_kib_of_those_of_4(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path, server: str, workload: str, size: int
) -> None:
    needed(server)
    source, point, log = tmpfs_dir / "source", tmp_path / "mnt", tmp_path / "log"
    command = command_of(server, source, point, tmp_path)
    with run_server(command, point, log):
        then = fusetune.json("advise", point, "-w", workload)["commands"]["then"]
    stock = _writes_of(command, point, log, size)
    advised = _writes_of(["sh", "-c", f"exec {then}"], point, log, size)
    # 1 MiB is 256 pages or 8 times 128 KiB; each request costs a write and a reply.
    assert stock >= 512
    assert advised <= 64
    assert (source / "file").stat().st_size == 1 << 20


def test_a_server_without_a_recipe(fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path) -> None:
    needed("passthrough_ll")
    with serve("passthrough_ll", tmpfs_dir / "source", tmp_path / "mnt"):
        found = fusetune.json("advise", tmp_path / "mnt")
    assert (found["recipe"], found["changes"]) == (None, [])
    assert any("has the kernel's default values" in note for note in found["notes"])
    assert found["notes"][-1].startswith("no recipe describes this server; docs/recipes.md")


def test_an_administrators_recipe(fusetune: Fusetune, mirror: Mirror) -> None:
    shipped = Path("fusetune/recipes/mirrorfs.toml").read_text()
    fusetune.configure(
        shipped.replace('name = "no_xattr"', 'name = "no_xatr"', 1), "recipes/mirrorfs.toml"
    )
    found = fusetune.json("advise", mirror.mountpoint)
    assert "no_xatr" in {change["option"] for change in found["changes"]}
    fusetune.configure(shipped.replace("[server]", "[servr]"), "recipes/mirrorfs.toml")
    line = fusetune.fails("advise", mirror.mountpoint)
    assert "recipes/mirrorfs.toml:6: unknown key 'servr': did you mean server?" in line


def test_a_stopped_server_is_not_waited_for(fusetune: Fusetune, mirror: Mirror) -> None:
    with stopped(mirror):
        found = fusetune.json("advise", mirror.mountpoint, timeout=AT_ONCE)
    assert found["commands"]["then"].count("no_xattr") == 1


def test_another_users_server(mirror: Mirror, open_path: Path) -> None:
    done = Fusetune(open_path)("advise", mirror.mountpoint, before=AS_NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the process that serves the mount was not found; run fusetune as root\n" in done.stdout
    assert "now: " not in done.stdout


def test_a_server_that_another_mount_namespace_has(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    point = tmp_path / "mnt"
    point.mkdir()
    subprocess.run(["mount", "--make-rshared", tmp_path / "tmpfs"], check=True, timeout=PATIENCE)
    inside = tmpfs_dir / "mnt"
    inside.mkdir()
    command = command_of("mirrorfs", tmpfs_dir / "source", inside, tmp_path)
    apart: list[str | Path] = ["unshare", "--mount", "--propagation", "unchanged", "--", *command]
    with run_server(apart, inside, tmp_path / "log"):
        notes = fusetune.json("advise", inside)["notes"]
    assert [note for note in notes if "is in another mount namespace" in note]
