# SPDX-License-Identifier: GPL-2.0-or-later
"""The tuned libfuse3: its options, where it is, who uses it, and how it becomes the one in use."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from fusetune.age import OLDER, Age, library_age, older_allowed
from fusetune.errors import FusetuneError, UsageError, reason
from fusetune.files import write_whole
from fusetune.host import Host
from fusetune.servers import fuse_processes, program_of
from fusetune.timed import each_in_time

#: Carries options to a server whose own parser would reject them; libfuse/tuned/channels.c.
OPTIONS_VARIABLE = "FUSETUNE_OPTIONS"
_NUMBER, _SIZE = r"[0-9]+", r"[0-9]+[KMG]?"
_WAYS = "(?:read|write|move)"
#: What each option takes, as libfuse/tuned/options.c has them; None: no value.
OPTIONS: Mapping[str, str | None] = {
    "max_pages": _NUMBER,
    "max_write": _SIZE,
    "max_readahead": _SIZE,
    "max_background": _NUMBER,
    "congestion_threshold": _NUMBER,
    "max_threads": _NUMBER,
    "splice": rf"off|{_WAYS}(?:\+{_WAYS})*",
    "writeback_cache": None,
    "direct_io": None,
    "parallel_direct_writes": None,
    "clone_fd": None,
    "io_uring": None,
    "no_file_caps": None,
    "atomic_open": None,
    "tuned": None,
    "tuned_if_possible": None,
}
_LIBRARIES = ("lib/*", "lib64")
_PROGRAM = "/usr/bin/fusetune"
_DROP_IN = "50-fusetune-libfuse.conf"
_LIBFUSE = re.compile(r"libfuse3?\.so\.")
_FEW = 64  # mappings of one library, some times over
_SYSTEM_FILE = "etc/ld.so.conf.d/00-fusetune.conf"


@dataclass(frozen=True)
class Server:
    """A process with a FUSE device open.

    ``library``: the libfuse that it has loaded, None without one. ``uses``: "tuned", "stock",
    "libfuse2", "none" for one that does not use libfuse, as those written in Go, or "unknown" for
    one whose memory map could not be read in time.
    """

    pid: int
    program: str
    library: str | None
    uses: str


@dataclass(frozen=True)
class FileChange:
    """A file written or removed; ``before`` and ``after`` are its texts, None where there is none.

    ``remedy``: what is left to do until it counts.
    """

    path: Path
    before: str | None
    after: str | None
    remedy: str


def is_ours(word: str) -> bool:
    """Return whether ``word``, NAME or NAME=VALUE, is an option of the tuned library."""
    return word.partition("=")[0] in OPTIONS


def check_options(text: str) -> None:
    """Raise UsageError unless ``text`` is a list of options as the library takes them.

    Whether a value can be had is for the library to say: that depends on kernel and server.
    """
    for word in filter(None, text.split(",")):
        name, equal, value = word.partition("=")
        if name not in OPTIONS:
            raise UsageError(
                f"{name!r} is no option of the tuned libfuse; {', '.join(OPTIONS)} are"
            )
        wanted = OPTIONS[name]
        if equal != "" if wanted is None else not re.fullmatch(wanted, value):
            raise UsageError(f"{word!r}: {name} takes {'no value' if wanted is None else wanted}")


def folders(host: Host) -> list[Path]:
    """Return the folders that hold a tuned libfuse3, one an architecture.

    Debian has a folder of libraries for each, rpm systems have /usr/lib64.
    """
    found = (Path(host.root).glob(f"usr/{lib}/fusetune/libfuse3.so.?") for lib in _LIBRARIES)
    return sorted({path.parent for paths in found for path in paths})


def ages(host: Host) -> list[Age]:
    """Return how old each tuned libfuse3 is beside the distribution's, where that is recorded."""
    found = (library_age(host, folder) for folder in folders(host))
    return [age for age in found if age]


def _search_path(host: Host) -> str:
    found = folders(host)
    if not found:
        raise FusetuneError(
            "there is no tuned libfuse3 under /usr/lib/*/fusetune or /usr/lib64/fusetune; install "
            "fusetune's, or build it "
            "with libfuse/import_libfuse.py and libfuse/build.sh"
        )
    return ":".join(f"/{path.relative_to(host.root)}" for path in found)


def environment(host: Host, options: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a program is served by the tuned library.

    Raises UsageError for wrong ``options``, FusetuneError where the library is not installed.
    """
    check_options(options)
    more = {"LD_LIBRARY_PATH": _search_path(host), OPTIONS_VARIABLE: options}
    for name, separator in (("LD_LIBRARY_PATH", ":"), (OPTIONS_VARIABLE, ",")):
        # What is ours comes first in the path, and last among options, where the later counts.
        parts = [more[name], inherited.get(name, "")]
        more[name] = separator.join(filter(None, parts if separator == ":" else parts[::-1]))
    return {**inherited, **{name: value for name, value in more.items() if value}}


def _lacks_libfuse3(program: str) -> bool:
    """Return whether ``program`` is a binary that the loader gives no libfuse3; scripts are none.

    What it loads or starts later may have one.
    """
    path, ldd = shutil.which(program), shutil.which("ldd")
    if not path or not ldd:
        return False
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return False
    except OSError:
        return False
    said = subprocess.run([ldd, path], capture_output=True, text=True, check=False)
    return "libfuse3.so" not in said.stdout


def run(
    host: Host,
    command: Sequence[str],
    options: str,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Become ``command``, with the tuned library. Raises FusetuneError where it cannot.

    ``note`` is told where the program is not linked with libfuse3.
    """
    env = environment(host, options, os.environ)
    if _lacks_libfuse3(command[0]):
        note(
            f"{command[0]} is not linked with libfuse3: it gets the tuned one only for what it "
            "loads or starts"
        )
    try:
        os.execvpe(command[0], [*command], env)  # noqa: S606
    except OSError as error:
        raise FusetuneError(f"cannot run {command[0]}: {reason(error)}") from error


# Who uses it


def servers(host: Host) -> list[Server]:
    """Return every process that serves FUSE, by pid; those of other users only as root."""
    ours = {str(path) for path in folders(host)}
    programs = {}
    for pid, _ in fuse_processes(host):
        with suppress(OSError):  # it ended, or it is not ours to look at
            programs[pid] = program_of(host, pid)
    loaded = each_in_time(partial(_libfuses, host), list(programs))
    return [
        Server(int(pid), program, *_library(host, loaded.get(pid), ours))
        for pid, program in programs.items()
        if pid in loaded or os.path.exists(host.path(f"proc/{pid}"))
    ]


def _libfuses(host: Host, pid: str) -> list[str]:
    """Return the first few of the libfuses that a process has loaded. Raises OSError."""
    with open(host.path(f"proc/{pid}/maps"), errors="surrogateescape") as maps:
        paths = (line.rstrip("\n").partition("/")[2].removesuffix(" (deleted)") for line in maps)
        ours = (f"/{path}" for path in paths if _LIBFUSE.match(path.rpartition("/")[2]))
        return list(islice(ours, _FEW))


def _library(host: Host, loaded: list[str] | None, ours: set[str]) -> tuple[str | None, str]:
    """Return a server's library and which that is; ``loaded`` None: it was not told in time."""
    if loaded is None:
        return None, "unknown"
    library = min(loaded, default=None)
    return library, _kind(host, library, ours)


def _kind(host: Host, library: str | None, ours: set[str]) -> str:
    if library is None:
        return "none"
    if "/libfuse.so." in library:
        return "libfuse2"
    return "tuned" if os.path.dirname(host.path(library.lstrip("/"))) in ours else "stock"


# How it becomes the one in use


def _unit_change(host: Host, unit: str, text: str | None) -> FileChange:
    if not re.fullmatch(r"[A-Za-z0-9:_.@\\-]+", unit):
        raise UsageError(f"{unit!r} is not the name of a unit")
    if unit.endswith(".mount"):
        raise UsageError(
            f"{unit} is mounted by mount(8), which passes on no library path; "
            "give it the type fusetune.SERVER, as fusetune.sshfs"
        )
    name = unit if unit.endswith(".service") else f"{unit}.service"
    path = Path(host.path(f"etc/systemd/system/{name}.d/{_DROP_IN}"))
    return FileChange(path, _text(path), text, f"systemctl restart {name}")


def _system_change(host: Host, text: str | None) -> FileChange:
    path = Path(host.path(_SYSTEM_FILE))
    return FileChange(path, _text(path), text, "mount again what shall use the other library")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def enable(host: Host, unit: str | None, options: str = "") -> FileChange:
    """Return the change that gives a service, or the whole host (None), the tuned library.

    Raises UsageError for what cannot be a service or wrong options, FusetuneError without the
    library, or where the whole host would get one that is older than the distribution's.
    """
    check_options(options)
    path = _search_path(host)
    lines = [
        f"# Written by 'fusetune lib enable'; 'fusetune lib disable {unit or '--system'}' undoes."
    ]
    if unit is None:
        if options:
            raise UsageError("options of the whole host are sections of /etc/fusetune/mounts.d")
        _check_age(host)
        return _system_change(host, "\n".join([*lines, *path.split(":"), ""]))
    lines += ["[Service]", f"Environment=LD_LIBRARY_PATH={path}"]
    # What the mount needs of the host's limits, by configuration and the options here.
    lines += [f"ExecStartPre=-+{_PROGRAM} set host --for-unit %n" + _for(options)]
    lines += [f"Environment={OPTIONS_VARIABLE}={options}"] if options else []
    return _unit_change(host, unit, "\n".join([*lines, ""]))


def _for(options: str) -> str:
    return f" --for {options}" if options else ""


def _check_age(host: Host) -> None:
    """Raise FusetuneError where the tuned library is older than the one whose place it would take.

    A library whose version is not recorded counts as older.
    """
    known = ages(host)
    older = [one.summary for one in known if one.older]
    if older_allowed(host, "libfuse") or (len(known) == len(folders(host)) and not older):
        return
    what = older[0] if older else "the tuned libfuse3 does not tell its version"
    raise FusetuneError(
        f"{what}; it must not take that one's place: update libfuse3-tuned, or put the line "
        f"'libfuse=yes' into {host.admin_dir / OLDER}"
    )


def disable(host: Host, unit: str | None) -> FileChange:
    """Return the change that undoes `enable`."""
    return _system_change(host, None) if unit is None else _unit_change(host, unit, None)


def carry_out(host: Host, change: FileChange) -> None:
    """Write or remove the file, and have it noticed. Raises FusetuneError."""
    if change.before == change.after:
        return
    if change.after is not None:
        host.make_dir(change.path.parent)
        write_whole(change.path, change.after)
    else:
        try:
            change.path.unlink()
        except OSError as error:
            raise FusetuneError(f"cannot remove {change.path}: {reason(error)}") from error
        if change.path.name == _DROP_IN and not any(change.path.parent.iterdir()):
            change.path.parent.rmdir()
    if not host.real:
        return
    if change.path.name != _DROP_IN:
        _tell(["ldconfig"])
    elif os.path.exists("/run/systemd/system"):
        _tell(["systemctl", "daemon-reload"])


def _tell(command: list[str]) -> None:
    path = shutil.which(command[0], path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not path:
        raise FusetuneError(f"{command[0]} is not there; run it by hand")
    done = subprocess.run([path, *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise FusetuneError(f"{' '.join(command)} failed: {done.stderr.strip()}")
