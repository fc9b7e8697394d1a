# SPDX-License-Identifier: GPL-2.0-or-later
"""The tuned libfuse3 from outside: options, environments, drop-ins, and who uses it.

The options are those of libfuse/tuned/options.c; the loader uses LD_LIBRARY_PATH (ld.so(8)).
"""

import os
import re
from pathlib import Path

import pytest

from fusetune.desired.config import load
from fusetune.errors import FusetuneError, UsageError
from fusetune.libfuse.installed import environment
from fusetune.libfuse.options import OPTIONS, OPTIONS_VARIABLE, check_options
from fusetune.libfuse.switch import DROP_IN, carry_out, disable, enable
from fusetune.libfuse.users import libfuse_users
from fusetune.mount_helper import request_of, split_options, translated
from fusetune.report.documents.lib import lib_change, lib_status
from fusetune.toml.file import ConfigError
from tests import schemas
from tests.unit.conftest import CHECKOUT, DEVICES, Tree

_DIRECTORY = "/usr/lib/x86_64-linux-gnu/fusetune"


@pytest.fixture
def installed(tree: Tree) -> Tree:
    """A tree with the tuned library in it."""
    tree.write(f"{_DIRECTORY[1:]}/libfuse3.so.3", "")
    tree.write(f"{_DIRECTORY[1:]}/libfuse3.source", "3.14.0 fuse3 3.14.0-4\n")
    return tree


def test_options_are_those_of_the_library() -> None:
    text = (CHECKOUT / "libfuse" / "tuned" / "options.c").read_text()
    assert re.findall(r'^\t\[TUNED_\w+\] = \{ "(\w+)"', text, re.M) == list(OPTIONS)


@pytest.mark.parametrize(
    "text",
    ["", "max_pages=1024,direct_io", "max_write=4M,,tuned", "splice=off", "splice=read+move"],
)
def test_good_options(text: str) -> None:
    check_options(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("max_page=1", "'max_page' is not an option of the tuned libfuse3"),
        ("direct_io=1", "'direct_io=1': direct_io takes no value"),
        ("direct_io=", "takes no value"),
        ("max_pages", "'max_pages': max_pages takes"),
        ("max_pages=4K", "max_pages takes"),
        ("splice=read+off", "splice takes"),
    ],
)
def test_wrong_options(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        check_options(text)


def test_environment(installed: Tree) -> None:
    inherited = {"HOME": "/root", "LD_LIBRARY_PATH": "/other", OPTIONS_VARIABLE: "max_pages=32"}
    assert environment(installed.host, "max_pages=64,direct_io", inherited) == {
        "HOME": "/root",
        "LD_LIBRARY_PATH": f"{_DIRECTORY}:/other",
        OPTIONS_VARIABLE: "max_pages=32,max_pages=64,direct_io",
    }
    assert environment(installed.host, "", {}) == {"LD_LIBRARY_PATH": _DIRECTORY}


def test_environment_on_rpm_systems(tree: Tree) -> None:
    tree.write("usr/lib64/fusetune/libfuse3.so.4", "")
    assert environment(tree.host, "", {}) == {"LD_LIBRARY_PATH": "/usr/lib64/fusetune"}


def test_without_the_library(tree: Tree) -> None:
    with pytest.raises(FusetuneError, match="there is no tuned libfuse3"):
        environment(tree.host, "", {})
    with pytest.raises(FusetuneError, match="there is no tuned libfuse3"):
        enable(tree.host, "x.service")


def test_a_service_and_back(installed: Tree) -> None:
    host = installed.host
    change = enable(host, "rclone@x", "max_pages=1024")
    schemas.check(lib_change(change, dry_run=True))
    assert not change.path.exists()
    carry_out(host, change)
    assert installed.read("etc/systemd/system/rclone@x.service.d/50-fusetune-libfuse.conf") == (
        "# Written by 'fusetune enable'; 'fusetune disable rclone@x' undoes it.\n"
        "[Service]\n"
        f"Environment=LD_LIBRARY_PATH={_DIRECTORY}\n"
        "ExecStartPre=-+/usr/bin/fusetune set host --for-unit %n --for max_pages=1024\n"
        f"Environment={OPTIONS_VARIABLE}=max_pages=1024\n"
    )
    carry_out(host, enable(host, "rclone@x", "max_pages=1024"))
    change = disable(host, "rclone@x.service")
    assert schemas.check(lib_change(change, False))["after"] is None
    carry_out(host, change)
    assert list((installed.root / "etc/systemd/system").iterdir()) == []
    again = disable(host, "rclone@x.service")
    carry_out(host, again)
    assert lib_change(again, False).remedy is None


@pytest.mark.parametrize(
    ("record", "theirs", "why"),
    [
        ("3.14.0 fuse3 3.14.0-4", "3.14.1", "older than the distribution's libfuse3, 3.14.1, by 1"),
        ("3.14.0 fuse3 3.14.0-4", "3.16.2", "older than the distribution's libfuse3, 3.16.2;"),
        ("", "3.14.0", "the version of the tuned libfuse3 is unknown; it must not replace"),
    ],
)
def test_an_older_library_is_not_given_to_the_whole_host(
    installed: Tree, record: str, theirs: str, why: str
) -> None:
    """Unless the administrator allows it; a service may use it."""
    installed.write(f"{_DIRECTORY[1:]}/libfuse3.source", record)
    directory = Path(installed.root, _DIRECTORY[1:]).parent
    (directory / "libfuse3.so.3").symlink_to(f"libfuse3.so.{theirs}")
    with pytest.raises(FusetuneError, match=re.escape(why)) as raised:
        enable(installed.host, None)
    conf = installed.host.admin_dir / "older.conf"
    assert f"add the line 'libfuse=yes' to {conf}" in str(raised.value)
    enable(installed.host, "x.service")
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("f2fs=yes\n")
    with pytest.raises(FusetuneError):
        enable(installed.host, None)
    conf.write_text("f2fs=yes\nlibfuse=yes\n")
    assert enable(installed.host, None).after


def test_a_drop_in_that_is_not_utf8_is_removed_too(installed: Tree) -> None:
    directory = installed.root / "etc/systemd/system/x.service.d"
    directory.mkdir(parents=True)
    (directory / DROP_IN).write_bytes(b"[Service]\nEnvironment=A=\xff\n")
    carry_out(installed.host, disable(installed.host, "x"))
    assert not (directory / DROP_IN).exists()


def test_other_drop_ins_stay(installed: Tree) -> None:
    other = installed.write("etc/systemd/system/x.service.d/own.conf", "[Service]\n")
    carry_out(installed.host, enable(installed.host, "x"))
    carry_out(installed.host, disable(installed.host, "x"))
    assert list(other.parent.iterdir()) == [other]


def test_the_whole_host_and_back(installed: Tree) -> None:
    carry_out(installed.host, enable(installed.host, None))
    file = "etc/ld.so.conf.d/00-fusetune.conf"
    assert installed.read(file).splitlines()[1:] == [_DIRECTORY]
    carry_out(installed.host, disable(installed.host, None))
    assert not (installed.root / file).exists()


@pytest.mark.parametrize(
    ("unit", "options", "what"),
    [
        ("x.mount", "", "use the type fusetune.SERVER"),
        ("../x", "", "is not the name of a unit"),
        (None, "direct_io", "sections in /etc/fusetune/mounts.d"),
        ("x", "direct", "not an option"),
    ],
)
def test_what_cannot_be_enabled(unit: str | None, options: str, what: str, installed: Tree) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        enable(installed.host, unit, options)


def _process(tree: Tree, pid: int, program: str, device: str, maps: str) -> None:
    directory = tree.root / "proc" / str(pid)
    for name in ("fd", "fdinfo"):
        (directory / name).mkdir(parents=True)
    (directory / "exe").symlink_to(program)
    (directory / "fd" / "3").symlink_to(device)
    (directory / "fdinfo" / "3").write_text("pos:\t0\n")
    (directory / "maps").write_text(maps)


def test_who_uses_what(installed: Tree) -> None:
    stock = "/usr/lib/x86_64-linux-gnu/libfuse3.so.3.14.0"
    mapped = "7f00-7f01 r-xp 00000000 08:01 42    {}\n7f02-7f03 rw-p 00000000 00:00 0 \n"
    libraries = {
        2: (f"{_DIRECTORY}/libfuse3.so.3", "tuned"),
        3: (stock, "stock"),
        4: (f"{stock} (deleted)", "stock"),
        5: ("/lib/x86_64-linux-gnu/libfuse.so.2.9.9", "libfuse2"),
        6: ("/usr/lib/libc.so.6", "none"),
    }
    for pid, (library, _) in libraries.items():
        _process(installed, pid, f"/usr/bin/server{pid}", DEVICES["fuse"], mapped.format(library))
    _process(installed, 7, "/usr/bin/waits", DEVICES["fusetuned"], "")
    (installed.root / "proc/7/maps").unlink()
    os.mkfifo(installed.root / "proc/7/maps")
    libraries[7] = ("", "unknown")
    _process(installed, 8, "/usr/bin/last", DEVICES["fuse"], mapped.format(stock))
    libraries[8] = (stock, "stock")
    _process(installed, 9, "/usr/bin/other", "/dev/full", mapped.format(stock))
    found = libfuse_users(installed.host)
    assert [(one.pid, one.uses) for one in found] == [
        (pid, uses) for pid, (_, uses) in libraries.items()
    ]
    schemas.check(lib_status([Path(_DIRECTORY)], found))


# Sections


def _config(tree: Tree, text: str) -> str | None:
    tree.write("etc/mounts.d/x.toml", text)
    (section,) = load(tree.host).sections
    return section.options


def test_options_of_a_section(tree: Tree) -> None:
    assert _config(tree, '[[mount]]\npath = "/x"\noptions = "max_pages=64,tuned"\n') == (
        "max_pages=64,tuned"
    )
    assert _config(tree, '[[mount]]\npath = "/x"\n') is None


@pytest.mark.parametrize(
    ("value", "what"),
    [("'max_page=1'", "x.toml:2: options: 'max_page' is not an option"), ("1", "must be a string")],
)
def test_wrong_options_of_a_section(value: str, what: str, tree: Tree) -> None:
    with pytest.raises(ConfigError, match=re.escape(what)):
        _config(tree, f"[[mount]]\noptions = {value}\n")


def test_options_elsewhere_would_not_be_read(tree: Tree) -> None:
    for file in ("etc/fusetune.toml", "usr/lib/mounts.d/x.toml"):
        path = tree.write(file, "[[mount]]\noptions = 'tuned'\n")
        with pytest.raises(
            ConfigError, match=r":2: options are only allowed in /etc/fusetune/mounts\.d"
        ):
            load(tree.host)
        path.unlink()


# mount.fusetune


def test_options_of_a_mount_are_told_apart() -> None:
    text = r"ro,max_pages=64,ssh_command=a\,b,direct_io,x-systemd.automount"
    assert split_options(text) == (
        "max_pages=64,direct_io",
        r"ro,ssh_command=a\,b,x-systemd.automount",
    )


def test_words_of_mount() -> None:
    words = ["host:", "/mnt/x", "-v", "-o", "rw,max_pages=64", "-t", "fusetune.sshfs"]
    assert translated(request_of(words)) == (
        ["mount.fuse3", "host:", "/mnt/x", "-t", "fuse.sshfs", "-v", "-o", "rw"],
        "max_pages=64",
    )


@pytest.mark.parametrize(
    "words",
    [[], ["a", "b"], ["a", "-t", "fusetune.x"], ["a", "b", "-t", "fusetune"], ["a", "b", "-o"]],
)
def test_wrong_words_of_mount(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"mount\.fusetune SOURCE MOUNTPOINT"):
        request_of(words)
