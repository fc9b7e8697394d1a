# SPDX-License-Identifier: GPL-2.0-or-later
"""Our own mounts in a container, the values kept for them, and the values that they have."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusetune.desired.results import save
from fusetune.host import Host
from fusetune.knobs import LIVE
from fusetune.mounts.mount import FUSECTL, Mount
from tests.native.mirror import unescape
from tests.system import init_only_server
from tests.system.container import PATIENCE, Container

SERVICE = "fusetune.service"
#: The live knobs of a mount of the kernel's FUSE.
_KNOBS = [knob for knob in LIVE if knob.init_line is None]
#: Their values if the server requests none.
STOCK = {knob.name: knob.stock for knob in _KNOBS if knob.stock is not None}
FSTYPE, SOURCE = "fuse.init_only", "init_only"
ANSWERED: Mapping[str, Any] = {"delay": 0}
_PROGRAM = "/opt/tests/init_only_server.py"


class Answering:
    """A running `tests.system.init_only_server`, which mounts on request."""

    def __init__(self, container: Container) -> None:
        program = container.path(_PROGRAM)
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(Path(init_only_server.__file__).read_text())
        self._container = container
        pipe = subprocess.PIPE
        self._process = container.start("python3", _PROGRAM, stdin=pipe, stdout=pipe)

    def _order(self, do: str, **words: Any) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"do": do} | words) + "\n")
        self._process.stdin.flush()
        seconds: float = json.loads(self._process.stdout.readline())
        return seconds

    def mount(
        self,
        *points: str,
        fstype: str = FSTYPE,
        source: str = SOURCE,
        owner: int = 0,
        init: Mapping[str, Any] = ANSWERED,
    ) -> list[str]:
        """Create and mount each of ``points``; return their bdis, as `Server.mount` does."""
        make_directories(self._container, points)
        words = {"fstype": fstype, "source": source, "owner": owner, "init": dict(init)}
        self._order("mount", points=points, **words)
        mounted = devices(self._container)
        return [mounted[point][-1] for point in points]

    def unmount(self, *points: str) -> None:
        """Unmount each of ``points``."""
        self._order("unmount", points=points)

    def cycle(self, point: str, pauses: Sequence[float]) -> None:
        """Mount and unmount ``point`` repeatedly, mounted for each of ``pauses`` (seconds)."""
        make_directories(self._container, [point])
        self._order("cycle", point=point, pauses=pauses, fstype=FSTYPE, source=SOURCE)

    def stop(self) -> None:
        """Unmount everything."""
        self._process.communicate(timeout=PATIENCE)


@contextmanager
def serving(container: Container) -> Iterator[Answering]:
    """Run such a server for the duration of the context."""
    server = Answering(container)
    try:
        yield server
    finally:
        server.stop()


def make_directories(container: Container, points: Iterable[str]) -> None:
    """Create mount points without looking at existing ones, which may hang."""
    for point in points:
        directory = container.path(os.path.dirname(point))
        directory.mkdir(parents=True, exist_ok=True)
        if os.path.basename(point) not in os.listdir(directory):
            container.path(point).mkdir()


def devices(container: Container) -> dict[str, list[str]]:
    """Return the devices at each mount point, the topmost last."""
    found: dict[str, list[str]] = {}
    text = Path(f"/proc/{container.leader}/mountinfo").read_text()
    for line in text.split("\n")[:-1]:
        fields = line.split(" ")
        found.setdefault(unescape(fields[4]), []).append(fields[2])
    return found


def files(container: Container, bdi: str) -> dict[str, Path]:
    """Return the file of each live knob of the mount with this bdi."""
    names = {"bdi": bdi, "control": FUSECTL, "connection": bdi.partition(":")[2]}
    return {knob.name: container.path(f"/{knob.file.format(**names)}") for knob in _KNOBS}


def values(container: Container, bdi: str) -> dict[str, int]:
    """Read a mount's values, without any code under test."""
    return {name: int(file.read_text()) for name, file in files(container, bdi).items()}


def has(container: Container, bdi: str, wanted: Mapping[str, int]) -> bool:
    """Whether a mount has these values, and stock's for the others."""
    return values(container, bdi) == {**STOCK, **wanted}


def keep(
    container: Container,
    point: str,
    wanted: Mapping[str, int],
    *,
    fstype: str = FSTYPE,
    source: str = SOURCE,
) -> None:
    """Write values to /var/lib/fusetune/saved as `fusetune save` does."""
    host = Host(state_dir=container.path("/var/lib/fusetune"))
    save(host, Mount(point, fstype, source, "0:0"), wanted, "save")


def configure(container: Container, text: str, name: str = "fusetune.toml") -> None:
    """Write an administrator's file."""
    path = container.path(f"/etc/fusetune/{name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def show(container: Container, name: str, unit: str = SERVICE) -> str:
    """Return a property of a unit."""
    return container.run("systemctl", "show", f"--property={name}", "--value", unit).stdout.strip()


def state(container: Container, unit: str = SERVICE) -> str:
    """Return the unit's state in systemd."""
    return container.run("systemctl", "is-active", unit, check=False).stdout.strip()


def catch_up(container: Container, server: Answering) -> None:
    """Wait until the service has handled all earlier mounts and those have replied to INIT.

    A later mount gets its values at the next read of mountinfo at the earliest, and a second one in
    another pass.
    """
    for point in ("/mnt/marker/1", "/mnt/marker/2"):
        keep(container, point, {"max_background": 77})
        (bdi,) = server.mount(point)
        container.wait(lambda bdi=bdi: has(container, bdi, {"max_background": 77}), "marker")  # type: ignore[misc]
    server.unmount("/mnt/marker/1", "/mnt/marker/2")


def left(container: Container) -> list[str]:
    """Return the records of mounts."""
    directories = map(container.path, ("/run/fusetune", "/var/lib/fusetune/undo"))
    return [
        f"{directory.name}/{file.name}" for directory in directories for file in directory.glob("*")
    ]


def peak_memory(container: Container, pid: str) -> int:
    """Return the peak resident memory of a process, in bytes."""
    status = container.run("cat", f"/proc/{pid}/status").stdout
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
