# SPDX-License-Identifier: GPL-2.0-or-later
"""Each test target of the Makefile lists the packages of the programs that its tests start.

A host with the packages of all targets would not show what is missing in one list.
"""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.native.mirror import CHECKOUT

#: Packages that every Debian has, and git, which made the checkout.
_EVERYWHERE = ("apt", "git", "make")
_LISTS = {
    "system": ("SYSTEM",),
    "kernel": ("KERNEL",),
    "libfuse": ("LIBFUSE",),
    "packaging": ("PACKAGING",),
    "fleet": ("FLEET",),
}
#: Words that do not mean the program of this name.
_CHANCE = {"node", "open", "systemd", "time"}
#: Directories for programs.
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def _listed(name: str) -> list[str]:
    """Return the packages of one of the Makefile's lists, expanded by make."""
    command = ["make", "-s", "--no-print-directory", "-C", str(CHECKOUT), "-f", "-", "print"]
    text = f"include Makefile\nprint:\n\t@echo $({name}_PACKAGES)\n"
    said = subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout
    return said.split()


def _imported(file: Path) -> Iterator[Path]:
    """Yield the modules of tests/ that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            module = CHECKOUT.joinpath(*str(node.module).split("."))
            yield from (
                path
                for path in (
                    module.with_suffix(".py"),
                    *(module / f"{one.name}.py" for one in node.names),
                )
                if path.exists()
            )


def _files(suite: str) -> set[Path]:
    """Return the Python files that a test suite runs on the host."""
    found = set((CHECKOUT / "tests" / suite).glob("*.py"))
    while more := {path for file in found for path in _imported(file)} - found:
        found |= more
    return {path for path in found if not {"inside", "guest"} & set(path.parts)}


def _programs(file: Path) -> Iterator[str]:
    """Yield this host's programs that a file names in lists of words."""
    tree = ast.parse(file.read_text())
    names = {
        part
        for node in tree.body
        if isinstance(node, ast.Assign) and "_PACKAGES" in ast.unparse(node.targets[0])
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.List | ast.Tuple) or len(node.elts) < 2 or node in names:
            continue
        for one in node.elts:
            word = one.value if isinstance(one, ast.Constant) else None
            if isinstance(word, str) and re.fullmatch(r"[a-z][a-z0-9_.+-]+", word) and _found(word):
                yield word


def _found(program: str) -> str | None:
    return shutil.which(program, path=_PATH)


@cache
def _owner(program: str) -> str:
    found = str(Path(str(_found(program))).resolve())
    for path in (found, found.removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", path], check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.partition(":")[0]
    return ""


def _with_dependencies(packages: list[str]) -> set[str]:
    """Return this host's packages with all their dependencies."""
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    how = ["--recurse", "--installed", *(f"--no-{kind}" for kind in kinds)]
    command = ["apt-cache", "depends", *how, *packages]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(re.findall(r"^(\S+)$", done.stdout, re.M))


def _everywhere() -> list[str]:
    command = ["dpkg-query", "-Wf", "${Package} ${Essential} ${Priority}\n"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    essential = re.findall(r"^(\S+) (?:yes \S+|no required)$", done.stdout, re.M)
    return [*_EVERYWHERE, *essential]


@pytest.mark.parametrize("suite", _LISTS)
def test_the_targets_packages_have_its_programs(suite: str) -> None:
    packages = [name for each in ("RUN", "TEST", *_LISTS[suite]) for name in _listed(each)]
    there = _with_dependencies([*packages, *_everywhere()])
    used = {program for file in _files(suite) for program in _programs(file)}
    assert len(used) > 3, used
    owners = {program: _owner(program) for program in used - _CHANCE}
    missing = {program: owner for program, owner in owners.items() if owner not in there}
    assert not missing
