# SPDX-License-Identifier: GPL-2.0-or-later
"""Traffic of a mount: a program that reads or writes files of DIRECTORY and rests at times.

    python3 tests/bench/traffic.py read|write DIRECTORY

Reads are of files that the page cache has forgotten.
"""

import os
import random
import sys
import time

FILES, SIZE, BLOCK = 6, 16 << 20, 128 << 10


def read(path: str) -> None:
    """Read a file to its end."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    while os.read(fd, BLOCK):
        pass
    os.close(fd)


def write(path: str) -> None:
    """Write a quarter of a file anew."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(SIZE // BLOCK // 4):
        os.write(fd, bytes(BLOCK))
    os.close(fd)


if __name__ == "__main__":
    kind, directory = sys.argv[1:]
    draw = random.Random(kind)
    turn = 0
    while True:
        for _ in range(draw.randint(2, 8)):
            turn += 1
            if kind == "read":
                read(f"{directory}/file{turn % FILES}")
            else:
                write(f"{directory}/written{turn % FILES}")
        time.sleep(draw.uniform(0.1, 1.5))
