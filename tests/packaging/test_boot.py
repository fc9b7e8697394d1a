# SPDX-License-Identifier: GPL-2.0-or-later
"""A virtual machine with systemd boots after apt has installed all packages."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.kernel import emulator
from tests.kernel.suites import USERLAND, Suite
from tests.native.mirror import CHECKOUT
from tests.packaging.conftest import script
from tests.packaging.trees import inside, machine_tree

#: Seconds: emulated machines are some ten times slower than the host, which is also busy.
_PATIENCE = 1800


def test_after_boot_all_is_in_force(
    repositories: Callable[[Suite], tuple[Path, Path]], tmp_path: Path
) -> None:
    binds = (
        (repositories(USERLAND)[0], "/repo"),
        (Path(__file__).with_name("inside"), "/inside"),
        (CHECKOUT / "debian" / "tests", "/debian-tests"),
    )
    done = inside(machine_tree(USERLAND), tmp_path, script("image.sh", USERLAND), *binds)
    assert done.returncode == 0, done.stdout[-8000:]
    said = _boot(tmp_path)
    assert said.splitlines()[-1] == "passed", said


def _boot(directory: Path) -> str:
    """Run the machine until it powers off; return the output of its check."""
    options = ["-kernel", "/out/vmlinuz", "-initrd", "/out/initrd"]
    options += ["-append", "root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off"]
    options += ["-drive", "file=/out/disk,format=raw,if=virtio,cache=unsafe"]
    command = emulator.machine(directory, *options, serials=("console", "said"))
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=_PATIENCE, check=True)
    said = (directory / "said").read_text(errors="replace")
    return said or (directory / "console").read_text(errors="replace")[-8000:]
