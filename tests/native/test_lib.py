# SPDX-License-Identifier: GPL-2.0-or-later
"""`lib status` shows which libfuse real servers use; `lib` and `run` without the tuned one.

A process maps the library that it is linked with: /proc/PID/maps (proc(5)) names the file.
"""

import os
from pathlib import Path

import pytest

from tests.native.program import Fusetune
from tests.native.servers import missing, serve

#: bindfs is built on libfuse 2 in Debian 12.
_USES = {"mirrorfs": "stock", "sshfs": "stock", "passthrough_ll": "stock", "bindfs": "libfuse2"}
_DIRECTORIES = list(Path("/usr/lib").glob("*/fusetune/libfuse3.so.?"))


def words_of(pid: int) -> str:
    """Return a process's command line, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("server", _USES)
def test_status(server: str, fusetune: Fusetune, tmpfs_dir: Path, tmp_path: Path) -> None:
    lacking = missing(server)
    if lacking:
        pytest.skip(f"missing: {', '.join(lacking)}")
    point = tmp_path / "mnt"
    (tmpfs_dir / "source").mkdir(exist_ok=True)
    with serve(server, tmpfs_dir / "source", point):
        assert os.listdir(point) == []  # by now its child has become another program
        found = fusetune.json("lib", "status")["servers"]
        # Other servers may run on this host, too.
        (ours,) = (one for one in found if str(point) in words_of(one["pid"]))
    assert os.path.basename(ours["program"]) == server
    assert ours["uses"] == _USES[server]
    assert "libfuse" in ours["library"]


@pytest.mark.skipif(bool(_DIRECTORIES), reason="the tuned libfuse3 is installed here")
@pytest.mark.parametrize(
    "words", [("run", "true"), ("enable", "x.service"), ("lib", "enable", "--system")]
)
def test_without_the_library(words: tuple[str, ...], fusetune: Fusetune) -> None:
    done = fusetune(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fusetune: there is no tuned libfuse3 in /usr/lib/")


def test_nothing_to_disable(fusetune: Fusetune) -> None:
    done = fusetune("disable", "no-such-unit", "--dry-run", "--json")
    assert done.returncode == 0
    assert '"remedy": null' in done.stdout


def test_an_old_name_says_the_new_one(fusetune: Fusetune) -> None:
    done = fusetune("lib", "disable", "no-such-unit", "--dry-run", "--json")
    assert done.returncode == 0
    assert done.stderr == "fusetune: 'fusetune disable no-such-unit' replaces this command\n"
