#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Make the source of the tuned libfuse3 from a distribution's own.

    import_libfuse.py OUTPUT SOURCE

SOURCE is the distribution's source tree of fuse3, its patches applied (what `apt-get source fuse3`
leaves), which stays as it is. OUTPUT is made anew: that tree with our files and hooks in it, as
rules.toml says, and a file fusetune-source that says where it comes from; build.sh builds it.
Whatever does not land exactly where rules.toml says ends this with status 1 and no OUTPUT. Needs
spatch (coccinelle).
"""

import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

_HERE = Path(__file__).resolve().parent
# What the module and its servers say to each other.
_PROTOCOL = _HERE.parent / "dkms" / "fusetuned" / "tuned" / "protocol.h"
#: In OUTPUT: where it comes from; build.sh installs it beside the library.
RECORD = "fusetune-source"
# What both imports share lies where DKMS's has it.
sys.path.insert(0, str(_HERE.parent / "dkms"))

import hooks  # noqa: E402
from hooks import Refused  # noqa: E402


def version_of(tree: Path) -> str:
    """Return the version of a libfuse3 tree, as 3.17.2. Raises Refused where it is none."""
    text = (tree / "meson.build").read_text()
    project = re.search(r"project\('libfuse3',[^)]*?version: '(\d+\.\d+\.\d+)", text)
    if not project:
        raise Refused(f"{tree}/meson.build: not that of libfuse3")
    return project[1]


def series_of(tree: Path) -> str:
    """Return the series of a libfuse3 tree, as 3.17."""
    return version_of(tree).rpartition(".")[0]


def origin(tree: Path) -> str:
    """Return where a tree comes from: "3.17.2 fuse3 3.17.2-3", or "3.17.2" without a package."""
    changelog = tree / "debian" / "changelog"
    text = changelog.read_text() if changelog.exists() else ""
    package = re.match(r"(\S+) \((\S+)\)", text)
    return f"{version_of(tree)} {' '.join(package.groups()) if package else ''}".rstrip()


def make(output: Path, source: Path) -> str:
    """Make the folder ``output`` and return the series it is of.

    Raises Refused or OSError; ``output`` is as it was then.
    """
    rules = tomllib.loads((_HERE / "rules.toml").read_text())
    series = series_of(source)
    if series not in rules["series"]:
        raise Refused(f"{source}: libfuse {series} is not supported")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        new = shutil.copytree(source, Path(scratch) / "new", symlinks=True)
        shutil.copytree(_HERE / "tuned", new / "lib" / "tuned")
        shutil.copy(_PROTOCOL, new / "lib" / "tuned")
        hooks.put_in(new / "lib", rules, _HERE / "rules", series)
        (new / RECORD).write_text(f"{origin(source)}\n")
        shutil.rmtree(output, ignore_errors=True)
        new.rename(output)
    return series


def main() -> int:
    """Run from the command line."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        series = make(Path(sys.argv[1]).absolute(), Path(sys.argv[2]))
    except (Refused, OSError) as error:
        print(f"import_libfuse.py: {error}", file=sys.stderr)
        return 1
    print(f"{sys.argv[1]}: {series}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
