# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make install` puts in place, as systemd and udevd take it."""

import time
from pathlib import Path

import pytest

from tests.native.means import requires
from tests.system.container import Container
from tests.system.watched import serving, show, state

pytestmark = requires("systemd-nspawn", "mmdebstrap")

SERVICES = ("fusetune.service", "fusetune-verify.service", "fusetune-report.service")
CONTROL = "sys-fs-fusetuned-connections.mount"
TIMERS = ("fusetune-verify.timer", "fusetune-report.timer")
EXAMPLE = "/usr/share/doc/fusetune/examples/61-fusetune-max-ratio.rules"
METRICS = "/var/lib/prometheus/node-exporter"


# As installed


def test_boot_is_clean(container: Container) -> None:
    failed = container.run("systemctl", "--failed", "--plain", "--no-legend").stdout
    assert "fusetune" not in failed


def test_units_are_valid(container: Container) -> None:
    done = container.run("systemd-analyze", "verify", "--man=no", *SERVICES, *TIMERS, CONTROL)
    assert (done.stdout, done.stderr) == ("", "")


def test_without_the_module_its_control_file_system_is_skipped(container: Container) -> None:
    """Asked for at boot, and by hand; tests/kernel mounts it."""
    wanted = container.run("systemctl", "show", "--property=Wants", "sysinit.target").stdout
    assert CONTROL in wanted
    container.run("systemctl", "start", CONTROL)
    said = container.run("systemctl", "show", "--property=ConditionResult,ActiveState", CONTROL)
    assert sorted(said.stdout.split()) == ["ActiveState=inactive", "ConditionResult=no"]


@pytest.mark.parametrize("service", SERVICES)
def test_exposure(container: Container, service: str) -> None:
    container.run("systemd-analyze", "security", "--threshold=30", "--no-pager", service)


def test_presets(container: Container) -> None:
    container.run("systemctl", "preset", *TIMERS)
    enabled = container.run("systemctl", "is-enabled", *TIMERS, check=False)
    assert enabled.stdout.split() == ["enabled", "disabled"]


def test_own_folders(container: Container) -> None:
    for folder in ("/run/fusetune", "/var/lib/fusetune"):
        said = container.run("stat", "--format=%a %u %g", folder).stdout
        assert said == "755 0 0\n"


def test_command_line_writes_no_bytecode(container: Container) -> None:
    assert "fusetune" in container.run("fusetune", "--version").stdout
    assert container.run("find", "/usr/share/fusetune", "-name", "__pycache__").stdout == ""


def test_sysctls_are_raised_and_a_later_file_wins(container: Container) -> None:
    pipe = Path("/proc/sys/fs/pipe-max-size")
    pages = Path("/proc/sys/fs/fuse/max_pages_limit")
    assert int(pipe.read_text()) == 2 << 20
    assert not pages.exists() or int(pages.read_text()) == 1024
    container.path("/etc/sysctl.d/70-fuse.conf").write_text("fs.pipe-max-size = 4194304\n")
    container.run("systemctl", "restart", "systemd-sysctl.service")
    assert int(pipe.read_text()) == 4 << 20


# udev


def test_a_fuse_mount_starts_the_service(stopped: Container) -> None:
    with stopped.mirror("/mnt/a") as bdi:
        stopped.wait(lambda: state(stopped) == "active", "the service")
        told = stopped.run("udevadm", "info", "--query=property", f"/sys/class/bdi/{bdi}").stdout
    assert "SYSTEMD_WANTS=fusetune.service" in told.splitlines()


def test_it_starts_without_the_start_of_a_mount_unit(stopped: Container) -> None:
    """That waits, also where it is skipped, while systemd holds back news of mounts."""
    looked = "ConditionTimestampMonotonic"  # when it was last about to start
    before = show(stopped, looked, CONTROL)
    with stopped.mirror("/mnt/a"):
        stopped.wait(lambda: state(stopped) == "active", "the service")
    assert show(stopped, looked, CONTROL) == before


def test_other_devices_do_not(container: Container) -> None:
    others = [bdi for bdi in Path("/sys/class/bdi").iterdir() if not bdi.name.startswith("0:")]
    others += [Path("/sys/class/mem/null"), Path("/sys/class/misc/fuse")]
    for device in others:
        told = container.run("udevadm", "test", "--action=add", device)
        assert "SYSTEMD_WANTS" not in told.stdout


def test_the_example_rule_raises_only_mounts_of_root(stopped: Container) -> None:
    rule = stopped.path("/etc/udev/rules.d/61-fusetune-max-ratio.rules")
    stopped.run("systemctl", "mask", "--runtime", "fusetune.service")
    rule.write_text(stopped.path(EXAMPLE).read_text())
    stopped.run("udevadm", "control", "--reload")
    try:
        with stopped.mirror("/mnt/root") as ours, stopped.mirror("/mnt/user", uid=65534) as theirs:
            stopped.run("udevadm", "settle")
            ratios = [
                int(Path(f"/sys/class/bdi/{b}/max_ratio").read_text()) for b in (ours, theirs)
            ]
    finally:
        rule.unlink()
        stopped.run("udevadm", "control", "--reload")
        stopped.run("systemctl", "unmask", "--runtime", "fusetune.service")
    assert ratios == [20, 1]


# The services


def test_it_starts_and_stops_beside_a_mount_that_never_answers(stopped: Container) -> None:
    with serving(stopped) as server:
        server.mount("/mnt/dead", init={"delay": None})
        for action in ("restart", "reload", "stop", "start"):
            began = time.monotonic()
            stopped.run("systemctl", action, "fusetune.service", timeout=10)
            assert time.monotonic() - began < 3
        assert state(stopped) == "active"


def test_mounts_everywhere_come_into_its_sight(stopped: Container) -> None:
    points = ("/tmp/a", "/home/b", "/root/c", "/run/user/d", "/dev/shm/e", "/media/f")  # noqa: S108
    stopped.run("systemctl", "start", "fusetune.service")
    pid = show(stopped, "MainPID")
    for point in points:
        with stopped.mirror(point):
            seen = stopped.run("cat", f"/proc/{pid}/mountinfo").stdout
            assert f" {point} " in seen
        # Nor does its view keep a mount that went away.
        assert f" {point} " not in stopped.run("cat", f"/proc/{pid}/mountinfo").stdout


def test_verify_sees_no_difference_where_nothing_is_kept(container: Container) -> None:
    container.run("systemctl", "start", "fusetune-verify.service")
    assert show(container, "ExecMainStatus", "fusetune-verify.service") == "0"


def test_report_writes_where_the_exporter_reads(container: Container) -> None:
    container.run("systemctl", "start", "fusetune-report.service")
    assert show(container, "ConditionResult", "fusetune-report.service") == "no"
    # As the exporter's package makes it.
    container.run("install", "-d", "--owner=daemon", METRICS)
    with container.mirror("/mnt/b"):
        container.run("systemctl", "start", "fusetune-report.service")
    assert "fusetune_" in container.path(f"{METRICS}/fusetune.prom").read_text()
