# SPDX-License-Identifier: GPL-2.0-or-later
"""The image of `make sysext` on a host that has no Python and no package of fusetune.

systemd-sysext merges the image's files. The container has no loop device to mount the image by, so
they are unpacked first.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.mirror import CHECKOUT
from tests.native.requirements import requires
from tests.system import tree
from tests.system.container import Container

pytestmark = requires("systemd-nspawn", "mmdebstrap", "mksquashfs", "unsquashfs", "patchelf")

POINT = "/mnt/models"
PYTHON = "/usr/lib/fusetune/python"
_MAPS = """\
import pyudev, ssl, systemd.daemon
pyudev.Context()
print(open('/proc/self/maps').read())
"""
#: As docs/fleet.md has it for systemd before 255.
_RELOAD = "[Service]\nExecStartPost=systemctl daemon-reload\n"
CONFIG = f'[[mount]]\npath = "{POINT}"\nread_ahead_kb = "1M"\nmax_background = 64\n'
OLDER = '[[mount]]\npath = "/mnt/older"\nread_ahead_kb = "2M"\n'


def _merge(host: Container) -> None:
    host.run("systemd-sysext", "merge")
    host.run("systemctl", "daemon-reload")


def _values(host: Container, bdi: str) -> tuple[int, int]:
    connection = f"/sys/fs/fuse/connections/{bdi.partition(':')[2]}"
    files = (f"/sys/class/bdi/{bdi}/read_ahead_kb", f"{connection}/max_background")
    readahead, background = host.run("cat", *files).stdout.split()
    return int(readahead), int(background)


@pytest.fixture(scope="module")
def image() -> Path:
    make = ["make", "--silent", "-C", str(CHECKOUT), "sysext"]
    subprocess.run(make, check=True, timeout=300, stdout=subprocess.DEVNULL)
    return CHECKOUT / "build" / "sysext" / "fusetune.raw"


@pytest.fixture
def host(image: Path) -> Iterator[Container]:
    with Container(packages=tree.BARE_PACKAGES, parts=("mirrorfs",)) as container:
        extension = container.path("/var/lib/extensions/fusetune")
        unpack = ["unsquashfs", "-quiet", "-no-progress", "-dest", str(extension), str(image)]
        extension.parent.mkdir(parents=True)
        subprocess.run(unpack, check=True, timeout=120, stdout=subprocess.DEVNULL)
        container.path("/etc/fusetune").mkdir()
        container.path("/etc/fusetune/fusetune.toml").write_text(CONFIG + OLDER)
        yield container


def test_a_mount_is_tuned_where_there_is_no_python(host: Container) -> None:
    before = _files(host)
    assert not [name for name in before if name.startswith("/usr/bin/python")]
    host.run("mount", "--bind", "/etc", "/etc")
    host.run("mount", "-o", "remount,bind,ro", "/etc")
    with host.mirror("/mnt/older") as bdi:
        _merge(host)
        host.wait(lambda: _values(host, bdi) == (2048, 12), "the service, of an older mount")
    assert host.run("fusetune", "--version").stdout.startswith("fusetune ")
    maps = host.run(f"{PYTHON}/bin/python3", "-IBc", _MAPS).stdout
    libraries = set(re.findall(r"/\S+\.so\S*", maps))
    # Where the files lie in the layer below: /lib/fusetune/python/...
    assert {name for name in libraries if "/fusetune/python/" not in name} == set(), "of the host"
    assert any("libudev" in name for name in libraries)
    with host.mirror(POINT) as bdi:
        host.wait(lambda: _values(host, bdi) == (1024, 64), "the service")
        host.run("fusetune", "verify")
        assert host.run("fusetune", "reset", "--all", "--json").stdout
        assert _values(host, bdi) == (128, 12)
        host.run("systemctl", "stop", "fusetune.service")
        host.run("systemd-sysext", "unmerge")
        host.run("systemctl", "daemon-reload")
    assert _files(host) == before
    assert host.run("systemctl", "cat", "fusetune.service", check=False).returncode != 0
    with host.mirror(POINT) as bdi:
        host.run("udevadm", "settle")
        assert _values(host, bdi) == (128, 12)


def test_it_is_merged_at_boot(host: Container) -> None:
    host.run("systemctl", "enable", "systemd-sysext.service")
    host.path("/etc/systemd/system/systemd-sysext.service.d").mkdir()
    host.path("/etc/systemd/system/systemd-sysext.service.d/reload.conf").write_text(_RELOAD)
    host.restart()
    with host.mirror(POINT) as bdi:
        host.wait(lambda: _values(host, bdi) == (1024, 64), "the service")
        host.run("fusetune", "reset", "--all")


def _files(host: Container) -> list[str]:
    """Return all that is below /usr."""
    return sorted(host.run("find", "/usr").stdout.splitlines())
