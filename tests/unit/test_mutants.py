# SPDX-License-Identifier: GPL-2.0-or-later
"""The mutants of `make mutants` are real, one at a time, and only change behaviour.

The tree is parsed again for each, so that none is made on top of another.
"""

import ast
from pathlib import Path

from tests.mutants import found_in, modules_of, mutants, unkillable
from tests.unit.conftest import CHECKOUT

SOURCE = '''
def f(x: int = 1) -> int:
    """Docstring."""
    if x < 2 and not x:
        raise ValueError("text" + "more")
    g(x)
    return x + 1 if x else 0
'''

BREAKS = [
    ("1 -> 2", "def f(x: int=2)"),
    ("x < 2 and (not x) -> not (x < 2 and (not x))", "if not (x < 2 and (not x))"),
    ("x < 2 and (not x) -> Or", "if x < 2 or not x"),
    ("x < 2 -> LtE", "if x <= 2"),
    ("2 -> 3", "if x < 3"),
    ("not x -> x", "if x < 2 and x:"),
    ("raise ValueError('text' + 'more') -> pass", "(not x):\n        pass"),
    ("g(x) -> pass", "\n    pass\n    return"),
    ("x -> not x", "if not x else 0"),
    ("x + 1 -> Sub", "return x - 1"),
    ("1 -> 2", "return x + 2"),
    ("0 -> 1", "if x else 1"),
]


def test_each_break_is_made_alone(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    found = {}
    for tree, mutant in found_in(path):
        mutant.apply()
        found[mutant.line, mutant.change] = ast.unparse(tree)
        assert mutant.function == "f"
    assert sorted(change for _, change in found) == sorted(change for change, _ in BREAKS)
    for change, text in BREAKS:
        assert any(text in code for (_, said), code in found.items() if said == change), change
    assert len(set(found.values())) == len(BREAKS)
    assert ast.unparse(ast.parse(SOURCE)) not in found.values()


def test_every_module_has_tests() -> None:
    modules = dict(modules_of(CHECKOUT, []))
    names = {str(module.relative_to(CHECKOUT / "fusetune")) for module in modules}
    assert {
        "changes/apply.py",
        "desired/watch.py",
        "tuner/search.py",
        "bench/intervals.py",
    } <= names
    assert all(modules.values()), [module for module, tests in modules.items() if not tests]


def test_each_mutant_that_no_test_can_kill_still_exists() -> None:
    keys = unkillable().keys()
    found = set()
    for name in {key.split(" ", 1)[0] for key in keys}:
        tree = ast.parse((CHECKOUT / "fusetune" / f"{name}.py").read_text())
        found |= {f"{name} {mutant.function}: {mutant.change}" for mutant in mutants(tree)}
    assert keys <= found
