# SPDX-License-Identifier: GPL-2.0-or-later
"""SeaweedFS, which Go builds once."""

from pathlib import Path

from tests.system import golang

_MODULE = "github.com/seaweedfs/seaweedfs"
_VERSION = "v0.0.0-20261109003541-7506e5f91cd6"


def seaweedfs() -> Path:
    """Return the program ``weed``, built first (some minutes) if it is not there."""
    return golang.programs(f"seaweedfs-{_VERSION}", _build) / "weed"


def _build(module: golang.Module, output: Path) -> None:
    module.requires("go 1.26.6", f"require {_MODULE} {_VERSION}")
    module.go("build", "-trimpath", "-ldflags=-s -w", f"-o={output}/", f"{_MODULE}/weed")
