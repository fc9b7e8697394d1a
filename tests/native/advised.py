# SPDX-License-Identifier: GPL-2.0-or-later
"""New trees, mounted with the options that ``fusetune advise`` writes, and changed behind it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusetune.recipes.command_line import Changes, CommandLine
from fusetune.recipes.load import SHIPPED, read_recipe
from fusetune.recipes.recipe import Bad, Recipe
from fusetune.recipes.spelling import spellings_of, spellings_of_bad
from tests.native.servers import command_of, run_server

#: Options that Debian 12's versions lack, and options that only limit the speed.
_LEFT_OUT = {
    *(("bindfs", "direct-io"), ("bindfs", "read-rate"), ("bindfs", "write-rate")),
    ("gocryptfs", "serialize_reads"),
    *(("mergerfs", "async-read"), ("mergerfs", "read-thread-count"), ("rclone", "direct-io")),
}


def recipe(server: str) -> Recipe:
    """Return the shipped recipe of a server."""
    return read_recipe(SHIPPED / f"{server}.toml", check_writers=False)


def harmful(server: str, kind: str) -> dict[str, str]:
    """Return the harmful setting of each option whose repair is of class ``kind``."""
    bad = [one for one in recipe(server).bad if one.kind == "harmful" and one.class_ == kind]
    return {one.option: _hurting(one) for one in bad if (server, one.option) not in _LEFT_OUT}


def _hurting(bad: Bad) -> str:
    if bad.below is not None:
        return str(bad.below // 32)
    return bad.value or "true"


def changed(server: str, command: list[str | Path], values: Changes) -> list[str | Path]:
    """Return a command line with options set, or removed for None, as advise prints it."""
    known = recipe(server)
    spellings = [spellings_of(known.server, option) for option in known.option]
    names = {one.name for one in spellings}
    bad = (one for one in known.bad if one.option not in names)
    spellings += [spellings_of_bad(known.server, one) for one in bad]
    words = [str(word) for word in command]
    line = CommandLine(words, spellings, known.server.options, known.server.subcommands)
    return [*line.changed(values)]


@dataclass(frozen=True)
class Site:
    """A mounted tree; ``behind`` is where another client changes its files."""

    point: Path
    behind: Path
    command: list[str | Path]


@contextmanager
def mounted(
    server: str,
    directory: Path,
    values: Changes,
    fill: Callable[[Path], None] | None = None,
) -> Iterator[Site]:
    """Mount a new tree in ``directory`` by the server's usual command with ``values`` set.

    ``fill``: what another client does before, in a tree that it may also change later. Raises
    ValueError if there can be no other client.
    """
    source, point, scratch = (directory / name for name in ("source", "mnt", "scratch"))
    for path in (source, point, scratch):
        path.mkdir(parents=True)
    stock = command_of(server, source, point, scratch)
    with ExitStack() as contexts:
        behind = {"fuse-overlayfs": scratch / "upper"}.get(server, source)
        if fill and server == "ntfs-3g":
            raise ValueError("only one instance may have a volume open")
        if fill and server == "gocryptfs":
            behind = directory / "other"
            other = [*stock[:-1], behind]
            contexts.enter_context(run_server(other, behind, directory / "other.log"))
        if fill:
            fill(behind)
        command = changed(server, stock, values)
        contexts.enter_context(run_server(command, point, directory / "log"))
        yield Site(point, behind, command)
