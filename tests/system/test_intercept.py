# SPDX-License-Identifier: GPL-2.0-or-later
"""For systemd, services whose mounts are intercepted do not change.

The kernel's own FUSE stands for the module: the drop-in of `enable` gets its type and an option.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.native.requirements import requires
from tests.system.container import Container
from tests.system.watched import show

pytestmark = requires("systemd-nspawn", "mmdebstrap")

UNIT = "its.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/70-fusetune-intercept.conf"
OPTION = "max_read=77824"
#: Notifies systemd from the main process that it is ready, as NotifyAccess=main requires.
READY = (
    "/usr/bin/python3 -c 'import os, socket, time; "
    "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto("
    'b"READY=1", os.environ["NOTIFY_SOCKET"].replace("@", chr(0), 1)); '
    'os.execv("/usr/bin/bindfs", ["bindfs", "-f", "/srv", "/mnt"])\''
)
TYPES = {
    "simple": "/usr/bin/bindfs -f /srv /mnt",
    "exec": "/usr/bin/bindfs -f /srv /mnt",
    "forking": "/usr/bin/bindfs /srv /mnt",
    "notify": READY,
}


@contextmanager
def _service(container: Container, kind: str) -> Iterator[None]:
    unit = container.path(f"/etc/systemd/system/{UNIT}")
    # A server that fails leaves its mount, as without interception.
    ends = "Restart=on-failure\nRestartSec=0\nExecStopPost=-/bin/umount --lazy /mnt\n"
    unit.write_text(f"[Service]\nType={kind}\n{ends}ExecStart={TYPES[kind]}\n")
    try:
        container.run("fusetune", "enable", "its")
        drop_in = container.path(DROP_IN)
        text = drop_in.read_text()
        assert text.count(" -- ") == 1
        drop_in.write_text(text.replace(" -- ", f" --type fuse --options {OPTION} -- "))
        container.run("systemctl", "daemon-reload")
        container.run("systemctl", "start", UNIT)
        yield
    finally:
        container.run("systemctl", "stop", UNIT)
        container.run("fusetune", "disable", "its")
        unit.unlink()
    assert not container.path(DROP_IN).parent.exists()


@pytest.mark.parametrize("kind", TYPES)
def test_service(container: Container, kind: str) -> None:
    """The main process is the server; if that fails it restarts; nothing remains of either."""
    with _service(container, kind):
        container.wait(lambda: container.mounted_at("/mnt") is not None, "the mount")
        options = container.run("findmnt", "--noheadings", "--output=FS-OPTIONS", "/mnt").stdout
        assert OPTION in options
        main = show(container, "MainPID", UNIT)
        name = container.run("cat", f"/proc/{main}/comm").stdout
        assert name == "bindfs\n"
        container.run("kill", "-SEGV", main)
        container.wait(lambda: show(container, "NRestarts", UNIT) == "1", "a restart")
        container.wait(lambda: show(container, "MainPID", UNIT) not in (main, "0"), "the new one")
    processes = container.run("ps", "-e", "-o", "comm=").stdout.split()
    assert not {"fusetune-interc", "bindfs"} & set(processes)
