# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the kernel requires signed modules, and how to enroll our key."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fusetune.host import Host
from fusetune.kmod.kinds import DKMS

KEY = f"{DKMS}/mok.pub"
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@dataclass(frozen=True)
class Signing:
    """Whether the kernel requires signed modules; ``secure_boot``, ``lockdown``: None if unknown.

    ``enrol``: commands that enroll our key; empty if not needed or the module is loaded.
    """

    secure_boot: bool | None
    lockdown: str | None
    enforced: bool
    enrol: Sequence[str] = ()


def read_signing(host: Host, all_loaded: bool) -> Signing:
    secure_boot = lockdown = None
    with suppress(OSError):
        # Four bytes of attributes, then the value (Documentation/filesystems/efivarfs.rst).
        secure_boot = Path(host.path(_SECURE_BOOT)).read_bytes()[4:] == b"\x01"
    with suppress(OSError):
        chosen = re.search(r"\[(\w+)\]", host.read("sys/kernel/security/lockdown"))
        lockdown = chosen[1] if chosen else None
    enforced = lockdown not in (None, "none")
    with suppress(OSError):
        enforced |= host.read("sys/module/module/parameters/sig_enforce") == "Y"
    if not enforced or all_loaded:
        return Signing(secure_boot, lockdown, enforced)
    key = host.path(KEY)
    if not os.path.exists(key):
        enrol = ["apt install openssl mokutil", "fusetune module build", f"mokutil --import {key}"]
    else:
        enrol = [f"mokutil --import {key}"]
    return Signing(secure_boot, lockdown, enforced, enrol)
