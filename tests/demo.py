# SPDX-License-Identifier: GPL-2.0-or-later
"""The main job on an embedded default: mirrorfs over tmpfs, as slow as a disk, tuned by auto.

Run by ``make demo`` as root; leaves nothing behind.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.native.mirror import Mirror
from tests.tmpfs import tmpfs

# A disk or a network that takes 1 ms a request and serves 8 at once.
OPTIONS = "writeback,no_xattr,delay=1ms,served=8"


def say(command: str) -> None:
    print(f"\n$ {command}", flush=True)


def fusetune(*words: str, state: Path) -> None:
    say(" ".join(("fusetune", *words)))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "fusetune",
            "--state-dir",
            str(state / "state"),
            "--run-dir",
            str(state / "run"),
            *words,
        ],
        check=True,
    )


def main() -> None:
    if os.geteuid() != 0:
        sys.exit("make demo mounts tmpfs and writes to /sys: run it as root")
    with (
        tempfile.TemporaryDirectory(prefix="fusetune-demo-") as name,
        tmpfs(Path(name), "size=1G"),
    ):
        folder = Path(name)
        source, point = folder / "source", folder / "mnt"
        source.mkdir()
        point.mkdir()
        say(f"mirrorfs -o {OPTIONS} {source} {point}")
        with Mirror(source, point, OPTIONS):
            fusetune("doctor", state=folder)
            fusetune("auto", str(point), "-w", "seq-read", "-w", "seq-write", state=folder)
            fusetune("list", state=folder)
            fusetune("reset", str(point), state=folder)


if __name__ == "__main__":
    main()
