# SPDX-License-Identifier: GPL-2.0-or-later
"""Modules of an older source on a host whose kernel apt updates."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetune import __version__
from tests.kernel.headers import Archive, Headers
from tests.kernel.suites import DKMS, SUITES, USERLAND, Suite, with_cached_spatch
from tests.packaging.conftest import script
from tests.packaging.trees import importing_tree, inside

_MODULES = {"fusetuned": "fusetuned", "f2fs-tuned": "f2fs"}
_INSIDE = Path(__file__).with_name("inside")


def _last_two(suite: Suite, held: list[Headers]) -> tuple[Headers, Headers]:
    """Return the headers of the two newest point releases of the suite's series.

    Their packages have the same versions as linux-source.
    """
    points = {
        one.version.partition("-")[0]: one
        for one in held
        if one.flavour == "amd64" and one.series == suite.series
    }
    older, newer = list(points.values())[-2:]
    return older, newer


def _made_older(packages: Path, source: Path, series: str, out: Path) -> Path:
    """Return a directory of our packages, with the modules of ``series`` from ``source``."""
    out.mkdir()
    (plain,) = packages.glob("fusetune_*.deb")
    shutil.copy(plain, out)
    for name, module in _MODULES.items():
        (deb,) = packages.glob(f"{name}-dkms_*.deb")
        tree, made = out / "tree", out / "made"
        unpack: list[str | Path] = ["dpkg-deb", "-R", deb, tree]
        subprocess.run(unpack, check=True)
        command: list[str | Path] = [
            sys.executable,
            DKMS / "import_kernel.py",
            module,
            made,
            source,
        ]
        subprocess.run(command, env=with_cached_spatch(), check=True, timeout=300)
        installed = tree / "usr" / "src" / f"{name}-{__version__}"
        shutil.rmtree(installed / series)
        (made / series).rename(installed / series)
        (made / f"{series}.source").rename(installed / f"{series}.source")
        build: list[str | Path] = ["dpkg-deb", "--root-owner-group", "-b", tree, out / deb.name]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        for directory in (tree, made):
            shutil.rmtree(directory)
    return out


def _read(out: Path, stage: str, kernel: str) -> dict[str, dict[str, Any]]:
    """Return the `module status` of each module for a kernel at a stage."""
    document = json.loads((out / f"{stage}.json").read_text())
    return {
        module["name"]: next(one for one in module["kernels"] if one["kernel"] == kernel)
        for module in document["modules"]
    }


def _short(one: dict[str, Any]) -> tuple[str, str | None, str | None]:
    source = one["source"] and one["source"]["package_version"]
    return one["state"], source, one["source_reason"] or one["reason"]


@pytest.mark.parametrize("suite", [USERLAND], ids=lambda suite: suite.name)
def test_modules_follow_the_kernel(
    suite: Suite, packages: Callable[[Suite], Path], tmp_path: Path
) -> None:
    older, newer = _went_through("first", suite, packages(suite), tmp_path)
    _check_first_stages(tmp_path / "out", suite.series, older, newer)


@pytest.mark.long
@pytest.mark.parametrize("suite", [SUITES[0], USERLAND], ids=lambda suite: suite.name)
def test_modules_of_an_older_source_stay(
    suite: Suite, packages: Callable[[Suite], Path], tmp_path: Path
) -> None:
    older, newer = _went_through("all", suite, packages(suite), tmp_path)
    _check_first_stages(tmp_path / "out", suite.series, older, newer)
    _check_later_stages(tmp_path / "out", suite.series, older, newer)


def _went_through(
    stages: str, suite: Suite, packages: Path, scratch: Path
) -> tuple[Headers, Headers]:
    """Run ``stages`` of age.sh in ``scratch``/out; return the headers of the two kernels."""
    archive = Archive(suite)
    held = archive.kernels()
    older, newer = _last_two(suite, held)
    files = archive.fetch(held, [older, newer], [])
    source = f"linux-source-{suite.series}"
    sources = [archive.package(source, one.version) for one in (older, newer)]
    ours = _made_older(packages, sources[0], suite.series, scratch / "ours")
    kernels = [
        " ".join(
            [
                f"/packages/{archive.package(f'linux-image-{one.release}', one.version).name}",
                *(f"/debs/{files[name]}" for name in one.packages),
            ]
        )
        for one in (older, newer)
    ]
    variables = (
        f"export OLD_KERNEL='{kernels[0]}' NEW_KERNEL='{kernels[1]}' RELEASE={newer.release} "
        f"SOURCE={newer.version} SERIES={suite.series} STAGES={stages}\n"
    )
    out = scratch / "out"
    out.mkdir()
    binds = (
        (_INSIDE, "/inside"),
        (ours, "/ours"),
        (archive.directory / "debs", "/debs"),
        (sources[0].parent, "/packages"),
    )
    commands = variables + script("age.sh", suite)
    done = inside(importing_tree(suite), out, commands, *binds, timeout=2400)
    assert done.returncode == 0, done.stdout[-8000:]
    assert done.stdout.splitlines()[-1] == "passed"
    return older, newer


def _check_first_stages(out: Path, series: str, older: Headers, newer: Headers) -> None:
    for name in _MODULES:
        installed = _short(_read(out, "installed", older.release)[name])
        assert installed == ("installed", older.version, None)
    missing = f"linux-source-{series} is not installed"
    _check_older(out, "kernel", (missing, missing), "skipped", older, newer)
    found = _read(out, "coccinelle", newer.release)
    assert {_short(one) for one in found.values()} == {("installed", newer.version, None)}


def _check_later_stages(out: Path, series: str, older: Headers, newer: Headers) -> None:
    # What is missing, according to the build of fusetuned and the refusal of f2fs-tuned.
    missing = (f"linux-source-{series} is not installed", "coccinelle is not installed")
    _check_older(out, "source", missing, "skipped", older, newer)
    for stage, why in (
        ("hook", "cannot be imported"),
        ("compile", "does not compile for this kernel"),
    ):
        tried = f"linux-source-{series} {newer.version} {why}"
        _check_older(out, stage, (tried, tried), "failed", older, newer)
    old = older.version
    for stage, f2fs_now in (("allowed", ("installed", old)), ("refused", ("skipped", None))):
        found = _read(out, stage, newer.release)
        assert _short(found["fusetuned"])[:2] == ("installed", old), stage
        assert _short(found["f2fs-tuned"])[:2] == f2fs_now, stage
    # The older kernel keeps the module from its own source.
    assert _short(_read(out, "refused", older.release)["f2fs-tuned"]) == ("installed", old, None)


def _check_older(
    out: Path,
    stage: str,
    reasons: tuple[str, str],
    state: str,
    older: Headers,
    newer: Headers,
) -> None:
    """At ``stage`` fusetuned has the older source, and f2fs-tuned is in ``state`` for that reason.

    ``reasons``: why the source is not newer, of fusetuned and of f2fs-tuned.
    """
    found = _read(out, stage, newer.release)
    why = f"older than the kernel, {newer.version}: {reasons[0]}"
    assert _short(found["fusetuned"]) == ("installed", older.version, why), stage
    assert _short(found["f2fs-tuned"]) == (
        state,
        None,
        f"its source, Linux {older.version}, is older than the kernel's own f2fs, {newer.version}, "
        f"and {reasons[1]}; to use the older one anyway, put the line 'f2fs=yes' into "
        "/etc/fusetune/older.conf",
    ), stage
    assert "f2fs-tuned: not built for Linux" in (out / f"{stage}.said").read_text()
