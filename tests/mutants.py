# SPDX-License-Identifier: GPL-2.0-or-later
"""Make one small mistake in the code at a time, and see which ones no unit test finds.

``make mutants``, or ``python3 tests/mutants.py [-n SAMPLE] [-s SEED] [MODULE...]``. Works on a copy
of the checkout. A mutant is killed when a test fails, or loops. tests/mutants.txt lists survivors
that no test can kill, with the reason; they do not count. Exits 1 if fewer than `GOAL` of the
others were killed.
"""

import argparse
import ast
import fnmatch
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import hypothesis  # noqa: F401  (loaded here, not again by each mutant's tests)
import pytest

GOAL = 0.9

CHECKOUT = Path(__file__).resolve().parents[1]

#: Which tests find mutants: patterns of modules, and their tests in tests/unit, the
#: quickest first.
TESTS = {
    "tuner/confirming": "confirming ending search*",
    "tuner/explaining": "explaining",
    "tuner/exploring": "exploring confirming search*",
    "tuner/grid": "grid search*",
    "tuner/model": "model exploring safer confirming search*",
    "tuner/safer": "safer exploring confirming search*",
    "tuner/search": "confirming ending search*",
    "tuner/state": "exploring confirming ending search*",
    "bench/intervals": "intervals search*",
    "changes/apply": "apply reset policy reconcile*",
    "changes/policy": "policy apply reconcile*",
    "changes/journal": "journal* apply reset",
    "changes/lock": "lock",
    "changes/overrides": "overrides reconcile*",
    "changes/stale": "stale",
    "changes/state": "drift persist inventory reconcile* policy",
    "desired/config": "config* persist",
    "desired/history": "history explain",
    "desired/sections": "config* sections reconcile*",
    "desired/results": "results persist",
    "desired/re[cs]o*": "reconcile* drift persist",
    "desired/watch": "watch*",
    "report/explain": "explain",
    "report/overview": "overview",
}

#: Seconds of CPU time and of real time after which a mutant's tests are assumed to loop.
CPU_LIMIT, CLOCK_LIMIT = 60, 180

_TIMES = itertools.count(1)

_PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
)
_OTHER = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}

# Not behaviour: types, decorators, and the texts of errors.
_SKIPPED = ("annotation", "returns", "decorator_list", "exc", "cause")


class Mutant(NamedTuple):
    """One mutation; ``apply`` makes it in its syntax tree."""

    function: str
    line: int
    change: str
    apply: Callable[[], None]


def _replacing(parent: ast.AST, field: str, at: int | None, new: ast.AST) -> Callable[[], None]:
    def apply() -> None:
        if at is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[at] = new
        ast.fix_missing_locations(parent)

    return apply


def _is_removable(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)  # a docstring
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete)


def _replacements(node: ast.AST, field: str) -> Iterator[ast.AST]:
    """Yield mutations of ``node``, which is its parent's ``field``."""
    if type(node) in _OTHER:
        yield _OTHER[type(node)]()
    elif _is_removable(node):
        yield ast.Pass()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    if field in ("test", "ifs") and not isinstance(node, ast.UnaryOp | ast.Compare):
        yield ast.UnaryOp(ast.Not(), node)  # type: ignore[arg-type]


def mutants(parent: ast.AST, function: str = "", line: int = 1) -> Iterator[Mutant]:
    """Yield each mutation of the tree."""
    if isinstance(parent, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{parent.name}".lstrip(".")
    line = getattr(parent, "lineno", line)
    before = ast.unparse(parent) if isinstance(parent, ast.expr) else ""
    for field, value in ast.iter_fields(parent):
        if field in _SKIPPED or isinstance(parent, ast.JoinedStr):
            continue
        several = isinstance(value, list)
        for number, node in enumerate(value if several else [value]):
            if not isinstance(node, ast.AST):
                continue
            for new in _replacements(node, field):
                old = ast.unparse(node).splitlines() or [before or type(node).__name__]
                words = ast.unparse(new) or type(new).__name__
                apply = _replacing(parent, field, number if several else None, new)
                at = getattr(node, "lineno", line)
                yield Mutant(function, at, f"{old[0]} -> {words.splitlines()[0]}", apply)
            yield from mutants(node, function, line)


def passes(copy: Path, module: Path, text: str, tests: list[str]) -> bool:
    """Return whether the tests pass with ``text`` instead of ``module``.

    A child of this process runs them, which has loaded pytest already.
    """
    before = module.read_text()
    module.write_text(text)
    # Python compares time (in seconds) and size of bytecode, so each text gets its own time.
    os.utime(module, (next(_TIMES),) * 2)
    if not (child := os.fork()):
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT))
        quiet = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(quiet, fd)
        scratch = f"--basetemp={copy / 'basetemp'}"
        os._exit(min(127, pytest.main(["-xq", "--hypothesis-seed=0", scratch, *tests])))
    end = time.monotonic() + CLOCK_LIMIT
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.01)
    module.write_text(before)
    return ended[1] == 0


def found_in(path: Path) -> Iterator[tuple[ast.Module, Mutant]]:
    """Yield each mutant of a module, each with its own tree."""
    text = path.read_text()
    for number in itertools.count():
        tree = ast.parse(text)
        mutant = next(itertools.islice(mutants(tree), number, None), None)
        if mutant is None:
            return
        yield tree, mutant


def modules_of(copy: Path, asked: list[str]) -> Iterator[tuple[Path, list[str]]]:
    """Yield each requested module, and its tests."""
    for known, words in TESTS.items():
        tests = [
            t for word in words.split() for t in (copy / "tests/unit").rglob(f"test_{word}.py")
        ]
        for module in sorted(copy.glob(f"fusetune/{known}.py")):
            name = str(module.relative_to(copy / "fusetune").with_suffix(""))
            if not asked or any(fnmatch.fnmatchcase(name, pattern) for pattern in asked):
                yield module, [str(test) for test in dict.fromkeys(tests)]


def unkillable() -> dict[str, str]:
    """Return the reason for each mutant that no test can kill."""
    lines = (CHECKOUT / "tests" / "mutants.txt").read_text().splitlines()
    pairs = [line.split("  # ", 1) for line in lines if not line.startswith("#")]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def try_module(copy: Path, module: Path, tests: list[str], options: argparse.Namespace) -> int:
    """Run a module's mutants, report each survivor, and return how many were killed."""
    name = module.relative_to(copy / "fusetune").with_suffix("")
    if not passes(copy, module, module.read_text(), tests):
        print(f"{name}: its tests fail without any mutant: {' '.join(tests) or 'none'}")
        options.all += 1
        return 0
    found = list(found_in(module))
    if options.sample:
        found = random.Random(options.seed).sample(found, min(options.sample, len(found)))
    reasons, killed, counted = unkillable(), 0, len(found)
    for tree, mutant in found:
        mutant.apply()
        if not passes(copy, module, ast.unparse(tree), tests):
            killed += 1
            continue
        key = f"{name} {mutant.function}: {mutant.change}"
        place = f"fusetune/{name}.py:{mutant.line}"
        print(f"survives  {place}: {key}  # {reasons.get(key, '?')}", flush=True)
        counted -= key in reasons
    print(f"{killed:4} of {counted:4}  {name}", flush=True)
    options.all += counted
    return killed


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--sample", type=int, help="that many of each module's mutants")
    parser.add_argument("-s", "--seed", type=int, default=0, help="of the sample")
    parser.add_argument("module", nargs="*", help="such as changes/apply; a pattern")
    options = parser.parse_args(namespace=argparse.Namespace(all=0))
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        git = subprocess.run(
            ["git", "ls-files", "-z"], cwd=CHECKOUT, check=True, capture_output=True
        )
        for file in filter(None, git.stdout.decode().split("\0")):
            if (CHECKOUT / file).exists():
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(CHECKOUT / file, copy / file, follow_symlinks=False)
        os.chdir(copy)
        sys.path[0] = str(copy)  # this was the directory of this file
        killed = sum(try_module(copy, *one, options) for one in modules_of(copy, options.module))
    print(f"{killed} of {options.all} killed")
    sys.exit(killed < GOAL * options.all)


if __name__ == "__main__":
    main()
