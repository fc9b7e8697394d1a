# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages per request: the parameter, the mount option, and the file of a live mount."""

import errno
import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.kernel.guest import raw
from tests.kernel.guest.rig import (
    CONTROL,
    MODULE,
    SOURCE,
    direct,
    expect_errno,
    fresh_source,
    largest,
    load,
    refuses_to_mount,
    run,
    set_pipe_limit,
    stock,
    tuned,
    unload,
)
from tests.native.mirror import BINARY, wait_for


def check_pages_a_request_by_parameter() -> None:
    """New mounts get the parameter's limit if the server requests it; stock stays at 256."""
    load()
    fresh_source()
    set_pipe_limit(4 << 20)
    parameter = MODULE / "parameters" / "max_pages_per_req"
    options = ("max_write=4M", "direct_io", "splice=off")
    assert parameter.read_text() == "0\n"
    for mounting in (stock, tuned):
        with mounting(*options) as mirror:
            direct(mirror, 8 << 20)
            assert largest(mirror) == (256, 256)
    for pages in (32, 64, 256, 512, 1024):
        parameter.write_text(f"{pages}\n")
        with tuned(*options) as mirror:
            direct(mirror, 8 << 20)
            assert largest(mirror) == (pages, pages)
        for caching in ("timeout=1", "writeback"):
            with tuned("max_write=4M", caching, "splice=off") as mirror:
                (mirror.mountpoint / "cached").write_bytes(b"x" * (16 << 20))
                os.sync()
                written, _ = largest(mirror)
                # The kernel chooses when to write cached pages, and thus how many.
                assert written == pages or (caching == "writeback" and 0 < written < pages)
    with tuned("max_write=64K", "direct_io") as mirror:
        direct(mirror, 1 << 20)
        assert largest(mirror) == (16, 16)  # as the server reports it


def check_parameter_takes_what_a_pipe_holds() -> None:
    """From 32 pages to fs.pipe-max-size, or 0 for stock; anything else is EINVAL."""
    load()
    parameter = MODULE / "parameters" / "max_pages_per_req"

    def refused(text: str) -> None:
        before = parameter.read_text()
        expect_errno(errno.EINVAL, lambda: parameter.write_text(text))
        assert parameter.read_text() == before

    for text in ("31", "1", "257", "-1", "x", "64x", "1e3", "65536", "4294967296", "9" * 40, " "):
        refused(text)
    for text in ("32", "256", "0x40", "0"):
        parameter.write_text(text)
        assert int(parameter.read_text()) == int(text, 0)
    set_pipe_limit(4 << 20)
    parameter.write_text("1024")
    refused("1025")
    set_pipe_limit(1 << 20)
    for value in ("31", "65536", "x"):
        unload()
        assert run("modprobe", "fusetuned", f"max_pages_per_req={value}", check=False).returncode
        assert not MODULE.exists()
    load("max_pages_per_req=128")
    assert parameter.read_text() == "128\n"


def check_parameter_is_taken_before_the_pipe_is_set() -> None:
    """At boot modules are loaded before sysctls are set; each mount gets what a pipe holds."""
    fresh_source()
    load("max_pages_per_req=512")
    assert (MODULE / "parameters" / "max_pages_per_req").read_text() == "512\n"
    for size, pages in ((1 << 20, 256), (4 << 20, 512), (1 << 20, 256)):
        set_pipe_limit(size)
        with tuned("max_write=4M", "direct_io", "splice=off") as mirror:
            direct(mirror, 4 << 20)
            assert largest(mirror) == (pages, pages)


def _write_repeatedly(parameter: Path) -> None:
    while True:
        with suppress(OSError):  # the module is not loaded now
            fd = os.open(parameter, os.O_WRONLY)
            try:
                os.write(fd, b"64")
            finally:
                os.close(fd)


def check_parameter_is_written_while_the_module_is_unloaded() -> None:
    """Writes use the file with the pipe's limit only while it is open, and do not stop rmmod."""
    unload()
    parameter = MODULE / "parameters" / "max_pages_per_req"
    writer = raw.start(partial(_write_repeatedly, parameter))
    try:
        for _ in range(5):
            run("modprobe", "fusetuned")
            wait_for(lambda: parameter.read_text() == "64\n", "a write")
            run("rmmod", "fusetuned")
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)


def check_max_pages_of_a_mount() -> None:
    """The mount option overrides the parameter and is shown; invalid values are refused."""
    load("max_pages_per_req=64")
    fresh_source()
    for pages in (1, 16, 200):
        with tuned("max_write=1M", "direct_io", "splice=off", mount=f"max_pages={pages}") as mirror:
            assert f",max_pages={pages}" in Path("/proc/self/mountinfo").read_text()
            direct(mirror, 2 << 20)
            assert largest(mirror) == (pages, pages)
    for value in ("0", "257", "-1", "x", "", "4294967296", "64+max_pages=64"):
        refuses_to_mount(f"max_pages={value}")
    refuses_to_mount("max_pages")


def check_proc_of_who_mounts_does_not_matter() -> None:
    """In a root directory whose fs.pipe-max-size is a FIFO, a mount uses the real file.

    Nor does it block sync(2), which waits for unfinished super blocks.
    """
    load("max_pages_per_req=512")
    set_pipe_limit(2 << 20)
    jail = Path("/run/jail")
    fifo = jail / "proc" / "sys" / "fs" / "pipe-max-size"
    if not fifo.exists():
        fifo.parent.mkdir(parents=True)
        (jail / "mnt").mkdir()
        os.mkfifo(fifo)

    def mount(options: str) -> None:
        device = os.open("/dev/fusetuned", os.O_RDWR)
        raw.unshare(raw.CLONE_NEWNS)
        os.chroot(jail)
        raw.mount(device, "/mnt", options)

    for options, status in (("", 0), (",max_pages=512", 0), (",max_pages=513", errno.EINVAL)):
        mounting = raw.start(partial(mount, options))
        # It has ended, or it waits, and then so does every sync.
        waited = [raw.ended(mounting, 10), raw.ended(raw.start(os.sync), 10)]
        if waited[0] is None:
            os.kill(mounting, signal.SIGKILL)
        assert waited == [status, 0], (options, waited)


def check_max_pages_in_a_user_namespace() -> None:
    """Root in a user namespace of its own gets at most the parameter, and what a pipe holds."""
    load("userns_mounts=Y")
    fresh_source()
    set_pipe_limit(4 << 20)
    point = Path("/mnt/namespace")
    point.mkdir(exist_ok=True)

    def status(pages: int) -> int:
        # mirrorfs's exit status: 0 if it has mounted.
        options = f"tuned,tuned_options=max_pages={pages}"
        command = ("unshare", "-Urm", BINARY, "-f", "-o", options, SOURCE, point)
        with subprocess.Popen(command) as server:

            def mounted() -> bool:
                try:
                    return f" {point} " in Path(f"/proc/{server.pid}/mountinfo").read_text()
                except OSError:  # it has just ended
                    return False

            wait_for(lambda: server.poll() is not None or mounted(), "a mount, or its refusal")
            server.terminate()
        return server.returncode

    assert [status(256), status(257)] == [0, 1]
    (MODULE / "parameters" / "max_pages_per_req").write_text("512")
    assert [status(512), status(513)] == [0, 1]
    with tuned(mount="max_pages=1024"):
        pass
    set_pipe_limit(1 << 20)
    assert [status(256), status(257)] == [0, 1]


def check_max_pages_file() -> None:
    """It changes a live mount, between 1 and what INIT negotiated."""
    load()
    fresh_source()
    with tuned("max_write=512K", "direct_io", "splice=off") as mirror:
        file = CONTROL / mirror.bdi.partition(":")[2] / "max_pages"
        assert file.read_text() == "128\n"
        for pages in (1, 64, 128):
            file.write_text(f"{pages}\n")
            assert file.read_text() == f"{pages}\n"
            direct(mirror, 1 << 20)
            assert largest(mirror) == (pages, pages)
        for text in ("0", "129", "-1", "x", " ", "9" * 40):
            expect_errno(errno.EINVAL, partial(file.write_text, text))
        assert file.read_text() == "128\n"


def check_max_pages_changes_under_load() -> None:
    """No data is lost and no array overrun if the limit changes while requests are filled."""
    load()
    fresh_source()
    data = os.urandom(1 << 20) * 12
    for options in (("writeback",), ("timeout=1",), ("direct_io",)):
        with tuned("max_write=1M", *options) as mirror:
            file = CONTROL / mirror.bdi.partition(":")[2] / "max_pages"
            path = mirror.mountpoint / "file"
            with subprocess.Popen(
                ["dd", f"of={path}", "bs=1M", "iflag=fullblock", "conv=fsync", "status=none"],
                stdin=subprocess.PIPE,
            ) as writer:
                assert writer.stdin
                for start in range(0, len(data), 1 << 20):
                    writer.stdin.write(data[start : start + (1 << 20)])
                    for pages in (3, 256, 1, 100):
                        file.write_text(str(pages))
                writer.stdin.close()
                while writer.poll() is None:
                    for pages in (2, 256, 33, 7):
                        file.write_text(str(pages))
            assert writer.returncode == 0
            run("sh", "-c", "echo 3 >/proc/sys/vm/drop_caches")
            assert path.read_bytes() == data
            assert (SOURCE / "file").read_bytes() == data
