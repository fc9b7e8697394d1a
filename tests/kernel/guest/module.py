# SPDX-License-Identifier: GPL-2.0-or-later
"""The module as a whole: beside the stock one, loaded, used and unloaded."""

import errno
import os
from pathlib import Path

from tests.kernel.guest import fuzz, raw
from tests.kernel.guest.rig import (
    CONTROL,
    KERNEL,
    MODULE,
    copy_through,
    count,
    expect_errno,
    fresh_source,
    load,
    run,
    stock,
    tuned,
    unload,
)
from tests.native.mirror import wait_for

ROUNDS = 50


def check_loads_beside_stock() -> None:
    """The module has its own names for everything that the kernel's FUSE registers."""
    load()
    types = Path("/proc/filesystems").read_text().split()
    wanted = {"fuse", "fuseblk", "fusectl"}
    assert wanted | {"fusetuned", "fusetunedblk", "fusetunedctl"} <= set(types), types
    assert (MODULE / "version").read_text().strip()
    source = (MODULE / "parameters" / "source").read_text().split()
    series = ".".join(map(str, KERNEL))
    assert source[0].startswith(f"{series}."), source
    assert source[1] == f"linux-source-{series}", source
    assert Path("/dev/fuse").is_char_device()
    assert Path("/dev/fusetuned").is_char_device()
    assert Path("/sys/fs/fuse/connections").is_dir()
    assert CONTROL.is_dir()
    run("mount", "-t", "tracefs", "none", "/sys/kernel/tracing", check=False)
    events = Path("/sys/kernel/tracing/events")
    assert (events / "fusetuned" / "fuse_request_send").is_dir() == (KERNEL >= (6, 12))
    assert Path("/proc/sys/fs/fusetuned/max_pages_limit").exists() == (KERNEL >= (7, 2))


def check_is_not_loaded_by_a_mount() -> None:
    """A mount(2) of its types does not load it, not even by root."""
    unload()
    for fstype in ("fusetuned", "fusetuned.x", "fusetunedblk", "fusetunedctl"):
        for user in ((), ("unshare", "-Urm")):
            done = run(*user, "mount", "-t", fstype, "none", "/mnt", check=False)
            assert done.returncode
            assert "unknown filesystem type" in done.stderr, done.stderr
            assert not MODULE.exists(), (fstype, user)


def check_carries_data() -> None:
    """A mount of the module is a file system, and the server sees its requests."""
    load()
    fresh_source()
    for options in (("timeout=1",), ("writeback",), ("direct_io",), ("splice=off",)):
        with tuned(*options) as mirror:
            assert " fusetuned.mirrorfs " in Path("/proc/self/mountinfo").read_text()
            copy_through(mirror.mountpoint)
            assert count(mirror, "WRITE", "bytes") >= 5000001
            connection = CONTROL / mirror.bdi.partition(":")[2]
            assert (connection / "max_background").read_text().strip() == "12"


def check_behaves_as_stock_without_options() -> None:
    """The same work makes the same requests, with the same largest ones."""
    load()
    seen = []
    for mounting in (stock, tuned):
        fresh_source()
        with mounting("splice=off", "timeout=3600") as mirror:
            copy_through(mirror.mountpoint)
            with (mirror.mountpoint / "appended").open("ab", buffering=0) as file:
                for _ in range(20):
                    file.write(b"x" * 1000)
            wait_for(
                lambda mirror=mirror: count(mirror, "RELEASEDIR") == count(mirror, "OPENDIR"),  # type: ignore[misc]
                "directories to be closed",
            )
            ops = mirror.counters()["ops"]
            seen.append(
                {
                    name: {key: op[key] for key in ("count", "bytes", "largest_bytes", "errors")}
                    for name, op in ops.items()
                    if name not in ("RELEASE", "FORGET", "READ")
                }
            )
    assert seen[0] == seen[1], seen
    assert seen[0]["WRITE"]["count"] > 0


def check_stock_mounts_live_on() -> None:
    """A mount of the kernel's FUSE works before, while and after the module is loaded."""
    unload()
    fresh_source()
    with stock() as mirror:
        copy_through(mirror.mountpoint)
        load()
        copy_through(mirror.mountpoint)
        with tuned() as other:
            copy_through(other.mountpoint)
            copy_through(mirror.mountpoint)
        unload()
        copy_through(mirror.mountpoint)


def check_unload_is_refused_while_mounted() -> None:
    """A mount, an open device or the control file system keeps the module loaded."""
    load()
    fresh_source()
    run("umount", CONTROL)
    with tuned() as mirror:
        assert run("rmmod", "fusetuned", check=False).returncode != 0
        copy_through(mirror.mountpoint)
    device = os.open("/dev/fusetuned", os.O_RDWR)
    assert run("rmmod", "fusetuned", check=False).returncode != 0
    os.close(device)
    run("rmmod", "fusetuned")
    assert not MODULE.exists()


def check_rounds() -> None:
    """It can be loaded, mounted, used, unmounted and unloaded repeatedly."""
    fresh_source()
    for _ in range(ROUNDS):
        load()
        with tuned() as mirror:
            (mirror.mountpoint / "file").write_bytes(b"x" * 10000)
            assert (mirror.mountpoint / "file").read_bytes() == b"x" * 10000
        unload()


def _be_root_in_a_namespace() -> None:
    raw.unshare(raw.CLONE_NEWUSER | raw.CLONE_NEWNS)
    for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        Path("/proc/self", name).write_text(text)


def _mounted_elsewhere(device: int) -> None:
    raw.unshare(raw.CLONE_NEWUSER | raw.CLONE_NEWNS)
    raw.mount(device, "/mnt")


def check_user_namespaces_may_not_mount() -> None:
    """Until the parameter allows it; also with a device that root has opened."""
    parameter = MODULE / "parameters" / "userns_mounts"
    point = fresh_source()
    load()
    assert parameter.read_text() == "N\n"
    device = os.open("/dev/fusetuned", os.O_RDWR)
    try:
        # If mounts are allowed, a device that was opened in another namespace is refused.
        refused, allowed = (errno.EPERM, errno.EPERM), (errno.EINVAL, 0)
        for value, expected in (("N", refused), ("Y", allowed), ("N", refused)):
            parameter.write_text(value)
            got = raw.in_child(lambda: _mounted_elsewhere(device))
            assert (got, raw.in_child(lambda: _mounted_by_its_owner(point))) == expected
    finally:
        os.close(device)
    for value in ("Y", "N"):
        load(f"userns_mounts={value}")
        assert parameter.read_text() == f"{value}\n"
    parameter.write_text("Y")
    assert raw.in_child(lambda: _begun_before(parameter)) == errno.EPERM


def _mounted_by_its_owner(point: Path) -> None:
    """Mount in a new user namespace, which ends with the process."""
    _be_root_in_a_namespace()
    raw.mount(os.open("/dev/fusetuned", os.O_RDWR), point)


def _begun_before(parameter: Path) -> None:
    """Begin a mount in a user namespace while that is allowed; finish it when it is not."""
    said, told = os.pipe(), os.pipe()
    if not os.fork():
        os.read(said[0], 1)
        parameter.write_text("N")
        os.write(told[1], b"1")
        os._exit(0)
    _be_root_in_a_namespace()
    with fuzz.context() as (made, _):
        os.write(said[1], b"1")
        os.read(told[0], 1)
        fuzz.create(made)


def check_killed_server() -> None:
    """A server's death aborts its mount, and the module can then be unloaded."""
    load()
    fresh_source()
    with tuned() as mirror:
        mirror.kill()
        expect_errno(errno.ENOTCONN, lambda: os.listdir(mirror.mountpoint))
        mirror.unmount()
    unload()
