# SPDX-License-Identifier: GPL-2.0-only
"""Make the source of one of our modules from the kernel's.

    import_kernel.py MODULE OUTPUT SOURCE...

MODULE is a directory beside this file, or "." if this file is in an OUTPUT. Each SOURCE is a Linux
source tree, or a tar file or Debian package that holds one; there may be one for each series.
OUTPUT, which is replaced, is a directory that DKMS can build. It has our files and, for each
series, a directory with the kernel's files, changed as MODULE's rules.toml says. SERIES.source
beside it records the kernel's version and, if the source came from a Debian package, that package's
name and version. If a change does not land exactly where rules.toml says, the exit status is 1 and
OUTPUT is left alone. Needs spatch (coccinelle), tar, and dpkg-deb for a package.
"""

import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

import hooks
from hooks import Refused, Rules

_HERE = Path(__file__).resolve().parent
_OURS = ("Kbuild", "tuned", "rules", "rules.toml")
#: Copied to every OUTPUT, with the programs: DKMS imports again if a host has a newer source.
_SHARED = ("dkms.conf", "build.sh", "source.sh", "series", "import_kernel.py", "hooks.py")
#: The file in a tree made by `collect` that records its origin, as `origin` returns it.
RECORD = "fusetune-source"


def version() -> str:
    """Return fusetune's version."""
    text = (_HERE.parent / "fusetune" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.*)"$', text, re.M)
    if not found:
        raise Refused(f"{_HERE.parent}/fusetune/__init__.py: no __version__")
    return found[1]


def wanted(rules: Rules) -> tuple[str, ...]:
    """Return the files of a kernel's source that a module needs, as patterns for tar."""
    paths = ("Makefile", f"{rules['directory']}/*", *rules["headers"].values())
    return tuple(f"*/{path}" for path in paths)


def _unpack(source: Path, into: Path, wanted: Iterable[str]) -> Path:
    """Return the source tree at ``source``; an archive or package is unpacked to ``into``."""
    if source.is_dir():
        return source
    into.mkdir()
    how = ("--strip-components=1", "--wildcards", "--no-wildcards-match-slash")
    with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
        archive = source
        if source.suffix == ".deb":
            subprocess.run(["dpkg-deb", "-x", source, scratch], check=True)
            found = list(Path(scratch, "usr", "src").glob("linux-source-*.tar.*"))
            if len(found) != 1:
                raise Refused(f"{source}: {len(found)} kernel archives in it, not one")
            archive = found[0]
        subprocess.run(["tar", "-C", into, "-xf", archive, *how, *wanted], check=True)
    return into


def collect(source: Path, into: Path, every: list[Rules]) -> None:
    """Copy the kernel sources that modules with these rules need to the directory ``into``.

    Raises Refused, CalledProcessError or OSError.
    """
    patterns = sorted({pattern for rules in every for pattern in wanted(rules)})
    tree = _unpack(source, into, patterns)
    into.mkdir(exist_ok=True)
    (into / RECORD).write_text(f"{origin(source, tree)}\n")
    for pattern in patterns if tree != into else ():
        for path in tree.glob(pattern.removeprefix("*/")):
            if path.is_file():
                copy = into / path.relative_to(tree)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)


def version_of(tree: Path) -> str:
    """Return the version of a kernel tree, such as 6.12.117. Raises Refused if it is not one."""
    text = (tree / "Makefile").read_text()
    names = ("VERSION", "PATCHLEVEL", "SUBLEVEL")
    parts = [re.search(rf"^{name} = (\d+)$", text, re.M) for name in names]
    if not all(parts):
        raise Refused(f"{tree}/Makefile: not a kernel's Makefile")
    return ".".join(part[1] for part in parts if part)


def series_of(tree: Path) -> str:
    """Return the series of a tree, such as 6.12."""
    return version_of(tree).rpartition(".")[0]


def origin(source: Path, tree: Path) -> str:
    """Return the origin of ``tree``, which was taken from ``source``.

    The kernel's version and, if it came from a package, the package's name and version: "6.12.117
    linux-source-6.12 6.12.117-1". Raises Refused if the tree's record names another version.
    """
    version, record = version_of(tree), tree / RECORD
    if not record.exists():
        return f"{version} {_package(source)}".rstrip()
    text = record.read_text().strip()
    if text.partition(" ")[0] != version:
        raise Refused(f"{record}: {text!r}, but the tree is of {version}")
    return text


def _package(source: Path) -> str:
    """Return the name and version of the Debian package that a file is or belongs to, or ""."""
    wanted = "${Package} ${Version}"
    if source.suffix == ".deb":
        return _query("dpkg-deb", f"--showformat={wanted}", "-W", os.fspath(source))
    if source.is_dir() or not shutil.which("dpkg-query"):
        return ""
    owner = _query("dpkg-query", "-S", os.fspath(source.resolve())).partition(":")[0]
    return _query("dpkg-query", f"--showformat={wanted}", "-W", owner) if owner else ""


def _query(*command: str) -> str:
    """Return the output of a query, "" if it finds nothing."""
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def _import(ours: Path, tree: Path, directory: Path, series: str) -> None:
    """Make the directory of one series from the kernel's tree."""
    rules = rules_of(ours)
    shutil.copytree(tree / rules["directory"], directory)
    for name in rules["left_out"]:
        (directory / name).unlink()
    # Renamed, because kbuild would use it to build this directory.
    (directory / "Makefile").rename(directory / "objects.mk")
    for name, there in rules["headers"].items():
        header = directory / "include" / name
        header.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / there, header)
    hooks.put_in(directory, rules, ours / "rules", series)
    for token in rules["forbidden"]:
        if left := hooks.landed(directory, token):
            raise Refused(f"{series}: {token} is still in {', '.join(left)}")


def rules_of(ours: Path) -> Rules:
    """Return the contents of a module's rules.toml."""
    return tomllib.loads((ours / "rules.toml").read_text())


def _fill(conf: Path, rules: Rules, supported: Iterable[str]) -> None:
    """Fill in a module's dkms.conf, unless it is an OUTPUT's, which is filled in already."""
    text = conf.read_text()
    if "#VERSION#" not in text:
        return
    values = {
        "PACKAGE": rules["package"],
        "VERSION": version(),
        "MODULE": rules["module"],
        "REPLACES": rules["module"] if rules["replaces"] else "",
        "KERNELS": "|".join(map(re.escape, supported)),
    }
    conf.write_text(re.sub("#([A-Z]+)#", lambda found: values[found[1]], text))


def make(ours: Path, output: Path, sources: list[Path]) -> list[str]:
    """Make the directory ``output`` for the module ``ours``; return the series in it.

    Raises Refused, CalledProcessError or OSError, and then leaves ``output`` unchanged.
    """
    rules, supported = rules_of(ours), hooks.series_in(_HERE / "series")
    done: list[str] = []
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        new = Path(scratch) / "new"
        new.mkdir(mode=0o755)
        for number, source in enumerate(sources):
            tree = _unpack(source, Path(scratch) / str(number), wanted(rules))
            series = series_of(tree)
            if series not in supported or series in done:
                raise Refused(f"{source}: Linux {series} is not supported, or given twice")
            _import(ours, tree, new / series, series)
            (new / f"{series}.source").write_text(f"{origin(source, tree)}\n")
            done.append(series)
        for name in _OURS:
            copy = shutil.copytree if (ours / name).is_dir() else shutil.copy
            copy(ours / name, new / name)
        for name in _SHARED:
            shutil.copy(_HERE / name, new / name)
        _fill(new / "dkms.conf", rules, supported)
        shutil.rmtree(output, ignore_errors=True)
        new.rename(output)
    return done


def _main(arguments: list[str]) -> str:
    module, output, *sources = arguments
    done = make(_HERE / module, Path(output).absolute(), [Path(name) for name in sources])
    return f"{output}: {', '.join(done)}"


if __name__ == "__main__":
    sys.exit(hooks.run(__doc__, 3, math.inf, _main))
