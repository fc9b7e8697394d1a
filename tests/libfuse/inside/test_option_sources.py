# SPDX-License-Identifier: GPL-2.0-or-later
"""Sources of options: the command line, the administrator's files, the environment."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.libfuse.inside.libfuse_servers import (
    EXAMPLES,
    LIBRARY,
    MIRRORFS,
    scratch,
    serve,
)
from tests.libfuse.inside.served_with_options import NOBODY, hello, in_flight
from tests.native.mirror import wait_for

_ADMIN = Path("/etc/fusetune")


@pytest.fixture
def sections() -> Iterator[Path]:
    """An empty /etc/fusetune/mounts.d of the tree."""
    directory = _ADMIN / "mounts.d"
    directory.mkdir(parents=True)
    yield directory
    shutil.rmtree(_ADMIN)


def background(options: str, environment: str) -> int:
    with hello(environment, options) as served:
        return int(served.answered_init()["max_background"])


def test_rank(sections: Path) -> None:
    """The command line, then mounts.d, then the environment, for each option."""
    assert background("", "max_background=11") == 11
    (sections / "one.toml").write_text('[[mount]]\noptions = "max_background=22"\n')
    assert background("", "max_background=11") == 22
    assert background("max_background=33", "max_background=11") == 33
    with hello("max_background=11,max_readahead=32K") as served:
        answer = served.answered_init()
        assert (answer["max_background"], answer["max_readahead"]) == ("22", "0x00008000")


def test_the_most_specific_section_counts(sections: Path) -> None:
    """By path, source, server, type, in any order of files."""
    (sections / "a.toml").write_text(
        '[[mount]]\npath = "/tmp/libfuse-*/mnt"\noptions = "max_background=40"\n'
        '[[mount]]\npath = "/other/**"\noptions = "max_background=50"\n'
    )
    (sections / "b.toml").write_text(
        "# a comment\n\n[[mount]] # another\nserver = 'hello' # the program\n"
        'read_ahead_kb = "4M"\nmax_ratio = 20\noptions = "max_background=30"\n'
        '[[mount]]\nfstype = "fuse.*"\noptions = "max_background=20"\n'
    )
    assert background("", "") == 40
    (sections / "a.toml").unlink()
    assert background("", "") == 30
    (sections / "b.toml").write_text(
        '[[mount]]\nfstype="fuse.hello"\noptions="max_background=20"\n'
    )
    assert background("", "") == 20
    (sections / "b.toml").write_text('[[mount]]\nserver="hell"\noptions="max_background=20"\n')
    assert background("", "") == 0  # the kernel's choice


def test_a_mount_that_is_left_alone(sections: Path) -> None:
    """Sections give it no options; the command line and the environment still do."""
    (sections / "a.toml").write_text(
        "[[mount]]\nserver = 'hello'\nleave_alone = true\n"
        '[[mount]]\npath = "/other"\nleave_alone = false\n'
    )
    (sections / "b.toml").write_text('[[mount]]\noptions = "max_background=22"\n')
    assert background("", "") == 0  # the kernel's choice
    assert background("", "max_background=11") == 11
    assert background("max_background=33", "") == 33


@pytest.mark.parametrize(
    "text",
    [
        '[[mount]]\noptions = "direct_io\n',
        '[[mount]]\noptions = ["direct_io"]\n',
        '[[mount]]\noptions = "direct_io"\noptions = "direct_io"\n',
        'options = "direct_io"\n',
        "[[mount]]\n[table]\n",
        '[[mount]]\noptions = """direct_io"""\n',
        "[[mount]]\noptions = 3\n",
        "\0",
    ],
)
def test_a_file_that_is_not_understood(text: str, sections: Path) -> None:
    """A message names the file and line; all files are ignored, and the mount succeeds."""
    (sections / "a.toml").write_text('[[mount]]\noptions = "max_background=22"\n')
    (sections / "b.toml").write_text(text)
    with hello("max_background=11") as served:
        assert re.fullmatch(
            r"fuse: /etc/fusetune/mounts\.d/b\.toml:\d+ is not understood; "
            r"/etc/fusetune/mounts\.d is ignored",
            served.ours()[0],
        )
        assert served.answered_init()["max_background"] == "11"


@pytest.mark.parametrize("what", [".", "mounts.d", "mounts.d/a.toml"])
@pytest.mark.parametrize("how", ["owner", "group", "others"])
def test_what_others_may_write_is_ignored(what: str, how: str, sections: Path) -> None:
    (sections / "a.toml").write_text('[[mount]]\noptions = "max_background=22"\n')
    assert background("", "") == 22
    path = _ADMIN / what
    if how == "owner":
        os.chown(path, 65534, -1)
    else:
        path.chmod(path.stat().st_mode | (0o020 if how == "group" else 0o002))
    with hello("max_background=11") as served:
        assert served.answered_init()["max_background"] == "11"
        assert "is ignored: it is not root's, or others may write to it" in served.ours()[0]


def test_privileged_programs_take_neither(sections: Path) -> None:
    """If the library is used system-wide, a set-user-ID server uses it, but ignores options."""
    (sections / "a.toml").write_text('[[mount]]\noptions = "max_background=22"\n')
    directories = Path("/etc/ld.so.conf.d/00-fusetune.conf")
    directories.write_text(f"{LIBRARY.parent}\n")
    subprocess.run(["ldconfig"], check=True)
    privileged = Path("/usr/local/bin/hello-privileged")
    shutil.copy(EXAMPLES / "hello", privileged)
    try:
        for mode, expected in ((0o755, "22"), (0o4755, "0")):
            privileged.chmod(mode)
            with scratch() as (_, point):
                os.chown(point, 65534, 65534)
                words: list[str | Path] = [*NOBODY, privileged, "-f", "-d", point]
                environment = "max_background=11"
                with serve(words, point, tuned=False, environment=environment) as served:
                    wait_for(lambda: "max_background" in served.answered_init(), "INIT")
                    assert served.answered_init()["max_background"] == expected
    finally:
        privileged.unlink()
        directories.unlink()
        subprocess.run(["ldconfig"], check=True)


def test_mirrorfs_is_a_server_like_the_others() -> None:
    assert in_flight("direct_io,splice=off") >= 1
    assert MIRRORFS.exists()
