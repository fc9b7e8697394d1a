# SPDX-License-Identifier: GPL-2.0-or-later
"""Configuration files of a tree."""

from pathlib import Path

import pytest

from fusetune.desired.config import load
from fusetune.toml.file import ConfigError
from tests.unit.conftest import Tree


def configure(tree: Tree, text: str, name: str = "fusetune.toml", *, vendor: bool = False) -> Path:
    """Write a configuration file."""
    return tree.write(f"{'usr/lib' if vendor else 'etc'}/{name}", text)


def wrong(tree: Tree) -> str:
    """Return the error about a wrong configuration."""
    with pytest.raises(ConfigError) as raised:
        load(tree.host)
    return str(raised.value)
