# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified servers, with the distribution's libfuse or another, mount by the module."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kernel.guest.rig import (
    MODULE,
    SOURCE,
    copy_through,
    count,
    direct,
    fresh_source,
    largest,
    load,
    run,
    set_pipe_limit,
    unload,
    wait_for_end,
)
from tests.native.mirror import (
    BINARY,
    CHECKOUT,
    MOUNTINFO,
    Mirror,
    mounted_at,
    open_files,
    wait_for,
)

PROGRAM = CHECKOUT / "build" / "fusetune-intercept"
_POINT = Path("/mnt/intercepted")


def _mount_line() -> str:
    lines = MOUNTINFO.read_text().splitlines()
    (line,) = (line for line in lines if line.split()[4] == str(_POINT))
    return line


@contextmanager
def _mirror(words: str, *options: str) -> Iterator[Mirror]:
    """Mount by mirrorfs, which the interceptor runs with these words."""
    script = Path("/srv/intercepted")
    script.write_text(f'#!/bin/sh\nexec {PROGRAM} {words} -- {BINARY} "$@"\n')
    script.chmod(0o755)
    fresh_source()
    with Mirror(SOURCE, _POINT, *options, binary=script) as mirror:
        yield mirror


def check_interception_mounts_by_the_module() -> None:
    """One WRITE and one READ of 4 MiB, impossible on stock; the server's flags are kept."""
    load()
    set_pipe_limit(8 << 20)
    options = "max_pages=1024,no_file_caps"
    with _mirror(
        f"--required --options {options}", "direct_io", "max_write=4M", "noatime"
    ) as mirror:
        line = _mount_line()
        assert " fusetuned.mirrorfs " in line, line
        assert ",max_pages=1024,no_file_caps" in line, line
        assert ",noatime " in line, line
        devices = open_files(mirror.process.pid)
        assert "/dev/fusetuned" in devices, devices
        assert "/dev/fuse" not in devices, devices
        copy_through(_POINT)
        assert count(mirror, "GETXATTR") == 0
        mirror.reset_counters()
        direct(mirror, 4 << 20)
        assert largest(mirror) == (1024, 1024)


def check_interception_of_long_sources() -> None:
    """fsconfig(2) takes at most 255 bytes, so this is mounted by mount(2), with one descriptor."""
    load()
    set_pipe_limit(8 << 20)
    source = "branch:" * 100
    with _mirror(
        "--required --options max_pages=1024,no_file_caps", f"fsname={source}", "noatime"
    ) as mirror:
        line = _mount_line()
        assert f" fusetuned.mirrorfs {source} " in line, line
        assert ",max_pages=1024,no_file_caps" in line, line
        assert ",noatime " in line, line
        assert "/dev/fusetuned" in open_files(mirror.process.pid)
        copy_through(_POINT)


def check_interception_of_libfuse_2() -> None:
    """bindfs by the command: it ends with its mount, and so does the listener."""
    load()
    fresh_source()
    _POINT.mkdir(exist_ok=True)
    words = ("fusetune", "run", "-o", "tuned_required,no_file_caps", "--")
    server = subprocess.Popen(
        ["python3", "-B", "-m", *words, "bindfs", "-f", SOURCE, _POINT], cwd=CHECKOUT
    )
    try:
        wait_for(lambda: mounted_at(_POINT) is not None or server.poll() is not None, "the mount")
        line = _mount_line()
        assert " fusetuned " in line or " fusetuned.bindfs " in line, line
        assert ",no_file_caps" in line, line
        copy_through(_POINT)
    finally:
        run("umount", "--lazy", _POINT, check=False)
        wait_for_end(server)
    wait_for(lambda: not _listeners(), "the listener to end")


def _listeners() -> list[str]:
    return run("pgrep", "-f", f"^{PROGRAM}", check=False).stdout.split()


def check_interception_tells_what_the_module_refuses() -> None:
    """For more pages than a pipe holds, the kernel's message is on the server's standard error."""
    load()
    set_pipe_limit(1 << 20)
    said = "mounted"
    try:
        with _mirror("--options max_pages=1024"):
            pass
    except RuntimeError as error:
        said = str(error)
    assert "max_pages may be 1 to 256" in said, said


def check_interception_in_a_user_namespace() -> None:
    """The kernel's own FUSE, unless the module's parameter allows such mounts."""
    load()
    fresh_source()
    _POINT.mkdir(exist_ok=True)
    unshared = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    script = (
        f"{BINARY} -f {SOURCE} {_POINT} & for _ in $(seq 100); do sleep 0.1; "
        f"grep -F ' {_POINT} ' /proc/self/mountinfo && break; done; kill $!; wait"
    )
    for value, fstype in (("N", "fuse"), ("Y", "fusetuned")):
        (MODULE / "parameters" / "userns_mounts").write_text(value)
        done = run(PROGRAM, "--", *unshared, script, check=False)
        assert f" {fstype}.mirrorfs " in done.stdout, (done.stdout, done.stderr)
        assert ("not allowed in this user namespace" in done.stderr) == (value == "N"), done.stderr


def check_interception_without_the_module() -> None:
    """Prints one line, and the mount is stock; it is refused if the module is required."""
    unload()
    with _mirror("--options no_file_caps") as mirror:
        assert " fuse.mirrorfs " in _mount_line()
        assert mirror.log().count("\n") == 1, mirror.log()
        assert "the kernel has no file system fusetuned" in mirror.log()
        copy_through(_POINT)
    said = "mounted"
    try:
        with _mirror("--required"):
            pass
    except RuntimeError as error:
        said = str(error)
    assert "is not started, because of tuned_required" in said, said
    assert not os.listdir(_POINT)
