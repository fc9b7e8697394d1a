# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian suites whose kernels fusetuned supports, each as a tree with its own compiler."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.native.mirror import CHECKOUT
from tests.system import tree

RIG = Path(__file__).with_name("rig.sh")
DKMS = CHECKOUT / "dkms"
#: Our modules, as import_kernel.py knows them.
MODULES = ("fusetuned", "f2fs")
#: Suites that are not complete: their packages are installed on top of another suite.
_ON_TOP_OF = {"trixie-backports": "trixie"}
_KERNEL = ("linux-image-amd64", "linux-headers-amd64")
_PACKAGES = (
    *("initramfs-tools", "kmod"),
    *("dkms", "gcc", "ccache", "make", "libc6-dev", "xz-utils"),
    *("fuse3", "libfuse3-dev", "pkg-config", "procps", "python3"),
)
#: More packages, for the machines, where fusetune also runs.
_PROGRAMS = (
    *("bindfs", "bpftool", "bpftrace", "fio", "f2fs-tools", "libseccomp-dev", "udev"),
    *("gocryptfs", "mergerfs", "ntfs-3g", "openssh-sftp-server", "rclone", "s3fs", "sshfs"),
    *("python3-click", "python3-jinja2", "python3-prometheus-client", "python3-pyudev"),
    *("python3-rich", "python3-systemd", "python3-tomlkit"),
)


def series_in(directory: Path) -> dict[str, str]:
    """Return the series in a directory's file ``series``, and the suite of each."""
    return dict(re.findall(r"^(\d\S*) (\S+)$", (directory / "series").read_text(), re.M))


def rules(module: str) -> dict[str, Any]:
    """Return the contents of a module's rules.toml."""
    return tomllib.loads((DKMS / module / "rules.toml").read_text())


@dataclass(frozen=True)
class Suite:
    """A Debian suite and the kernel series it ships."""

    name: str
    series: str
    packages: tuple[str, ...] = _PACKAGES

    @property
    def base(self) -> str:
        """Return the suite of everything but the kernel: its own name if it is complete."""
        return _ON_TOP_OF.get(self.name, self.name)

    @property
    def whole(self) -> bool:
        """Return whether hosts can be installed from it; packages are built for such suites."""
        return self.base == self.name

    def sources(self) -> tuple[str, ...]:
        """Return the sources of its packages, as lines for apt."""
        names = [self.name] if self.whole else [self.base, self.name]
        lines = [f"deb {tree.archive()} {name} main" for name in names]
        if self.base != "sid":  # uploads to sid are its security updates
            security = tree.archive("Debian-Security")
            lines.append(f"deb {security} {self.base}-security main")
        return tuple(lines)

    def tree(self) -> Path:
        """Return the directory of this suite; make it first (some minutes) if needed."""
        # apt installs a package from the added suite only if that suite is named.
        kernel = _KERNEL if self.whole else tuple(f"{name}/{self.name}" for name in _KERNEL)
        return self.made("kernel", *kernel, *self.packages, f"linux-source-{self.series}")

    def made(self, kind: str, *packages: str) -> Path:
        """Return a directory with some of the suite's packages; make it first if needed."""
        options = (
            "--variant=minbase",
            f"--include={','.join(packages)}",
            "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
            '--aptopt=Acquire::Check-Valid-Until "false"',
        )
        return tree.made(self.base, kind, options, *self.sources())

    def archive(self) -> Path:
        """Return the archive of the kernel's source, in the tree."""
        return self.tree() / "usr" / "src" / f"linux-source-{self.series}.tar.xz"

    def source(self) -> Path:
        """Return the kernel sources that import_kernel.py needs, kept beside the tree."""
        every = [rules(module) for module in MODULES]
        paths = {
            path for each in every for path in (f"{each['directory']}/*", *each["headers"].values())
        }
        wanted = ("*/Makefile", *sorted(f"*/{path}" for path in paths))
        made_by = hashlib.sha256("\n".join([*wanted, "recorded"]).encode()).hexdigest()[:12]
        directory = self.tree().with_name(f"{self.tree().name}.{made_by}.source")

        def unpack(new: Path) -> None:
            new.mkdir()
            how = ("--strip-components=1", "--wildcards", "--no-wildcards-match-slash")
            subprocess.run(["tar", "-C", new, "-xf", self.archive(), *how, *wanted], check=True)
            (new / "fusetune-source").write_text(f"{self.origin()}\n")

        return tree.once(directory, unpack)

    def origin(self) -> str:
        """Return where `source` comes from, as import_kernel.py records it."""
        return self.recorded(self.source_version())

    def recorded(self, version: str) -> str:
        """Return what import_kernel.py records for a version of the linux-source package."""
        upstream = re.sub(r"^(\d+\.\d+)(~rc\d+)?$", r"\1.0", version.partition("-")[0])
        return f"{upstream} linux-source-{self.series} {version}"

    def source_version(self) -> str:
        """Return the version of the suite's linux-source package."""
        return installed(self.tree(), f"linux-source-{self.series}")

    def kernel_version(self) -> str:
        """Return the version of the kernel's package.

        It is not always that of the source: Debian signs a kernel after its source is published.
        """
        return installed(self.tree(), f"linux-image-{self.kernel()}")

    def kernel(self) -> str:
        """Return the release of the suite's kernel, as printed by uname -r."""
        return next(path.name for path in (self.tree() / "usr" / "lib" / "modules").iterdir())

    def inside(
        self, out: Path, directories: dict[Path, str], script: str, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root in the tree, which is not changed, and return the result.

        ``out`` is /out there; each of ``directories`` is at its value, read-only.
        """
        return inside(self.tree(), out, directories, script, timeout)


def installed(directory: Path, package: str) -> str:
    """Return the version of a package that is installed in a tree."""
    command = ["dpkg-query", f"--admindir={directory}/var/lib/dpkg", "-Wf", "${Version}", package]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inside(
    directory: Path, out: Path, directories: Mapping[Path, str], script: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a shell script in any tree, as `Suite.inside` does; ``timeout`` is in seconds."""
    return subprocess.run(
        command_inside(directory, out, directories, "sh", "-ec", script),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def command_inside(
    directory: Path, out: Path, directories: Mapping[Path, str], *command: str
) -> list[str | Path]:
    """Return the words that run a command in any tree, as `Suite.inside` does."""
    binds = [f"{path}={there}" for path, there in directories.items()]
    # It ends with the tests, also if these are killed.
    return ["setpriv", "--pdeathsig=KILL", RIG, "inside", directory, out, *binds, "--", *command]


#: Every virtual machine runs this suite's programs: the same libfuse, whatever the kernel.
_USERLAND = "trixie"
SUITES = tuple(
    Suite(name, series, (*_PACKAGES, *_PROGRAMS) if name == _USERLAND else _PACKAGES)
    for series, name in series_in(DKMS).items()
)
USERLAND = next(suite for suite in SUITES if suite.name == _USERLAND)
#: Those that packages are built for.
WHOLE = tuple(suite for suite in SUITES if suite.whole)


def copy_of_dkms(directory: Path) -> Path:
    """Return a copy of dkms/ in a new directory, beside the file with the version."""
    version = Path("fusetune", "__init__.py")
    (directory / version).parent.mkdir(parents=True)
    shutil.copy(CHECKOUT / version, directory / version)
    return shutil.copytree(DKMS, directory / "dkms")


def with_cached_spatch() -> dict[str, str]:
    """Return an environment in which spatch's results are cached."""
    path = f"{Path(__file__).with_name('cached')}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SPATCH_CACHE": str(tree.cache("ccache") / "spatch")}


def import_module(
    name: str, output: Path, *sources: Path, dkms: Path = DKMS
) -> subprocess.CompletedProcess[str]:
    """Run import_kernel.py of a dkms/ for one of our modules and return the result."""
    return subprocess.run(
        [sys.executable, dkms / "import_kernel.py", name, output, *sources],
        env=with_cached_spatch(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
