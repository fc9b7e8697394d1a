# SPDX-License-Identifier: GPL-2.0-or-later
"""The virtual machines' emulator: QEMU without KVM, which not every host has.

It is Debian 13's, in its own tree. Debian 12's (QEMU 7.2) may run an instruction that another
processor has already replaced, because it translates code without the page's lock (fixed in 8.1,
QEMU commit deba78709ae8). Kernels patch their own code, mostly while they boot, and then die with
``Oops: int3``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kernel.suites import USERLAND, command_inside

#: Instead of two processors, one whose clock advances by a nanosecond per instruction.
_TIMED = ("-accel", "tcg,thread=multi", "-smp", "2")
_COUNTED = ("-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1")


def machine(
    out: Path,
    *options: str,
    serials: Sequence[str],
    directories: Mapping[Path, str] | None = None,
    counted: bool = False,
) -> list[str | Path]:
    """Return the command that runs a machine; it ends with the machine, and with its parent.

    It sees ``out`` as /out, where each of ``serials`` names the file of a serial line, and each of
    ``directories``, read-only, at its value. ``options`` are QEMU's. With ``counted``, the machine
    has one processor instead of two, and its time is a count of instructions.
    """
    command = ["qemu-system-x86_64", *(_COUNTED if counted else _TIMED), "-cpu", "max", "-m", "1G"]
    command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", *options]
    for name in serials:
        command += ["-serial", f"file:/out/{name}"]
    tree = USERLAND.made("emulator", "qemu-system-x86")
    return command_inside(tree, out, directories or {}, *command)
