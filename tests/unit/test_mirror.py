# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the benchmarks find mirrorfs, and when its mount is ready."""

import os
import time
from pathlib import Path

import pytest

from fusetune.bench.mirror import mirror, mirrorfs_binary
from tests.unit.conftest import CHECKOUT, Tree


def test_a_checkout_uses_the_mirrorfs_that_it_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSETUNE_MIRRORFS", raising=False)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert mirrorfs_binary() == str(CHECKOUT / "build" / "mirrorfs")


def test_the_environment_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSETUNE_MIRRORFS", "/bin/sh")
    assert mirrorfs_binary() == "/bin/sh"


def test_a_mount_is_ready_once_its_server_has_replied_to_init(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, point, slept = tmp_path / "server", tmp_path / "point", []
    server.write_text("#!/bin/sh\nexec sleep 60\n")
    server.chmod(0o755)
    tree.mount(str(point))
    tree.live(waiting=1)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            tree.write("sys/fs/fuse/connections/40/waiting", "0\n")

    monkeypatch.setattr(time, "sleep", sleep)
    with mirror(tree.host, str(server), tmp_path, point, "") as mount:
        assert mount.path == str(point)
        # Popen.communicate() also sleeps if the server ends slightly after the signal.
        assert len(slept) == 3
