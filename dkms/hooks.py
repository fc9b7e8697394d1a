# SPDX-License-Identifier: GPL-2.0-only
"""Hooks put into sources of others, and the check that each is where it belongs.

For import_kernel.py here and libfuse/import_libfuse.py. Each rules.toml explains its own rules.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Rules = dict[str, Any]


class Refused(Exception):
    """The source is not what the rules were written for; the text says in what."""


def put_in(folder: Path, rules: Rules, scripts: Path, series: str) -> None:
    """Change the C files in ``folder`` as ``rules`` say, and check what came of it.

    ``scripts`` holds the semantic patches. Raises Refused or OSError; the folder is spoilt then.
    """
    for rule in rules["text"]:
        _replace(folder, rule, series)
    for script, files in rules["patches"].items():
        for name in files:
            if (folder / name).exists():
                _patch(folder / name, scripts / script)
    for rule in rules["hook"]:
        _hook(folder, rule, series)


def _for_series(value: Any, series: str) -> Any:
    """Return a rule's value for ``series``: itself, or its entry in a table of series."""
    if not isinstance(value, dict):
        return value
    if series not in value:
        raise Refused(f"rules.toml: no entry for {series} in {value}")
    return value[series]


def _replace(folder: Path, rule: Rules, series: str) -> None:
    """Carry out one [[text]] rule."""
    times = _for_series(rule["times"], series)
    path = folder / rule["file"]
    text = path.read_text() if path.exists() else ""
    found = text.count(rule["find"])
    if found != times:
        raise Refused(f"{series} {rule['file']}: {rule['find']!r} {found} times, not {times}")
    if times:
        path.write_text(text.replace(rule["find"], rule["replace"]))


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and body of each function: kernel style has its braces in column one."""
    for match in re.finditer(r"^(\w[^;{}]*\))\n\{\n(.*?)^\}", text, re.M | re.S):
        head = match[1]
        while (shorter := re.sub(r"\((?:[^()]|\(\))+\)", "()", head)) != head:
            head = shorter
        # Attributes and macros of its own may stand before the name, what it does to locks after.
        if names := re.findall(r"(?!__(?:acquires|must_hold|releases)\b)\b(\w+)\(\)", head):
            yield names[-1], match[2]


def landed(folder: Path, call: str) -> Counter[str]:
    """Return how often ``call`` stands where, as ``file.c function``."""
    found: Counter[str] = Counter()
    for path in sorted(folder.glob("*.[ch]")):
        text = path.read_text()
        found[f"{path.name} -"] = text.count(call)
        for name, body in _functions(text):
            times = body.count(call)
            found[f"{path.name} {name}"] += times
            found[f"{path.name} -"] -= times
    return +found


def _hook(folder: Path, rule: Rules, series: str) -> None:
    """Check one [[hook]]: its call is where it belongs, as often as it should, nowhere else."""
    expected = Counter(_for_series(rule["sites"], series))
    found = landed(folder, rule["call"])
    if found != expected:
        raise Refused(f"{series} {rule['call']!r} is in {dict(found)}, not {dict(expected)}")


def _patch(path: Path, script: Path) -> None:
    """Apply one semantic patch to one C file.

    spatch succeeds even where nothing matches; given several files, 1.1.1 misses some matches.
    """
    command: list[str | Path] = ["spatch", "--very-quiet", "--no-includes", "--in-place"]
    macros = script.with_name("macros.h")
    if macros.exists():
        command += ["--macro-file", macros]
    command += ["--sp-file", script, path]
    # It looks for a file of its own there, and fails where builders have no HOME.
    home = {"HOME": "/nonexistent", **os.environ}
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=home)
    if ran.returncode:
        raise Refused(f"{script.name}: {ran.stderr.strip()}")
