#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the source packages of fusetune.

    dist.py [--suite SUITE]... OUTPUT SOURCE...

The modules and the tuned libfuse are built from SOURCE: Linux source trees, or tar files or Debian
packages that hold one, one for each series; and fuse3 source trees with their patches applied (as
left by `apt-get source fuse3`), one for each series. OUTPUT is created if needed, and gets the
source tarballs, which are reproducible; fusetune.spec for rpmbuild; and, if dpkg-source is
installed, a Debian source package for each SUITE (unstable if none is given). Version and changes
come from CHANGELOG, whose first entry must be of fusetune's version. On an error, prints one line
and exits with status 1.
"""

import argparse
import datetime
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT / "dkms"), str(_ROOT / "libfuse")]

import hooks  # noqa: E402
import import_kernel  # noqa: E402
import import_libfuse  # noqa: E402

#: Version suffix of each suite: newer suites sort higher, unknown ones highest.
SUFFIXES = {"bookworm": "~deb12u1", "trixie": "~deb13u1"}
_OTHERS = "~sid1"
_MODULES = ("fusetuned", "f2fs")


@dataclass(frozen=True)
class Release:
    """One entry of CHANGELOG: a version, its day, and its changes, one line each."""

    version: str
    day: datetime.datetime
    changes: tuple[str, ...]


def releases(text: str) -> list[Release]:
    """Return the entries of CHANGELOG, newest first. Raises hooks.Refused if it is malformed."""
    found = []
    for entry in filter(None, re.split(r"^(?=fusetune )", text, flags=re.M)):
        head, _, body = entry.partition("\n")
        match = re.fullmatch(r"fusetune (\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)", head)
        if not match:
            raise hooks.Refused(f"CHANGELOG: {head!r}, not 'fusetune VERSION (YEAR-MONTH-DAY)'")
        changes = (" ".join(part.split()) for part in re.split(r"^- ", body, flags=re.M)[1:])
        day = datetime.datetime.fromisoformat(match[2]).replace(tzinfo=datetime.UTC)
        found.append(Release(match[1], day, tuple(changes)))
    return found


def _maintainer() -> str:
    control = (_ROOT / "debian" / "control").read_text()
    return re.findall(r"^Maintainer: (.*)$", control, re.M)[0]


def debian_changelog(entries: list[Release], suite: str) -> str:
    """Return debian/changelog for one suite."""
    text = ""
    for entry in entries:
        version = f"{entry.version}-1{SUFFIXES.get(suite, _OTHERS)}"
        text += f"fusetune ({version}) {suite}; urgency=medium\n\n"
        for change in entry.changes:
            text += textwrap.fill(change, 78, initial_indent="  * ", subsequent_indent="    ")
            text += "\n"
        text += f"\n -- {_maintainer()}  {entry.day:%a, %d %b %Y %H:%M:%S} +0000\n\n"
    return text


def spec(entries: list[Release], sources: list[str]) -> str:
    """Return fusetune.spec with its version, sources, kernel series and changelog."""
    text = (_ROOT / "rpm" / "fusetune.spec").read_text()
    lines = [f"Source{number}: {name}" for number, name in enumerate(sources)]
    series = list(hooks.series_in(_ROOT / "dkms" / "series"))
    values = {
        "VERSION": entries[0].version,
        "SOURCES": "\n".join(lines),
        "KERNELS": "|".join(f"{each}[.-]*" for each in series),
        "SERIES": f"{', '.join(series[:-1])} and {series[-1]}",
    }
    text = re.sub("@([A-Z]+)@", lambda found: values[found[1]], text)
    text += "\n%changelog\n"
    for entry in entries:
        text += f"* {entry.day:%a %b %d %Y} {_maintainer()} - {entry.version}-1\n"
        for change in entry.changes:
            plain = change.replace("%", "%%")
            text += textwrap.fill(plain, 78, initial_indent="- ", subsequent_indent="  ") + "\n"
        text += "\n"
    return text.rstrip("\n") + "\n"


def _own_files() -> Iterator[tuple[str, Path]]:
    """Yield the project's files: those that git tracks, or all if this is not a checkout.

    Not those in build, where fetch.sh puts the sources.
    """
    if (_ROOT / ".git").exists():
        command = ["git", "-C", str(_ROOT), "ls-files", "-z"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        names = [name for name in done.stdout.split("\0") if name]
    else:
        found = (str(path.relative_to(_ROOT)) for path in _ROOT.rglob("*") if path.is_file())
        names = [name for name in found if not name.startswith("build/")]
    for name in sorted(names):
        if (_ROOT / name).exists():
            yield name, _ROOT / name


def _files_below(tree: Path) -> Iterator[tuple[str, Path]]:
    """Yield a source's files, except quilt's copies and pages that were built from it."""
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if (path.is_symlink() or path.is_file()) and not name.startswith((".pc/", "doc/html/")):
            yield name, path


def pack(archive: Path, top: str, files: Iterable[tuple[str, Path]], when: int) -> None:
    """Write a tar file of ``files`` below ``top``, with time stamp ``when`` (s since 1970)."""
    with tarfile.open(archive, "w:xz", format=tarfile.GNU_FORMAT) as tar:
        for name, path in files:
            info = tarfile.TarInfo(f"{top}/{name}")
            info.mtime = when
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
                tar.addfile(info)
                continue
            data = path.read_bytes()
            info.size = len(data)
            info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(info, io.BytesIO(data))


def _component(source: Path, scratch: Path) -> tuple[str, Path]:
    """Return a source's component name and its tree."""
    if not source.exists():
        raise hooks.Refused(f"{source}: no such source; packaging/fetch.sh downloads all")
    if (source / "lib" / "fuse_lowlevel.c").exists():
        return f"fuse3-{import_libfuse.series_of(source)}".replace(".", "-"), source
    every = [import_kernel.rules_of(_ROOT / "dkms" / name) for name in _MODULES]
    tree = scratch / "linux"
    import_kernel.collect(source, tree, every)
    return f"linux-{import_kernel.series_of(tree)}".replace(".", "-"), tree


def make(output: Path, suites: list[str], sources: list[Path]) -> None:
    """Make everything in ``output``.

    Raises hooks.Refused, OSError or subprocess.CalledProcessError.
    """
    entries = releases((_ROOT / "CHANGELOG").read_text())
    version, when = import_kernel.version(), int(entries[0].day.timestamp())
    if entries[0].version != version:
        raise hooks.Refused(f"CHANGELOG: {entries[0].version} on top; fusetune is {version}")
    output.mkdir(parents=True, exist_ok=True)
    base, directory = f"fusetune_{version}.orig", f"fusetune-{version}"
    archives = [f"{base}.tar.xz"]
    own = list(_own_files())
    ours = [(name, path) for name, path in own if not name.startswith("debian/")]
    pack(output / archives[0], directory, ours, when)
    for source in sources:
        with tempfile.TemporaryDirectory(dir=output) as scratch:
            name, tree = _component(source, Path(scratch))
            archive = f"{base}-{name}.tar.xz"
            if archive in archives:
                raise hooks.Refused(f"{source}: {name} is given twice")
            archives.append(archive)
            pack(output / archive, name, _files_below(tree), when)
    (output / "fusetune.spec").write_text(spec(entries, archives))
    if shutil.which("dpkg-source"):
        with tempfile.TemporaryDirectory(dir=output) as scratch:
            tree = Path(scratch, directory)
            for archive in archives:
                into = scratch if archive == archives[0] else tree
                subprocess.run(["tar", "-C", into, "-xf", output / archive], check=True)
            for name, path in own:
                if name.startswith("debian/"):
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, tree / name)
            for suite in suites:
                (tree / "debian" / "changelog").write_text(debian_changelog(entries, suite))
                build = ["dpkg-source", "--build", tree]
                subprocess.run(build, cwd=output, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", action="append")
    parser.add_argument("output", type=Path, metavar="OUTPUT")
    parser.add_argument("sources", type=Path, nargs="+", metavar="SOURCE")
    given = parser.parse_args()
    try:
        make(given.output.absolute(), given.suite or ["unstable"], given.sources)
    except (hooks.Refused, OSError, subprocess.CalledProcessError, tarfile.TarError) as error:
        print(f"dist.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
