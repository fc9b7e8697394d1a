# SPDX-License-Identifier: GPL-2.0-or-later
"""The tuned libfuse3 and the module together: an unmodified server uses both."""

from tests.kernel.guest.rig import (
    copy_through,
    count,
    direct,
    largest,
    load,
    set_pipe_limit,
    unload,
)
from tests.kernel.guest.tuned_library import served
from tests.native.mirror import (
    MOUNTINFO,
    Mirror,
    open_files,
)


def _mount_line(mirror: Mirror) -> str:
    lines = MOUNTINFO.read_text().splitlines()
    (line,) = (line for line in lines if line.split()[4] == str(mirror.mountpoint))
    return line


def check_library_mounts_by_the_module() -> None:
    """One WRITE and one READ of 4 MiB, which stock FUSE cannot do on any of these kernels."""
    load()
    set_pipe_limit(8 << 20)
    with served("tuned,max_pages=1024,direct_io") as mirror:
        line = _mount_line(mirror)
        assert " fusetuned.mirrorfs " in line, line
        assert ",max_pages=1024" in line, line
        direct(mirror, 4 << 20)
        assert largest(mirror) == (1024, 1024)


def check_library_options_of_the_module() -> None:
    """Options that only the module has are passed to it, and threads clone its device."""
    load()
    with served("tuned,no_file_caps,parallel_direct_writes,clone_fd") as mirror:
        line = _mount_line(mirror)
        assert ",no_file_caps,parallel_direct_writes" in line, line
        copy_through(mirror.mountpoint)
        assert count(mirror, "GETXATTR") == 0
        devices = open_files(mirror.process.pid)
        assert devices.count("/dev/fusetuned") > 1, devices
        assert "/dev/fuse" not in devices, devices


def check_library_without_the_module() -> None:
    """Prints one line, and the mount is stock; options that need the module are refused."""
    unload()
    with served("tuned") as mirror:
        assert " fuse.mirrorfs " in _mount_line(mirror)
        assert mirror.log().count("\n") == 1, mirror.log()
        assert "mounted with the kernel's own FUSE: there is no /dev/fusetuned" in mirror.log()
        copy_through(mirror.mountpoint)
    for option in ("no_file_caps", "atomic_open"):
        _is_refused(f"tuned,{option}", f"{option} is refused")


def check_library_tells_what_the_module_refuses() -> None:
    """More pages than a pipe may hold: the module's own limit."""
    load()
    set_pipe_limit(1 << 20)
    _is_refused("tuned,max_pages=1024", "Invalid argument")


def _is_refused(options: str, why: str) -> None:
    said = "mounted"
    try:
        with served(options):
            pass
    except RuntimeError as error:
        said = str(error)
    assert why in said, said
