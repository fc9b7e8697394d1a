# SPDX-License-Identifier: GPL-2.0-or-later
"""A small autofs daemon: at the first use of a mount point, it runs a command that mounts there.

The arguments are the mount point and the command. It prints a line when it is ready, and ends
after the first use. Documentation/filesystems/autofs.rst describes the protocol.
"""

import fcntl
import os
import struct
import subprocess
import sys

from tests.native.mount_calls import call_mount

#: A command that takes longer waits for itself.
SECONDS = 10
# uapi linux/auto_fs.h: AUTOFS_IOC_READY, AUTOFS_IOC_FAIL, and autofs_ptype_missing_direct
_READY, _FAIL = 0x9360, 0x9361
_MISSING_DIRECT = 5
_PACKET = 304  # struct autofs_v5_packet: version, type, token ...


def main(point: str, *command: str) -> None:
    requests, kernels = os.pipe()
    options = f"fd={kernels},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct"
    assert call_mount(b"test", os.fsencode(point), b"autofs", 0, options.encode()) == "0"
    os.close(kernels)
    root = os.open(point, os.O_RDONLY | os.O_DIRECTORY)
    print("ready", flush=True)
    _, kind, token = struct.unpack_from("iiI", os.read(requests, _PACKET))
    assert kind == _MISSING_DIRECT
    try:
        mounted = subprocess.run(command, timeout=SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        mounted = False
    fcntl.ioctl(root, _READY if mounted else _FAIL, token)


if __name__ == "__main__":
    main(*sys.argv[1:])
