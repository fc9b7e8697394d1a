# SPDX-License-Identifier: GPL-2.0-only
"""Put hooks into other projects' sources, and check that each landed where it belongs.

Used by import_kernel.py and libfuse/import_libfuse.py. Each rules.toml explains its own rules.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Rules = dict[str, Any]


class Refused(Exception):
    """The source is not what the rules were written for. The text says how it differs."""


def run(usage: str | None, least: int, most: float, make: Callable[[list[str]], str]) -> int:
    """Run an import from the command line, with ``least`` to ``most`` arguments.

    ``make`` returns what to print. Returns the exit status.
    """
    arguments = sys.argv[1:]
    if not least <= len(arguments) <= most:
        print(usage, file=sys.stderr)
        return 2
    try:
        print(make(arguments))
    except (Refused, OSError, subprocess.CalledProcessError) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 1
    return 0


def series_in(file: Path) -> dict[str, str]:
    """Return the series that a file ``series`` lists, and the Debian suite that has each."""
    return dict(re.findall(r"^(\d\S*) (\S+)$", file.read_text(), re.M))


def put_in(directory: Path, rules: Rules, scripts: Path, series: str) -> None:
    """Change the C files in ``directory`` as ``rules`` say, and check the result.

    ``scripts`` holds the semantic patches. Raises Refused or OSError; ``directory`` is then in an
    undefined state.
    """
    for rule in rules["text"]:
        _replace(directory, rule, series)
    for script, files in rules["patches"].items():
        for name in files:
            if (directory / name).exists():
                _patch(directory / name, scripts / script)
    for rule in rules["hook"]:
        _check(directory, rule["call"], rule["sites"], series)
    for rule in rules.get("place", ()):
        _check(directory, rule["text"], rule["sites"], series)


def _for_series(value: Any, series: str) -> Any:
    """Return a rule's value for ``series``: itself, or its entry in a table of series."""
    if not isinstance(value, dict):
        return value
    if series not in value:
        raise Refused(f"rules.toml: no entry for {series} in {value}")
    return value[series]


def _replace(directory: Path, rule: Rules, series: str) -> None:
    """Carry out one [[text]] rule."""
    times = _for_series(rule["times"], series)
    path = directory / rule["file"]
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
        # Attributes and macros may precede the name; annotations of locks may follow it.
        if names := re.findall(r"(?!__(?:acquires|must_hold|releases)\b)\b(\w+)\(\)", head):
            yield names[-1], match[2]


def landed(directory: Path, call: str) -> Counter[str]:
    """Return how often ``call`` occurs in each place outside comments, as ``file.c function``."""
    found: Counter[str] = Counter()
    for path in sorted(directory.glob("*.[ch]")):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        found[f"{path.name} -"] = text.count(call)
        for name, body in _functions(text):
            times = body.count(call)
            found[f"{path.name} {name}"] += times
            found[f"{path.name} -"] -= times
    return +found


def _check(directory: Path, text: str, sites: Any, series: str) -> None:
    """Check that ``text`` occurs in its places, as often as listed, and nowhere else."""
    expected = Counter(_for_series(sites, series))
    found = landed(directory, text)
    if found != expected:
        raise Refused(f"{series} {text!r} is in {dict(found)}, not {dict(expected)}")


def _patch(path: Path, script: Path) -> None:
    """Apply one semantic patch to one C file.

    One file at a time: spatch 1.1.1 misses matches when given several. It succeeds even if nothing
    matches, so `_check` looks at the result.
    """
    command: list[str | Path] = ["spatch", "--very-quiet", "--no-includes", "--in-place"]
    macros = script.with_name("macros.h")
    if macros.exists():
        command += ["--macro-file", macros]
    command += ["--sp-file", script, path]
    # spatch looks for a configuration file in HOME, and fails in builds that do not set it.
    home = {"HOME": "/nonexistent", **os.environ}
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=home)
    if ran.returncode:
        raise Refused(f"{script.name}: {ran.stderr.strip()}")
