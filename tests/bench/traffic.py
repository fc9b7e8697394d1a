# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that use a mount: each reads, maps or writes files of a directory, and rests at times.

    python3 tests/bench/traffic.py KIND DIRECTORY [--then KIND SECONDS] [--turns N]

With --then, it does the other after so many seconds. With --turns, it does not rest, and prints the
seconds that so many files took. The page cache has none of a file that is read or mapped.
"""

import argparse
import mmap
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

FILES, SIZE = 6, 16 << 20
_BLOCK, _PAGE = 128 << 10, 4096
_FAULTS = 4  # so few that most of what is read around a fault is not used


def _opened(path: str) -> int:
    """Return a descriptor of a file that the page cache has none of."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return fd


def read(directory: str, turn: int) -> None:
    """Read a file to its end."""
    fd = _opened(f"{directory}/file{turn % FILES}")
    while os.read(fd, _BLOCK):
        pass
    os.close(fd)


def fault(directory: str, turn: int) -> None:
    """Touch a few pages of a mapped file, at random places."""
    fd = _opened(f"{directory}/file{turn % FILES}")
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
        for page in random.sample(range(SIZE // _PAGE), _FAULTS):
            mapped[page * _PAGE]
    os.close(fd)


def write(directory: str, turn: int) -> None:
    """Write a quarter of a file again."""
    fd = os.open(f"{directory}/written{turn % FILES}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(SIZE // _BLOCK // 4):
        os.write(fd, bytes(_BLOCK))
    os.close(fd)


KINDS = {"read": read, "fault": fault, "write": write}


def lay_out(directory: Path) -> None:
    """Write the files that are read and mapped."""
    for number in range(FILES):
        (directory / f"file{number}").write_bytes(random.Random(number).randbytes(SIZE))


@contextmanager
def busy(directory: Path, *programs: Sequence[str]) -> Iterator[None]:
    """Let programs use a directory. ``programs``: a kind and the options of each."""
    with ExitStack() as contexts:
        for kind, *options in programs:
            command = [sys.executable, __file__, kind, str(directory), *options]
            program = subprocess.Popen(command)
            contexts.callback(program.wait)
            contexts.callback(program.kill)
        yield


def timed(directory: Path, kind: str, turns: int) -> float:
    """Return the seconds that a program takes for so many files, without rests."""
    command = [sys.executable, __file__, kind, str(directory), "--turns", str(turns)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main() -> None:
    """Use a mount until the end, or for so many turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("directory")
    parser.add_argument("--then", nargs=2, metavar=("KIND", "SECONDS"))
    parser.add_argument("--turns", type=int)
    options = parser.parse_args()
    kind, began = options.kind, time.monotonic()
    if options.turns:
        for turn in range(options.turns):
            KINDS[kind](options.directory, turn)
        print(time.monotonic() - began)
        return
    turn = 0
    while True:
        for _ in range(random.randint(2, 8)):
            if options.then and time.monotonic() > began + float(options.then[1]):
                kind = options.then[0]
            KINDS[kind](options.directory, turn)
            turn += 1
        time.sleep(random.uniform(0.1, 1.0))


if __name__ == "__main__":
    main()
