# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian suites whose kernels fusetuned supports, each as a tree with its own compiler."""

from dataclasses import dataclass
from pathlib import Path

from tests.system import tree

_PACKAGES = (
    *("linux-image-amd64", "linux-headers-amd64", "initramfs-tools", "kmod"),
    *("dkms", "gcc", "make", "libc6-dev", "xz-utils"),
    *("fuse3", "libfuse3-dev", "pkg-config", "procps", "python3"),
)


@dataclass(frozen=True)
class Suite:
    """A Debian suite and the kernel series it ships."""

    name: str
    series: str

    def _sources(self) -> tuple[str, ...]:
        lines = [f"deb {tree.archive()} {self.name} main"]
        if self.name != "sid":  # what is uploaded there is its security update
            security = tree.archive("Debian-Security")
            lines.append(f"deb {security} {self.name}-security main")
        return tuple(lines)

    def tree(self) -> Path:
        """Return the folder of this suite, made first (some minutes) if it is not there."""
        options = (
            "--variant=minbase",
            f"--include={','.join((*_PACKAGES, f'linux-source-{self.series}'))}",
            "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
            '--aptopt=Acquire::Check-Valid-Until "false"',
        )
        return tree.made(self.name, "kernel", options, *self._sources())


SUITES = (Suite("bookworm", "6.1"), Suite("trixie", "6.12"), Suite("sid", "7.2"))
