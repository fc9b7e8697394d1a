# SPDX-License-Identifier: GPL-2.0-or-later
"""A program for fusetune-intercept to run. It mounts in the ways that servers do, and in others.

Each of ``CASES`` is a way. It prints what a test compares: lines of mountinfo or an error's name.
"""

import ctypes
import errno
import fcntl
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from fusetune import syscalls
from tests.native.mirror import MOUNTINFO
from tests.native.mount_calls import (
    CREATE,
    FLAGS,
    FSCONFIG,
    FSMOUNT,
    FSOPEN,
    LIBC,
    MGC,
    PAGE,
    SET_FD,
    SET_STRING,
    Pages,
    call_mount,
    detach,
    device,
    lines_at,
    options_for,
)
from tests.native.odd_calls import changing, fuzz, intrudes
from tests.native.raw import RawServer, mount

_MS_REMOUNT, _MS_BIND = 32, 4096
_LINKS = (
    "/proc/self/../..{point}/{name}",
    "/proc/self//{name}",
    "/proc/self/root/../{name}",
    "/proc/self/cwd/../{name}",
    "/proc/self/fd/{fd}/../{name}",
    "/proc/self/fd/{fd}/",
    "/proc/self/fd/{fd}//.",
    "/proc/self/fd/{fd}x",
    "/proc/self/cwdx",
    "//proc/self/fd/{fd}",
    "/proc/self/../self/fd/{fd}",
    "symlink",
)


def _whose(fd: int, opened: int) -> str:
    """Return whether ``fd`` is still what was opened: duplicates share their flags."""
    fcntl.fcntl(opened, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
    same = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
    return "own device" if same else "other device"


def flags(point: Path, old: str) -> None:
    """Each flag of mount(2), and all together; ``old``: with the magic number of mount(8)."""
    with suppress(FileExistsError):
        point.mkdir()
    magic = MGC if old == "old" else 0
    for one in (0, *FLAGS, sum(FLAGS)):
        flag = one & 0xFFFF if magic else one
        with device() as fd:
            print(
                call_mount(b"src", bytes(point), b"fuse.x", magic | flag, options_for(fd)),
                lines_at(point),
            )
            detach(point)


def pages(point: Path) -> None:
    """Arguments that end with their page, the next one unmapped, and that span two pages."""
    target = bytes(point)
    for closed in (True, False):
        with device() as fd:
            texts = [text + b"\0" for text in (b"a source", target, b"fuse.x", options_for(fd))]
            at = [PAGE - len(text) if closed else PAGE - 3 for text in texts]
            held = [Pages(closed=closed) for _ in texts]
            source, where, fstype, options = (
                pages.put(text, offset) for pages, text, offset in zip(held, texts, at, strict=True)
            )
            print(call_mount(source, where, fstype, 6, options), lines_at(point))
            detach(point)


def refused(point: Path) -> None:
    """Calls that the kernel refuses."""
    endless = Pages(closed=True)
    unended = endless.put(b"x" * 64, PAGE - 64)
    here = bytes(point)
    with device() as fd:
        good = options_for(fd)
        for arguments in (
            (b"s", here, b"fuse", 0, b"rootmode=40000"),
            (b"s", here, b"fuse", 0, good.replace(b"fd=", b"fd=9")),
            (b"s", here, b"fuse", 0, good + b",no_such_option"),
            (b"s", here, b"fuse.", 0, good),
            (b"s", here, b"no-such-type", 0, good),
            (b"s", here + b"/no/such", b"fuse", 0, good),
            (b"s", b"", b"fuse", 0, good),
            (b"s", b"/proc/self/mem", b"fuse", 0, good),
            (b"s", here, b"fuse", 0, 0),
            (b"s", here, unended, 0, good),
            (b"s", unended, b"fuse", 0, good),
            (unended, here, b"fuse", 0, good),
            (b"s", here, b"fuse", 0, endless.start + PAGE),
            (b"s", here, 8, 0, good),
            (b"s" * 5000, here, b"fuse", 0, good),
            (b"s", here, b"fuse" * 2000, 0, good),
            (1 << 63, (1 << 64) - 1, b"fuse", 0, good),
        ):
            print(call_mount(*arguments), lines_at(point))


def kept(point: Path) -> None:
    """The server's source and options are kept, also long ones; then remounts read-only."""
    for source in (b"", b"host:/a,b c", b"branch:" * 100):
        with device() as fd:
            more = b",default_permissions,allow_other,max_read=8192"
            given = options_for(fd).replace(b"user_id=0", b"user_id=7") + more
            print(call_mount(source, bytes(point), b"fuse.x", 6, given), lines_at(point))
            print(call_mount(b"", bytes(point), b"", 6 | 1 | _MS_REMOUNT, b""), lines_at(point))
            detach(point)


def served(point: Path) -> None:
    """The device that replaced the server's has the same flags, and gets the requests."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
    os.set_inheritable(fd, True)
    opened = os.dup(fd)
    mount(fd, point)
    opcode = int.from_bytes(os.read(fd, 1 << 16)[4:8], sys.byteorder)
    try:
        os.read(fd, 1 << 16)
    except BlockingIOError:
        print(opcode, os.get_inheritable(fd), os.readlink(f"/proc/self/fd/{fd}"), lines_at(point))
        print(_whose(fd, opened))
    detach(point)


def place(point: Path) -> None:
    """With its own root, working directory and mount namespace."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.propagate("/", syscalls.MS_PRIVATE)
    inner = point / "root" / "inner"
    inner.mkdir(parents=True)
    before = MOUNTINFO.open()  # after chroot(2), paths in mountinfo begin at the new root
    os.chdir(inner.parent)
    with device() as one, device() as other:
        os.chroot(point / "root")
        print(call_mount(b"s", b"inner", b"fuse.relative", 6, options_for(one)))
        detach(Path("/inner"))
        print(call_mount(b"s", b"/inner", b"fuse.absolute", 6, options_for(other)))
        print([line.split(" ")[4] for line in before if "fuse.absolute" in line])


def user(point: Path, length: str = "1") -> None:
    """In a user namespace, with a source of this length: it may mount there and nowhere else."""
    source = b"s" * int(length)
    with device() as fd:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        print(call_mount(source, bytes(point), b"fuse.x", 6, options_for(fd)))
    _be_root_there()
    with device() as fd:
        print(call_mount(source, bytes(point), b"fuse.x", 6, options_for(fd)), lines_at(point))


def user_context(point: Path, how: str) -> None:
    """By fsopen(2) in a user namespace."""
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    _be_root_there()
    context(point, how)


def _be_root_there() -> None:
    """Get the rights of root in the user namespace, and a mount namespace."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text("0 0 1")
    Path("/proc/self/gid_map").write_text("0 0 1")


def unprivileged(point: Path) -> None:
    """As a user who may not mount."""
    with device() as fd:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        print(call_mount(b"s", bytes(point), b"fuse.x", 6, options_for(fd)), lines_at(point))
        print(os.fstat(fd).st_rdev, _new_mount(b"fuse", fd, by_number=True))


def context(point: Path, how: str) -> None:
    """By fsopen(2), with the descriptor as a string or as a descriptor."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    opened = os.dup(fd)
    made = _new_mount(b"fuse", fd, by_number=how == "number")
    if isinstance(made, str):
        print(made)
        return
    syscalls.attach(made, syscalls.AT_FDCWD, str(point))
    opcode = int.from_bytes(os.read(fd, 1 << 16)[4:8], sys.byteorder)
    print(opcode, _whose(fd, opened), lines_at(point))
    detach(point)


def _new_mount(fstype: bytes, fd: int, *, by_number: bool) -> int | str:
    """Return a detached mount, or the name of the error."""
    made = LIBC.syscall(FSOPEN, fstype, 1)
    if made < 0:
        return errno.errorcode[ctypes.get_errno()]
    words = {b"rootmode": b"40000", b"user_id": b"0", b"group_id": b"0", b"source": b"src"}
    if not by_number:
        words[b"fd"] = b"%d" % fd
    words[b"subtype"] = b"new"
    for key, value in words.items():
        if LIBC.syscall(FSCONFIG, made, SET_STRING, key, value, 0):
            return errno.errorcode[ctypes.get_errno()]
    if by_number and LIBC.syscall(FSCONFIG, made, SET_FD, b"fd", None, fd):
        return errno.errorcode[ctypes.get_errno()]
    if LIBC.syscall(FSCONFIG, made, CREATE, None, None, 0):
        return errno.errorcode[ctypes.get_errno()]
    return int(LIBC.syscall(FSMOUNT, made, 1, 0))


def many(point: Path, count: str) -> None:
    """Mount and unmount repeatedly; each mount is served."""
    found = set()
    for _ in range(int(count)):
        with RawServer(point) as server:
            server.answer()
            found.update(lines_at(point))
    print(found)


def at_once(point: Path, count: str) -> None:
    """After a line of input, several threads mount, serve and unmount at the same time."""
    sys.stdin.readline()
    start = threading.Barrier(int(count))
    servers: list[RawServer] = []

    def one(number: int) -> None:
        start.wait()
        server = RawServer(point / str(number))
        server.answer()
        servers.append(server)

    threads = [threading.Thread(target=one, args=[number]) for number in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sorted(line for server in servers for line in lines_at(server.point)))
    for server in servers:
        server.unmount()


def fds(point: Path, length: str) -> None:
    """Mount points through links such as /proc/self, with a source of this length."""
    source = b"s" * int(length)
    directory = os.open(point, os.O_PATH)
    for path in (f"/proc/self/fd/{directory}", f"/dev/fd/{directory}", "/proc/thread-self/cwd/."):
        os.chdir(point)
        with device() as fd:
            given = call_mount(source, os.fsencode(path), b"fuse.x", 6, options_for(fd))
            print(given, lines_at(point))
            detach(point)


def files(point: Path, length: str) -> None:
    """Files as mount points, as fusermount3 gives them, with a source of this length.

    Their numbers include those of all descriptors of the process that mounts for this one.
    """
    source = b"s" * int(length)
    for number in range(40):
        file = point / str(number)
        opened = os.open(file, os.O_WRONLY | os.O_CREAT)
        with device() as fd:
            options = options_for(fd).replace(b"=40000", b"=100000")
            print(call_mount(source, b"/proc/self/fd/%d" % opened, b"fuse.x", 6, options))
            print(lines_at(file))
    print(sum("fuse.x" in line for line in MOUNTINFO.open()))


def links(point: Path) -> None:
    """In another root directory, mount points through links in /proc and around them.

    The kernel's own FUSE may make these mounts, so only their places are printed.
    """
    root, names = point / "root", [str(number) for number in range(len(_LINKS))]
    for place in (root, root / point.relative_to("/"), point):
        for name in names:
            (place / name).mkdir(parents=True)
    (root / "proc").mkdir()
    call_mount(b"/proc", bytes(root / "proc"), 0, _MS_BIND, 0)
    before = MOUNTINFO.open()  # after chroot(2), paths in mountinfo begin at the new root
    devices = [os.open("/dev/fuse", os.O_RDWR) for _ in names]
    os.chdir(root / "0")
    os.chroot(root)
    for link, name, fd in zip(_LINKS, names, devices, strict=True):
        opened = os.open(f"/{name}", os.O_PATH)
        if link == "symlink":
            os.symlink(f"/proc/self/fd/{opened}", link)
        path = link.format(fd=opened, name=name, point=point)
        print(link, call_mount(b"s", os.fsencode(path), b"fuse.x", 6, options_for(fd)))
    print([line.split(" ")[4] for line in before if "fuse.x" in line])


def ask(point: Path, source: str = "s") -> None:
    """Mount once for each line of standard input, and print the error's name."""
    for _ in sys.stdin:
        fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        given = call_mount(source.encode(), bytes(point), b"fuse.x", 6, options_for(fd))
        print(given, flush=True)


def executes(point: Path, program: str) -> None:
    """As a user, mount at the first line of input, and run a program at the second.

    Another thread runs it, which takes over the identifier of the thread that mounts.
    """
    with device() as fd:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        sys.stdin.readline()

        def run() -> None:
            sys.stdin.readline()
            os.execv(program, [program, "60"])  # noqa: S606

        threading.Thread(target=run).start()
        print(call_mount(b"s" * 300, bytes(point), b"fuse.x", 6, options_for(fd)))


CASES: Mapping[str, Callable[..., None]] = {
    one.__name__: one
    for one in (
        *(flags, pages, refused, kept, served, place, user, user_context),
        *(unprivileged, context),
        *(many, at_once, changing, fuzz, fds, files, links, ask, executes, intrudes),
    )
}

if __name__ == "__main__":
    CASES[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
