# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make install` puts in place, as systemd and udevd take it.

systemd-analyze(1) and udevadm(8) of the container check units and rules.
"""

import time
from pathlib import Path

import pytest

from tests.native.requirements import requires
from tests.system.container import Container
from tests.system.watched import serving, show, state

pytestmark = requires("systemd-nspawn", "mmdebstrap")

#: That of the mount /mnt/x.
LIVE = "fusetune-live@mnt-x"
SERVICES = (
    *("fusetune.service", "fusetune-verify.service", "fusetune-report.service"),
    f"{LIVE}.service",
)
CONTROL = "sys-fs-fusetuned-connections.mount"
TIMERS = ("fusetune-verify.timer", "fusetune-report.timer", f"{LIVE}.timer")
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
    assert enabled.stdout.split() == ["enabled", "disabled", "disabled"]


def test_own_directories(container: Container) -> None:
    for directory in ("/run/fusetune", "/var/lib/fusetune"):
        said = container.run("stat", "--format=%a %u %g", directory).stdout
        assert said == "755 0 0\n"


def test_command_line_writes_no_bytecode(container: Container) -> None:
    assert "fusetune" in container.run("fusetune", "--version").stdout
    assert container.run("find", "/usr/share/fusetune", "-name", "__pycache__").stdout == ""


def test_installation_sets_no_limit_of_the_host(container: Container) -> None:
    """Every file that sets a sysctl is removed from the tree before fusetune is installed."""
    for directory in ("/usr/lib/sysctl.d", "/etc/sysctl.d", "/usr/lib/modprobe.d"):
        said = container.run("find", directory, "-name", "*fuse*", check=False).stdout
        assert said == ""


def test_what_is_persisted_is_set_at_boot_and_forgotten_by_reset(container: Container) -> None:
    pipe = Path("/proc/sys/fs/pipe-max-size")
    found = pipe.read_text()
    mine = "# mine\nvm.swappiness = 60\n"
    file = container.path("/etc/sysctl.d/60-fusetune.conf")
    file.write_text(mine)
    container.run("fusetune", "set", "host", "--persist", "fs.pipe-max-size=4M")
    assert int(pipe.read_text()) == 4 << 20
    pipe.write_text(found)
    container.run("systemctl", "restart", "systemd-sysctl.service")
    assert int(pipe.read_text()) == 4 << 20
    container.run("fusetune", "reset", "host")
    assert pipe.read_text() == found
    assert file.read_text() == mine
    file.unlink()


def test_the_service_raises_limits_for_a_mount_and_says_so(stopped: Container) -> None:
    pipe = Path("/proc/sys/fs/pipe-max-size")
    found = pipe.read_text()
    section = stopped.path("/etc/fusetune/mounts.d/limits.toml")
    section.parent.mkdir(parents=True, exist_ok=True)
    section.write_text("[[mount]]\npath = '/mnt/limits'\npipe_max_size = '4M'\n")
    try:
        with stopped.mirror("/mnt/limits"):
            line = f"fs.pipe-max-size {found.strip()} -> {4 << 20}, for its next mount"
            stopped.wait(
                lambda: line in "\n".join(stopped.journal("fusetune.service")), "a word on it"
            )
            assert int(pipe.read_text()) == 4 << 20
            stopped.run("fusetune", "reset", "/mnt/limits")
        assert pipe.read_text() == found
    finally:
        section.unlink()


@pytest.mark.parametrize(
    ("command", "way"),
    [
        # No server: it tells what it finds. It is not linked with libfuse3, so it is intercepted.
        ("/bin/cat /proc/sys/fs/pipe-max-size /mnt/its", "70-fusetune-intercept.conf"),
        ("/usr/bin/mirrorfs --version /mnt/its", "50-fusetune-libfuse.conf"),
    ],
)
def test_an_enabled_service_has_its_limits_before_it_mounts(
    container: Container, command: str, way: str
) -> None:
    """The drop-in of `enable`: by the unit's own words and by the section that they match."""
    pipe = Path("/proc/sys/fs/pipe-max-size")
    found = pipe.read_text()
    section = container.path("/etc/fusetune/mounts.d/limits.toml")
    section.parent.mkdir(parents=True, exist_ok=True)
    section.write_text("[[mount]]\npath = '/mnt/its'\npipe_max_size = '4M'\n")
    unit = container.path("/etc/systemd/system/its.service")
    # A library of that name is all that it asks for.
    library = container.path("/usr/lib/x86_64-linux-gnu/fusetune/libfuse3.so.3")
    library.parent.mkdir(parents=True)
    library.symlink_to("../libfuse3.so.3")
    unit.write_text(f"[Service]\nType=oneshot\nExecStart={command}\n")
    try:
        container.run("fusetune", "enable", "its")
        assert container.path(f"/etc/systemd/system/its.service.d/{way}").exists()
        container.run("systemctl", "start", "its.service", check=False)
        assert int(pipe.read_text()) == 4 << 20
        assert "cat" not in command or str(4 << 20) in container.journal("its.service")
        container.run("fusetune", "disable", "its")
        container.run("fusetune", "reset", "host")
        assert pipe.read_text() == found
    finally:
        section.unlink()
        unit.unlink()
        library.unlink()
        library.parent.rmdir()


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
        # Nor does its view keep a mount that disappeared.
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
