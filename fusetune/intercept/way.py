# SPDX-License-Identifier: GPL-2.0-or-later
"""How a server gets the module, and the command that intercepts its mounts.

A program that is linked with libfuse3 gets it through the tuned library, if that is installed. All
others are intercepted: Go and Rust, libfuse 2, bundled copies of libfuse, and scripts, whose
program is not known before they run.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.intercept.options import REQUIRED, module_options, needs_module
from fusetune.libfuse.installed import directories, uses_libfuse3

_NAME = "fusetune-intercept"


def by_library(host: Host, program: str, options: str = "") -> bool:
    """Return whether ``program`` gets the module, with ``options``, through the tuned libfuse3."""
    if needs_module(options):
        return False
    return bool(directories(host)) and uses_libfuse3(program) is True


def interceptor(host: Host) -> Path:
    """Return the program that intercepts: the installed one, or this checkout's.

    Raises FusetuneError if there is none.
    """
    built = Path(__file__).resolve().parents[2] / "build" / _NAME
    for path in (host.vendor_dir / _NAME, built):
        if os.access(path, os.X_OK):
            return path
    raise FusetuneError(
        f"{host.vendor_dir / _NAME} is missing: install the package {_NAME}, or run 'make' in a "
        "checkout"
    )


def prefix(host: Host, options: str) -> list[str]:
    """Return the prefix of a server's command. Raises UsageError, FusetuneError."""
    chosen = module_options(options)
    words = [str(interceptor(host)), *(["--options", ",".join(chosen)] if chosen else [])]
    return [*words, *(["--required"] if REQUIRED in options.split(",") else []), "--"]


def without_prefix(words: Sequence[str]) -> list[str]:
    """Return a server's command without our prefix, if it has one."""
    if words and os.path.basename(words[0]) == _NAME and "--" in words:
        return list(words[words.index("--") + 1 :])
    return list(words)


def check_module(host: Host) -> None:
    """Raise FusetuneError unless the kernel has the module's file system."""
    if "fusetuned" not in host.read("proc/filesystems").split():
        raise FusetuneError(
            "the module fusetuned is not loaded, but tuned_required was given; run "
            "'fusetune module load'"
        )


def run(host: Host, command: Sequence[str], options: str) -> None:
    """Execute ``command`` with its mounts intercepted; does not return.

    Raises UsageError for wrong ``options``, FusetuneError if it cannot be run.
    """
    words = [*prefix(host, options), *command]
    try:
        os.execv(words[0], words)  # noqa: S606
    except OSError as error:
        raise FusetuneError(f"cannot run {words[0]}: {reason(error)}") from error
