# SPDX-License-Identifier: GPL-2.0-or-later
"""Garbage for the parameter, mount options and control files is refused, or has its meaning.

The garbage is the same each time. A regular expression here defines the meaning of each text.
"""

import ctypes
import errno
import os
import random
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.kernel.guest.rig import (
    CONTROL,
    MODULE,
    PAGE,
    expect_errno,
    fresh_source,
    load,
    set_pipe_limit,
    tuned,
)
from tests.native.mirror import Mirror

_SEED = 20
_TEXTS = 400
_POINT = Path("/mnt/fuzz")
_FLAGS = (
    *(b"atomic_open", b"no_file_caps", b"parallel_direct_writes", b"parallel_extend"),
    *(b"async_dio", b"async_read", b"big_writes", b"keep_cache", b"no_access", b"no_xattr"),
    *(b"parallel_dirops", b"writeback_cache"),
)
#: An unsigned number as kstrtouint() takes it with base 0; one newline may follow.
_NUMBER = re.compile(rb"\+?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\n?")
#: fsconfig(2) refuses longer strings.
_LONGEST = 255

_libc = ctypes.CDLL(None, use_errno=True)
#: The same on every architecture.
_MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT = 429, 430, 431, 432
_SET_FLAG, _SET_STRING, _SET_BINARY, _SET_PATH, _SET_PATH_EMPTY, _SET_FD, _CREATE = range(7)
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MNT_DETACH = 2


def _call(number: int, *words: int | bytes | None) -> int:
    """Make a system call; raises OSError."""
    ctypes.set_errno(0)
    args = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    result = int(_libc.syscall(ctypes.c_long(number), *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result


def _number(text: bytes) -> int | None:
    """Return the number that a text stands for, or None if it is not one of 32 bits."""
    found = _NUMBER.fullmatch(text)
    if not found:
        return None
    digits = found[1].lower()
    base = 16 if digits.startswith(b"0x") else 8 if digits.startswith(b"0") else 10
    value = int(digits, base)
    return value if value < 1 << 32 else None


def _texts(most: int) -> list[bytes]:
    """Return garbage, numbers near the limits up to ``most``, and mixtures of both."""
    generator = random.Random(_SEED)
    near = (0, 1, 31, 32, 33, most - 1, most, most + 1, 65535, 65536, 2**31, 2**32 - 1, 2**32)
    forms = ("{}", "+{}", "-{}", "{:#x}", "0{:o}", " {}", "{} ", "{}\n", "{}\n\n", "{}.0", "{}k")
    known = [form.format(number).encode() for form in forms for number in (*near, 2**64)]
    known += [b"0x", b"08", b"\xff", b"1\0", b"\0" + b"1", b"64\0x", b"\xc3\xa9", b"\n", b"=", b","]
    known += [b"0" * 40 + b"64", b"0" * 33 + b"64", b"9" * 5000, b"1" + b" " * 5000]
    texts = list(known)
    while len(texts) < _TEXTS:
        text = bytearray(generator.choice(known)[:64])
        for _ in range(generator.randint(1, 3)):
            text.insert(generator.randint(0, len(text)), generator.randrange(256))
        texts.append(bytes(text))
    return texts


def _write(path: Path, text: bytes) -> int:
    """Write in one call, and return the errno, or 0."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text)
    except OSError as error:
        return error.errno or 0
    finally:
        os.close(fd)
    return 0


def check_garbage_for_the_parameter() -> None:
    """Anything but 0 or a number in the range is EINVAL, and changes nothing."""
    load()
    set_pipe_limit(2 << 20)
    parameter = MODULE / "parameters" / "max_pages_per_req"
    taken = 0
    for text in _texts(512):
        before = int(parameter.read_text())
        # sysfs passes on the text up to a NUL, and at most a page.
        number = _number(text[:PAGE].partition(b"\0")[0])
        right = number is not None and (number == 0 or 32 <= number <= 512)
        assert _write(parameter, text) == (0 if right else errno.EINVAL), text
        assert int(parameter.read_text()) == (number if right else before), text
        taken += right
    assert taken > 20


def check_garbage_for_the_control_files() -> None:
    """A live mount's limit only takes numbers in its range; read-only files refuse writes."""
    load()
    fresh_source()
    with tuned("max_write=512K") as mirror:
        directory = CONTROL / mirror.bdi.partition(":")[2]
        limit = directory / "max_pages"
        taken = 0
        for text in _texts(128):
            before = int(limit.read_text())
            # As in C, a NUL ends the text.
            number = _number(text.partition(b"\0")[0]) if len(text) <= 32 else None
            right = number is not None and 1 <= number <= 128
            assert _write(limit, text) == (0 if right else errno.EINVAL), text
            assert int(limit.read_text()) == (number if right else before), text
            taken += right
            for name in ("init", "statistics"):
                assert _write(directory / name, text) == errno.EINVAL
        assert taken > 10
        _read_in_pieces(mirror, directory)


def _read_in_pieces(mirror: Mirror, directory: Path) -> None:
    """A file read at any offset gives that piece of the whole; nothing follows its end."""
    generator = random.Random(_SEED)
    assert (directory / "statistics").read_bytes() == b""  # from now on it counts
    (mirror.mountpoint / "missing").exists()
    for name in ("init", "max_pages", "statistics"):
        whole = (directory / name).read_bytes()
        assert whole.endswith(b"\n")
        size = generator.randint(1, 7)
        with (directory / name).open("rb", buffering=0) as file:
            assert b"".join(iter(lambda file=file, size=size: file.read(size), b"")) == whole  # type: ignore[misc]
    whole = (directory / "statistics").read_bytes()
    with (directory / "statistics").open("rb", buffering=0) as file:
        for _ in range(100):
            at, size = generator.randrange(2 * len(whole)), generator.randrange(2 * PAGE)
            assert os.pread(file.fileno(), size, at) == whole[at : at + size]
        expect_errno(errno.EINVAL, partial(os.pread, file.fileno(), 1, -1))


@contextmanager
def context() -> Iterator[tuple[int, int]]:
    """An unfinished mount of the module: its descriptor, and its device's."""
    device = os.open("/dev/fusetuned", os.O_RDWR)
    made = _call(_FSOPEN, b"fusetuned", 0)
    try:
        for key, value in (("rootmode", "40000"), ("user_id", "0"), ("group_id", "0")):
            _call(_FSCONFIG, made, _SET_STRING, key.encode(), value.encode(), 0)
        _call(_FSCONFIG, made, _SET_STRING, b"fd", str(device).encode(), 0)
        yield made, device
    finally:
        os.close(made)
        os.close(device)


def _ours(line: str) -> set[str]:
    """Return our options in a line of mountinfo."""
    names = {"max_pages", *(flag.decode() for flag in _FLAGS)}
    return {option for option in line.split()[-1].split(",") if option.partition("=")[0] in names}


def create(made: int) -> None:
    """Create the super block of an unfinished mount. Raises OSError."""
    _call(_FSCONFIG, made, _CREATE, None, None, 0)


def _shown(made: int) -> set[str]:
    """Finish the mount, and return the options that mountinfo shows."""
    _POINT.mkdir(exist_ok=True)
    create(made)
    mount = _call(_FSMOUNT, made, 0, 0)
    try:
        _call(_MOVE_MOUNT, mount, b"", -100, bytes(_POINT), _MOVE_MOUNT_F_EMPTY_PATH)
        line = next(
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if line.split()[4] == str(_POINT)
        )
    finally:
        os.close(mount)
        # No server replies, so nothing that looks into the mount may be called.
        _libc.umount2(bytes(_POINT), _MNT_DETACH)
    return _ours(line)


def _refused(action: Callable[[], object]) -> int:
    try:
        action()
    except OSError as error:
        return error.errno or 0
    return 0


def check_garbage_for_max_pages_of_a_mount() -> None:
    """By fsconfig(2): EINVAL, or the value that the mount then shows; never twice."""
    load()
    taken = 0
    for text in _texts(256):
        string = text.partition(b"\0")[0]
        number = _number(string) if len(string) <= _LONGEST else None
        right = number is not None and 1 <= number <= 256
        with context() as (made, _):
            give = partial(_call, _FSCONFIG, made, _SET_STRING, b"max_pages", string, 0)
            assert _refused(give) == (0 if right else errno.EINVAL), text
            if right:
                assert _refused(give) == errno.EINVAL, text
            # A refused option is as if not given: the mount works.
            assert _shown(made) == ({f"max_pages={number}"} if right else set()), text
            taken += right
    assert taken > 20


def check_garbage_for_the_other_options() -> None:
    """Flags take no value and match by exact name; numbers are passed only as strings."""
    load()
    with context() as (made, device):
        expect: list[tuple[int, int, bytes, bytes | None, int]] = []
        for flag in _FLAGS:
            expect += [(0, _SET_FLAG, flag, None, 0)] * 2
            expect += [(errno.EINVAL, _SET_STRING, flag, b"1", 0)]
            expect += [(errno.EINVAL, _SET_FLAG, b"no" + flag, None, 0)]
            expect += [(errno.EINVAL, _SET_FLAG, flag.upper(), None, 0)]
            expect += [(errno.EINVAL, _SET_FLAG, flag + b"\xff", None, 0)]
            expect += [(errno.EINVAL, _SET_FD, flag, None, device)]
        expect += [(errno.EINVAL, _SET_FLAG, b"max_pages", None, 0)]
        expect += [(errno.EINVAL, _SET_FD, b"max_pages", None, device)]
        expect += [(errno.EINVAL, _SET_BINARY, b"max_pages", struct.pack("I", 64), 4)]
        expect += [(errno.EINVAL, _SET_PATH, b"max_pages", b"/tmp", -100)]
        for status, command, key, value, extra in expect:
            got = _refused(partial(_call, _FSCONFIG, made, command, key, value, extra))
            assert got == status, (command, key, value, errno.errorcode.get(got))
        assert _shown(made) == {flag.decode() for flag in _FLAGS}


def check_garbage_by_mount() -> None:
    """By mount(2): any text among valid options; a refused mount leaves nothing behind."""
    load()
    _POINT.mkdir(exist_ok=True)
    for text in _texts(256):
        string = text.partition(b"\0")[0].partition(b",")[0]
        number = _number(string) if len(string) <= _LONGEST else None
        right = number is not None and 1 <= number <= 256
        device = os.open("/dev/fusetuned", os.O_RDWR)
        options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,max_pages=%s" % (device, string)
        ctypes.set_errno(0)
        mounted = not _libc.mount(b"none", bytes(_POINT), b"fusetuned", 0, options)
        status = ctypes.get_errno()
        shown = [
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if line.split()[4] == str(_POINT)
        ]
        _libc.umount2(bytes(_POINT), _MNT_DETACH)
        os.close(device)
        assert (mounted, status) == ((True, 0) if right else (False, errno.EINVAL)), text
        assert len(shown) == mounted, text
        assert not mounted or _ours(shown[0]) == {f"max_pages={number}"}, text
