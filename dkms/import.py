#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Make the source of one of our modules from the kernel's own.

    import.py MODULE OUTPUT SOURCE...

MODULE is the name of a folder beside this file. SOURCE is a Linux source tree, or a tar file or
Debian package that holds one; one a series. OUTPUT is a folder that DKMS can build, made anew: our
files, and a folder a series with the kernel's after what MODULE's rules.toml says. Whatever does
not land exactly where that file says ends this with status 1 and no OUTPUT. Needs spatch
(coccinelle), tar, and dpkg-deb for a package.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_OURS = ("dkms.conf", "Kbuild", "tuned")

Rules = dict[str, Any]


class Refused(Exception):
    """The source is not what the rules were written for; the text says in what."""


def wanted(rules: Rules) -> tuple[str, ...]:
    """Return what a module needs of a kernel's source, as tar's patterns."""
    paths = ("Makefile", f"{rules['folder']}/*", *rules["headers"].values())
    return tuple(f"*/{path}" for path in paths)


def _unpack(source: Path, into: Path, rules: Rules) -> Path:
    """Return the tree that ``source`` is or holds; ``into`` is where it may be unpacked."""
    if source.is_dir():
        return source
    into.mkdir()
    archive = source
    if source.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", source, into / "package"], check=True)
        found = list((into / "package" / "usr" / "src").glob("linux-source-*.tar.*"))
        if len(found) != 1:
            raise Refused(f"{source}: {len(found)} kernel archives in it, not one")
        archive = found[0]
    how = ("--strip-components=1", "--wildcards", "--no-wildcards-match-slash")
    subprocess.run(["tar", "-C", into, "-xf", archive, *how, *wanted(rules)], check=True)
    return into


def _series(tree: Path) -> str:
    """Return the series of a tree, as 6.12."""
    text = (tree / "Makefile").read_text()
    parts = [re.search(rf"^{name} = (\d+)$", text, re.M) for name in ("VERSION", "PATCHLEVEL")]
    if not all(parts):
        raise Refused(f"{tree}/Makefile: not that of a kernel")
    return ".".join(part[1] for part in parts if part)


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
    for match in re.finditer(r"^(\w[^;{}]*?)(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", text, re.M | re.S):
        yield match[2], match[3]


def _landed(folder: Path, call: str) -> Counter[str]:
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
    landed = _landed(folder, rule["call"])
    if landed != expected:
        raise Refused(f"{series} {rule['call']!r} is in {dict(landed)}, not {dict(expected)}")


def _patch(path: Path, script: Path) -> None:
    """Apply one semantic patch to one C file.

    spatch succeeds even where nothing matches; given several files, 1.1.1 misses some matches.
    """
    command: list[str | Path] = ["spatch", "--very-quiet", "--no-includes", "--in-place"]
    command += ["--sp-file", script, path]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode:
        raise Refused(f"{script.name}: {ran.stderr.strip()}")


def _import(ours: Path, tree: Path, folder: Path, series: str) -> None:
    """Make the folder of one series from the kernel's tree."""
    rules = rules_of(ours)
    shutil.copytree(tree / rules["folder"], folder)
    for name in rules["left_out"]:
        (folder / name).unlink()
    # Under another name: kbuild must not take it for the build of this folder.
    (folder / "Makefile").rename(folder / "objects.mk")
    for name, there in rules["headers"].items():
        header = folder / "include" / name
        header.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / there, header)
    for rule in rules["text"]:
        _replace(folder, rule, series)
    for script, files in rules["patches"].items():
        for name in files:
            if (folder / name).exists():
                _patch(folder / name, ours / "rules" / script)
    for rule in rules["hook"]:
        _hook(folder, rule, series)
    for token in rules["forbidden"]:
        if left := _landed(folder, token):
            raise Refused(f"{series}: {token} is still in {', '.join(left)}")


def rules_of(ours: Path) -> Rules:
    """Return what the rules.toml of one of our modules says."""
    return tomllib.loads((ours / "rules.toml").read_text())


def make(ours: Path, output: Path, sources: list[Path]) -> list[str]:
    """Make the folder ``output`` of our module ``ours``, and return the series that are in it.

    Raises Refused, CalledProcessError or OSError; ``output`` is as it was then.
    """
    rules = rules_of(ours)
    done = []
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        new = Path(scratch) / "new"
        new.mkdir(mode=0o755)
        for number, source in enumerate(sources):
            tree = _unpack(source, Path(scratch) / str(number), rules)
            series = _series(tree)
            if series not in rules["series"] or series in done:
                raise Refused(f"{source}: Linux {series} is not supported, or there twice")
            _import(ours, tree, new / series, series)
            done.append(series)
        for name in _OURS:
            copy = shutil.copytree if (ours / name).is_dir() else shutil.copy
            copy(ours / name, new / name)
        shutil.rmtree(output, ignore_errors=True)
        new.rename(output)
    return done


def main() -> int:
    """Run from the command line."""
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        output = Path(sys.argv[2]).absolute()
        done = make(_HERE / sys.argv[1], output, [Path(name) for name in sys.argv[3:]])
    except (Refused, OSError, subprocess.CalledProcessError) as error:
        print(f"import.py: {error}", file=sys.stderr)
        return 1
    print(f"{sys.argv[2]}: {', '.join(done)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
