# SPDX-License-Identifier: GPL-2.0-or-later
"""A knob: its name, unit, range and file, and how to read and write it."""

import errno
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from fusetune.errors import FusetuneError, UsageError, reason
from fusetune.host import Host
from fusetune.mounts.control import negotiated, still_mounted
from fusetune.mounts.mount import Mount

_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# ENODEV: a sysfs file that was open when its device was removed.
_GONE = (errno.ENOENT, errno.ENODEV)
# What fuse_abort_conn() (fs/fuse/dev.c) sets max_background to.
_ABORTED = 2**32 - 1
#: Why an aborted connection has no values.
DEAD = "the server has died, or its connection was aborted"
# BDI_RATIO_SCALE (include/linux/backing-dev-defs.h): max_ratio_fine has parts per million.
_FINER = 10000
_UNIT_BYTES = {"bytes": 1, "KiB": 1 << 10}


class Scope(StrEnum):
    """What one value of a knob applies to."""

    MOUNT = "mount"
    HOST = "host"


class Absent(Exception):
    """This kernel, or this mount, has no such knob; the text says why."""


def _check_same(host: Host, mount: Mount | None) -> None:
    """Raise `Absent` if ``mount`` is gone."""
    if mount and not still_mounted(host, mount):
        raise Absent("it was unmounted")


def parse_number(text: str) -> int:
    """Parse a whole number with an optional K, M or G (powers of 1024) at its end.

    Raises UsageError for anything else.
    """
    match = re.fullmatch(r"(\d{1,18})([KMG]?)(i?B)?", text.strip(), re.IGNORECASE | re.ASCII)
    if not match:
        raise UsageError(
            f"{text!r} is not a whole number of up to 18 digits (suffixes K, M and G are allowed)"
        )
    return int(match[1]) * _SUFFIXES[match[2].upper()]


@dataclass(frozen=True, eq=False)
class Knob:
    """One tunable value.

    ``unit``: "percent", "KiB", "requests", "bytes", "pages", "switch" (0 or 1). ``low``, ``high``:
    the kernel's range; high None: no bound. ``step``: the kernel rounds down to a multiple of it.
    ``stock``: the kernel's default, None if it depends on the memory size. ``absent``: what it
    means if the file does not exist. ``words``: the kernel's spelling of values that it does not
    print as numbers. ``source``: the source of these facts. ``takes``: the accepted values, if not
    all from ``low`` to ``high``. ``init_line``: for knobs that only mounts of the module fusetuned
    have: the line of ``init`` with the result of INIT, which is both the default and the maximum.
    ``finer``: a file that may have the same value in ten-thousandths of ``unit``.
    Knobs with the same name are equal.
    """

    name: str
    unit: str
    scope: Scope
    file: str
    low: int
    high: int | None
    stock: int | None
    summary: str
    risk: str
    source: str
    absent: str
    step: int = 1
    words: Mapping[int, str] | None = None
    takes: str = ""
    init_line: str | None = None
    finer: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Knob) and self.name == other.name

    def on(self, host: Host, mount: Mount | None) -> "Knob":
        """Return this knob with the range and default that it has on ``mount``."""
        if mount is None or self.init_line is None:
            return self
        word = negotiated(host, mount).get(self.init_line, "")
        if not word.isdigit():
            return self
        return replace(self, stock=int(word), high=int(word))

    def location(self, mount: Mount | None) -> str:
        """Return the file's path relative to the root. Raises `Absent` if it cannot exist."""
        if mount is None:
            return self.file
        if self.init_line and not mount.is_tuned_type:
            raise Absent(self.absent)
        if "{bdi}" in self.file and mount.bdi is None:
            raise Absent("the kernel shows no bdi for this mount")
        if "{connection}" in self.file and mount.connection is None:
            raise Absent(f"no connection under /{mount.control}: {self.absent}")
        return self.file.format(bdi=mount.bdi, connection=mount.connection, control=mount.control)

    def read(self, host: Host, mount: Mount | None) -> int:
        """Return the current value, in ``unit``.

        Raises `Absent` if this kernel or mount lacks it, FusetuneError if it cannot be read.
        """
        location = self.location(mount)
        try:
            text = host.read(location)
        except OSError as error:
            if error.errno in _GONE:
                raise Absent(self.absent) from error
            if error.errno == errno.EAGAIN:
                raise Absent("the server has not replied to INIT yet") from error
            raise FusetuneError(f"cannot read /{location}: {reason(error)}") from error
        # The connection ended after its file was opened (fs/fuse/control.c).
        if not text and "{connection}" in self.file:
            raise Absent("it was unmounted")
        for number, word in (self.words or {}).items():
            if text == word:
                return number
        try:
            value = int(text)
        except ValueError as error:
            raise FusetuneError(f"/{location} contains {text!r} instead of a number") from error
        if value == _ABORTED:
            raise Absent(DEAD)
        self._check_whole(host, mount)
        return value

    def _check_whole(self, host: Host, mount: Mount | None) -> None:
        """Raise `Absent` if the kernel has a value that ``file`` shows rounded (Linux 6.2).

        It could not be restored through that file.
        """
        if not self.finer or mount is None:
            return
        finer = self.finer.format(bdi=mount.bdi)
        with suppress(OSError, ValueError):
            if int(host.read(finer)) % _FINER:
                raise Absent(
                    f"/{finer} has a finer value; to change it, first write a whole number to "
                    f"/{self.location(mount)}"
                )

    def write(self, host: Host, mount: Mount | None, value: int) -> None:
        """Write ``value`` and read it back.

        Raises `Absent` if it does not exist (any more), FusetuneError if the kernel refuses the
        value, permission is missing, or another value is read back.
        """
        location = self.location(mount)
        text = self.words[value] if self.words else str(value)
        try:
            # Device numbers are reused immediately: the name may belong to another mount by now.
            host.write(location, text, lambda: _check_same(host, mount))
        except OSError as error:
            if error.errno in _GONE:
                raise Absent(self.absent) from error
            if error.errno in (errno.EACCES, errno.EPERM):
                raise FusetuneError(
                    f"cannot write /{location}: {reason(error)}; run fusetune as root"
                ) from error
            why = self.takes if error.errno == errno.EINVAL and self.takes else reason(error)
            raise FusetuneError(
                f"the kernel refused {self.name}={value} in /{location}: {why}"
            ) from error
        back = self.read(host, mount)
        if back != value:
            raise FusetuneError(f"/{location} reads {back} after {value} was written to it")

    def parse(self, text: str) -> int:
        """Parse and check a value given by the user; return it in ``unit``.

        A suffix K, M or G counts bytes, so ``read_ahead_kb=16M`` is 16384. Raises UsageError.
        """
        value = parse_number(text)
        if text.strip()[-1:].isalpha():
            if self.unit not in _UNIT_BYTES:
                raise UsageError(f"{self.name} counts {self.unit}; give a number without suffix")
            value, rest = divmod(value, _UNIT_BYTES[self.unit])
            if rest:
                raise UsageError(f"{self.name}={text} is not a whole number of {self.unit}")
        if value < self.low or (self.high is not None and value > self.high):
            top = "no upper bound" if self.high is None else str(self.high)
            raise UsageError(f"{self.name}={text} is out of range: {self.low} to {top} {self.unit}")
        if value % self.step:
            raise UsageError(
                f"{self.name}={text}: the kernel only accepts multiples of {self.step}"
            )
        return value
