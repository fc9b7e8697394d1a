# SPDX-License-Identifier: GPL-2.0-or-later
"""Advice on a mount, from its recipe or, without one, from what the kernel reports."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from fusetune.bench.limits import Limits
from fusetune.changes.state import values_now
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.intercept.means import means_of
from fusetune.mounts.control import negotiated
from fusetune.mounts.discover import discover, find
from fusetune.mounts.mount import Mount
from fusetune.mounts.mountinfo import mountinfo
from fusetune.mounts.stack import Layer, Stacks
from fusetune.recipes.advice import advise
from fusetune.recipes.load import Loaded, load_recipes
from fusetune.report.doctor import diagnose
from fusetune.report.documents.advice import Advised, advised
from fusetune.text import printable

HOW_TO_WRITE = (
    "no recipe describes this server; docs/recipes.md and fusetune-advise(8) explain how to add "
    "one to /etc/fusetune/recipes"
)
#: The formats of ``advise``.
FORMATS: dict[str, Callable[[Advised], str]] = {
    "text": Advised.as_text,
    "json": Advised.as_json,
    "diff": Advised.diffs,
}


#: Measures mounts by label, from the bottom up, with the labels of the layers that each lies on.
Measure = Callable[[Mapping[str, Mount], Mapping[str, Sequence[str]]], Limits]


def advise_on(
    host: Host, name: str, workloads: Collection[str], measure: Measure | None = None
) -> Advised:
    """Return advice on the mount ``name``, and on the mounts that it lies on.

    Paths in a mount are only touched by ``measure``, which finds the layer that limits. Raises
    FusetuneError if it is no FUSE mount, `ConfigError` for an invalid recipe.
    """
    recipes = load_recipes(host)
    _refuse_other_types(host, name, recipes)
    mount = find(host, name)
    stacks = Stacks(host, discover(host))
    how = (recipes, workloads, stacks.daemons, means_of(host))
    advice = advise(host, mount, *how)
    below = stacks.down(mount)
    of_layers = {one.device: advise(host, one.mount, *how) for one in below if one.mount}
    return advised(
        advice,
        [] if advice.recipe else [*_limits(host, mount), HOW_TO_WRITE],
        below,
        {device: [each.option for each in one.changes] for device, one in of_layers.items()},
        _measured(mount, below, stacks, measure) if measure else None,
    )


def _measured(mount: Mount, below: Sequence[Layer], stacks: Stacks, measure: Measure) -> Limits:
    """Measure ``mount`` and the FUSE mounts below it. Raises FusetuneError if there is none."""
    under = {one.device: stacks.below_layer(one) for one in below}
    under[mount.device] = stacks.below(mount)
    strangers = _strangers(mount, below, under)
    mounts, left_out = {}, {}
    for one in below:
        if one.mount is None:
            left_out[one.device] = f"it is not a FUSE mount but {one.fstype}"
        elif one.elsewhere:
            left_out[one.device] = "it is in another mount namespace"
        elif one.device in strangers:
            left_out[one.device] = "it is known only from the server of another user's mount"
        else:
            mounts[one.device] = one.mount
    if not mounts:
        paths = {one.device: printable(one.path) for one in below}
        whys = [f"{paths[device]}: {why}" for device, why in left_out.items()]
        raise FusetuneError(
            f"{printable(mount.path)} lies on no FUSE mount that can be measured "
            f"({'; '.join(whys) or 'none was found'}); measure it alone with 'fusetune bench'"
        )
    labels = {device: [one.device for one in layers] for device, layers in under.items()}
    found = measure(mounts | {mount.device: mount}, labels)
    return replace(found, left_out=left_out | dict(found.left_out))


def _strangers(
    mount: Mount, below: Sequence[Layer], under: Mapping[str, Sequence[Layer]]
) -> set[str]:
    """Return the devices of layers that are known only from mounts of other users.

    A user's server could name any mount, so such layers must not be written to.
    """
    trusted = {mount.device}
    owners = {one.device: _owner(one.mount) for one in below} | {mount.device: _owner(mount)}
    for upper in (mount.device, *(one.device for one in reversed(below))):
        if upper in trusted:
            layers = [one.device for one in under[upper]]
            own = owners[upper]
            trusted.update(one for one in layers if own is not None and own in (0, owners[one]))
    return {one.device for one in below} - trusted


def _owner(mount: Mount | None) -> int | None:
    """Return the owner of a mount, None if unknown; root for file systems other than FUSE."""
    if mount is None:
        return 0
    return mount.owner_uid if mount.owner_known else None


def _refuse_other_types(host: Host, name: str, recipes: Sequence[Loaded]) -> None:
    """Raise FusetuneError if a recipe says that this type is not a FUSE file system.

    The administrator's recipe takes precedence.
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
                raise FusetuneError(f"{name} is not a FUSE mount: {kinds[line.fstype]}")
            return


def _limits(host: Host, mount: Mount) -> Iterator[str]:
    """Yield what INIT negotiated, which limit applies, and what doctor finds on the mount."""
    init = negotiated(host, mount)
    numbers = [f"{key} {value}" for key, value in init.items() if value.isdigit()]
    if numbers:
        yield f"INIT negotiated {', '.join(numbers)}"
    values = values_now(host, mount)
    for option in mount.options:
        key, _, text = option.partition("=")
        if key == "max_read" and text.isdigit() and int(text) < 131072:
            yield f"read requests are at most {text} bytes: the mount has max_read={text}"
    with suppress(KeyError, ValueError):
        readahead, allowed = values["read_ahead_kb"], int(init["max_readahead"]) >> 10
        if readahead < allowed:
            yield f"read_ahead_kb={readahead} limits readahead; the server allows {allowed} KiB"
    for finding in diagnose(host, [(mount, values)]).findings:
        if finding.mount:
            yield f"{finding.what}: {finding.remedy}"
