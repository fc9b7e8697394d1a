# SPDX-License-Identifier: GPL-2.0-or-later
"""What advise proposes keeps data correct, and changes what programs see only if it says so.

Data: random operations compared with a model (fsx.py), and fio's checksums. What programs see: with
changes of class safe, files that another client changes behind the mount show it as soon as before.
The condition of a conditional change is real: if it does not hold, a program sees the difference.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from fusetune.recipes.command_line import Changes
from tests.native import fsx
from tests.native.advised import Site, changed, harmful, mounted, recipe
from tests.native.behind import fill, seen_later
from tests.native.conftest import requires
from tests.native.mirror import PATIENCE
from tests.native.program import Fusetune
from tests.native.servers import SECRET, command_of, run_server
from tests.native.test_advise import KNOWN, needed

pytestmark = requires("fio")

#: Observations for 1.5 seconds or more. Most servers cache for one second.
_LOOKS = 30
#: The changes of class safe that a mount of `command_of` gets.
_SAFE: Mapping[str, Changes] = {
    "bindfs": {"big_writes": "true"},
    "ntfs-3g": {"big_writes": "true"},
}
_JOBS = """
[global]
directory={directory}
thread
ioengine=psync
clocksource=clock_gettime
fallocate=none
rw=randrw
size=4m
verify=crc32c
verify_fatal=1
verify_state_save=0
do_verify=1
end_fsync=1
[verified-4k]
bs=4k
[verified-60k]
bs=60k
[verified-1m]
bs=1m
"""


def _data_is_right(point: Path, operations: frozenset[str], seeds: range, count: int) -> None:
    """Do operations, and let fio verify what it wrote, from the cache and from the server."""
    for seed in seeds:
        fsx.exercise(point, operations, seed, count)
    if "write" not in operations:  # fio opens a file for reading and writing
        return
    for more in ([], ["--verify_only"]):
        done = subprocess.run(
            ["fio", *more, "-"],
            input=_JOBS.format(directory=point),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def _advised(fusetune: Fusetune, server: str, site: Site) -> tuple[Changes, Changes]:
    """Return the safe changes and all changes to a mount; the printed line has all."""
    found = fusetune.json("advise", site.point)
    every = {change["option"]: change["to"] for change in found["changes"]}
    words = changed(server, site.command, every)
    printed = shlex.split(found["commands"]["then"])
    assert printed == ["***" if SECRET in str(word) else word for word in words]
    safe = {one["option"]: one["to"] for one in found["changes"] if one["class"] == "safe"}
    return safe, every


def _check_data(fusetune: Fusetune, directory: Path, server: str, seeds: range, count: int) -> None:
    with mounted(server, directory / "before", {}) as site:
        operations = fsx.supported(site.point)
        _data_is_right(site.point, operations, seeds, count)
        safe, every = _advised(fusetune, server, site)
    assert safe == _SAFE.get(server, {})
    assert {(server, one) for one in every if one not in safe} <= {*_HIDING, *_OTHERS, *_APART}
    for number, values in enumerate(filter(None, (safe, every))):
        with mounted(server, directory / str(number), values) as site:
            # rclone could do more with its cache, but this test must not append: see _OTHERS.
            more = operations if server == "rclone" else fsx.supported(site.point)
            assert more >= operations
            _data_is_right(site.point, more, seeds, count)


@pytest.mark.parametrize("server", KNOWN)
def test_data_is_right_with_all_that_is_proposed(
    fusetune: Fusetune, tmpfs_dir: Path, server: str
) -> None:
    needed(server)
    _check_data(fusetune, tmpfs_dir, server, range(1, 4), 300)


@pytest.mark.long
@pytest.mark.parametrize("server", KNOWN)
def test_data_is_right_with_many_seeds(fusetune: Fusetune, tmpfs_dir: Path, server: str) -> None:
    needed(server)
    _check_data(fusetune, tmpfs_dir, server, range(1, 21), 1000)


def _compared(
    server: str, directory: Path, before: Changes, after: Changes, looks: int = _LOOKS
) -> Generator[tuple[frozenset[str], frozenset[str]], None, None]:
    """Yield what a mount with ``after`` shows later than one with ``before``; `seen_later`."""
    with ExitStack() as contexts:
        sites = [
            contexts.enter_context(mounted(server, directory / name, values, fill))
            for name, values in (("before", before), ("after", after))
        ]
        old, new = ((site.point, site.behind) for site in sites)
        yield from seen_later(old, new, looks)


@pytest.mark.parametrize(
    ("server", "before"),
    [("bindfs", {}), *((one, harmful(one, "safe")) for one in KNOWN if one != "ntfs-3g")],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "default",
)
def test_safe_changes_let_a_change_behind_the_mount_show_as_soon_as_before(
    tmpfs_dir: Path, server: str, before: Changes
) -> None:
    """With harmful options, and with the test's default; ntfs-3g allows no other client."""
    needed(server)
    *_, (late, shown) = _compared(server, tmpfs_dir, before, _SAFE.get(server, {}))
    assert not late
    # fuse-overlayfs caches what it has read forever, sshfs for 20 seconds, rclone for 300.
    assert len(shown) >= {"fuse-overlayfs": 0, "rclone": 1, "sshfs": 4}.get(server, 10)


#: Changes whose condition excludes changes behind the mount; and options for both sides, because
#: others would hide the same or take long: one second stands for sshfs's 20 and rclone's 300.
_KEPT = {"cache.attr": "60", "cache.entry": "60"}
_SECOND = {"dir-cache-time": "1"}
_HIDING: Mapping[tuple[str, str], Changes] = {
    ("mirrorfs", "writeback"): {},
    ("mirrorfs", "direct_io"): {},
    ("sshfs", "dcache_timeout"): {"dcache_timeout": "1"},
    ("sshfs", "direct_io"): {},
    ("bindfs", "direct_io"): {},
    ("mergerfs", "cache.files"): {},
    ("mergerfs", "cache.writeback"): {"cache.files": "auto-full"},
    ("mergerfs", "cache.attr"): {"cache.entry": "60"},
    ("mergerfs", "cache.entry"): {"cache.attr": "60"},
    ("mergerfs", "cache.negative_entry"): {},
    ("mergerfs", "cache.readdir"): _KEPT,
    ("mergerfs", "direct_io"): {},
    ("rclone", "write-back-cache"): _SECOND | {"vfs-cache-mode": "writes"},
    ("rclone", "attr-timeout"): _SECOND,
    ("rclone", "dir-cache-time"): _SECOND,
    ("gocryptfs", "kernel_cache"): {},
    ("gocryptfs", "sharedstorage"): {},
    ("fuse-overlayfs", "writeback"): {"timeout": "0"},
    ("fuse-overlayfs", "timeout"): {},
}


@pytest.mark.parametrize(("server", "option"), _HIDING)
def test_a_change_behind_the_mount_shows_later_where_the_condition_excludes_it(
    tmpfs_dir: Path, server: str, option: str
) -> None:
    needed(server)
    both = _HIDING[server, option]
    known = recipe(server).named(option)
    proposed = known.propose if known else None
    more = {option: proposed or harmful(server, "conditional")[option]}
    before, after = (both, {**both, **more}) if proposed else ({**both, **more}, both)
    with closing(_compared(server, tmpfs_dir, before, after, 4 * _LOOKS)) as compared:
        assert any(late for late, _ in compared)


# Other kinds of conditions: what a program sees


def _has_attributes(site: Site) -> bool:
    file = site.point / "file"
    file.touch()
    try:
        os.setxattr(file, "user.name", b"value")
    except OSError:
        return False
    return os.getxattr(file, "user.name") == b"value"


def _counts_subdirectories(site: Site) -> bool:
    (site.point / "directory" / "below").mkdir(parents=True)
    return (site.point / "directory").stat().st_nlink == 3


def _keeps_access_times(site: Site) -> bool:
    file = site.point / "file"
    file.write_text("text")
    os.utime(file, (1, 1))
    file.read_text()
    time.sleep(1.1)  # the kernel keeps attributes for a second
    return file.stat().st_atime > 1


def _keeps_times_of_open_files(site: Site) -> bool:
    file = site.point / "file"
    file.write_text("text")
    first = file.stat().st_mtime_ns
    time.sleep(0.1)
    with file.open("r+b", buffering=0) as stream:
        stream.write(b"text")
        return file.stat().st_mtime_ns > first


def _has_what_was_closed(site: Site) -> bool:
    (site.point / "file").write_text("text")
    return (site.behind / "file").exists()


_OTHERS: Mapping[tuple[str, str], Callable[[Site], bool]] = {
    ("mirrorfs", "no_xattr"): _has_attributes,
    ("bindfs", "xattr-none"): _has_attributes,
    ("mergerfs", "xattr"): _has_attributes,
    ("fuse-overlayfs", "noxattrs"): _has_attributes,
    ("fuse-overlayfs", "static_nlink"): _counts_subdirectories,
    ("ntfs-3g", "noatime"): _keeps_access_times,
    ("ntfs-3g", "delay_mtime"): _keeps_times_of_open_files,
    ("rclone", "vfs-cache-mode"): _has_what_was_closed,
}
#: Changes with their own tests.
_APART = {("sshfs", "max_conns")}


@pytest.mark.parametrize(("server", "option"), _OTHERS)
def test_a_program_sees_what_the_condition_excludes(
    tmpfs_dir: Path, server: str, option: str
) -> None:
    needed(server)
    known = recipe(server).named(option)
    assert known
    value = known.propose or known.values[2]
    found = []
    for name, values in (("before", {}), ("after", {option: value})):
        with mounted(server, tmpfs_dir / name, values) as site:
            found.append(_OTHERS[server, option](site))
    assert found == [True, False]


def test_rclone_puts_what_is_appended_in_the_wrong_place(tmpfs_dir: Path) -> None:
    needed("rclone")
    found: list[bool] = []
    for more in ({}, {"write-back-cache": "true"}):
        values = {"vfs-cache-mode": "writes", **more}
        with mounted("rclone", tmpfs_dir / str(len(found)), values) as site:
            file = site.point / "file"
            file.write_bytes(b"x" * 10_000)
            with file.open("a+b") as stream:
                stream.write(b"y")
            found.append(file.read_bytes() == b"x" * 10_000 + b"y")
    assert found == [True, False]


def test_sshfs_fails_where_the_other_host_allows_one_login(tmpfs_dir: Path) -> None:
    needed("sshfs")
    source, point = tmpfs_dir / "source", tmpfs_dir / "mnt"
    command = command_of("sshfs", source, point, tmpfs_dir)
    ssh = tmpfs_dir / "ssh"
    ssh.write_text(ssh.read_text().replace("exec ", f"exec flock -n {tmpfs_dir}/login "))
    for number in range(4):
        (source / str(number)).write_text("text")
    found: list[set[str | None]] = []
    for values in ({}, {"max_conns": "4"}):
        with (
            run_server(changed("sshfs", command, values), point, tmpfs_dir / "log"),
            ExitStack() as opened,
        ):
            # Open all at once, because a connection without an open file is reused.
            try:
                files = [opened.enter_context((point / str(number)).open()) for number in range(4)]
                found.append({file.read() for file in files})
            except OSError as error:
                found.append({error.strerror})
    assert found[0] == {"text"} != found[1]
