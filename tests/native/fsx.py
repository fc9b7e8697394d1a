# SPDX-License-Identifier: GPL-2.0-or-later
"""Random operations on a file on a mount, compared with a model in memory, as fsx does.

A seed decides which operations happen, in which order and where in the file.
"""

import ctypes
import errno
import faulthandler
import itertools
import mmap
import multiprocessing
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from tests.native.mirror import PATIENCE

MOST = 256 << 10  # bytes of the file
_LARGEST = 40 << 10  # bytes of one operation
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01  # fallocate(2)
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Wrong(AssertionError):
    """The file differs from its model."""


class Exerciser:
    """A file in ``directory`` and its model. As a context manager it removes the file."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        self._random = random.Random(seed)
        self._names = (directory / f"fsx-{seed}-{number}" for number in itertools.count())
        self._path = next(self._names)
        self._model = bytearray()
        self._file = -1  # open while operations on an open file are done
        self._done: deque[str] = deque(maxlen=12)

    def __enter__(self) -> Self:
        self.replace()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._close()
        finally:
            for path in self._directory.glob(f"fsx-{self._seed}-*"):
                path.unlink()

    def run(self, operation: str) -> None:
        """Do one operation and compare the size. Raises OSError, and `Wrong`."""
        self._done.append(operation)
        try:
            OPERATIONS[operation](self)
            size = self._path.stat().st_size
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}; {self._story()}") from error
        if size != len(self._model):
            raise self._wrong(f"the size is {size}, not {len(self._model)}")

    def _story(self) -> str:
        return f"seed {self._seed}, last operations {', '.join(self._done)}"

    def _wrong(self, what: str) -> Wrong:
        return Wrong(f"{what}; {self._story()}")

    def _note(self, *numbers: int) -> None:
        self._done[-1] += f" {' '.join(map(str, numbers))}"

    def _compare(self, found: bytes, begin: int, wanted: bytes | bytearray) -> None:
        if found == wanted:
            return
        pairs = enumerate(itertools.zip_longest(found, wanted))
        first, (has, should) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
        raise self._wrong(f"byte {begin + first} is {has}, not {should}")

    def _place(self, end: int) -> tuple[int, int]:
        """Return offset and length of a range of at least one byte before ``end``."""
        begin = self._random.randrange(end)
        length = self._random.randint(1, min(_LARGEST, end - begin))
        self._note(begin, length)
        return begin, length

    def _put(self, begin: int, new: bytes) -> None:
        """Write to the model; a gap before ``begin`` is zeros."""
        self._model.extend(bytes(max(0, begin - len(self._model))))
        self._model[begin : begin + len(new)] = new

    def _open(self) -> int:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDWR)
        return self._file

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _write_out(self, flags: int, new: bytes | bytearray) -> None:
        """Write through another open file, which is then closed."""
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
        try:
            _write_all(lambda rest, _: os.write(file, rest), new)
        finally:
            os.close(file)

    # By the name of the file

    def replace(self) -> None:
        """Rewrite the whole file from beginning to end; rclone shows 0 bytes late."""
        self._close()
        self._model = bytearray(self._random.randbytes(self._random.randint(1, MOST // 2)))
        self._write_out(os.O_TRUNC, self._model)

    def load(self) -> None:
        """Read the whole file."""
        self._compare(self._path.read_bytes(), 0, self._model)

    def rename(self) -> None:
        """Rename the file, sometimes over another one."""
        other = next(self._names)
        if self._random.random() < 0.5:
            other.write_bytes(b"another file")
        self._path.rename(other)
        self._path = other

    def append(self) -> None:
        """Append to the file."""
        new = self._random.randbytes(self._random.randint(1, _LARGEST))
        self._note(len(new))
        self._write_out(os.O_APPEND, new)
        self._model += new

    def cut(self) -> None:
        """Make the file shorter."""
        if self._model:
            self._resize(self._random.randrange(len(self._model)))

    def extend(self) -> None:
        """Extend the file with zeros."""
        self._resize(len(self._model) + self._random.randint(1, _LARGEST))

    def _resize(self, size: int) -> None:
        self._note(size)
        by_name = self._random.random() < 0.5
        os.truncate(self._path if by_name else self._open(), size)
        self._model = self._model[:size].ljust(size, b"\0")

    # By the open file

    def write(self) -> None:
        """Write anywhere, also past the end."""
        begin, length = self._place(MOST)
        new = self._random.randbytes(length)
        file = self._open()
        _write_all(lambda rest, done: os.pwrite(file, rest, begin + done), new)
        self._put(begin, new)

    def read(self) -> None:
        """Read anywhere, also past the end."""
        begin, length = self._place(MOST)
        found = os.pread(self._open(), length, begin)
        self._compare(found, begin, self._model[begin : begin + length])

    def map_write(self) -> None:
        """Write to mapped memory, sometimes without msync."""
        if not self._model:
            return
        begin, length = self._place(len(self._model))
        new = self._random.randbytes(length)
        with mmap.mmap(self._open(), len(self._model)) as mapped:
            mapped[begin : begin + length] = new
            if self._random.random() < 0.5:
                mapped.flush()
        self._put(begin, new)

    def map_read(self) -> None:
        """Read mapped memory."""
        if not self._model:
            return
        begin, length = self._place(len(self._model))
        with mmap.mmap(self._open(), len(self._model), access=mmap.ACCESS_READ) as mapped:
            self._compare(
                mapped[begin : begin + length], begin, self._model[begin : begin + length]
            )

    def punch(self) -> None:
        """Punch a hole."""
        if not self._model:
            return
        begin, length = self._place(len(self._model))
        _fallocate(self._open(), _PUNCH_HOLE | _KEEP_SIZE, begin, length)
        self._put(begin, bytes(length))

    def allocate(self) -> None:
        """Allocate blocks, also past the end."""
        begin, length = self._place(MOST)
        _fallocate(self._open(), 0, begin, length)
        self._model.extend(bytes(max(0, begin + length - len(self._model))))

    def fsync(self) -> None:
        """Send all written data to the server."""
        os.fsync(self._open())

    def reopen(self) -> None:
        """Close the file and open it again."""
        self._close()
        self._open()


def _write_all(write: Callable[[bytes, int], int], new: bytes | bytearray) -> None:
    done = 0
    while done < len(new):
        done += write(bytes(new[done:]), done)


def _fallocate(file: int, mode: int, begin: int, length: int) -> None:
    if _LIBC.fallocate(file, mode, begin, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


OPERATIONS: Mapping[str, Callable[[Exerciser], None]] = {
    operation.__name__: operation
    for operation in (
        *(Exerciser.replace, Exerciser.load, Exerciser.rename, Exerciser.append),
        *(Exerciser.cut, Exerciser.extend, Exerciser.write, Exerciser.read),
        *(Exerciser.map_write, Exerciser.map_read, Exerciser.punch, Exerciser.allocate),
        *(Exerciser.fsync, Exerciser.reopen),
    )
}


def supported(directory: Path) -> frozenset[str]:
    """Return the operations that do not fail in ``directory``. Raises `Wrong`."""
    return frozenset(name for name in OPERATIONS if _succeeds(directory, name))


def _succeeds(directory: Path, operation: str) -> bool:
    try:
        _apart(lambda: _do(directory, 0, (operation, "load") * 3))
    except OSError:
        return False
    return True


def exercise(directory: Path, operations: Iterable[str], seed: int, count: int) -> None:
    """Do ``count`` operations drawn from ``operations``. Raises `Wrong`, and OSError."""
    drawn = random.Random(-seed).choices(sorted(operations), k=count)
    _apart(lambda: _do(directory, seed, (*drawn, "load")))


def _do(directory: Path, seed: int, operations: Iterable[str]) -> None:
    with Exerciser(directory, seed) as file:
        for operation in operations:
            file.run(operation)


def _apart(task: Callable[[], None]) -> None:
    """Run a task in a child process, because a failed access to mapped memory kills it.

    Raises what the task raised, and OSError if the child was killed.
    """
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_report, args=(task, sending))
    child.start()
    sending.close()
    try:
        if not receiving.poll(PATIENCE):
            raise TimeoutError(errno.ETIMEDOUT, "the operations take too long")
        failure = receiving.recv()
    except EOFError as end:
        raise OSError(errno.EFAULT, "a signal ended the process") from end
    finally:
        child.kill()
        child.join()
        receiving.close()
    if failure:
        raise failure


def _report(task: Callable[[], None], sending: Connection) -> None:
    failure = None
    faulthandler.disable()  # the parent reports it in its own words
    try:
        task()
    except (OSError, Wrong) as error:
        failure = error
    sending.send(failure)
