#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Make the source of the tuned libfuse3 from a distribution's own.

    import_libfuse.py OUTPUT SOURCE

SOURCE is the distribution's source tree of fuse3 with its patches applied, as left by `apt-get
source fuse3`; it is not changed. OUTPUT, which is replaced, is that tree with our files and hooks,
as rules.toml says, and a file fusetune-source that records its origin. build.sh builds it. If a
change does not land exactly where rules.toml says, the exit status is 1 and OUTPUT is left alone.
Needs spatch (coccinelle).
"""

import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

_HERE = Path(__file__).resolve().parent
# The protocol between the module and FUSE servers.
_PROTOCOL = _HERE.parent / "dkms" / "fusetuned" / "tuned" / "protocol.h"
#: The file in OUTPUT that records its origin. build.sh installs it beside the library.
RECORD = "fusetune-source"
# The code that both imports share is in dkms/, because the DKMS packages contain it.
sys.path.insert(0, str(_HERE.parent / "dkms"))

import hooks  # noqa: E402
from hooks import Refused  # noqa: E402


def version_of(tree: Path) -> str:
    """Return the version of a libfuse3 tree, such as 3.17.2. Raises Refused if it is not one."""
    text = (tree / "meson.build").read_text()
    project = re.search(r"project\('libfuse3',[^)]*?version: '(\d+\.\d+\.\d+)", text)
    if not project:
        raise Refused(f"{tree}/meson.build: not libfuse3's")
    return project[1]


def series_of(tree: Path) -> str:
    """Return the series of a libfuse3 tree, such as 3.17."""
    return version_of(tree).rpartition(".")[0]


def origin(tree: Path) -> str:
    """Return the origin of a tree: "3.17.2 fuse3 3.17.2-3", or "3.17.2" without a package."""
    changelog = tree / "debian" / "changelog"
    text = changelog.read_text() if changelog.exists() else ""
    package = re.match(r"(\S+) \((\S+)\)", text)
    return f"{version_of(tree)} {' '.join(package.groups()) if package else ''}".rstrip()


def make(output: Path, source: Path) -> str:
    """Make the directory ``output`` and return its series.

    Raises Refused or OSError, and then leaves ``output`` unchanged.
    """
    rules = tomllib.loads((_HERE / "rules.toml").read_text())
    series = series_of(source)
    if series not in hooks.series_in(_HERE / "series"):
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


def _main(arguments: list[str]) -> str:
    output, source = arguments
    return f"{output}: {make(Path(output).absolute(), Path(source))}"


if __name__ == "__main__":
    sys.exit(hooks.run(__doc__, 2, 2, _main))
