# SPDX-License-Identifier: GPL-2.0-or-later
"""A directory tree laid out like /proc and /sys, with mounts in it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import hypothesis
import hypothesis.configuration
import pytest

from fusetune.host import Host
from fusetune.knobs import LIVE, SYSTEM
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.report import doctor

CHECKOUT = Path(__file__).resolve().parents[2]

# A shared host may delay any example; and hypothesis's cache does not belong in the checkout.
hypothesis.settings.register_profile("unit", deadline=None, database=None)
hypothesis.settings.load_profile("unit")
hypothesis.configuration.set_hypothesis_home_dir(str(CHECKOUT / "build" / "hypothesis"))  # type: ignore[no-untyped-call]

#: Used instead of /dev/fuse and /dev/fusetuned: devices that every host has.
DEVICES = {"fuse": "/dev/null", "fusetuned": "/dev/zero"}
BOOT_ID = "0f5c2a43-9d3b-4a0e-8a46-3f6f3f0a1b2c"
ROOT_LINE = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


def mangle(text: str | bytes, special: bytes = b" \t\n\\") -> bytes:
    """Escape as the kernel does (fs/seq_file.c, mangle_path; fs/proc_namespace.c)."""
    raw = os.fsencode(text) if isinstance(text, str) else text
    return b"".join(b"\\%03o" % byte if byte in special else bytes([byte]) for byte in raw)


@dataclass(frozen=True)
class TreeHost(Host):
    """A directory tree. ``owners``: of files that belong to others, which only root can create."""

    owners: dict[str, int] = field(default_factory=dict)

    def owner(self, relative: str) -> tuple[int, int]:
        """Return uid and gid, the same number."""
        super().owner(relative)
        return self.owners[relative], self.owners[relative]


class Tree:
    """The tree: knob files hold the kernel's defaults until a test writes others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/sys/kernel/random/boot_id", BOOT_ID + "\n")
        self.write("proc/self/mountinfo", ROOT_LINE.decode())
        for name, path in DEVICES.items():
            number = os.stat(path).st_rdev
            self.write(f"sys/class/misc/{name}/dev", f"{os.major(number)}:{os.minor(number)}\n")
        self.host = TreeHost(
            str(root), root / "var" / "lib", root / "run", root / "etc", root / "usr" / "lib"
        )

    def write(self, relative: str, text: str) -> Path:
        """Write a file and create its directories."""
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, relative: str) -> str:
        """Read a file as it is."""
        return (self.root / relative).read_text()

    def reboot(self) -> Host:
        """Return the host as after a reboot: the same files with another boot ID."""
        self.write("proc/sys/kernel/random/boot_id", BOOT_ID[::-1] + "\n")
        return replace(self.host)

    def line(self, text: bytes) -> None:
        """Add a line to mountinfo."""
        with (self.root / "proc/self/mountinfo").open("ab") as stream:
            stream.write(text + b"\n")

    def mount(
        self,
        path: str | bytes,
        device: str = "0:40",
        fstype: str | bytes = "fuse.mirrorfs",
        source: str | bytes = "source",
        options: str = "rw,user_id=0,group_id=0",
        root: str = "/",
        flags: str = "rw,relatime",
        number: int = 50,
        parent: int = 22,
    ) -> None:
        """Add a mount's line to mountinfo, without its kernel objects."""
        self.line(
            b" ".join(
                [
                    b"%d %d" % (number, parent),
                    device.encode(),
                    mangle(root),
                    mangle(path),
                    flags.encode(),
                    b"shared:7 - " + mangle(fstype, b" \t\n\\#"),
                    mangle(source, b" \t\n\\#"),
                    options.encode(),
                ]
            )
        )

    def live(
        self,
        bdi: str | None = "0:40",
        connection: str | None = "40",
        control: str = "sys/fs/fuse/connections",
        values: Mapping[str, int] | None = None,
        waiting: int = 0,
        owner: int = 0,
    ) -> None:
        """Add a mount's bdi and connection with its knobs at their defaults, or at ``values``."""
        wanted = {knob.name: knob.stock for knob in LIVE} | dict(values or {})
        for knob in LIVE:
            if wanted[knob.name] is None:
                continue  # only for the module fusetuned
            if "{bdi}" in knob.file and bdi:
                self.write(knob.file.format(bdi=bdi), f"{wanted[knob.name]}\n")
            elif "{connection}" in knob.file and connection:
                file = knob.file.format(control=control, connection=connection)
                self.write(file, f"{wanted[knob.name]}\n")
        if connection:
            self.host.owners[f"{control}/{connection}"] = owner
            self.write(f"{control}/{connection}/waiting", f"{waiting}\n")

    def system(self) -> None:
        """Add the host's knobs at their defaults."""
        for knob in SYSTEM:
            value = 127 if knob.stock is None else knob.stock
            self.write(knob.file, (knob.words or {}).get(value, str(value)) + "\n")

    def journals(self) -> list[Path]:
        """Return the existing undo journals."""
        return sorted((self.host.state_dir / "undo").glob("*.journal"))

    def only(self) -> Mount:
        """Return the only FUSE mount."""
        (found,) = discover(self.host)
        return found

    def values(self) -> dict[str, int]:
        """Read the live knobs of the usual mount directly from the files."""
        found = {}
        for knob in LIVE:
            if knob.init_line:
                continue
            file = knob.file.format(bdi="0:40", control="sys/fs/fuse/connections", connection="40")
            found[knob.name] = int(self.read(file))
        return found


def process(
    tree: Tree,
    pid: int,
    *words: str,
    fds: dict[int, str],
    cwd: str = "/",
    device: str | Path = DEVICES["fuse"],
    uids: str = "0 0 0 0",
) -> None:
    """Add a process to /proc; ``fds``: the connection that fdinfo names beside ``device``."""
    directory = Path(tree.write(f"proc/{pid}/cmdline", "\0".join(words) + "\0")).parent
    os.symlink(f"/usr/bin/{words[0]}", directory / "exe")
    os.symlink(cwd, directory / "cwd")
    tree.write(f"proc/{pid}/status", f"Name:\t{words[0]}\nUid:\t{uids}\nGid:\t0\t0\t0\t0\n")
    (directory / "fd").mkdir()
    for fd, connection in fds.items():
        os.symlink(device, directory / "fd" / str(fd))
        line = f"fuse_connection:\t{connection}\n" if connection else ""
        tree.write(f"proc/{pid}/fdinfo/{fd}", f"pos:\t0\nflags:\t0100002\n{line}")


#: The live knobs of a mount that nobody has touched.
STOCK = {knob.name: knob.stock for knob in LIVE if knob.stock is not None}


@pytest.fixture(autouse=True)
def no_wait_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing answers the requests that wait in a tree, however long a report waits."""
    monkeypatch.setattr(doctor, "_UNANSWERED_SECONDS", 0.0)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree without FUSE mounts."""
    return Tree(tmp_path)


@pytest.fixture
def mounted(tree: Tree) -> Mount:
    """One stock mount at /mnt/one, device 0:40."""
    tree.mount("/mnt/one")
    tree.live()
    return tree.only()


INIT = (
    "minor 41\nmax_write 1048576\nmax_read 4294967295\nmax_readahead 131072\n"
    "max_pages {}\nflags {}\n"
)


@pytest.fixture
def by_module(tree: Tree) -> Mount:
    """One mount of the module fusetuned at /mnt/tuned, device 0:41; INIT negotiated 256 pages."""
    control = "sys/fs/fusetuned/connections"
    tree.mount("/mnt/tuned", device="0:41", fstype="fusetuned.mirrorfs")
    tree.live("0:41", "41", control, {"max_pages": 256})
    tree.write(f"{control}/41/init", INIT.format(256, "async_read max_pages"))
    return tree.only()


@pytest.fixture
def knob_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter value replaces a longer one completely, as in the kernel's files."""
    write = Host.write

    def write_whole(
        host: Host, relative: str, text: str, once_open: Callable[[], None] = lambda: None
    ) -> None:
        write(host, relative, text, once_open)
        os.truncate(host.path(relative), len(text))

    monkeypatch.setattr(Host, "write", write_whole)
