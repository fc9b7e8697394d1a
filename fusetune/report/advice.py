# SPDX-License-Identifier: GPL-2.0-or-later
"""Advice on a mount by its recipe or, without one, by what the kernel tells about it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from fusetune.changes.state import values_now
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.control import negotiated
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.mounts.mountinfo import mountinfo
from fusetune.recipes.advice import advise
from fusetune.recipes.load import Loaded, load_recipes
from fusetune.report.doctor import diagnose
from fusetune.report.documents.advice import Advised, advised

HOW_TO_WRITE = (
    "no recipe is about this server; docs/recipes.md and fusetune-advise(8) say how to write one "
    "into /etc/fusetune/recipes"
)
#: The formats of ``advise``.
FORMATS: dict[str, Callable[[Advised], str]] = {
    "text": Advised.as_text,
    "json": Advised.as_json,
    "diff": Advised.diffs,
}


def advise_on(host: Host, name: str, workloads: Collection[str]) -> Advised:
    """Return advice on the mount that ``name`` means, without touching a path in a mount.

    Raises FusetuneError if it is no FUSE mount, `ConfigError` for a recipe that is wrong.
    """
    recipes = load_recipes(host)
    _refuse_other_types(host, name, recipes)
    mount = find(host, name)
    advice = advise(host, mount, recipes, workloads)
    return advised(advice, [] if advice.recipe else [*_limits(host, mount), HOW_TO_WRITE])


def _refuse_other_types(host: Host, name: str, recipes: Sequence[Loaded]) -> None:
    """Raise FusetuneError for a mount of a server whose recipe says that it is not FUSE.

    The administrator's recipe has the last word on a type.
    """
    kinds = {
        fstype: one.recipe.server.fuse_because
        for one in sorted(recipes, key=lambda one: one.admins)
        for fstype in one.recipe.server.fstype
        if not one.recipe.server.fuse
    }
    for line in reversed(mountinfo(host)):
        if line.path == name:
            if line.fstype in kinds:
                raise FusetuneError(f"{name} is no FUSE mount: {kinds[line.fstype]}")
            return


def _limits(host: Host, mount: Mount) -> Iterator[str]:
    """Yield what INIT negotiated, which limit binds, and what doctor finds on the mount."""
    init = negotiated(host, mount)
    numbers = [f"{key} {value}" for key, value in init.items() if key != "flags"]
    if numbers:
        yield f"INIT negotiated {', '.join(numbers)}"
    values = values_now(host, mount)
    for option in mount.options:
        key, _, text = option.partition("=")
        if key == "max_read" and text.isdigit() and int(text) < 131072:
            yield f"a read request has at most {text} bytes: the mount has max_read={text}"
    with suppress(KeyError, ValueError):
        readahead, allowed = values["read_ahead_kb"], int(init["max_readahead"]) >> 10
        if readahead < allowed:
            yield f"read_ahead_kb={readahead} bounds readahead; the server allows {allowed} KiB"
    for finding in diagnose(host, [(mount, values)]).findings:
        if finding.mount:
            yield f"{finding.what}: {finding.remedy}"
