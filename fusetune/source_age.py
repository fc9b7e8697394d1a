# SPDX-License-Identifier: GPL-2.0-or-later
"""How old our copies of other projects' code are, compared with the distribution's."""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fusetune.host import Host

#: In the administrator's directory: a line NAME=yes lets an older copy replace the
#: distribution's own; NAME is "f2fs" (dkms/source.sh reads it) or "libfuse".
OLDER = "older.conf"
#: The package of the tuned libfuse3; other names are those of kernel modules.
LIBRARY = "libfuse3-tuned"
_RECORD = re.compile(r"(\d+\.\d+\.\d+)(?: (\S+) (\S+))?")


@dataclass(frozen=True)
class Source:
    """A version of another project's code.

    ``version``: upstream's, such as 6.12.117. ``package``, ``package_version``: the distribution's
    package that contained it, such as linux-source-6.12 and 6.12.117-1, None if unknown.
    """

    version: str
    package: str | None = None
    package_version: str | None = None

    def __str__(self) -> str:
        return self.package_version or self.version

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the parts of the version."""
        return tuple(map(int, self.version.split(".")))


@dataclass(frozen=True)
class Age:
    """The ``source`` of ``name``, one of our parts in use, and the distribution's ``current`` one.

    ``current`` is None if the distribution does not show it.
    """

    name: str
    source: Source
    current: Source | None

    @property
    def behind(self) -> int | None:
        """Return how many point releases the source is behind, 0 if it is as new or newer.

        None if the series differ or the current version is unknown.
        """
        if self.current is None or self.source.numbers[:2] != self.current.numbers[:2]:
            return None
        return max(0, self.current.numbers[2] - self.source.numbers[2])

    @property
    def older(self) -> bool | None:
        """Return whether the source is older; None if the current version is unknown.

        Package revisions count if both are known and the upstream versions are the same.
        """
        if self.current is None:
            return None
        if self.source.numbers != self.current.numbers:
            return self.source.numbers < self.current.numbers
        ours, theirs = self.source.package_version, self.current.package_version
        return bool(ours and theirs and _precedes(ours, theirs))

    @property
    def is_library(self) -> bool:
        """Whether it is the tuned libfuse3, not a kernel module."""
        return self.name == LIBRARY

    @property
    def remedy(self) -> str:
        """Return how to replace an older source."""
        if self.is_library:
            return "install a newer libfuse3-tuned, then restart the servers that use it"
        # If the distribution has a package of the kernel's source, DKMS uses that.
        series = ".".join(map(str, self.current.numbers[:2])) if self.current else ""
        packaged = self.current is not None and self.current.package_version is not None
        newer = f"apt install linux-source-{series} coccinelle, or " if packaged else ""
        return (
            f"{newer}install a newer {self.name}-dkms; then 'fusetune module build {self.name}', "
            f"'unload {self.name}' and 'load {self.name}'"
        )

    @property
    def summary(self) -> str:
        """Return the comparison as a sentence without a full stop."""
        made = f"{self.name} is made from {self.source}"
        beside = "the distribution's libfuse3" if self.is_library else "the running kernel"
        if self.current is None:
            return f"{made}; the version of {beside} is unknown"
        if not self.older:
            return f"{made}, not older than {beside}, {self.current}"
        releases = f" by {self.behind} point releases" if self.behind else ""
        return f"{made}, older than {beside}, {self.current},{releases}".rstrip(",")


def parse(text: str) -> Source | None:
    """Parse the record that import_kernel.py or import_libfuse.py writes; None if it is empty."""
    found = _RECORD.fullmatch(text.strip())
    return Source(found[1], found[2], found[3]) if found else None


def _precedes(one: str, other: str) -> bool:
    """Return whether a Debian package version is lower than another; such hosts have dpkg."""
    if one == other or not shutil.which("dpkg"):
        return False
    command = ["dpkg", "--compare-versions", one, "lt", other]
    return subprocess.run(command, check=False).returncode == 0


def running_kernel(host: Host) -> Source | None:
    """Return the running kernel's version, None if the distribution does not show it.

    Debian names its package in the kernel's version (/proc/sys/kernel/version), Ubuntu upstream's
    version in /proc/version_signature. Elsewhere the release begins with it, unless the third
    number is 0, as in Debian's 6.1.0-43: one name stands for many point releases there.
    """
    for file, pattern in (
        ("proc/sys/kernel/version", r"\bDebian ((\d+\.\d+(?:\.\d+)?)[-~]\S*)"),
        ("proc/version_signature", r"(?P<none>)(\d+\.\d+\.\d+)$"),
        ("proc/sys/kernel/osrelease", r"(?P<none>)(\d+\.\d+\.[1-9]\d*)"),
    ):
        with suppress(OSError):
            if found := re.search(pattern, host.read(file)):
                # A release and its candidates, 7.3-1 and 7.3~rc7-1, are 7.3.0 in their source.
                version = found[2] if found[2].count(".") > 1 else f"{found[2]}.0"
                return Source(version, None, found[1] or None)
    return None


def loaded_source(host: Host, module: str) -> Source | None:
    """Return the source of one of our loaded modules, None if it does not name one.

    tuned/module.c exports it as a read-only parameter.
    """
    with suppress(OSError):
        return parse(host.read(f"sys/module/{module}/parameters/source"))
    return None


def library_age(host: Host, directory: Path) -> Age | None:
    """Return the age of the tuned libfuse3 in ``directory``, None if no version is recorded."""
    try:
        source = parse((directory / "libfuse3.source").read_text())
    except OSError:
        return None
    return Age(LIBRARY, source, _distributions(host, directory)) if source else None


def older_allowed(host: Host, name: str) -> bool:
    """Return whether the administrator allows an older copy to replace the distribution's."""
    with suppress(OSError):
        return f"{name}=yes" in (host.admin_dir / OLDER).read_text().splitlines()
    return False


def _distributions(host: Host, directory: Path) -> Source | None:
    """Return the distribution's libfuse3 of the same soname as ours in ``directory``.

    Its version is in its file's name: libfuse3.so.4 is a link to libfuse3.so.3.17.2.
    """
    for ours in directory.glob("libfuse3.so.?"):
        with suppress(OSError):
            link = os.readlink(directory.parent / ours.name)
            if found := re.fullmatch(r"libfuse3\.so\.(\d+\.\d+\.\d+)", os.path.basename(link)):
                return Source(found[1], *_packaged(host, found[1]))
    return None


def _packaged(host: Host, version: str) -> tuple[str, str] | tuple[None, None]:
    """Return the name and version of the source package of the installed libfuse3 ``version``."""
    database = host.path("var/lib/dpkg")
    if shutil.which("dpkg-query") and os.path.exists(f"{database}/status"):
        form = "${db:Status-Abbrev} ${source:Package} ${source:Version}\n"
        ask = ["dpkg-query", f"--admindir={database}", "-W", f"-f={form}", "libfuse3-[0-9]*"]
        said = subprocess.run(ask, check=False, capture_output=True, text=True).stdout
        for state, package, its_version in (line.split() for line in said.splitlines()):
            if state == "ii" and its_version.startswith(f"{version}-"):
                return package, its_version
    return None, None
