# SPDX-License-Identifier: GPL-2.0-or-later
"""The tuned libfuse3 of each suite: imported, built, compared, and run by that suite's servers."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.by_suite import by_suite
from tests.kernel.suites import with_cached_spatch
from tests.libfuse.suites import IMPORT, SANITIZE, SUITES, Suite, build

_EVERY = by_suite(SUITES)


_INSIDE = """
        mount -t sysfs sysfs /sys
        mount -t tmpfs tmpfs /tmp
        mknod -m 666 /run/fuse c 10 229
        mount --bind /run/fuse /dev/fuse
        make -s -C /checkout/mirrorfs BUILD=/out
        cd /checkout
        python3 -B -m pytest -q tests/libfuse/inside"""


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Suite], tuple[Path, str]]]:
    """Return the directory of a suite's built library, and the output of the build.

    All builds start at once, because libfuse's own tests wait most of the time.
    """

    # Not in the threads: the first two calls of mktemp() may get different base directories.
    directories = {suite: tmp_path_factory.mktemp("libfuse") for suite in SUITES}

    def make(suite: Suite) -> tuple[Path, str]:
        # mktemp() only lets root in, but other users run some servers.
        out = directories[suite] / suite.name
        out.mkdir()
        return out, build(suite, out, "yes")

    with ThreadPoolExecutor(len(SUITES)) as pool:
        made = {suite: pool.submit(make, suite) for suite in SUITES}
        yield lambda suite: made[suite].result()
        pool.shutdown(cancel_futures=True)


@_EVERY
def test_builds_and_passes_libfuses_own_tests(
    suite: Suite, built: Callable[[Suite], tuple[Path, str]]
) -> None:
    """build.sh also compares the symbols, and fails if they differ."""
    out, said = built(suite)
    assert not re.findall(r".*lib/tuned/.*warning.*", said)
    assert list(out.glob("new/usr/lib/*/fusetune/libfuse3.so.?"))
    (record,) = out.glob("new/usr/lib/*/fusetune/libfuse3.source")
    (directory,) = (suite.tree() / "usr" / "src").glob(f"fuse3-{suite.series}.*")
    version = directory.name.removeprefix("fuse3-")
    assert re.fullmatch(rf"{version} fuse3 {version}-\S+\n", record.read_text())


@_EVERY
def test_servers(suite: Suite, built: Callable[[Suite], tuple[Path, str]]) -> None:
    """inside/ runs in the tree, in its own mount namespace."""
    out, _ = built(suite)
    ended = suite.inside(out, _INSIDE)
    assert ended.returncode == 0, ended.stdout[-12000:]


@by_suite(SUITES, seldom=("trixie",))
def test_sanitized(suite: Suite, built: Callable[[Suite], tuple[Path, str]]) -> None:
    """Each option again, with library and server built with sanitizers.

    mirrorfs shows parallel writes and threads. atomic_open needs the module and is tested by
    check_library_atomic_open_sanitized in tests/kernel. A set-user-ID server needs a shared
    library. What passes on the oldest and the newest series rarely fails on the one between.
    """
    out, _ = built(suite)
    script = f"""
        {SANITIZE}
        uring=$(grep -q HAVE_URING /out/sanitized/fuse_config.h && echo -luring -lnuma || true)
        make -s -C /checkout/mirrorfs BUILD=/out/sanitized SANITIZE=1 PKG_CONFIG=true \\
            CPPFLAGS='-I/out/source/include -I/out/sanitized' \\
            LDLIBS="/out/sanitized/lib/libfuse3.a -ldl -lrt $uring"
        export EXAMPLES=/out/sanitized/example MIRRORFS=/out/sanitized/mirrorfs-asan
        export UBSAN_OPTIONS=halt_on_error=1
        {_INSIDE}/test_options.py tests/libfuse/inside/test_option_sources.py \\
            -k 'not privileged'
    """
    ended = suite.inside(out, script)
    assert ended.returncode == 0, ended.stdout[-12000:]


@_EVERY
def test_a_symbol_more_is_an_error(
    suite: Suite, built: Callable[[Suite], tuple[Path, str]], tmp_path: Path
) -> None:
    out, _ = built(suite)
    shutil.copytree(out / "source", tmp_path / "source", symlinks=True)
    versions = tmp_path / "source" / "lib" / "fuse_versionscript"
    text = versions.read_text()
    versions.write_text(text.replace("global:", "global:\n\t\ttuned_name;", 1))
    script = "TESTS=no /checkout/libfuse/build.sh /out/source /out/new"
    ended = suite.inside(tmp_path, script)
    assert ended.returncode == 1
    assert re.search(r"^> .*tuned_name", ended.stdout, re.M), ended.stdout[-3000:]
    assert not (tmp_path / "new").exists()


def _refused(ours: Path, output: Path, source: Path) -> str:
    done = subprocess.run(
        [sys.executable, ours / "libfuse" / "import_libfuse.py", output, source],
        env=with_cached_spatch(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert not output.exists()
    assert done.stderr.startswith("import_libfuse.py: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A copy of the source and of the importer, for tests to break."""
    root = IMPORT.parents[1]
    shutil.copytree(root / "libfuse", tmp_path / "ours" / "libfuse")
    hooks = tmp_path / "ours" / "dkms"
    hooks.mkdir()
    shutil.copy(root / "dkms" / "hooks.py", hooks)
    tuned = hooks / "fusetuned" / "tuned"
    tuned.mkdir(parents=True)
    shutil.copy(root / "dkms" / "fusetuned" / "tuned" / "protocol.h", tuned)
    return tmp_path / "ours"


@_EVERY
@pytest.mark.parametrize("script", ["session", "mount", "loop", "open"])
def test_a_hook_that_did_not_land_is_refused(
    suite: Suite, script: str, ours: Path, tmp_path: Path
) -> None:
    """If the rules add wrong code, which spatch does not notice."""
    rules = ours / "libfuse" / "rules" / f"{script}.cocci"
    lines = rules.read_text().splitlines()
    changed = [line.replace("tuned_", "other_") if line[:1] == "+" else line for line in lines]
    rules.write_text("\n".join([*changed, ""]))
    assert " is in {" in _refused(ours, tmp_path / "output", suite.source())


@_EVERY
def test_a_hook_in_another_place_is_refused(suite: Suite, ours: Path, tmp_path: Path) -> None:
    rules = ours / "libfuse" / "rules.toml"
    rules.write_text(rules.read_text().replace("lowlevel.c fuse_reply_open", "lowlevel.c other"))
    said = _refused(ours, tmp_path / "output", suite.source())
    assert "fuse_lowlevel.c fuse_reply_open" in said


def test_another_source_is_refused(ours: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "meson.build").write_text("project('libfuse3', ['c'], version: '3.16.1')\n")
    assert "libfuse 3.16 is not supported" in _refused(ours, tmp_path / "output", source)
    (source / "meson.build").write_text("project('other')\n")
    assert "not libfuse3's" in _refused(ours, tmp_path / "output", source)
