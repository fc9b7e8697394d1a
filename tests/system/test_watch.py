# SPDX-License-Identifier: GPL-2.0-or-later
"""Mounts get their values from a service that only udev starts.

The rule reacts to a bdi's event (udev/60-fusetune.rules), and the service ends when idle.
"""

import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.native.requirements import requires
from tests.system.container import PATIENCE, Container
from tests.system.watched import (
    SERVICE,
    Answering,
    catch_up,
    configure,
    devices,
    has,
    keep,
    left,
    show,
    state,
)

pytestmark = requires("systemd-nspawn", "mmdebstrap")

#: Seconds after a mount appears within which its values must be set.
LIMIT = 1.0
_CLOCK = Path(__file__).with_name("clock.c")
KEPT = {"read_ahead_kb": 4096, "max_background": 48, "max_ratio": 5}
SERVERS: Mapping[str, tuple[str, ...]] = {
    "sshfs": ("sshfs", "-f", "-o", "ssh_command=/opt/tests/ssh", "localhost:/srv"),
    "bindfs": ("bindfs", "-f", "/srv"),
    "mirrorfs": ("mirrorfs", "-f", "/srv"),
}


# Mounts of usual servers


def _mounted(container: Container, server: str, point: str) -> float:
    """Mount and unmount; return the seconds from the mount's appearance until it has `KEPT`."""
    process = container.start(*SERVERS[server], point)
    try:
        container.wait(lambda: point in devices(container), "the mount")
        began = time.monotonic()
        bdi = devices(container)[point][-1]
        connection = container.path(f"/sys/fs/fuse/connections/{bdi.partition(':')[2]}")
        container.wait(connection.exists, "the connection")
        container.wait(lambda: has(container, bdi, KEPT), f"the values of {server}")
        took = time.monotonic() - began
        # Nor does the server's reply overwrite them.
        waiting = connection / "waiting"
        container.wait(lambda: int(waiting.read_text()) == 0, "INIT's answer")
        assert has(container, bdi, KEPT)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if point in devices(container):
            container.run("umount", "--lazy", point)
    return took


def _save_by_command(container: Container, server: str, point: str) -> None:
    process = container.start(*SERVERS[server], point)
    container.wait(lambda: point in devices(container), "the mount")
    container.run("ls", point)  # INIT is answered then
    container.run("fusetune", "set", point, *(f"{name}={value}" for name, value in KEPT.items()))
    container.run("fusetune", "save", point)
    process.terminate()
    process.wait(PATIENCE)


@pytest.mark.parametrize("server", SERVERS)
def test_values_are_in_place_within_a_second(
    quiet: Container, server: str, figure: Callable[[str], None]
) -> None:
    point = f"/mnt/{server}"
    quiet.run("install", "-D", "/dev/stdin", "/opt/tests/ssh", input=_SSH)
    quiet.run("install", "-d", point)
    _save_by_command(quiet, server, point)
    took = []
    for number in range(50):
        if number % 10 == 0:
            quiet.run("systemctl", "stop", SERVICE)
            quiet.run("systemctl", "reset-failed")  # this many starts are not a failure
        took.append(_mounted(quiet, server, point))
    in_time = sum(seconds <= LIMIT for seconds in took)
    figure(
        f"{in_time} of {len(took)} within {LIMIT:g} s; slowest {max(took):.3f} s, "
        f"median {sorted(took)[len(took) // 2]:.3f} s"
    )
    assert in_time == len(took)


#: Instead of ssh: the protocol is the same, without a daemon or key.
_SSH = "#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n"


# Odd servers


def test_a_mount_that_never_answers_delays_no_other(quiet: Container, server: Answering) -> None:
    keep(quiet, "/mnt/never", {"max_background": 40})
    server.mount("/mnt/never", init={"delay": None})
    points = [f"/mnt/others/{number}" for number in range(20)]
    for point in points:
        keep(quiet, point, KEPT)
        began = time.monotonic()
        (bdi,) = server.mount(point)
        quiet.wait(partial(has, quiet, bdi, KEPT), "the values of another")
        assert time.monotonic() - began < LIMIT
    # Nor is it forgotten itself.
    (never,) = devices(quiet)["/mnt/never"]
    quiet.wait(lambda: has(quiet, never, {"max_background": 40}), "values without INIT's answer")


def test_a_late_answer_does_not_change_what_is_kept(quiet: Container, server: Answering) -> None:
    """The kernel takes max_background and a smaller readahead from it, so both are set again."""
    own = {"max_background": 20, "congestion_threshold": 15, "max_readahead": 65536}
    delays = (0.1, 0.7, 1.5)
    for delay in delays:
        keep(quiet, f"/mnt/late/{delay}", KEPT)
        server.mount(f"/mnt/late/{delay}", init={"delay": delay} | own)
    server.mount("/mnt/late/stock", init={"delay": 0.7} | own)
    for delay in delays:
        (bdi,) = devices(quiet)[f"/mnt/late/{delay}"]
        waiting = quiet.path(f"/sys/fs/fuse/connections/{bdi.partition(':')[2]}/waiting")
        quiet.wait(lambda waiting=waiting: int(waiting.read_text()) == 0, "INIT's answer")  # type: ignore[misc]
        wanted = KEPT | {"congestion_threshold": 15}
        quiet.wait(partial(has, quiet, bdi, wanted), "values after INIT's answer")
    (stock,) = devices(quiet)["/mnt/late/stock"]
    catch_up(quiet, server)
    assert has(
        quiet, stock, {"max_background": 20, "congestion_threshold": 15, "read_ahead_kb": 64}
    )
    said = "\n".join(quiet.journal(SERVICE))
    assert "left alone" not in said


# Identity


def test_a_reused_number_does_not_get_the_former_ones_values(
    quiet: Container, server: Answering
) -> None:
    keep(quiet, "/mnt/former", KEPT)
    keep(quiet, "/mnt/next", {"max_background": 30})
    reused = 0
    for _ in range(40):
        (former,) = server.mount("/mnt/former")
        quiet.wait(partial(has, quiet, former, KEPT), "values")
        server.unmount("/mnt/former")
        (after,) = server.mount("/mnt/next")
        (stock,) = server.mount("/mnt/nothing")
        reused += former in (after, stock)
        quiet.wait(partial(has, quiet, after, {"max_background": 30}), "its own values")
        assert has(quiet, stock, {})
        server.unmount("/mnt/next", "/mnt/nothing")
    assert reused > 0
    (stock,) = server.mount("/mnt/nothing")
    catch_up(quiet, server)
    assert has(quiet, stock, {})
    assert _state_shown(quiet, "/mnt/nothing") == "stock"


def _state_shown(container: Container, point: str) -> str:
    shown = container.run("fusetune", "show", point, "--json").stdout
    return "stock" if '"set_by": "fusetune"' not in shown else "tuned"


def test_two_file_systems_on_one_mount_point(quiet: Container, server: Answering) -> None:
    keep(quiet, "/mnt/stack", {"max_background": 30}, source="lower")
    keep(quiet, "/mnt/stack", {"read_ahead_kb": 512}, source="upper")
    (lower,) = server.mount("/mnt/stack", source="lower")
    (upper,) = server.mount("/mnt/stack", source="upper")
    assert lower != upper
    quiet.wait(lambda: has(quiet, lower, {"max_background": 30}), "the lower one's values")
    quiet.wait(lambda: has(quiet, upper, {"read_ahead_kb": 512}), "the upper one's values")
    quiet.run("umount", "--lazy", "/mnt/stack")
    assert devices(quiet)["/mnt/stack"] == [lower]
    catch_up(quiet, server)
    assert has(quiet, lower, {"max_background": 30})


def test_a_renamed_mount_point_keeps_what_it_got(quiet: Container, server: Answering) -> None:
    keep(quiet, "/mnt/old/point", {"max_background": 30})
    keep(quiet, "/mnt/new/point", {"max_background": 40})
    (bdi,) = server.mount("/mnt/old/point")
    quiet.wait(lambda: has(quiet, bdi, {"max_background": 30}), "values")
    quiet.run("mv", "/mnt/old", "/mnt/new")
    catch_up(quiet, server)
    assert has(quiet, bdi, {"max_background": 30})
    # Told by hand, the service sees the mount's current mount point.
    quiet.run("systemctl", "reload", SERVICE)
    quiet.wait(lambda: has(quiet, bdi, {"max_background": 40}), "the new place's values")
    quiet.run("umount", "--lazy", "/mnt/new/point")
    quiet.run("rm", "-r", "/mnt/new")


def test_unmounted_before_it_is_set(quiet: Container, server: Answering) -> None:
    keep(quiet, "/mnt/quick", KEPT)
    draw = random.Random(3)
    server.cycle("/mnt/quick", [draw.uniform(0, 0.04) for _ in range(200)])
    catch_up(quiet, server)
    assert state(quiet) == "active"
    assert show(quiet, "NRestarts") == "0"
    set_here = [line for line in quiet.journal(SERVICE) if "/mnt/quick" in line]
    assert 0 < len(set_here) < 200  # some were unmounted, some not
    assert [line for line in set_here if not re.search(r" (48|4096) \(/var/lib", line)] == []


# Start and end


def test_it_ends_when_idle_and_no_mount_is_missed(
    quiet: Container, server: Answering, figure: Callable[[str], None]
) -> None:
    configure(quiet, "[watch]\nidle_seconds = 1\n")
    keep(quiet, "/mnt/idle", {"max_background": 30})
    draw = random.Random(7)
    running = 0
    for number in range(40):
        quiet.run("systemctl", "reset-failed")  # this many starts are not a failure
        (bdi,) = server.mount("/mnt/idle")
        began = time.monotonic()
        quiet.wait(partial(has, quiet, bdi, {"max_background": 30}), f"values of mount {number}")
        assert time.monotonic() - began < 2 * LIMIT  # a start that waits for the previous end
        server.unmount("/mnt/idle")
        time.sleep(draw.uniform(0.9, 1.1))
        running += state(quiet) == "active"
    figure(f"running still in {running} of 40")
    assert 0 < running < 40
    quiet.wait(lambda: state(quiet) == "inactive", "its end")
    assert (show(quiet, "Result"), show(quiet, "NRestarts")) == ("success", "0")


def test_garbage_in_the_configuration_changes_nothing(quiet: Container, server: Answering) -> None:
    section = '[[mount]]\nfstype = "fuse.init_only"\nmax_background = 30\n'
    configure(quiet, section, "mounts.d/all.toml")
    (first,) = server.mount("/mnt/garbage/1")
    quiet.wait(lambda: has(quiet, first, {"max_background": 30}), "values")
    pid = show(quiet, "MainPID")
    configure(quiet, section + "max_ratio = 900\n", "mounts.d/all.toml")
    quiet.run("systemctl", "reload", SERVICE)
    (second,) = server.mount("/mnt/garbage/2")
    quiet.wait(lambda: has(quiet, second, {"max_background": 30}), "what was before")
    said = [line for line in quiet.journal(SERVICE) if "mounts.d/all.toml:4" in line]
    assert said, quiet.journal(SERVICE)
    configure(quiet, "\0garbage \N{SNOWMAN}[", "mounts.d/all.toml")
    (third,) = server.mount("/mnt/garbage/3")  # without a reload
    quiet.wait(lambda: has(quiet, third, {"max_background": 30}), "what was before")
    assert any("mounts.d/all.toml:1" in line for line in quiet.journal(SERVICE))
    assert (state(quiet), show(quiet, "MainPID")) == ("active", pid)
    configure(quiet, section.replace("30", "50"), "mounts.d/all.toml")
    quiet.run("systemctl", "reload", SERVICE)
    quiet.wait(lambda: has(quiet, first, {"max_background": 50}), "what is right again")


@pytest.fixture
def clock(quiet: Container) -> Iterator[Path]:
    """A file with the seconds to add to the service's wall clock."""
    directory = quiet.path("/opt/tests")
    directory.mkdir(parents=True, exist_ok=True)
    offset = directory / "offset"
    offset.write_text("0")
    build = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o")
    subprocess.run([*build, directory / "clock.so", _CLOCK], check=True, timeout=60)
    drop_in = quiet.path("/run/systemd/system/fusetune.service.d/clock.conf")
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text(
        "[Service]\nEnvironment=LD_PRELOAD=/opt/tests/clock.so CLOCK_OFFSET=/opt/tests/offset\n"
    )
    quiet.run("systemctl", "daemon-reload")
    quiet.run("systemctl", "stop", SERVICE)  # any mount on the host may have started it meanwhile
    yield offset
    shutil.rmtree(drop_in.parent)
    quiet.run("systemctl", "daemon-reload")


def test_the_clock_set_back_delays_nothing(
    quiet: Container, clock: Path, server: Answering
) -> None:
    before = time.time()
    for number, days in enumerate((0, -1000, 0, -1)):
        new = clock.with_name("offset.new")
        new.write_text(str(days * 86400))
        new.replace(clock)  # the program reads it at any time
        for delay in (0, 0.7):
            point = f"/mnt/clock/{number}/{delay}"
            keep(quiet, point, KEPT)
            began = time.monotonic()
            (bdi,) = server.mount(point, init={"delay": delay, "max_background": 20})
            quiet.wait(partial(has, quiet, bdi, KEPT), "values")
            assert time.monotonic() - began < LIMIT + delay
            times = _times_written(quiet, point)
            assert times
            assert all(abs(at - before - days * 86400) < 600 for at in times)


def _times_written(container: Container, point: str) -> list[float]:
    """Return the times in the undo journal of the mount at ``point``."""
    (bdi,) = devices(container)[point]
    journal = container.path(f"/var/lib/fusetune/undo/{bdi}.journal").read_text()
    return [float(at) for at in re.findall(r'"time": ([0-9.]+)', journal)]


def test_nothing_is_left(quiet: Container, server: Answering) -> None:
    keep(quiet, "/mnt/left", KEPT)
    (bdi,) = server.mount("/mnt/left")
    quiet.wait(lambda: has(quiet, bdi, KEPT), "values")
    # Its lock is removed last.
    quiet.wait(lambda: left(quiet) == [f"undo/{bdi}.journal"], "its journal, and no more")
    server.unmount("/mnt/left")
    quiet.wait(lambda: left(quiet) == [], "the end of its journal")
    assert not Path(f"/sys/class/bdi/{bdi}").exists()
