# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the tuned libfuse3 is, how old it is, and how to run a program with it."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.libfuse.options import OPTIONS, OPTIONS_VARIABLE, check_options
from fusetune.source_age import Age, library_age

_NOBODY = 65534
_SECONDS = 10.0
#: Where the loader looks first (ld.so(8)).
LIBRARY_VARIABLE = "LD_LIBRARY_PATH"
LIBRARY_DIRECTORIES = ("lib/*", "lib64")


def is_ours(word: str) -> bool:
    """Return whether ``word``, NAME or NAME=VALUE, is an option of the tuned library."""
    return word.partition("=")[0] in OPTIONS


def directories(host: Host) -> list[Path]:
    """Return the directories that hold a tuned libfuse3, one for each architecture.

    Debian has /usr/lib/TRIPLET, rpm systems have /usr/lib64.
    """
    found = (
        Path(host.root).glob(f"usr/{lib}/fusetune/libfuse3.so.?") for lib in LIBRARY_DIRECTORIES
    )
    return sorted({path.parent for paths in found for path in paths})


def ages(host: Host) -> list[Age]:
    """Return how old each tuned libfuse3 is compared with the distribution's, if recorded."""
    found = (library_age(host, directory) for directory in directories(host))
    return [age for age in found if age]


def search_path(host: Host) -> str:
    found = directories(host)
    if not found:
        raise FusetuneError(
            "there is no tuned libfuse3 in /usr/lib/*/fusetune or /usr/lib64/fusetune; install "
            "fusetune's package, or build it "
            "with libfuse/import_libfuse.py and libfuse/build.sh"
        )
    return ":".join(f"/{path.relative_to(host.root)}" for path in found)


def environment(host: Host, options: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which programs load the tuned library.

    Raises UsageError for wrong ``options``, FusetuneError if the library is not installed.
    """
    check_options(options)
    more = {LIBRARY_VARIABLE: search_path(host), OPTIONS_VARIABLE: options}
    for name, separator in ((LIBRARY_VARIABLE, ":"), (OPTIONS_VARIABLE, ",")):
        # Ours comes first in the path; later options win, so ours come last.
        parts = [more[name], inherited.get(name, "")]
        more[name] = separator.join(filter(None, parts if separator == ":" else parts[::-1]))
    return {**inherited, **{name: value for name, value in more.items() if value}}


def uses_libfuse3(program: str) -> bool | None:
    """Return whether ``program`` is linked with libfuse3; None if unknown, as for scripts.

    Libraries or programs that it loads or starts later may still use one.
    """
    path, ldd = shutil.which(program), shutil.which("ldd")
    if not path or not ldd:
        return None
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF" or not os.fstat(file.fileno()).st_mode & stat.S_IROTH:
                return None
            # By its path for $ORIGIN (ld.so(8)). Nobody might not be allowed to follow it.
            ways = (os.path.realpath(path), f"/proc/self/fd/{file.fileno()}")
            printed = (_ldd(ldd, way, file.fileno()) for way in ways)
            return "libfuse3.so" in next(filter(None, printed), "")
    except (OSError, subprocess.TimeoutExpired):
        return None


def _ldd(ldd: str, path: str, file: int) -> str:
    """Return what ldd(1) prints about a file that everyone can read, open as ``file``.

    It executes code that the file names (DT_AUDIT in ld.so(8)), so not with the rights of root.
    Raises OSError, subprocess.TimeoutExpired.
    """
    is_root = os.geteuid() == 0
    nobody = _NOBODY if is_root else None
    done = subprocess.run(
        [ldd, path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        pass_fds=[file],
        timeout=_SECONDS,
        user=nobody,
        group=nobody,
        extra_groups=[] if is_root else None,
    )
    return done.stdout


def run(
    host: Host,
    command: Sequence[str],
    options: str,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Execute ``command`` with the tuned library; does not return. Raises FusetuneError.

    ``note`` is called with a warning if the program is not linked with libfuse3.
    """
    env = environment(host, options, os.environ)
    if uses_libfuse3(command[0]) is False:
        note(
            f"{command[0]} is not linked with libfuse3: only libraries and programs that it loads "
            "or starts get the tuned one"
        )
    try:
        os.execvpe(command[0], [*command], env)  # noqa: S606
    except OSError as error:
        raise FusetuneError(f"cannot run {command[0]}: {reason(error)}") from error
