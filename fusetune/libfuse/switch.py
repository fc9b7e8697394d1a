# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a service, or the whole host, use the tuned libfuse3."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fusetune.errors import FusetuneError, UsageError, reason
from fusetune.files import write_whole
from fusetune.host import Host
from fusetune.libfuse.installed import (
    LIBRARY_VARIABLE,
    ages,
    directories,
    environment,
    search_path,
)
from fusetune.libfuse.options import OPTIONS_VARIABLE
from fusetune.source_age import OLDER, older_allowed
from fusetune.text import unit_word

PROGRAM = "/usr/bin/fusetune"
DROP_IN = "50-fusetune-libfuse.conf"
_SYSTEM_FILE = "etc/ld.so.conf.d/00-fusetune.conf"


@dataclass(frozen=True)
class FileChange:
    """A file written or removed; ``before`` and ``after`` are its texts, None without a file.

    ``remedy``: what must be done for it to take effect.
    """

    path: Path
    before: str | None
    after: str | None
    remedy: str


def service_name(unit: str) -> str:
    """Return the full name of a service. Raises UsageError for a name that cannot be one."""
    if not re.fullmatch(r"[A-Za-z0-9:_.@\\-]+", unit):
        raise UsageError(f"{unit!r} is not the name of a unit")
    if unit.endswith(".mount"):
        raise UsageError(
            f"{unit} is mounted by mount(8), which passes no library path; "
            "use the type fusetune.SERVER, such as fusetune.sshfs"
        )
    return unit if unit.endswith(".service") else f"{unit}.service"


def restart(name: str) -> str:
    """Return the command that makes a drop-in take effect."""
    return f"systemctl restart {name}"


def _unit_change(host: Host, unit: str, text: str | None) -> FileChange:
    name = service_name(unit)
    path = Path(host.path(f"etc/systemd/system/{name}.d/{DROP_IN}"))
    return FileChange(path, _text(path), text, restart(name))


def _system_change(host: Host, text: str | None) -> FileChange:
    path = Path(host.path(_SYSTEM_FILE))
    return FileChange(
        path, _text(path), text, "remount the file systems that are to use the new library"
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None


def enable(
    host: Host, unit: str | None, options: str = "", own: Mapping[str, str] | None = None
) -> FileChange:
    """Return the change that makes a service, or the whole host (None), use the tuned library.

    ``own``: the variables that the service's other files set. Specifiers in them are not expanded:
    the drop-in repeats the values, because systemd uses only the last one of each variable.

    Raises UsageError for a name that cannot be a service or wrong options, FusetuneError if the
    library is not installed, or would replace a newer one of the distribution for the whole host.
    """
    variables = environment(host, options, own or {})
    on, off = ("enable", f"disable {unit}") if unit else ("lib enable", "lib disable --system")
    lines = [f"# Written by 'fusetune {on}'; 'fusetune {off}' undoes it."]
    if unit is None:
        if options:
            raise UsageError(
                "options for the whole host belong in sections in /etc/fusetune/mounts.d"
            )
        _check_age(host)
        return _system_change(host, "\n".join([*lines, *search_path(host).split(":"), ""]))
    if own and own.keys() & {LIBRARY_VARIABLE, OPTIONS_VARIABLE}:
        lines += [
            f"# If {LIBRARY_VARIABLE} or {OPTIONS_VARIABLE} of the unit changes, run 'fusetune "
            "enable' again."
        ]
    lines += ["[Service]", _assignment(LIBRARY_VARIABLE, variables)]
    # The host's limits that the mount needs, from the configuration and these options.
    lines += [f"ExecStartPre=-+{PROGRAM} set host --for-unit %n" + _for(options)]
    lines += [_assignment(OPTIONS_VARIABLE, variables)] if options else []
    return _unit_change(host, unit, "\n".join([*lines, ""]))


def _assignment(name: str, variables: Mapping[str, str]) -> str:
    return f"Environment={unit_word(f'{name}={variables[name]}')}"


def _for(options: str) -> str:
    return f" --for {options}" if options else ""


def _check_age(host: Host) -> None:
    """Raise FusetuneError if the tuned library is older than the one it would replace.

    A library whose version is not recorded counts as older.
    """
    known = ages(host)
    older = [one.summary for one in known if one.older]
    if older_allowed(host, "libfuse") or (len(known) == len(directories(host)) and not older):
        return
    what = older[0] if older else "the version of the tuned libfuse3 is unknown"
    raise FusetuneError(
        f"{what}; it must not replace the distribution's: update libfuse3-tuned, or add the line "
        f"'libfuse=yes' to {host.admin_dir / OLDER}"
    )


def disable(host: Host, unit: str | None) -> FileChange:
    """Return the change that undoes `enable`."""
    return _system_change(host, None) if unit is None else _unit_change(host, unit, None)


def carry_out(host: Host, change: FileChange) -> None:
    """Write or remove the file, and notify systemd or the loader. Raises FusetuneError."""
    if change.before == change.after:
        return
    whole_host = change.path == Path(host.path(_SYSTEM_FILE))
    if change.after is not None:
        host.make_dir(change.path.parent)
        write_whole(change.path, change.after)
    else:
        try:
            change.path.unlink()
        except OSError as error:
            raise FusetuneError(f"cannot remove {change.path}: {reason(error)}") from error
        if not whole_host and not any(change.path.parent.iterdir()):
            change.path.parent.rmdir()
    if not host.real:
        return
    if whole_host:
        _tell(["ldconfig"])
    elif os.path.exists("/run/systemd/system"):
        _tell(["systemctl", "daemon-reload"])


def _tell(command: list[str]) -> None:
    path = shutil.which(command[0], path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not path:
        raise FusetuneError(f"{command[0]} is not installed; run it by hand")
    done = subprocess.run([path, *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise FusetuneError(f"{' '.join(command)} failed: {done.stderr.strip()}")
