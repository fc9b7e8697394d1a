# SPDX-License-Identifier: GPL-2.0-or-later
"""The supported series of Linux and libfuse are in one file each; repetitions agree with it.

dkms/series and libfuse/series are read by the imports, dkms.conf, the packages and the tests. Texts
for people, and the tables by series in rules.toml, cannot read them and are compared here.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.suites import SUITES, series_in
from tests.libfuse.suites import SUITES as LIBRARIES
from tests.native.mirror import CHECKOUT

#: These name all series of Linux.
_TEXTS = ("README.md", "debian/control", "man/fusetuned.4", "docs/testing.md")
#: A build of the rpm packages has no debian/, and the spec is filled in from its control file, too.
_DEBIAN = pytest.mark.skipif(not (CHECKOUT / "debian").exists(), reason="no debian/ here")
_LIST = re.compile(r"(?<![\d.])\d\.\d+(?:,\s+\d\.\d+)+,?\s+and\s+\d\.\d+(?!\d|\.\d)")


def _tables(value: Any) -> Iterator[set[str]]:
    """Yield the keys of each table by series in a rules.toml."""
    if isinstance(value, dict):
        if value and all(re.fullmatch(r"\d+\.\d+", key) for key in value):
            yield set(value)
        for part in value.values():
            yield from _tables(part)
    elif isinstance(value, list):
        for part in value:
            yield from _tables(part)


@pytest.mark.parametrize("rules", ["dkms/fusetuned", "dkms/f2fs", "libfuse"])
def test_tables_by_series_have_all_series(rules: str) -> None:
    text = (CHECKOUT / rules / "rules.toml").read_text()
    series = set(series_in(CHECKOUT / rules.partition("/")[0]))
    assert all(table == series for table in _tables(tomllib.loads(text)))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_DEBIAN if "debian" in name else ()) for name in _TEXTS]
)
def test_texts_name_all_series(name: str) -> None:
    found = _LIST.findall((CHECKOUT / name).read_text())
    assert found
    for each in found:
        assert re.findall(r"\d\.\d+", each) == list(series_in(CHECKOUT / "dkms"))


def test_suites_of_the_tests_are_those_of_the_series() -> None:
    """A tree for each, and one whose programs the virtual machines run."""
    assert {suite.series: suite.name for suite in SUITES} == series_in(CHECKOUT / "dkms")
    assert {suite.series: suite.name for suite in LIBRARIES} == series_in(CHECKOUT / "libfuse")


@_DEBIAN
def test_the_spec_has_all_series() -> None:
    """The spec's series are filled in by packaging/dist.py."""
    program = (
        "import sys, pathlib; sys.path.insert(0, 'packaging'); import dist; "
        "print(dist.spec(dist.releases(pathlib.Path('CHANGELOG').read_text()), []))"
    )
    ran = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    series = list(series_in(CHECKOUT / "dkms"))
    spec = ran.stdout.partition("%changelog")[0]
    assert f"case $kernel in {'|'.join(f'{each}[.-]*' for each in series)}) ;;" in spec
    assert [re.findall(r"\d\.\d+", each) for each in _LIST.findall(spec)] == [series, series]
    assert not re.search("@[A-Z]+@", spec)
