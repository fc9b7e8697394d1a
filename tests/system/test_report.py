# SPDX-License-Identifier: GPL-2.0-or-later
"""`report` on a host with a thousand mounts whose servers do not reply.

It only reads procfs, sysfs and fusectl, which the kernel itself serves.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.native.requirements import requires
from tests.system.container import PATIENCE, Container
from tests.system.watched import serving

pytestmark = requires("systemd-nspawn", "mmdebstrap")

COUNT = 1000
#: How long a report of so many mounts may take, in starts of the command, because hosts differ in
#: speed. It takes 12 to 19; waiting 10 ms for each server would take hundreds.
STARTS = 40
#: How much longer it may take if the server never replies than if it replies.
RATIO = 1.5
FORMATS = ("text", "json", "prometheus", "html", "markdown")


def _fastest(container: Container, words: list[str], *wanted: str) -> float:
    """Return the shortest of three times in seconds, because the host may be busy.

    ``wanted``: what each output must contain.
    """
    took = []
    for _ in range(3):
        began = time.monotonic()
        said = container.run("fusetune", *words).stdout
        took.append(time.monotonic() - began)
        assert all(word in said for word in wanted)
    return min(took)


@pytest.fixture(scope="module")
def crowded(container: Container) -> Iterator[Container]:
    with serving(container) as server:
        server.mount(*(f"/mnt/dead/{number}" for number in range(COUNT)), init={"delay": None})
        yield container


@pytest.mark.parametrize("form", FORMATS)
def test_many_mounts_that_never_answer(
    crowded: Container, form: str, figure: Callable[[str], None]
) -> None:
    """While the service waits for the same mounts' INIT, or has given them up."""
    start = _fastest(crowded, ["--version"])
    wanted = (f"/mnt/dead/{number}" for number in range(COUNT))
    took = _fastest(crowded, ["report", "--format", form], *wanted)
    figure(f"{COUNT} mounts in {took:.2f} s, a start in {start:.2f} s")
    assert took <= STARTS * start


@pytest.mark.parametrize("form", FORMATS)
def test_a_stopped_server(container: Container, form: str, figure: Callable[[str], None]) -> None:
    report = ["report", "--format", form]
    container.run("install", "-d", "/mnt/stopped")
    server = container.start("mirrorfs", "-f", "/srv", "/mnt/stopped")
    try:
        container.wait(lambda: bool(container.mounted_at("/mnt/stopped")), "the mount")
        usual = _fastest(container, report, "/mnt/stopped")
        server.send_signal(signal.SIGSTOP)
        took = _fastest(container, report, "/mnt/stopped")
    finally:
        server.send_signal(signal.SIGCONT)
        os.kill(server.pid, signal.SIGCONT)  # nsenter is stopped with its program
        server.terminate()
        server.wait(PATIENCE)
        container.run("umount", "--lazy", "/mnt/stopped", check=False)
    figure(f"{took:.2f} s, {usual:.2f} s before it was stopped")
    assert took <= RATIO * usual
