# SPDX-License-Identifier: GPL-2.0-or-later
"""``mount.fusetune``: called by mount(8) for the types fusetune.SERVER, from fstab or a mount unit.

A server that is linked with libfuse3 gets the tuned library. mount(8) clears the library path, so
it is set here, and options of the library are passed in the environment, because the server's own
parser may reject them. Mounts of other servers are intercepted. In both cases, mount(8)'s helper
for this server gets the rest of ``-o``.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from fusetune.desired.host_limits import prepare
from fusetune.errors import ExitCode, FusetuneError, UsageError
from fusetune.host import Host
from fusetune.intercept import way
from fusetune.intercept.options import REQUIRED, library_options
from fusetune.intercept.options import is_ours as is_module_option
from fusetune.libfuse.installed import environment, is_ours, run

_USAGE = "mount.fusetune SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] -t fusetune.SERVER"


@dataclass(frozen=True)
class Request:
    """The request of mount(8): ``places`` are source and mount point, ``options`` those of -o."""

    server: str
    places: list[str]
    flags: list[str]
    options: str


def split_options(text: str, ours: Callable[[str], bool] = is_ours) -> tuple[str, str]:
    """Split mount options into ours, by default the library's, and the others.

    Commas may be escaped.
    """
    words = [word for word in re.split(r"(?<!\\),", text) if word]
    return (
        ",".join(word for word in words if ours(word)),
        ",".join(word for word in words if not ours(word)),
    )


def request_of(words: list[str]) -> Request:
    """Return the request of mount(8). Raises UsageError for words that mount(8) does not use."""
    places: list[str] = []
    flags: list[str] = []
    options, server = "", ""
    rest = iter(words)
    for word in rest:
        if word in ("-o", "-t", "-N"):
            value = next(rest, None)
            if value is None:
                raise UsageError(f"{word} needs a value; {_USAGE}")
            if word == "-o":
                options = value
            elif word == "-t":
                server = value.partition(".")[2]
        elif re.fullmatch("-[sfnv]+", word):
            flags.append(word)
        else:
            places.append(word)
    if len(places) != 2 or not server:
        raise UsageError(f"use: {_USAGE}")
    return Request(server, places, flags, options)


def helper_command(request: Request, options: str) -> list[str]:
    """Return the command line of mount(8)'s helper for this server.

    A helper named after the server takes precedence over mount.fuse3(8), which runs that program.
    """
    own = (f"mount.fuse.{request.server}", f"mount.{request.server}")
    helper = next((name for name in own if shutil.which(name)), "mount.fuse3")
    named = ["-t", f"fuse.{request.server}"] if helper == "mount.fuse3" else []
    return [
        *(helper, *request.places, *named, *request.flags),
        *(["-o", options] if options else []),
    ]


def translated(request: Request) -> tuple[list[str], str]:
    """Return mount.fuse3's command line for a request, and the tuned library's options."""
    ours, others = split_options(request.options, lambda word: is_ours(word) or word == REQUIRED)
    command = ["mount.fuse3", *request.places, "-t", f"fuse.{request.server}", *request.flags]
    return [*command, *(["-o", others] if others else [])], library_options(ours)


def _mount(host: Host, request: Request) -> None:
    """Execute the helper; does not return. Raises FusetuneError."""
    if REQUIRED in request.options.split(","):
        way.check_module(host)
    library = way.by_library(host, request.server)
    # Do not raise limits for a mount that is going to fail.
    if library:
        command, options = translated(request)
        environment(host, options, {})
    else:
        options, others = split_options(request.options, is_module_option)
        command = helper_command(request, others)
        way.prefix(host, options)
    # The helper runs it as SERVER SOURCE MOUNTPOINT.
    if problem := prepare(host, [request.server, *request.places], options):
        print(f"mount.fusetune: {problem}", file=sys.stderr)
    if library:
        run(host, command, options)
    way.run(host, command, options)


def main() -> None:
    """Run from mount(8): 0 mounted, 1 usage error or no permission, as in mount(8)."""
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        _mount(Host(), request_of(sys.argv[1:]))
    except FusetuneError as error:
        print(f"mount.fusetune: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(ExitCode.FAILED)
