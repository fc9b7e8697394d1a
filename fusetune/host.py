# SPDX-License-Identifier: GPL-2.0-or-later
"""Where this host keeps the files that fusetune reads and writes."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from fusetune.errors import FusetuneError, reason

STATE_DIR = Path("/var/lib/fusetune")
RUN_DIR = Path("/run/fusetune")
ADMIN_DIR = Path("/etc/fusetune")
VENDOR_DIR = Path("/usr/lib/fusetune")


@dataclass(frozen=True)
class Host:
    """The roots of /proc and /sys, and fusetune's own directories.

    ``root`` is "/", except in unit tests, which use another directory tree.
    """

    root: str = "/"
    state_dir: Path = STATE_DIR
    run_dir: Path = RUN_DIR
    admin_dir: Path = ADMIN_DIR
    vendor_dir: Path = VENDOR_DIR
    boot_id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "boot_id", self.read("proc/sys/kernel/random/boot_id"))

    @property
    def real(self) -> bool:
        """Whether this is the running system, not a directory tree."""
        return self.root == "/"

    def path(self, relative: str) -> str:
        """Return the full path of a file given relative to the root."""
        return os.path.join(self.root, relative)

    def read(self, relative: str) -> str:
        """Return the stripped text of a small /proc or /sys file.

        Raises FileNotFoundError if the kernel lacks it, and other OSErrors.
        """
        # os.read is faster than open(), and a thousand mounts have five files each.
        fd = os.open(self.path(relative), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 65536).decode("utf-8", "surrogateescape").strip()
        finally:
            os.close(fd)

    def lines(self, relative: str) -> list[str]:
        """Return the lines of such a file, which end only with a newline. Raises as `read`.

        The kernel escapes no other character at which str.splitlines() splits, so a process could
        add lines by its name, and anybody by the name of a directory.
        """
        text = self.read(relative)
        return text.split("\n") if text else []

    def owner(self, relative: str) -> tuple[int, int]:
        """Return uid and gid of the owner of a /proc or /sys file. Raises OSError."""
        found = os.lstat(self.path(relative))
        return found.st_uid, found.st_gid

    def write(self, relative: str, text: str, once_open: Callable[[], None] = lambda: None) -> None:
        """Write ``text`` to a /proc or /sys file in one write call.

        ``once_open`` is called between open and write. What it checks holds for the write: an open
        file of sysfs or fusectl never becomes that of another mount. Raises OSError: EINVAL
        if the kernel refuses the value, ENODEV or ENOENT if the mount is gone.
        """
        fd = os.open(self.path(relative), os.O_WRONLY | os.O_CLOEXEC)
        try:
            once_open()
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def make_dir(self, directory: Path) -> Path:
        """Create one of fusetune's own directories and return it.

        Whatever the umask, what is created has mode 0755.
        """
        try:
            missing = takewhile(lambda parent: not parent.exists(), directory.parents)
            for part in reversed([directory, *missing]):
                try:
                    part.mkdir(mode=0o755)
                except FileExistsError:
                    if not part.is_dir():
                        raise
                else:
                    part.chmod(0o755)
        except OSError as error:
            raise FusetuneError(
                f"cannot create {directory}: {reason(error)}; run fusetune as root"
            ) from error
        return directory
