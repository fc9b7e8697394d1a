# SPDX-License-Identifier: GPL-2.0-or-later
"""A directory, accessed through a mount and behind it, in which a user opens names."""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

NOBODY = 65534
PROGRAM = "#!/bin/sh\nexit {}\n"


class Stage:
    """A directory, accessed through the mount (``at``) and behind it, and the acting user."""

    def __init__(self, at: Path, behind: Path, user: int) -> None:
        self.at, self.behind, self.user = at, behind, user
        behind.mkdir()
        behind.chmod(0o777)
        for name, mode in (("f", 0o644), ("secret", 0o600), ("open", 0o666)):
            self.put(name, name, mode)
        self.put("program", PROGRAM.format(3), 0o755)
        (behind / "dir").mkdir()
        (behind / "dir" / "inner").write_text("inner")
        (behind / "link").symlink_to("f")
        (behind / "dangling").symlink_to("target")
        os.mkfifo(behind / "fifo")

    def put(self, name: str, text: str | bytes, mode: int = 0o644) -> None:
        """Create a file behind the mount; it replaces any file of that name."""
        new = self.behind / ".new"
        new.write_bytes(text.encode() if isinstance(text, str) else text)
        new.chmod(mode)
        new.rename(self.behind / name)

    def said(self, action: Callable[[], object]) -> object:
        """Return what ``action`` returns as this user, or the name of its error."""
        os.seteuid(self.user)
        try:
            return action()
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        finally:
            os.seteuid(0)

    def opened(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o640) -> object:
        """Open a name and return what it has, or the error."""
        return self.said(lambda: look(self.at / name, flags, mode))

    def ran(self, name: str) -> object:
        """Run a program on the mount and return its status, or the error."""
        return self.said(lambda: subprocess.run([self.at / name], check=False).returncode)

    def left(self, *names: str) -> list[object]:
        """Return what these names have behind the mount."""
        found: list[object] = []
        for name in names:
            path = self.behind / name
            stat = path.lstat() if os.path.lexists(path) else None
            found.append(stat and (oct(stat.st_mode), stat.st_size, stat.st_uid, stat.st_gid))
        return found


def look(path: Path | str, flags: int, mode: int = 0) -> object:
    """Open and return type, permissions, size, links, and the first bytes if readable."""
    fd = os.open(path, flags, mode)
    try:
        stat = os.fstat(fd)
        data: object = None
        if not flags & (os.O_PATH | os.O_NONBLOCK) and flags & os.O_ACCMODE in (0, os.O_RDWR):
            try:
                data = os.read(fd, 40)
            except OSError as error:
                data = errno.errorcode[error.errno or 0]
        size = stat.st_size if stat.st_mode & 0o100000 else 0
        return oct(stat.st_mode), size, stat.st_nlink, stat.st_uid, data
    finally:
        os.close(fd)
