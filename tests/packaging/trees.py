# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian trees: for each suite, one to build packages in and one to install them in."""

import re
import subprocess
from pathlib import Path

from tests.kernel import suites
from tests.kernel.suites import Suite
from tests.native.mirror import CHECKOUT
from tests.system import tree

_OPTIONS = (
    "--variant=minbase",
    "--include=ccache",
    "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
    '--aptopt=Acquire::Check-Valid-Until "false"',
)
_SATISFY = 'chroot "$1" apt-get -qy --no-install-recommends satisfy'
#: Packages that tests install, because they have no network to download them.
_AT_HAND = ("linux-headers-amd64",)
_RPM_TOOLS = ("rpm", "debugedit", "dnf", "createrepo-c", "rpmlint", "gpg", "gpg-agent", "systemd")


def field(name: str) -> list[str]:
    """Return the packages named by all fields of this name in debian/control, without ours."""
    text = (CHECKOUT / "debian" / "control").read_text()
    fields = re.findall(rf"^{name}:((?:.*\n)(?: .*\n)*)", text, re.M)
    named = [re.sub(r"<.*>", "", each).strip() for each in ",".join(fields).split(",")]
    ours = re.findall(r"^Package: (.*)$", text, re.M)
    return sorted({each for each in named if each and each not in ours and "$" not in each})


def build_tree(suite: Suite) -> Path:
    """Return the directory to build and inspect packages in; make it first if needed."""
    wanted = ", ".join(["build-essential", "lintian", *field("Build-Depends")])
    options = (*_OPTIONS, f'--customize-hook={_SATISFY} "{wanted}"')
    return tree.made(suite.name, "build", options, *suite.sources())


def user_tree(suite: Suite) -> Path:
    """Return the directory to install packages in; make it first if needed.

    Their dependencies are installed; other packages for tests are in apt's cache.
    """
    return _with_at_hand(suite, "user", *_AT_HAND)


def tracing_tree(suite: Suite) -> Path:
    """Return the same where bpftrace lies in apt's cache, too, which fusetune recommends."""
    return _with_at_hand(suite, "tracing", *_AT_HAND, "bpftrace")


def importing_tree(suite: Suite) -> Path:
    """Return the same with the packages to import a newer linux-source in apt's cache."""
    return _with_at_hand(
        suite, "importing", *_AT_HAND, "coccinelle", "initramfs-tools", "linux-base"
    )


def _with_at_hand(suite: Suite, kind: str, *at_hand: str) -> Path:
    options = (
        *_OPTIONS,
        "--skip=cleanup/apt",
        f"--customize-hook={_SATISFY} '{', '.join(field('Depends'))}'",
        '--customize-hook=chroot "$1" apt-get clean',
        f"--customize-hook={_SATISFY} --download-only '{', '.join(at_hand)}'",
    )
    return tree.made(suite.name, kind, options, *suite.sources())


def machine_tree(suite: Suite) -> Path:
    """Return the directory of a complete system with kernel and systemd; make it if needed."""
    parts = ("linux-image-amd64", "linux-headers-amd64", "initramfs-tools", "e2fsprogs", "dbus")
    wanted = ", ".join([*parts, "systemd-sysv", "udev", "procps", *field("Depends")])
    options = (*_OPTIONS, "--skip=cleanup/apt", f"--customize-hook={_SATISFY} '{wanted}'")
    return tree.made(suite.name, "machine", options, *suite.sources())


def rpm_tree(suite: Suite) -> Path:
    """Return the directory to build and install rpm packages in; make it if needed."""
    wanted = ["build-essential", *_RPM_TOOLS, *_AT_HAND, *field("Build-Depends")]
    options = (
        *_OPTIONS,
        f'--customize-hook={_SATISFY} "{", ".join([*wanted, *field("Depends")])}"',
    )
    return tree.made(suite.name, "rpm", options, *suite.sources())


def inside(
    directory: Path, out: Path, script: str, *binds: tuple[Path, str], timeout: float = 1800
) -> subprocess.CompletedProcess[str]:
    """Run a shell script as root in a tree, which is not changed, and return the result.

    ``out`` is /out there; each of ``binds``, a directory and a path, is at that path, read-only.
    There is no network.
    """
    return suites.inside(directory, out, dict(binds), script, timeout)
