# SPDX-License-Identifier: GPL-2.0-or-later
"""The packages of fusetune import downwards only: each knows those before it in `LAYERS`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.conftest import CHECKOUT

#: From the ground up.
LAYERS = (
    *("errors", "text", "host", "files", "syscalls", "deadline", "untrusted", "source_age"),
    *("schema", "toml", "masking", "signals"),
    *(
        "mounts",
        "kmod",
        "knobs",
        "profile",
        "changes",
        "bench",
        "libfuse",
        "recipes",
        "intercept",
        "shadow",
        "remount",
        "desired",
        "tuner",
    ),
    *("report", "top", "cli", "mount_helper", "__main__"),
)
PACKAGE = CHECKOUT / "fusetune"


def imported(source: str) -> Iterator[str]:
    """Yield the layers that a module's source imports, also within functions."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "fusetune":
            names = [f"fusetune.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "fusetune" and rest and rest != "__version__":
                yield rest.partition(".")[0]


def layer_of(path: Path) -> str:
    """Return the layer that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_layer_imports_no_higher_one(path: Path) -> None:
    own = LAYERS.index(layer_of(path))
    higher = [layer for layer in imported(path.read_text()) if LAYERS.index(layer) > own]
    assert not higher


def test_an_import_within_a_function_counts() -> None:
    assert list(imported("def f():\n    from fusetune.cli import main\n")) == ["cli"]
    assert list(imported("from fusetune import report, __version__\n")) == ["report"]
    assert list(imported("import fusetune.desired.config\n")) == ["desired"]
