# SPDX-License-Identifier: GPL-2.0-or-later
"""fetch.sh after a point release: only current sources remain. The archive is made up."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.kernel.suites import DKMS, series_in
from tests.native.mirror import CHECKOUT

#: Acts like apt-get(8): `download` and `source` do nothing if the result is there, and then
#: `--print-uris` prints nothing. Everything has the version in VERSION.
_APT_GET = """\
#!/bin/bash
set -euo pipefail
words=" $* "
suite=${words#*sourcelist=*/.apt/}
suite=${suite%%/*}
file=${*: -1}_${VERSION}_all.deb
case $words in
*" update "*) ;;
*" --print-uris download "*) [[ -e $file ]] || echo "'http://deb/$file' $file 1 SHA256:0" ;;
*" download "*)
    [[ -e $file ]] || echo "$file" >>"$LOG"
    touch "$file"
    ;;
*" source fuse3 "*)
    touch "fuse3_$VERSION.dsc"
    [[ ! -e fuse3-$suite ]] || exit 0
    mkdir "fuse3-$suite"
    echo "$VERSION" >"fuse3-$suite/version"
    ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment in which the made-up archive is used."""
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(_APT_GET)
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ARCHIVE": "http://deb", "LOG": str(tmp_path / "log")}


def _fetch(directory: Path, environment: dict[str, str], version: str) -> list[Path]:
    done = subprocess.run(
        [CHECKOUT / "packaging" / "fetch.sh", directory],
        env={**environment, "VERSION": version},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


def test_a_point_release_replaces_what_was_fetched(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    directory, series = tmp_path / "sources", series_in(DKMS)
    for version in ("1", "2", "2"):
        directory.mkdir(exist_ok=True)
        (directory / "linux-source-5.10_1_all.deb").touch()  # a series of an earlier fusetune
        fetched = _fetch(directory, environment, version)
        debs = {path.name for path in fetched if path.suffix == ".deb"}
        assert debs == {f"linux-source-{one}_{version}_all.deb" for one in series}
        trees = [path for path in fetched if path.name.startswith("fuse3-")]
        assert {path.joinpath("version").read_text() for path in trees} == {f"{version}\n"}
        assert {path.name for path in trees} == {
            f"fuse3-{suite}" for suite in series_in(CHECKOUT / "libfuse").values()
        }
        assert {path for path in directory.iterdir() if path.name[0] != "."} == set(fetched)
    downloaded = (tmp_path / "log").read_text().splitlines()
    assert len(downloaded) == len(set(downloaded)) == 2 * len(series)  # and none twice
