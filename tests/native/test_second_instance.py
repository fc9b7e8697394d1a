# SPDX-License-Identifier: GPL-2.0-or-later
"""auto --try-options on servers whose second instance may only read: no data changes.

A recipe's ``second_with`` mounts a second instance in such a way that the kernel refuses writes.
"""

import hashlib
import json
import random
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.conftest import sysfs_values
from tests.native.mirror import PATIENCE
from tests.native.program import Fusetune
from tests.native.requirements import requires
from tests.native.servers import Command, command_of, run_server

pytestmark = [
    requires("fio", "gocryptfs", "encfs", "unionfs", "archivemount", "mksquashfs", "squashfuse"),
    pytest.mark.xdist_group("private"),
]

TRY = ("--try-options", "--budget", "20", "--budget-bytes", "500M")
DATA = random.Random(1).randbytes(40 << 20)


def contents(directory: Path) -> dict[str, tuple[object, ...]]:
    """Return, by path, what any write in a directory would change: data and times."""
    return {
        str(path): (
            path.stat().st_mtime_ns,
            path.stat().st_ctime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in (directory, *directory.rglob("*"))
    }


def _gocryptfs(source: Path, point: Path, scratch: Path) -> Command:
    return command_of("gocryptfs", source, point, scratch)


def _encfs(source: Path, point: Path, scratch: Path) -> Command:
    return ["encfs", "--extpass=echo password", "--standard", "-f", source, point]


def _unionfs(source: Path, point: Path, scratch: Path) -> Command:
    for name in ("upper", "lower"):
        (source / name).mkdir()
    return ["unionfs", "-f", "-o", "cow", f"{source}/upper=RW:{source}/lower=RO", point]


def _archivemount(source: Path, point: Path, scratch: Path) -> Command:
    """An archive that its server rewrites when it ends, if anything was written."""
    (scratch / "file").write_bytes(DATA)
    subprocess.run(["tar", "-C", scratch, "-cf", source / "a.tar", "file"], check=True)
    return ["archivemount", "-f", source / "a.tar", point]


@pytest.mark.parametrize("command", [_gocryptfs, _encfs, _unionfs, _archivemount])
def test_a_second_instance_only_reads(
    fusetune: Fusetune,
    tmp_path: Path,
    tmpfs_dir: Path,
    command: Callable[[Path, Path, Path], Command],
) -> None:
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    words = command(source, point, tmp_path)
    with run_server(words, point, tmp_path / "log") as (_, bdi):
        if not (point / "file").exists():
            (point / "file").write_bytes(DATA)
            subprocess.run(["sync", "-f", point], check=True, timeout=PATIENCE)
        before, values = contents(source), sysfs_values(bdi)
        done = fusetune("auto", point, "-w", "seq-read", *TRY, "--json", timeout=60)
        assert done.returncode in (0, 4), done.stderr
        assert contents(source) == before
        assert sysfs_values(bdi) == values
        refused = fusetune.fails("auto", point, "-w", "seq-write", *TRY, code=2)
    found = json.loads(done.stdout)
    assert [file["path"] for file in found["read"]["files"]] == ["file"]
    assert found["cost"]["bytes_written"] == 0 < found["cost"]["bytes_read"]
    assert any(one["options"] for one in found["trials"])
    why, told, *_ = done.stderr.splitlines()
    assert "is only safe read-only: " in why
    assert told.startswith("fusetune reads at most 4096 MiB (--budget-read) in at most 1000000 ")
    assert told.endswith(f" of file in {point}, and writes nothing there")
    assert "seq-write needs scratch files" in refused


def test_a_server_in_the_background_is_started_as_before(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    """It has restarted itself with words that name a process, which has ended since."""
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    words = [str(one) for one in _gocryptfs(source, point, tmp_path) if one != "-fg"]
    point.mkdir(exist_ok=True)
    subprocess.run(words, check=True, timeout=PATIENCE, stderr=subprocess.DEVNULL)
    try:
        (point / "file").write_bytes(DATA)
        advised = fusetune.json("advise", point, "-w", "seq-read")
        tried = fusetune("auto", point, "-w", "seq-read", *TRY, "--json", timeout=60)
    finally:
        subprocess.run(["umount", point], check=True, timeout=PATIENCE)
    assert advised["commands"]["now"].endswith(f"gocryptfs {shlex.join(words[1:])}")
    assert tried.returncode in (0, 4), tried.stderr
    assert any(one["options"] for one in json.loads(tried.stdout)["trials"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ('second_with = ["-ro"]', ""),
            " is only safe read-only, but its recipe has no second_with",
        ),
        (
            ('second = "read-only"', 'second = "no"'),
            "mnt' shows its options without measuring them",
        ),
        (("second_with", 'second_not_with = ["-passfile"]\nsecond_with'), "safe with -passfile: "),
        (('["-ro"]', '["-rw"]'), "second_with does not make it read-only"),
    ],
    ids=["no-words", "not-safe", "not-safe-with", "writable"],
)
def test_second_instances_that_are_not_safe_are_refused(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path, change: tuple[str, str], said: str
) -> None:
    source, point = tmpfs_dir / "source", tmp_path / "mnt"
    shipped = Path("fusetune/recipes/gocryptfs.toml").read_text()
    fusetune.configure(shipped.replace(*change, 1), "recipes/gocryptfs.toml")
    with run_server(_gocryptfs(source, point, tmp_path), point, tmp_path / "log"):
        before = contents(source)
        line = fusetune("auto", point, *TRY, timeout=60).stderr.splitlines()[-1]
        assert said in line
        assert contents(source) == before


def test_options_of_squashfuse_are_tried_by_reading(
    fusetune: Fusetune, tmp_path: Path, tmpfs_dir: Path
) -> None:
    source, image, point = tmpfs_dir / "source", tmpfs_dir / "image", tmp_path / "mnt"
    (source / "file").write_bytes(DATA)
    subprocess.run(["mksquashfs", source, image, "-quiet", "-no-progress"], check=True)
    before = contents(tmpfs_dir)
    # All of its options concern metadata, which no workload can measure without its own files.
    shipped = Path("fusetune/recipes/squashfuse.toml").read_text()
    fusetune.configure(shipped.replace('"metadata"', '"seq-read"'), "recipes/squashfuse.toml")
    with run_server(["squashfuse", "-f", image, point], point, tmp_path / "log"):
        files = ("--files", point / "file")
        done = fusetune("auto", point, "-w", "seq-read", *files, *TRY, "--json", timeout=60)
    assert done.returncode in (0, 4), done.stderr
    found = json.loads(done.stdout)
    assert contents(tmpfs_dir) == before
    assert found["read"]["named"]
    assert found["cost"]["bytes_written"] == 0 < found["cost"]["bytes_read"]
    assert any(one["options"] for one in found["trials"])
