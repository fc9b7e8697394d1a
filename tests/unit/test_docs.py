# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables in the manual, README and docs agree with the code.

The tests run `docs/generate.py` as ``make docs`` and ``make check`` do.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fusetune.cli import commands

CHECKOUT = Path(__file__).resolve().parents[2]


def generate(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-B", "-m", "docs.generate", *words]
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def schema(name: str) -> str:
    """The file of a JSON Schema."""
    return f"docs/schemas/{name}.json"


def copy_tree(target: Path) -> None:
    """Copy the sources of the tables, and the files that contain them."""
    for name in ("fusetune", "docs", "man", "monitoring"):
        shutil.copytree(
            CHECKOUT / name, target / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for path in CHECKOUT.glob("*.md"):
        shutil.copy(path, target)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the tree."""
    copy_tree(tmp_path)
    return tmp_path


@pytest.mark.slow  # make lint does the same
def test_tables_are_those_of_the_code() -> None:
    done = generate(CHECKOUT, "--check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_entry_more_is_in_every_table_of_its_kind(copy: Path) -> None:
    table = copy / "fusetune" / "report" / "findings.py"
    text = table.read_text()
    more = r'\g<0>\n    "dust": Check("the fan is slow", _fio),'
    changed = re.sub(r"^HOST_CHECKS.* = \{$", more, text, flags=re.M)
    table.write_text(changed)
    done = generate(copy, "--check")
    assert done.returncode == 1
    stale = ("docs/reference.md", "man/fusetune-report.8", *map(schema, ("doctor", "report")))
    assert f"{', '.join(stale)} differ" in done.stderr
    assert generate(copy).returncode == 0
    assert "| `dust` | The fan is slow. |" in (copy / "docs" / "reference.md").read_text()
    assert ".It Cm dust\nThe fan is slow.\n" in (copy / "man" / "fusetune-report.8").read_text()
    assert generate(copy, "--check").returncode == 0


def test_every_command_has_a_page() -> None:
    pages = (path.read_text() for path in (CHECKOUT / "man").glob("fusetune-*.8"))
    named = {name for page in pages for name in re.findall(r"^\.Nm fusetune-(\w+)", page, re.M)}
    assert named == set(commands())


def test_the_figure_in_readme_is_that_of_the_benchmarks() -> None:
    page = (CHECKOUT / "docs" / "benchmarks.md").read_text()
    row = re.search(r"^\| 2 ms a request, 8 at once \| seq-read \|.*$", page, re.M)
    assert row
    stock = row[0].split(" | ")[4]
    found = re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", stock)
    assert found
    ratio, low, high = (f"{float(number):.1f}" for number in found.groups())
    text = " ".join((CHECKOUT / "README.md").read_text().split())
    assert f"were {ratio} times as fast" in text
    assert f"(95 % interval: {low} to {high})" in text
    assert re.search(r"^\| 200 MB/s \| stock \|", page, re.M)


@pytest.mark.parametrize(("name", "most"), [("README.md", 120), ("docs/architecture.md", 150)])
def test_pages_that_are_read_whole_are_short(name: str, most: int) -> None:
    assert len((CHECKOUT / name).read_text().splitlines()) <= most


def test_the_tests_that_security_md_names_are_there() -> None:
    tests = {path: path.read_text() for path in (CHECKOUT / "tests").rglob("*.py")}
    named = re.findall(
        r"`((?:[a-z_/]+\.py)?)(?:::)?((?:test|check)_\w+)?`", (CHECKOUT / "SECURITY.md").read_text()
    )
    found = [(file, name) for file, name in named if file or name]
    assert found
    for file, name in found:
        assert any(
            path.as_posix().endswith(f"/{file}" if file else ".py") and f"def {name}" in text
            for path, text in tests.items()
        ), f"{file}::{name}"
