# SPDX-License-Identifier: GPL-2.0-or-later
"""The profile for TuneD, in a container with a real one.

Its other profiles would change this host's kernel, so none of them is ever loaded.
"""

from collections.abc import Iterator

import pytest

from tests.native.requirements import requires
from tests.system import tree
from tests.system.container import Container

pytestmark = requires("systemd-nspawn", "mmdebstrap")

_TUNED_PACKAGES = ("tuned",)
POINT = "/mnt/models"
PROFILE = "/usr/share/fusetune/tuned/fusetune"


@pytest.fixture(scope="module")
def host() -> Iterator[Container]:
    with Container(packages=(*tree.HOST_PACKAGES, *_TUNED_PACKAGES)) as container:
        yield container


def test_tuned_sets_verifies_and_puts_back(host: Container) -> None:
    host.run("ln", "-s", PROFILE, "/etc/tuned/fusetune")
    host.path("/etc/tuned/active_profile").write_text("fusetune\n")
    host.path("/etc/tuned/profile_mode").write_text("manual\n")
    with host.mirror(POINT) as bdi:
        file = f"/sys/class/bdi/{bdi}/read_ahead_kb"

        def readahead() -> int:
            return int(host.run("cat", file).stdout)

        host.run("fusetune", "set", POINT, "read_ahead_kb=1M")
        host.run("fusetune", "save", POINT)
        host.run("fusetune", "reset", POINT, "--keep-saved")
        assert readahead() == 128

        host.run("systemctl", "start", "tuned.service")
        host.wait(lambda: readahead() == 1024, "the profile")
        assert "FUSE mounts have the values" in host.run("tuned-adm", "list").stdout
        assert "Current active profile: fusetune" in host.run("tuned-adm", "active").stdout
        assert host.run("tuned-adm", "verify").returncode == 0
        host.run("sh", "-c", f"echo 64 >{file}")
        assert host.run("tuned-adm", "verify", check=False).returncode != 0
        for _ in range(4):  # fusetune takes it for no other program that sets values
            host.run("tuned-adm", "off")
            host.wait(lambda: readahead() == 128, "the values of before")
            host.run("tuned-adm", "profile", "fusetune")
            host.wait(lambda: readahead() == 1024, "the profile again")
        host.run("systemctl", "stop", "tuned.service")
        host.wait(lambda: readahead() == 128, "the values of before the service")
        assert "saved: read_ahead_kb=1024" in host.run("fusetune", "show", POINT).stdout
        host.run("fusetune", "reset", "--all")
