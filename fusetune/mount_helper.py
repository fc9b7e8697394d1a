# SPDX-License-Identifier: GPL-2.0-or-later
"""``mount.fusetune``: mount(8) calls it for the types fusetune.SERVER, of fstab or a mount unit.

mount(8) clears the library path, so it is set here. Options of the tuned library are passed in the
environment, since a server's own parser may reject them; mount.fuse3(8) gets the rest of ``-o``.
"""

import os
import re
import sys

from fusetune.desired.host_limits import prepare
from fusetune.errors import ExitCode, FusetuneError, UsageError
from fusetune.host import Host
from fusetune.libfuse.installed import environment, is_ours, run

_USAGE = "mount.fusetune SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] -t fusetune.SERVER"


def split_options(text: str) -> tuple[str, str]:
    """Split mount options into the tuned library's and the others; commas may be escaped."""
    words = [word for word in re.split(r"(?<!\\),", text) if word]
    return (
        ",".join(word for word in words if is_ours(word)),
        ",".join(word for word in words if not is_ours(word)),
    )


def translated(words: list[str]) -> tuple[list[str], str]:
    """Return mount.fuse3's command line for ours, and the tuned library's options.

    Raises UsageError for words that mount(8) does not use.
    """
    places: list[str] = []
    flags: list[str] = []
    ours, others, server = "", "", ""
    rest = iter(words)
    for word in rest:
        if word in ("-o", "-t", "-N"):
            value = next(rest, None)
            if value is None:
                raise UsageError(f"{word} needs a value; {_USAGE}")
            if word == "-o":
                ours, others = split_options(value)
            elif word == "-t":
                server = value.partition(".")[2]
        elif re.fullmatch("-[sfnv]+", word):
            flags.append(word)
        else:
            places.append(word)
    if len(places) != 2 or not server:
        raise UsageError(f"use: {_USAGE}")
    command = ["mount.fuse3", *places, "-t", f"fuse.{server}", *flags]
    return [*command, *(["-o", others] if others else [])], ours


def main() -> None:
    """Run from mount(8): 0 mounted, 1 wrong use or no permission, as mount(8) has them."""
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        command, options = translated(sys.argv[1:])
        host = Host()
        environment(host, options, {})  # raise no limit for a mount that is going to fail
        # As mount.fuse3(8) runs it: SERVER SOURCE MOUNTPOINT.
        server = command[command.index("-t") + 1].partition(".")[2]
        if problem := prepare(host, [server, *command[1:3]], options):
            print(f"mount.fusetune: {problem}", file=sys.stderr)
        run(host, command, options)
    except FusetuneError as error:
        print(f"mount.fusetune: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(ExitCode.FAILED)
