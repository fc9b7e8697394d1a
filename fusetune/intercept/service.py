# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a systemd service use the module through a drop-in, and reverting that.

A drop-in cannot prepend words to a command, so it repeats ExecStart= of the unit's files,
including specifiers and variables.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.intercept.options import REQUIRED, TUNED, library_options, wants_module
from fusetune.intercept.way import by_library, prefix
from fusetune.libfuse import switch
from fusetune.libfuse.installed import LIBRARY_VARIABLE
from fusetune.libfuse.options import OPTIONS_VARIABLE
from fusetune.libfuse.switch import FileChange
from fusetune.recipes.edit import text_of
from fusetune.recipes.units import assignments, command_words, later_drop_in, unit_files, value_of

#: Sorted after those of `remount`, which may set ExecStart= as well.
_DROP_IN = "70-fusetune-intercept.conf"
#: The library would continue without the module; the service does not start.
_ASSERTION = "[Unit]\nAssertPathExists=/dev/fusetuned\n"
#: What the interceptor calls, and a SystemCallFilter= that suffices for the server may forbid.
_CALLS = (
    "@setuid capset chroot close_range fsconfig fsmount fsopen memfd_create mount move_mount "
    "openat2 pidfd_getfd pidfd_open process_vm_readv seccomp setfsgid setfsgid32 setfsuid "
    "setfsuid32 setns umount2"
)
_MARKS = re.compile(r"[@\-:+!|]*")


def enable(host: Host, unit: str, options: str) -> FileChange:
    """Return the change that makes a service use the tuned libfuse or, intercepted, the module.

    Raises UsageError for a name that cannot be a service or wrong options, FusetuneError if the
    service, or what is installed, does not allow it.
    """
    name = switch.service_name(unit)
    path = _path(host, name)
    ours = (switch.DROP_IN, _DROP_IN)
    files = [file for file in unit_files(host, name) if file.name not in ours]
    command = _command(name, files) if files else ""
    if not files or by_library(host, _program(command), options):
        library = library_options(options)
        change = switch.enable(host, unit, library, _own_variables(name, files, library))
        if REQUIRED in options.split(","):
            change = replace(change, after=f"{change.after}{_ASSERTION}")
        other = text_of(path)
    else:
        change = FileChange(
            path, text_of(path), _text(host, name, files, command, options), switch.restart(name)
        )
        other = switch.disable(host, unit).before
    if other is not None:
        raise FusetuneError(
            f"{name} already uses the module in another way; run 'fusetune disable {unit}' first"
        )
    return change


def disable(host: Host, unit: str) -> FileChange:
    """Return the change that undoes `enable`."""
    name = switch.service_name(unit)
    path = _path(host, name)
    before = text_of(path)
    if before is None:
        return switch.disable(host, unit)
    return FileChange(path, before, None, switch.restart(name))


def _path(host: Host, name: str) -> Path:
    return Path(host.path(f"etc/systemd/system/{name}.d/{_DROP_IN}"))


def _own_variables(name: str, files: Sequence[Path], options: str) -> dict[str, str]:
    """Return the variables that a service sets for itself.

    Raises FusetuneError if they cannot be read, or if a drop-in after ours would replace ours.
    """
    names = [LIBRARY_VARIABLE, *([OPTIONS_VARIABLE] if options else [])]
    for file in (one for one in files[1:] if one.name > switch.DROP_IN):
        values = list(assignments(text_of(file) or "", "Service", "Environment"))
        found = _variables(name, values)
        replaced = names if "" in values else [one for one in names if one in found]
        if replaced:
            raise FusetuneError(
                f"{file} replaces {replaced[0]}, and systemd reads it after fusetune's drop-in: "
                f"rename it to sort before {switch.DROP_IN}"
            )
    return _variables(name, value_of([*files], "Service", "Environment"))


def _variables(name: str, values: Sequence[str]) -> dict[str, str]:
    """Return the variables in values of Environment=, with specifiers."""
    found: dict[str, str] = {}
    for value in values:
        words = [word for word, _ in command_words(value)]
        if not words and (LIBRARY_VARIABLE in value or OPTIONS_VARIABLE in value):
            raise FusetuneError(
                f"an Environment= of {name} has an escape that only systemd reads; write it "
                f"without one, see 'systemctl cat {name}'"
            )
        for word in words:
            variable, _, text = word.partition("=")
            found[variable] = text
    return found


def _program(command: str) -> str:
    words = command_words(_MARKS.sub("", command, count=1))
    return words[0][0] if words else ""


def _command(name: str, files: list[Path]) -> str:
    commands = value_of(files, "Service", "ExecStart")
    if len(commands) != 1 or not _program(commands[0]):
        raise FusetuneError(
            f"{name} does not have exactly one ExecStart=; see 'systemctl cat {name}'"
        )
    return commands[0]


def _text(host: Host, name: str, files: list[Path], command: str, options: str) -> str:
    found = _MARKS.match(command)
    marks = found[0] if found else ""
    _check_service(name, files, marks)
    filters = value_of(files, "Service", "SystemCallFilter")
    for key in ("ExecStart", *(["SystemCallFilter"] if filters else [])):
        if later := later_drop_in(host, name, "Service", key, _DROP_IN):
            raise FusetuneError(
                f"{later} sets {key}=, and systemd reads it after fusetune's drop-in: rename it to "
                f"sort before {_DROP_IN}"
            )
    if not wants_module(options):
        options = ",".join(filter(None, (TUNED, options)))
    apart = _needs_main_process(files)
    *words, end = prefix(host, options)
    before = " ".join([*words, *(["--apart"] if apart else []), end])
    lines = [
        f"# Written by 'fusetune enable'; 'fusetune disable {name}' undoes it. If ExecStart= of "
        "the",
        "# unit changes, run 'fusetune enable' again.",
        "[Service]",
        *_device(files),
        # Allows these also if the unit's own lines deny calls (systemd.exec(5)).
        *([f"SystemCallFilter={_CALLS}"] if filters else []),
        *(["Delegate=yes"] if apart else []),
        f"ExecStartPre=-+{switch.PROGRAM} set host --for-unit %n --for {options}",
        "ExecStart=",
        f"ExecStart={marks}{before} {command[len(marks) :]}",
    ]
    return "\n".join([*lines, ""])


def _check_service(name: str, files: list[Path], marks: str) -> None:
    if "@" in marks:
        raise FusetuneError(f"ExecStart= of {name} begins with @, which only systemd can execute")
    root = _last(files, "User") in {"", "root", "0"} and _is_off(_last(files, "DynamicUser"))
    # A double ! has no effect on kernels that can intercept (systemd.service(5)).
    if not root and "+" not in marks and marks.count("!") != 1:
        raise FusetuneError(
            f"{name} does not run as root, but only root may make a server use the module; use the "
            "type fusetune.NAME in fstab instead"
        )
    for key in ("RootDirectory", "RootImage"):
        if _last(files, key) not in {"", "/"}:
            raise FusetuneError(
                f"{name} sets {key}=, and fusetune-intercept is not in that root directory; use "
                "the type fusetune.NAME in fstab instead"
            )


def _last(files: Sequence[Path], key: str) -> str:
    """Return a setting that has one value, "" if there is none."""
    return (value_of([*files], "Service", key) or [""])[-1]


def _is_off(value: str) -> bool:
    return value.lower() in {"", "0", "no", "n", "false", "f", "off"}


def _needs_main_process(files: Sequence[Path]) -> bool:
    """Return whether systemd has to guess the main process.

    It does so for Type=forking without PIDFile= (systemd.service(5)).
    """
    return _last(files, "Type") == "forking" and not _last(files, "PIDFile")


def _device(files: Sequence[Path]) -> list[str]:
    """Return the line that allows the device, if the service restricts devices."""
    # Without another limit, DeviceAllow= would forbid all other devices.
    limited = value_of([*files], "Service", "DeviceAllow") or (
        _last(files, "DevicePolicy") not in {"", "auto"}
    )
    return ["DeviceAllow=/dev/fusetuned rw"] if limited else []
