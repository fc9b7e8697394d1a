# SPDX-License-Identifier: GPL-2.0-or-later
"""Under Valgrind: no invalid access anywhere, and no leak from our code."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.libfuse.inside.libfuse_servers import OUT, Command, command, scratch, serve
from tests.libfuse.inside.test_servers import loaded, work
from tests.native.mirror import CHECKOUT

#: The library with symbols; the one in `TUNED` is stripped.
_LIBRARY = next(OUT.glob("source/obj-*/lib"))
_VALGRIND = ("valgrind", "--leak-check=full", "--num-callers=30")
_ADMIN = Path("/etc/fusetune")
_SECTIONS = """\
# Of one file; the second is more specific.
[[mount]]
fstype = "fuse*"
options = "max_background=22,max_pages=32"

[[mount]]
path = '/tmp/libfuse-*/m[a-z]t'
server = "sshfs"
options = "max_background=33"
"""
_TEXTS = {
    "options": ("max_pages=64", "max_write=4M", "splice=read+write+move", "direct_io", "tuned=1"),
    "sections": (_SECTIONS, '[[mount]]\nsource = "\\u00e4\\"**[!a]', "[[mount]]\npath = 1\n"),
}


def complaints(log: str) -> list[str]:
    """Return the blocks of Valgrind's log about invalid accesses, or about leaks of ours."""
    lines = re.sub(r"^==\d+== ?", "", log, flags=re.M)
    blocks = [block for block in lines.split("\n\n") if re.search(r"^ +(at|by) 0x", block, re.M)]
    ours = r"\((?:session|by_module|init|channels|sections|glob|options)\.c:"
    return [block for block in blocks if " in loss record " not in block or re.search(ours, block)]


@pytest.mark.parametrize("parser", _TEXTS)
def test_parsers(parser: str, tmp_path: Path) -> None:
    tuned, fuzz = CHECKOUT / "libfuse" / "tuned", CHECKOUT / "tests" / "libfuse" / "fuzz"
    program = tmp_path / parser
    files = [fuzz / "once.c", fuzz / f"{parser}.c"]
    files += [tuned / f"{name}.c" for name in ("options", "sections", "glob")]
    flags = ("-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", f"-I{tuned}")
    subprocess.run(["gcc", *flags, "-o", program, *files], check=True, timeout=60)
    words: Command = [*_VALGRIND, "--error-exitcode=3", program, *_TEXTS[parser]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "no leaks are possible" in done.stderr


def test_a_server() -> None:
    """sshfs with options from every source, until it is unmounted."""
    (_ADMIN / "mounts.d").mkdir(parents=True)
    (_ADMIN / "mounts.d" / "a.toml").write_text(_SECTIONS)
    try:
        with scratch() as (source, point):
            log = source.with_name("valgrind")
            prefix = ["env", f"LD_LIBRARY_PATH={_LIBRARY}", *_VALGRIND, f"--log-file={log}"]
            environment = "writeback_cache,splice=read,max_readahead=64K,tuned_if_possible,io_uring"
            with serve(
                command("sshfs", source, point),
                point,
                options="max_threads=3",
                environment=environment,
                prefix=prefix,
            ) as served:
                assert loaded(served.process.pid) == {_LIBRARY}
                assert "fuse: io_uring is left out" in served.log
                assert work(point) == b"x" * 100_000 + b"appended"
            said = log.read_text()
    finally:
        shutil.rmtree(_ADMIN)
    assert "HEAP SUMMARY" in said
    assert not complaints(said), "\n\n".join(complaints(said))
