# SPDX-License-Identifier: GPL-2.0-or-later
"""Files belong to the user who creates them, and their modes apply to other users.

The server runs as root, makes the caller the owner of new files (fchownat(2)), and mounts with
default_permissions, so the kernel checks modes. A set-group-ID directory passes on its group
(inode(7)).
"""

from __future__ import annotations

import os
import subprocess
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
def test_permissions_hold_for_other_users(mount: Mount, source: Path) -> None:
    (source / "secret").write_text("s")
    (source / "secret").chmod(0o600)
    mirror = mount("allow_other")
    assert "Permission denied" in as_nobody(f"cat '{mirror.mountpoint}/secret'").stderr
    assert "Permission denied" in as_nobody(f"touch '{mirror.mountpoint}/new'").stderr
    assert not (source / "new").exists()
