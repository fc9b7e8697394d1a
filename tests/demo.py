# SPDX-License-Identifier: GPL-2.0-or-later
"""A demonstration without other hardware: a slow mirrorfs over tmpfs, tuned by auto.

Run by ``make demo`` as root; leaves nothing behind.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fusetune.errors import ExitCode
from tests.native.mirror import Mirror
from tests.tmpfs import tmpfs

# A disk or a network that takes 1 ms for each request and serves 8 at a time.
OPTIONS = "writeback,no_xattr,delay=1ms,served=8"
# Files that are read from start to end. Readahead slows programs that map files and jump around in
# them (mmap-read), so auto would refuse it; there are none here.
WORKLOADS = ("-w", "seq-read", "--no-guard", "mmap-read")


def say(command: str) -> None:
    print(f"\n$ {command}", flush=True)


def fusetune(directory: Path, *words: str) -> int:
    say(" ".join(("fusetune", *words)))
    own = ("--state-dir", str(directory / "state"), "--run-dir", str(directory / "run"))
    return subprocess.run([sys.executable, "-m", "fusetune", *own, *words], check=False).returncode


def main() -> None:
    if os.geteuid() != 0:
        sys.exit("make demo mounts tmpfs and writes to /sys: run it as root")
    with (
        tempfile.TemporaryDirectory(prefix="fusetune-demo-") as name,
        tmpfs(Path(name), "size=1G"),
    ):
        directory = Path(name)
        source, point = directory / "source", directory / "mnt"
        source.mkdir()
        point.mkdir()
        say(f"mirrorfs -o {OPTIONS} {source} {point}")
        with Mirror(source, point, OPTIONS):
            if fusetune(directory, "doctor"):
                sys.exit(ExitCode.FAILED)
            code = fusetune(directory, "auto", str(point), *WORKLOADS)
            if fusetune(directory, "reset", str(point)):
                sys.exit(ExitCode.FAILED)
    # It is also a result if nothing better was found.
    sys.exit(ExitCode.DONE if code == ExitCode.NOTHING_BETTER else code)


if __name__ == "__main__":
    main()
