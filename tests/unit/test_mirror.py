# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the benchmarks find mirrorfs."""

import os

import pytest

from fusetune.bench.mirror import mirrorfs_binary
from tests.unit.conftest import CHECKOUT


def test_a_checkout_uses_the_mirrorfs_that_it_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSETUNE_MIRRORFS", raising=False)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert mirrorfs_binary() == str(CHECKOUT / "build" / "mirrorfs")


def test_the_environment_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSETUNE_MIRRORFS", "/bin/sh")
    assert mirrorfs_binary() == "/bin/sh"
