# SPDX-License-Identifier: GPL-2.0-or-later
"""The checks that run in a virtual machine, in the order they stand in; never on a host.

Each is a function ``check_*``. A line of JSON a check goes to standard output.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.native.mirror import BINARY, Mirror, mounted_at, unmount

KERNEL = tuple(int(part) for part in os.uname().release.split(".")[:2])
CONTROL = Path("/sys/fs/fusetuned/connections")
MODULE = Path("/sys/module/fusetuned")
SOURCE = Path("/srv/source")
ROUNDS = 50
PAGE = mmap.PAGESIZE
#: What the kernel says when something is wrong with it.
_SPLAT = re.compile(r"WARNING:|BUG:|Oops|Call Trace|INFO: |refcount_t|general protection|leaked")


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program; raises RuntimeError with its stderr if it fails and ``check``."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.returncode}: {done.stderr}")
    return done


def load(*parameters: str) -> None:
    """Load the module anew, and mount its control filesystem."""
    unload()
    run("modprobe", "fusetuned", *parameters)
    run("mount", "-t", "fusetunedctl", "none", CONTROL)


def unload() -> None:
    """Unload the module, if it is loaded."""
    if MODULE.exists():
        if mounted_at(CONTROL):
            run("umount", CONTROL)
        run("rmmod", "fusetuned")


def fresh_source() -> Path:
    """Return an empty source folder."""
    run("rm", "-rf", SOURCE)
    SOURCE.mkdir(parents=True)
    return SOURCE


@contextmanager
def tuned(*options: str, mount: str = "", point: str = "/mnt/tuned") -> Iterator[Mirror]:
    """Mount the source by the module; ``mount`` are its own options, joined by +."""
    own = (f"tuned_options={mount}",) if mount else ()
    with Mirror(SOURCE, Path(point), "tuned", *own, *options) as mirror:
        yield mirror


@contextmanager
def stock(*options: str, point: str = "/mnt/stock") -> Iterator[Mirror]:
    """Mount the source by the kernel's own FUSE."""
    with Mirror(SOURCE, Path(point), *options) as mirror:
        yield mirror


def count(mirror: Mirror, op: str, what: str = "count") -> int:
    """Return a number of the server's counters."""
    number: int = mirror.counters()["ops"].get(op, {}).get(what, 0)
    return number


def copy_through(point: Path) -> None:
    """Write, read back, rename and remove a file of odd size."""
    data = os.urandom(5000001)
    (point / "file").write_bytes(data)
    assert (point / "file").read_bytes() == data
    assert (SOURCE / "file").read_bytes() == data
    (point / "file").rename(point / "other")
    assert sorted(os.listdir(point)) == ["other"]
    (point / "other").unlink()
    assert not os.listdir(SOURCE)


def expect_errno(expected: int, action: Callable[[], object]) -> None:
    """Call ``action``, which must fail with this error."""
    got = 0
    try:
        action()
    except OSError as error:
        got = error.errno or 0
    names = errno.errorcode
    assert got == expected, f"{names.get(got, 'no error')}, not {names[expected]}"


def check_loads_beside_stock() -> None:
    """The module has names of its own for all that the kernel's FUSE has."""
    load()
    types = Path("/proc/filesystems").read_text().split()
    wanted = {"fuse", "fuseblk", "fusectl"}
    assert wanted | {"fusetuned", "fusetunedblk", "fusetunedctl"} <= set(types), types
    assert (MODULE / "version").read_text().strip()
    assert Path("/dev/fuse").is_char_device()
    assert Path("/dev/fusetuned").is_char_device()
    assert Path("/sys/fs/fuse/connections").is_dir()
    assert CONTROL.is_dir()
    run("mount", "-t", "tracefs", "none", "/sys/kernel/tracing", check=False)
    events = Path("/sys/kernel/tracing/events")
    assert (events / "fusetuned" / "fuse_request_send").is_dir() == (KERNEL >= (6, 12))
    assert Path("/proc/sys/fs/fusetuned/max_pages_limit").exists() == (KERNEL >= (7, 2))


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
        with mounting("splice=off", "timeout=60") as mirror:
            copy_through(mirror.mountpoint)
            with (mirror.mountpoint / "appended").open("ab", buffering=0) as file:
                for _ in range(20):
                    file.write(b"x" * 1000)
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
    """A mount of the kernel's FUSE works before, while and after the module is there."""
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
    """A module in use stays, by a mount, an open device or its control filesystem."""
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
    """Loaded, mounted, used, unmounted, unloaded, again and again."""
    fresh_source()
    for _ in range(ROUNDS):
        load()
        with tuned() as mirror:
            (mirror.mountpoint / "file").write_bytes(b"x" * 10000)
            assert (mirror.mountpoint / "file").read_bytes() == b"x" * 10000
        unload()


def check_killed_server() -> None:
    """A server's death aborts its mount, and the module can go after it."""
    load()
    fresh_source()
    with tuned() as mirror:
        mirror.kill()
        expect_errno(errno.ENOTCONN, lambda: os.listdir(mirror.mountpoint))
        mirror.unmount()
    unload()


def set_pipe_limit(size: int) -> None:
    """Set what a pipe may hold, in bytes."""
    Path("/proc/sys/fs/pipe-max-size").write_text(f"{size}\n")


def direct(mirror: Mirror, size: int) -> None:
    """Write and read ``size`` bytes in one call each, by a buffer that starts on a page."""
    data = os.urandom(size)
    fd = os.open(mirror.mountpoint / "direct", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    with mmap.mmap(-1, size) as buffer:
        buffer[:] = data
        assert os.pwrite(fd, buffer, 0) == size
        buffer[:] = bytes(size)
        assert os.preadv(fd, [buffer], 0) == size
        assert buffer[:] == data
    os.close(fd)
    assert (SOURCE / "direct").read_bytes() == data


def largest(mirror: Mirror) -> tuple[int, int]:
    """Return the pages of the largest WRITE and READ since last asked."""
    ops = mirror.counters()["ops"]
    mirror.reset_counters()
    write, read = (ops[name]["largest_bytes"] for name in ("WRITE", "READ"))
    return write // PAGE, read // PAGE


def refuses_to_mount(mount: str) -> None:
    """A mount with these options must fail with EINVAL."""
    said = "mounted"
    try:
        with tuned(mount=mount):
            pass
    except RuntimeError as error:
        said = str(error)
    assert "Invalid argument" in said, f"{mount}: {said}"


def check_pages_a_request_by_parameter() -> None:
    """New mounts get the parameter's limit if the server asks for as much; stock stays at 256."""
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
                # When cached pages are written, and so how many, the kernel chooses.
                assert written == pages or (caching == "writeback" and 0 < written < pages)
    with tuned("max_write=64K", "direct_io") as mirror:
        direct(mirror, 1 << 20)
        assert largest(mirror) == (16, 16)  # the server's word


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
    unload()
    assert run("modprobe", "fusetuned", "max_pages_per_req=257", check=False).returncode
    assert not MODULE.exists()
    load("max_pages_per_req=128")
    assert parameter.read_text() == "128\n"


def check_max_pages_of_a_mount() -> None:
    """The mount option goes before the parameter, and shows; nonsense is refused."""
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


def check_max_pages_in_a_user_namespace() -> None:
    """Who is root only in a namespace of his own gets no more than the parameter says."""
    load()
    fresh_source()
    set_pipe_limit(4 << 20)
    point = Path("/mnt/namespace")
    point.mkdir(exist_ok=True)

    def status(pages: int) -> int:
        # Ended after some seconds, and mirrorfs's status then: 0 where it had mounted.
        limited = ("timeout", "--preserve-status", "4", "unshare", "-Urm")
        options = f"tuned,tuned_options=max_pages={pages}"
        return run(*limited, BINARY, "-f", "-o", options, SOURCE, point, check=False).returncode

    assert [status(256), status(257)] == [0, 1]
    (MODULE / "parameters" / "max_pages_per_req").write_text("512")
    assert [status(512), status(513)] == [0, 1]
    with tuned(mount="max_pages=1024"):
        pass


def check_max_pages_file() -> None:
    """Changes a live mount, between 1 and what INIT settled on."""
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
    """No data is lost, and no room overrun, where the limit moves while requests are filled."""
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


def check_what_init_settled_on() -> None:
    """The connection's `init` says what the server's own counters say."""
    load()
    fresh_source()
    for options, flagged in ((("max_write=256K",), False), (("writeback",), True)):
        with tuned(*options, "max_readahead=64K", mount="max_pages=200+max_read=131072") as mirror:
            file = CONTROL / mirror.bdi.partition(":")[2] / "init"
            said = dict(line.split(" ", 1) for line in file.read_text().splitlines())
            server = mirror.counters()["init"]
            expected = 64 if not flagged else 200
            assert said["max_pages"] == str(expected), said
            assert said["max_write"] == str(server["max_write"]), said
            assert said["max_read"] == "131072", said
            assert said["max_readahead"] == "65536", said
            assert 38 <= int(said["minor"]) <= server["proto_minor"] or KERNEL < (6, 12), said
            flags = said["flags"].split()
            assert ("writeback_cache" in flags) == flagged, flags
            assert {"async_read", "max_pages", "parallel_dirops", "init_ext"} <= set(flags)
            assert not [flag for flag in flags if flag.startswith("bit")]
            expect_errno(errno.EINVAL, partial(file.write_text, "x"))


def check_no_file_caps() -> None:
    """No write asks for capabilities; there are none to be had on such a mount."""
    load()
    asked = []
    for mounting, options in ((stock, ()), (tuned, ())):
        fresh_source()
        with mounting(*options) as mirror:
            asked.append(_getxattrs_of_100_writes(mirror))
    assert min(asked) >= 100, asked
    fresh_source()
    with tuned(mount="no_file_caps") as mirror:
        assert ",no_file_caps" in Path("/proc/self/mountinfo").read_text()
        assert _getxattrs_of_100_writes(mirror) == 0
        path, caps = mirror.mountpoint / "file", "security.capability"
        value = bytes.fromhex("0100000200200000000000000000000000000000")
        os.setxattr(SOURCE / "file", caps, value)
        expect_errno(errno.ENODATA, lambda: os.getxattr(path, caps))
        expect_errno(errno.EOPNOTSUPP, lambda: os.setxattr(path, caps, value))
        os.removexattr(path, caps)
        assert caps not in os.listxattr(SOURCE / "file")
        os.setxattr(path, "trusted.other", b"1")
        assert os.getxattr(path, "trusted.other") == b"1"


def _getxattrs_of_100_writes(mirror: Mirror) -> int:
    with (mirror.mountpoint / "file").open("wb", buffering=0) as file:
        before = count(mirror, "GETXATTR")
        for _ in range(100):
            file.write(b"x" * 100)
    return count(mirror, "GETXATTR") - before


def _writes_at_once(mirror: Mirror, writers: int, name: str = "shared") -> int:
    """Let each of ``writers`` overwrite a page of one file twice; return the most in flight."""
    path = mirror.mountpoint / name
    path.write_bytes(bytes(writers * PAGE))
    mirror.reset_counters()
    start = threading.Barrier(writers)

    def write(number: int) -> None:
        fd = os.open(path, os.O_WRONLY)
        start.wait()
        for _ in range(2):
            assert os.pwrite(fd, bytes([number]) * PAGE, number * PAGE) == PAGE
        os.close(fd)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    expected = b"".join(bytes([number]) * PAGE for number in range(writers))
    assert (SOURCE / name).read_bytes() == expected
    assert count(mirror, "WRITE") == 2 * writers
    return count(mirror, "WRITE", "most_in_flight")


def check_parallel_direct_writes() -> None:
    """As many overwrites of one file at once as writers, whatever the server says."""
    load()
    fresh_source()
    options = ("direct_io", "write_delay=100ms")
    for mounting in (stock, tuned):
        with mounting(*options) as mirror:
            assert _writes_at_once(mirror, 8) == 1
    with tuned(*options, mount="parallel_direct_writes") as mirror:
        assert ",parallel_direct_writes" in Path("/proc/self/mountinfo").read_text()
        for writers in (1, 2, 4, 8, 16, 32):
            assert _writes_at_once(mirror, writers, f"by{writers}") == writers


def check_parallel_direct_writes_do_not_extend() -> None:
    """Appends and writes past the end of the file go one by one, and none is lost."""
    load()
    fresh_source()
    options = ("direct_io", "write_delay=20ms")
    with tuned(*options, mount="parallel_direct_writes") as mirror:
        path = mirror.mountpoint / "file"
        path.touch()

        def append(number: int) -> None:
            with path.open("ab", buffering=0) as file:
                file.write(bytes([number]) * 1000)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(append, range(8)))
        assert count(mirror, "WRITE", "most_in_flight") == 1
        assert path.stat().st_size == 8000
        data = path.read_bytes()
        assert {data[at : at + 1000] for at in range(0, 8000, 1000)} == {
            bytes([number]) * 1000 for number in range(8)
        }


def _splats(log: int) -> list[str]:
    """Return the complaints among what the kernel said since last asked."""
    lines = []
    while True:
        try:
            lines.append(os.read(log, 8192).decode(errors="replace").partition(";")[2])
        except BlockingIOError:
            return [line.splitlines()[0] for line in lines if _SPLAT.search(line)]
        except BrokenPipeError:
            continue  # overwritten before it was read


def _report(check: str, seconds: float, failure: str) -> None:
    entry: dict[str, Any] = {"check": check, "seconds": round(seconds, 1), "failure": failure}
    print(json.dumps(entry), flush=True)


def names() -> list[str]:
    """Return the names of all checks, in order."""
    return [name for name in globals() if name.startswith("check_")]


def main() -> None:
    """Run every check and report on it."""
    if not Path("/rig/start").exists():
        sys.exit("guest: for a virtual machine of tests/kernel only")
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    _splats(log)
    # The server's own folder must not be under what is read-only here.
    os.environ["TMPDIR"] = "/tmp"  # noqa: S108
    run("modprobe", "fuse")
    for name in names():
        set_pipe_limit(1 << 20)
        started, failure = time.monotonic(), ""
        try:
            globals()[name]()
        except Exception:  # noqa: BLE001
            failure = traceback.format_exc()
            for point in ("/mnt/tuned", "/mnt/stock"):
                unmount(Path(point))
        failure += "".join(f"kernel: {line}\n" for line in _splats(log))
        _report(name, time.monotonic() - started, failure)
    _report("end", 0, "")


if __name__ == "__main__":
    main()
