# SPDX-License-Identifier: GPL-2.0-or-later
"""For systemd, services whose mounts are intercepted do not change.

The kernel's own FUSE stands for the module: the drop-in of `enable` gets its type and an option.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.native.requirements import requires
from tests.system.container import Container
from tests.system.watched import show

pytestmark = requires("systemd-nspawn", "mmdebstrap")

UNIT = "its.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/70-fusetune-intercept.conf"
INTERCEPT = "/usr/lib/fusetune/fusetune-intercept"
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
#: Suffices for the server. Without our lines, the interceptor would be killed.
LIMITS = """\
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_DAC_OVERRIDE
RestrictNamespaces=yes
SystemCallFilter=@system-service @mount
SystemCallFilter=~@privileged @resources
DevicePolicy=closed
DeviceAllow=/dev/fuse rw
"""


@contextmanager
def _service(container: Container, kind: str, limits: str = "") -> Iterator[None]:
    unit = container.path(f"/etc/systemd/system/{UNIT}")
    # A server that fails leaves its mount, as without interception.
    ends = "Restart=on-failure\nRestartSec=0\nExecStopPost=-/bin/umount --lazy /mnt\n"
    unit.write_text(f"[Service]\nType={kind}\n{ends}{limits}ExecStart={TYPES[kind]}\n")
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
    _assert_none_runs(container)


def test_service_with_limits(container: Container) -> None:
    with _service(container, "simple", LIMITS):
        container.wait(lambda: container.mounted_at("/mnt") is not None, "the mount")
        options = container.run("findmnt", "--noheadings", "--output=FS-OPTIONS", "/mnt").stdout
        assert OPTION in options
    _assert_none_runs(container)


@pytest.mark.skipif(
    "autofs" not in Path("/proc/filesystems").read_text().split(), reason="the kernel has no autofs"
)
def test_automount(container: Container) -> None:
    """systemd mounts at the first use, by a helper in its own process group."""
    helper = container.path("/sbin/mount.its")
    helper.write_text(
        f"#!/bin/sh\nexec {INTERCEPT} --type fuse --options {OPTION} -- bindfs $1 $2\n"
    )
    helper.chmod(0o755)
    mount, automount = (
        container.path(f"/etc/systemd/system/mnt.{kind}") for kind in ("mount", "automount")
    )
    mount.write_text("[Mount]\nWhat=/srv\nWhere=/mnt\nType=its\n")
    automount.write_text("[Automount]\nWhere=/mnt\n")
    container.run("mknod", "/dev/autofs", "c", "10", "235")
    try:
        # Only then does it look for the device again.
        container.run("systemctl", "daemon-reexec")
        container.run("systemctl", "start", automount.name)
        container.run("timeout", "--signal=KILL", "20", "ls", "/mnt")
        assert OPTION in container.run("findmnt", "--noheadings", "-o", "OPTIONS", "/mnt").stdout
    finally:
        container.run("systemctl", "stop", mount.name, automount.name)
        for file in (helper, mount, automount, container.path("/dev/autofs")):
            file.unlink()
        container.run("systemctl", "daemon-reexec")
    _assert_none_runs(container)


def _assert_none_runs(container: Container) -> None:
    processes = container.run("ps", "-e", "-o", "comm=").stdout.split()
    assert not {"fusetune-interc", "bindfs"} & set(processes)
