# SPDX-License-Identifier: GPL-2.0-or-later
"""Values survive boots, failures and new versions, as policy allows; verify sees differences.

A boot is a restart of the container with the same /etc and /var.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.native.requirements import requires
from tests.system.container import Container
from tests.system.watched import (
    SERVICE,
    Answering,
    catch_up,
    configure,
    devices,
    files,
    has,
    keep,
    show,
    state,
    values,
)

pytestmark = requires("systemd-nspawn", "mmdebstrap")

KEPT = {"read_ahead_kb": 2048, "max_background": 40, "max_ratio": 5}
METRICS = "/var/lib/prometheus/node-exporter"


def _verify(container: Container) -> tuple[int, dict[str, Any]]:
    """Return the exit status of `fusetune verify`, and its object."""
    done = container.run("fusetune", "verify", "--json", check=False)
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def _write(container: Container, bdi: str, **wanted: int) -> None:
    """Write values by hand."""
    for name, value in wanted.items():
        container.run("tee", _inside(container, bdi, name), input=f"{value}\n")


def _inside(container: Container, bdi: str, name: str) -> str:
    root = container.path("/")
    return f"/{files(container, bdi)[name].relative_to(root)}"


# Reboot

_UNIT = """\
[Unit]
Description=A file system mounted at boot
[Service]
ExecStart=mirrorfs -f /srv /mnt/unit
[Install]
WantedBy=multi-user.target
"""


def test_values_return_at_boot() -> None:
    """By a unit and by fstab, after a reboot and after a power failure, without a command."""
    with Container() as container:
        container.run("install", "-d", "/mnt/unit", "/mnt/fstab")
        container.path("/etc/systemd/system/mounted.service").write_text(_UNIT)
        container.path("/etc/fstab").write_text("mirrorfs#/srv /mnt/fstab fuse defaults 0 0\n")
        container.run("systemctl", "daemon-reload")
        container.run("systemctl", "enable", "--now", "mounted.service")
        container.run("mount", "/mnt/fstab")
        points = ("/mnt/unit", "/mnt/fstab")
        for point in points:
            container.wait(lambda point=point: point in devices(container), "mount")  # type: ignore[misc]
            container.run("ls", point)  # INIT is answered then
            container.run("fusetune", "set", point, *(f"{n}={v}" for n, v in KEPT.items()))
            container.run("fusetune", "save", point)
        for crash in (False, True):
            container.restart(crash=crash)
            for point in points:
                container.wait(lambda point=point: point in devices(container), "mount")  # type: ignore[misc]
                (bdi,) = devices(container)[point]
                container.wait(partial(has, container, bdi, KEPT), f"values of {point}")
            assert _verify(container)[0] == 0
        assert show(container, "NRestarts") == "0"


# A change by hand


def test_verify_tells_who_changed_what(quiet: Container, server: Answering) -> None:
    keep(quiet, "/mnt/hand", KEPT)
    (bdi,) = server.mount("/mnt/hand")
    quiet.wait(lambda: has(quiet, bdi, KEPT), "values")
    status, document = _verify(quiet)
    assert (status, document["differences"]) == (0, 0)
    _write(quiet, bdi, max_background=99)
    status, document = _verify(quiet)
    assert (status, document["differences"]) == (3, 1)
    (mount,) = [one for one in document["mounts"] if one["path"] == "/mnt/hand"]
    (knob,) = [one for one in mount["knobs"] if one["differs"]]
    assert (knob["name"], knob["expected"], knob["actual"]) == ("max_background", 40, 99)
    assert knob["set_by"] == "other"
    assert (knob["last_write"]["value"], knob["last_write"]["why"]) == (40, "apply")
    catch_up(quiet, server)  # it is the administrator's, so the service leaves it alone
    assert values(quiet, bdi)["max_background"] == 99
    quiet.run("systemctl", "reload", SERVICE)
    quiet.wait(
        lambda: "max_background=99 was set by another program or user"
        in "\n".join(quiet.journal(SERVICE)),
        "a word on it",
    )
    assert has(quiet, bdi, KEPT | {"max_background": 99})
    quiet.run("fusetune", "apply", "/mnt/hand")
    assert has(quiet, bdi, KEPT)
    assert _verify(quiet)[0] == 0


def test_the_verify_unit_fails_on_a_difference(quiet: Container, server: Answering) -> None:
    unit = "fusetune-verify.service"
    keep(quiet, "/mnt/unit", KEPT)
    (bdi,) = server.mount("/mnt/unit")
    quiet.wait(lambda: has(quiet, bdi, KEPT), "values")
    quiet.run("systemctl", "start", unit)
    assert show(quiet, "ExecMainStatus", unit) == "0"
    _write(quiet, bdi, max_ratio=50)
    assert quiet.run("systemctl", "start", unit, check=False).returncode != 0
    assert (state(quiet, unit), show(quiet, "ExecMainStatus", unit)) == ("failed", "3")
    said = "\n".join(quiet.journal(unit))
    assert "/mnt/unit" in said
    assert "max_ratio" in said
    quiet.run("systemctl", "reset-failed", unit)


def test_the_report_unit_writes_what_prometheus_takes(quiet: Container, server: Answering) -> None:
    quiet.run("install", "-d", METRICS)
    keep(quiet, "/mnt/report", KEPT)
    (bdi,) = server.mount("/mnt/report")
    quiet.wait(lambda: has(quiet, bdi, KEPT), "values")
    quiet.run("systemctl", "start", "fusetune-report.service")
    assert os.listdir(quiet.path(METRICS)) == ["fusetune.prom"]
    text = quiet.path(f"{METRICS}/fusetune.prom").read_text()
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    samples = [s for family in families for s in family.samples]
    assert "/mnt/report" in {s.labels.get("mount") for s in samples}
    assert all(s.name.startswith("fusetune_") for s in samples)
    assert any(s.value == KEPT["read_ahead_kb"] for s in samples)


# Users and policy


def test_a_users_mount_gets_no_more_dirty_memory_unless_allowed(quiet: Container) -> None:
    keep(quiet, "/mnt/user", KEPT, fstype="fuse.mirrorfs", source="/srv")
    kept = {name: value for name, value in KEPT.items() if name != "max_ratio"}
    with quiet.mirror("/mnt/user", uid=65534) as bdi:
        quiet.wait(lambda: has(quiet, bdi, kept), "what a user may have")
        quiet.wait(lambda: "allow_users" in "\n".join(quiet.journal(SERVICE)), "the reason")
        assert has(quiet, bdi, kept)
        configure(quiet, '[policy]\nallow_users = ["nobody"]\n')
        quiet.run("systemctl", "reload", SERVICE)
        quiet.wait(lambda: has(quiet, bdi, KEPT), "what this user may have")
    with quiet.mirror("/mnt/user", uid=65534) as bdi:
        quiet.wait(lambda: has(quiet, bdi, KEPT), "what this user may have")


def test_excluded_mounts_are_left_alone(quiet: Container, server: Answering) -> None:
    configure(quiet, '[policy]\nexclude = ["fuse.own*"]\n')
    configure(
        quiet, '[[mount]]\npath = "/mnt/excluded/*"\nmax_background = 50\n', "mounts.d/a.toml"
    )
    configure(
        quiet, '[[mount]]\npath = "/mnt/excluded/alone"\nleave_alone = true\n', "mounts.d/b.toml"
    )
    lxcfs, own, alone, other = (
        *server.mount("/mnt/excluded/lxcfs", fstype="fuse.lxcfs"),
        *server.mount("/mnt/excluded/own", fstype="fuse.ownserver"),
        *server.mount("/mnt/excluded/alone"),
        *server.mount("/mnt/excluded/other"),
    )
    quiet.wait(lambda: has(quiet, other, {"max_background": 50}), "what is not excluded")
    catch_up(quiet, server)
    assert [values(quiet, bdi)["max_background"] for bdi in (lxcfs, own, alone)] == [12] * 3


def test_the_sandbox_makes_no_mount_read_only(quiet: Container, server: Answering) -> None:
    """systemd makes each one so for the service that it starts after it (ProtectSystem=strict)."""
    (bdi,) = server.mount("/mnt/before")
    catch_up(quiet, server)
    quiet.run("systemctl", "stop", SERVICE)
    configure(quiet, '[[mount]]\nmount_option = "ro"\nmax_background = 50\n', "mounts.d/a.toml")
    catch_up(quiet, server)
    assert has(quiet, bdi, {})


# What cannot be written or read


@contextmanager
def _read_only(container: Container, directory: str) -> Iterator[None]:
    """Make ``directory`` read-only for everything that starts from now on."""
    container.run("mount", "--bind", directory, directory)
    container.run("mount", "-o", "remount,bind,ro", directory)
    try:
        yield
    finally:
        container.run("umount", directory)


@pytest.mark.parametrize("directory", ["/var", "/var/lib/fusetune"])
def test_nothing_is_changed_that_could_not_be_undone(
    quiet: Container, server: Answering, directory: str
) -> None:
    keep(quiet, "/mnt/readonly", KEPT)
    before = len(quiet.journal(SERVICE))
    with _read_only(quiet, directory):
        (bdi,) = server.mount("/mnt/readonly")
        quiet.wait(lambda: "Read-only" in "\n".join(quiet.journal(SERVICE)[before:]), "a word")
        assert has(quiet, bdi, {})
        status, document = _verify(quiet)
        assert (status, document["differences"]) == (3, len(KEPT))
        said = quiet.journal(SERVICE)[before:]
        assert sum("Read-only" in line for line in said) == 1, said
        assert show(quiet, "NRestarts") == "0"
        server.unmount("/mnt/readonly")
        quiet.run("systemctl", "stop", SERVICE)
    quiet.run("systemctl", "reset-failed")
    (bdi,) = server.mount("/mnt/readonly")
    quiet.wait(lambda: has(quiet, bdi, KEPT), "values")


def _saved_file(container: Container, point: str) -> Path:
    keep(container, point, KEPT)
    (path,) = container.path("/var/lib/fusetune/saved").glob("*.json")
    return path


def test_what_version_1_saved_is_obeyed(quiet: Container, server: Answering) -> None:
    path = _saved_file(quiet, "/mnt/old")
    fields = json.loads(path.read_text())
    old = {key: fields[key] for key in ("path", "fstype", "source", "values", "time")}
    path.write_text(json.dumps(old | {"gain": 1.5}))
    (bdi,) = server.mount("/mnt/old")
    quiet.wait(lambda: has(quiet, bdi, KEPT), "values")
    assert _verify(quiet)[0] == 0


def test_what_a_later_version_saved_is_told_and_not_lost(
    quiet: Container, server: Answering
) -> None:
    path = _saved_file(quiet, "/mnt/later")
    text = json.dumps(json.loads(path.read_text()) | {"schema": 99, "more": 1})
    path.write_text(text)
    (bdi,) = server.mount("/mnt/later")
    quiet.wait(lambda: "schema 99" in "\n".join(quiet.journal(SERVICE)), "a word on it")
    catch_up(quiet, server)
    assert has(quiet, bdi, {})
    assert state(quiet) == "active"
    status, document = _verify(quiet)
    assert status != 0
    assert "schema 99" in json.dumps(document)
    assert "schema 99" in quiet.run("fusetune", "doctor").stdout
    assert path.read_text() == text
    quiet.run("fusetune", "set", "/mnt/later", "max_ratio=7")
    quiet.run("fusetune", "save", "/mnt/later")
    (aside,) = path.parent.glob("*.set-aside-*")
    assert aside.read_text() == text


def test_a_wrong_configuration_at_the_start(quiet: Container, server: Answering) -> None:
    """There is no earlier configuration: it ends, says why, and the next mount tries again."""
    keep(quiet, "/mnt/wrong", KEPT)
    configure(quiet, "[policy]\nmax_dirty_precent = 5\n")
    (bdi,) = server.mount("/mnt/wrong")
    quiet.wait(lambda: state(quiet) == "failed", "its end")
    said = "\n".join(quiet.journal(SERVICE))
    assert "fusetune.toml:2" in said
    assert "max_dirty_percent" in said
    assert show(quiet, "NRestarts") == "0"
    assert has(quiet, bdi, {})
    configure(quiet, "[policy]\nmax_dirty_percent = 5\n")
    (other,) = server.mount("/mnt/other")
    quiet.wait(lambda: has(quiet, bdi, KEPT), "values")
    assert has(quiet, other, {})
