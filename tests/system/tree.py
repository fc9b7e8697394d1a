# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian trees for tests: made once a month, kept outside the checkout, never changed."""

import datetime
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.native.mirror import CHECKOUT

#: A host with FUSE and no Python.
BARE_PACKAGES = ("systemd-sysv", "udev", "dbus", "kmod", "procps", "util-linux", "fuse3")
HOST_PACKAGES = (
    *BARE_PACKAGES,
    *("sshfs", "bindfs", "fio"),
    *("davfs2", "lighttpd", "lighttpd-mod-webdav"),
    *("openssh-client", "openssh-sftp-server", "python3-apt"),
    *("python3", "python3-click", "python3-jinja2", "python3-prometheus-client"),
    *("python3-pyudev", "python3-rich", "python3-systemd", "python3-tomlkit"),
)
#: Directories of the checkout that are installed in a container: fusetune and the test server.
PARTS = (".", "mirrorfs", "intercept")
#: Part of each tree's name, so that it is made again when the archive may have changed. It is
#: the month in which the run began, so that a run uses one tree.
_MONTH = f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m}"
_OPTIONS = (
    "--variant=minbase",
    "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
    '--aptopt=Acquire::Check-Valid-Until "false"',
    # Only fusetune's own files may change the kernel's values, because they are also the host's.
    '--customize-hook=rm -f "$1"/usr/lib/sysctl.d/* "$1"/etc/sysctl.d/*',
    # TuneD would choose a profile for this host at boot.
    '--customize-hook=rm -f "$1"/etc/systemd/system/*.wants/tuned.service',
)


@functools.cache  # it takes a second, and each use of a tree asks
def archive(label: str = "Debian") -> str:
    """Return the address of the Debian archive that this host's apt uses.

    ``label`` is that of its Release file: security updates have ``Debian-Security``.
    """
    source = ("Created-By: Packages", "Origin: Debian", f"Label: {label}")
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", *source],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if not listed.stdout:
        raise RuntimeError("no Debian archive in apt's sources; run apt-get update")
    return min(listed.stdout.split())


def cache(kind: str) -> Path:
    """Return the directory, outside the checkout, for what tests create once."""
    directory = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "fusetune" / kind
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other threads and processes from creating ``directory`` at the same time."""
    with directory.with_name(f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def once(directory: Path, make: Callable[[Path], None]) -> Path:
    """Return ``directory``, which ``make`` creates under another name if it is not there.

    So it is whole or absent, whatever ends a run.
    """
    new = directory.with_name(f"{directory.name}.new")
    with locked(directory):
        if not directory.exists():
            shutil.rmtree(new, ignore_errors=True)
            make(new)
            new.rename(directory)
    return directory


def made(suite: str, kind: str, options: Sequence[str], *sources: str) -> Path:
    """Return the directory of a Debian ``suite``; make it first (minutes) if needed.

    ``options`` and ``sources`` (addresses or lines for apt) are mmdebstrap's; ``kind`` is a part of
    the directory's name. Another month or other options give another directory.
    """
    kept = cache("trees")
    made_from = hashlib.sha256("\n".join(options).encode()).hexdigest()[:12]

    def make(new: Path) -> None:
        remove_old(kept)
        command = ["mmdebstrap", "--quiet", *options, suite, str(new), *sources]
        subprocess.run(command, check=True, timeout=1800)

    return once(kept / f"{suite}-{kind}-{made_from}-{_MONTH}", make)


def remove_old(kept: Path, month: str = _MONTH) -> None:
    """Remove trees, and what was made from them, that are older than the month before ``month``.

    A run that began in the month before may still use its tree.
    """
    first = datetime.date.fromisoformat(f"{month}-01")
    before = f"{first - datetime.timedelta(days=1):%Y-%m}"
    for path in kept.iterdir():
        made_in = re.search(r"-(\d{4}-\d\d)(?=[-.]|$)", path.name)
        if not made_in or made_in[1] >= before:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def tree(suite: str, packages: Sequence[str] = HOST_PACKAGES) -> Path:
    """Return the directory that containers boot; make it first (half a minute) if needed."""
    return made(suite, "system", (f"--include={','.join(packages)}", *_OPTIONS), archive())


def install(directory: Path, parts: Sequence[str] = PARTS) -> None:
    """Run `make install` of these directories of the checkout into ``directory``."""
    for target in (CHECKOUT / part for part in parts):
        subprocess.run(
            ["make", "--silent", "-C", target, "install", f"DESTDIR={directory}", "PREFIX=/usr"],
            check=True,
            timeout=120,
        )
    directory.chmod(0o755)  # it becomes the container's /
