# SPDX-License-Identifier: GPL-2.0-or-later
"""Results move between hosts and mounts, with real mounts and real signatures of OpenSSH.

The other host is a second state and configuration directory.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import sysfs_values
from tests.native.mirror import Mirror
from tests.native.program import Fusetune
from tests.native.requirements import requires

pytestmark = requires("ssh-keygen")


def _key(directory: Path, name: str) -> Path:
    key = directory / name
    how = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)]
    subprocess.run(how, check=True)
    return key


def _allow(fusetune: Fusetune, who: str, key: Path) -> None:
    public = key.with_suffix(".pub").read_text()
    signers = fusetune.config / "allowed_signers"
    signers.parent.mkdir(parents=True, exist_ok=True)
    signers.write_text(f"{who} {public}")


def _refused(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line that gives the reason."""
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    return done.stderr


@pytest.fixture
def other(tmp_path: Path) -> Fusetune:
    """The program on another host."""
    return Fusetune(tmp_path / "other")


def test_a_signed_export_arrives_and_a_changed_one_does_not(
    fusetune: Fusetune, other: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    ours, theirs = (_key(tmp_path, name) for name in ("ours", "theirs"))
    file = tmp_path / "x.toml"
    with Mirror(tmpfs_dir, tmp_path / "mnt") as mirror:
        fusetune("set", mirror.mountpoint, "read_ahead_kb=512")
        fusetune("save", mirror.mountpoint)
        fusetune("export", mirror.mountpoint, "-o", file, "--key", ours)
        fusetune("reset", mirror.mountpoint)

        _allow(other, "ops@example", theirs)
        assert "nothing is imported" in _refused(other("import", file))
        _allow(other, "ops@example", ours)
        text = file.read_text()
        file.write_text(text.replace("512", "4096"))
        assert "nothing is imported" in _refused(other("import", file))
        assert not (other.state / "saved").exists()
        file.write_text(text)

        found = other.json("import", file)
        assert (found["signed"], found["signer"]) == (True, "ops@example")
        assert [one["action"] for one in found["results"]] == ["imported"]
        assert [one["action"] for one in other.json("import", file)["results"]] == ["unchanged"]
        other("apply", mirror.mountpoint)
        assert sysfs_values(mirror.bdi)["read_ahead_kb"] == 512
        other("reset", mirror.mountpoint)
        file.with_name("x.toml.sig").unlink()
        assert "not signed" in _refused(other("import", file))


def test_a_result_of_another_kernel_is_refused_and_told(
    fusetune: Fusetune, other: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "x.toml"
    with Mirror(tmpfs_dir, tmp_path / "mnt") as mirror:
        fusetune("set", mirror.mountpoint, "read_ahead_kb=512")
        fusetune("save", mirror.mountpoint)
        fusetune("export", mirror.mountpoint, "-o", file)
        fusetune("reset", mirror.mountpoint)
        series = ".".join(os.uname().release.split(".")[:2])
        text = file.read_text()
        assert text.count(f'kernel = "{series}"') == 2, text
        file.write_text(text.replace(f'kernel = "{series}"', 'kernel = "4.19"'))
        for dry_run in (["--dry-run"], []):
            done = other("import", file, *dry_run)
            assert done.returncode == 1
            assert f"Linux 4.19, but this host has {series}" in done.stdout
            assert "Traceback" not in done.stderr
        assert not (other.state / "saved").exists()


def test_a_result_follows_the_volume_to_another_mount_point(
    fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path
) -> None:
    config = fusetune.config / "fusetune.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[policy]\nshare_results = ["{tmp_path}/pods/*"]\n')
    source = "fsname=bucket-7"
    first, second, elsewhere = tmp_path / "pods" / "1", tmp_path / "pods" / "2", tmp_path / "mnt"
    for point in (first, second, elsewhere):
        point.mkdir(parents=True)
    with Mirror(tmpfs_dir, first, source):
        fusetune("set", first, "read_ahead_kb=512")
        fusetune("save", first)
    with Mirror(tmpfs_dir, second, source) as mirror, Mirror(tmpfs_dir, elsewhere, source) as no:
        found = fusetune.json("show", second)
        (knob,) = (one for one in found["knobs"] if one["name"] == "read_ahead_kb")
        assert (knob["expected"], knob["origin"]["shared_by"]) == (512, str(first))
        assert f"shared by {first}: " in fusetune("show", second).stdout
        assert f"shared by {first}: " in fusetune("verify", second).stdout
        fusetune("apply", "--all")
        assert sysfs_values(mirror.bdi)["read_ahead_kb"] == 512
        assert sysfs_values(no.bdi)["read_ahead_kb"] == 128, "it may not share"
        sentences = fusetune.json("explain", second, "read_ahead_kb")["knobs"][0]["sentences"]
        assert any(f"for {first}, a similar volume" in one for one in sentences)
        fusetune("reset", "--all")
    with Mirror(tmpfs_dir, second, "fsname=bucket-8"):
        assert fusetune.json("show", second)["knobs"][0]["origin"] is None, "another volume"
