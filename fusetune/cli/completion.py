# SPDX-License-Identifier: GPL-2.0-or-later
"""Shell completion of mount points, knobs, services and options. No completer changes anything.

click's shell functions insert completed words verbatim. So a word that a shell would not take
literally is never offered: another user controls mount points such as ``/home/x/;reboot``.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fusetune.cli.common import HOST_TARGET
from fusetune.errors import FusetuneError, UsageError
from fusetune.host import Host


def mount_argument(metavar: str, *, required: bool = True, count: int = 1) -> Callable[..., Any]:
    """Return the argument ``name`` for a mount, with completion. An empty one is refused.

    ``metavar``: as shown in --help; if it contains "host", the host is completed as well.
    ``count``: -1 for any number of mounts.
    """
    return click.argument(
        "name",
        metavar=metavar,
        required=required,
        nargs=count,
        callback=_not_empty,
        shell_complete=_mounts,
    )


def _not_empty(
    context: click.Context, parameter: click.Parameter, name: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    # Of an unset variable in a script, which means neither every mount nor the current directory.
    if name == "" or (isinstance(name, tuple) and "" in name):
        raise UsageError("a mount's name is empty; give its mount point, or its bdi such as 0:43")
    return name


def _mounts(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete mount points, or a mount's bdi if its path needs quoting."""
    from fusetune.mounts.discover import discover

    words = [HOST_TARGET] if HOST_TARGET in str(parameter.metavar) else []
    try:
        mounts = discover(Host())
    except FusetuneError:
        return _matching(words, begun)
    for mount in mounts:
        words += [path for path in (mount.path, *mount.also_at) if _is_literal(path)] or (
            [mount.bdi] if mount.bdi else []
        )
    return _matching(words, begun)


def _is_literal(word: str) -> bool:
    """Whether a shell takes the word literally."""
    return shlex.quote(word) == word


def _matching(
    words: Iterable[str] | Mapping[str, str], begun: str, before: str = ""
) -> list[CompletionItem]:
    """Return the words that start with ``begun``, behind ``before``; a mapping has their help."""
    about = words if isinstance(words, Mapping) else {}
    return [
        CompletionItem(f"{before}{word}", help=about.get(word))
        for word in words
        if word.startswith(begun)
    ]


def knob_names(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete knobs of mounts and of the host."""
    from fusetune.knobs import LIVE, SYSTEM

    return _matching({knob.name: knob.summary for knob in (*LIVE, *SYSTEM)}, begun)


def assignments(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete KNOB=VALUE with the current values of the mount or host that was named.

    If there is no such mount, the knobs of mounts are completed without values.
    """
    from fusetune.knobs import LIVE, Absent, knobs_of
    from fusetune.mounts.discover import find

    host, name = Host(), context.params.get("name") or ""
    present: dict[str, str] = {}
    try:
        mount = None if name == HOST_TARGET else find(host, name)
    except FusetuneError:
        present = {f"{knob.name}=": knob.summary for knob in LIVE}
    else:
        for knob in knobs_of(host, mount):
            with suppress(Absent, FusetuneError):
                present[f"{knob.name}={knob.read(host, mount)}"] = knob.summary
    return _matching(present, begun)


def services(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete services that have a unit file."""
    from fusetune.recipes.units import unit_directories

    names = {
        file.name for where in unit_directories(Host()) for file in Path(where).glob("*.service")
    }
    return _matching(filter(_is_literal, sorted(names)), begun)


def mount_options(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete the last option of a comma-separated list, for the module or the tuned libfuse3."""
    from fusetune.intercept.options import MODULE_OPTIONS, REQUIRED, TUNED
    from fusetune.libfuse.options import OPTIONS

    before = begun[: begun.rfind(",") + 1]
    given = {word.partition("=")[0] for word in before.split(",")}
    about = {
        TUNED: OPTIONS[TUNED].summary,
        REQUIRED: "as tuned, but fail without the module",
        **{name: one.summary for name, one in MODULE_OPTIONS.items()},
        **{name: one.summary for name, one in OPTIONS.items()},
    }
    left = {name: text for name, text in about.items() if name not in given}
    return _matching(left, begun[len(before) :], before)


options_option = click.option(
    "-o",
    "options",
    default="",
    metavar="OPTIONS",
    shell_complete=mount_options,
    help="Options of the tuned libfuse3; with tuned or tuned_required, also of the module.",
)
