# SPDX-License-Identifier: GPL-2.0-or-later
"""Our kernel modules, which run beside the kernel's own or replace them."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from fusetune.errors import FusetuneError, UsageError
from fusetune.mounts.mount import FUSETUNEDCTL

DKMS = "var/lib/dkms"
Words = tuple[str, ...]
Runner = Callable[[Words], subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Kind:
    """A module of ours.

    ``name``: its name in DKMS; ``module``: in the kernel. ``stock``: the kernel's own module that
    it runs beside, or replaces if the names are equal. ``types``, ``stock_types``: the file system
    types of their mounts in mountinfo. ``control``: where its control file system is mounted, if it
    has one.
    """

    name: str
    module: str
    stock: str
    types: re.Pattern[str]
    stock_types: re.Pattern[str]
    control: str | None = None

    @property
    def replaces(self) -> bool:
        """Whether it replaces the kernel's own module."""
        return self.module == self.stock


KINDS = (
    Kind(
        "fusetuned",
        "fusetuned",
        "fuse",
        re.compile(r"fusetuned(blk)?(\..*)?", re.DOTALL),
        re.compile(r"fuse(blk)?(\..*)?", re.DOTALL),
        FUSETUNEDCTL,
    ),
    Kind("f2fs-tuned", "f2fs", "f2fs", re.compile("f2fs"), re.compile("f2fs")),
)


def run_program(words: Words) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises FusetuneError if it is not installed."""
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise FusetuneError(
            f"{words[0]} is not installed: apt install dkms kmod, or dnf install dkms kmod"
        ) from error


def named(name: str | None) -> tuple[Kind, ...]:
    """Return our modules, or the named one. Raises UsageError for another name."""
    kinds = tuple(kind for kind in KINDS if name in (None, kind.name))
    if not kinds:
        known = ", ".join(kind.name for kind in KINDS)
        raise UsageError(f"fusetune has no module {name!r}; give one of {known}")
    return kinds
