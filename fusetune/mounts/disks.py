# SPDX-License-Identifier: GPL-2.0-or-later
"""The names that udev gives a disk's file system, independent of its device: UUID and label."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass

from fusetune.host import Host


@dataclass(frozen=True)
class DiskNames:
    """The names in udev's links to a disk, None if there is no such link."""

    uuid: str | None = None
    label: str | None = None


def disk_names(host: Host, source: str) -> DiskNames:
    """Return the names of the disk that is a mount's source; none if the source is not a disk.

    Any user can give a mount any source, so only plain paths below /dev are looked up, and none
    where users can create links, for these might lead into a mount whose server hangs.
    """
    plain = re.fullmatch(r"/dev/(?!shm/|mqueue/|pts/|fd/)([\w.+:-]+/)*[\w.+:-]+", source)
    if not plain or ".." in source:
        return DiskNames()
    device = os.path.realpath(host.path(source[1:]))
    return DiskNames(_linked(host, "by-uuid", device), _linked(host, "by-label", device))


def _linked(host: Host, kind: str, device: str) -> str | None:
    """Return the name of the link of this kind to ``device``."""
    directory = host.path(f"dev/disk/{kind}")
    with suppress(OSError):
        for name in sorted(os.listdir(directory)):
            if os.path.realpath(os.path.join(directory, name)) == device:
                # udev encodes characters not allowed in file names as \xNN
                # (udev_util_encode_string()).
                raw = re.sub(rb"\\x([0-9a-f]{2})", _byte, os.fsencode(name))
                return os.fsdecode(raw)
    return None


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())
