# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``list``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.mounts.mount import Mount
from fusetune.mounts.stack import Stacks
from fusetune.report.documents.base import (
    Count,
    Document,
    KnobValues,
    MountIdentity,
    MountPoint,
    Text,
)
from fusetune.report.documents.layers import (
    Below,
    Device,
    Elsewhere,
    LayerBelow,
    branches,
    layers_below,
)
from fusetune.report.text import Table, value_text
from fusetune.schema import Rule


@dataclass(frozen=True)
class ListedMount(MountIdentity):
    """A FUSE mount with its values."""

    device: Device
    also_at: Annotated[
        Sequence[MountPoint],
        "The other mount points of the same super block (bind mounts).",
        Rule(uniqueItems=True),
    ]
    connection: Annotated[
        str | None,
        "Name of the mount's directory under /sys/fs/fuse/connections, which is its device number; "
        "null if there is none.",
        Rule(pattern="^[0-9]+$"),
    ]
    owner_uid: Annotated[Count, "User ID of the user who mounted it."]
    knobs: KnobValues
    tuned: Annotated[bool, "Whether any live knob differs from the kernel's default."]
    excluded_reason: Annotated[
        Text | None, "Why fusetune leaves the mount alone; null if it does not."
    ]
    below: Annotated[
        Sequence[LayerBelow] | None,
        "The mounts directly below it; null without --tree.",
    ]


@dataclass(frozen=True)
class ListedLayer:
    """A mount below FUSE mounts: of another file system, or in another mount namespace."""

    path: MountPoint
    fstype: Annotated[Text, "File system type as in /proc/self/mountinfo."]
    device: Device
    elsewhere: Elsewhere
    below: Below


@dataclass(frozen=True)
class Listing(Document):
    """Every FUSE mount of this mount namespace, in the order of mounting."""

    SCHEMA = "list"
    COMMANDS = ("list",)

    mounts: Annotated[Sequence[ListedMount], "The mounts."]
    layers: Annotated[
        Sequence[ListedLayer] | None,
        "Other mounts below these; null without --tree.",
    ]

    def parts(self) -> Iterator[str | Table]:
        """Yield a table with a column for each knob; a tree also shows how each layer was found."""
        if not self.mounts:
            yield "no FUSE mount"
            return
        names = sorted({name for mount in self.mounts for name in mount.knobs})
        headings = ("mount", "type", "bdi", *names, "tuned")
        right = " ".join(names)
        if self.layers is None:
            yield Table(headings, [_row(mount, names) for mount in self.mounts], right)
            return
        known: dict[str, ListedMount | ListedLayer] = {one.device: one for one in self.layers}
        known |= {one.device: one for one in self.mounts}
        rows = []
        for drawn, device, found_by in branches(self.mounts, known):
            _, *cells = _row(known[device], names)
            rows.append([drawn + known[device].path, *cells, found_by])
        yield Table((*headings, "found by"), rows, right)


def _row(one: ListedMount | ListedLayer, names: Sequence[str]) -> list[str]:
    if isinstance(one, ListedLayer):
        where = "elsewhere" if one.elsewhere else "-"
        return [one.path, one.fstype, *("-" for _ in ("bdi", *names)), where]
    return [
        one.path,
        one.fstype,
        value_text(one.bdi),
        *(value_text(one.knobs.get(name)) for name in names),
        "left alone" if one.excluded_reason else "yes" if one.tuned else "no",
    ]


def listing(
    mounts: Sequence[tuple[Mount, Mapping[str, int], bool, str | None]],
    stacks: Stacks | None = None,
) -> Listing:
    """Return the document for mounts, their live values, and whether they are tuned.

    The last of each: why it is left alone, None if it is not. ``stacks``: the layers below them,
    None to leave them out.
    """
    listed = [
        ListedMount(
            mount.path,
            mount.fstype,
            mount.source,
            mount.bdi,
            mount.device,
            mount.also_at,
            mount.connection,
            mount.owner_uid,
            values,
            tuned,
            why,
            layers_below(stacks.below(mount)) if stacks else None,
        )
        for mount, values, tuned, why in mounts
    ]
    return Listing(listed, _layers(stacks, [one for one, *_ in mounts]) if stacks else None)


def _layers(stacks: Stacks, mounts: Sequence[Mount]) -> list[ListedLayer]:
    """Return the layers below the mounts that are not among the mounts."""
    done = {mount.device for mount in mounts}
    todo = [layer for mount in mounts for layer in stacks.below(mount)]
    found = []
    while todo:
        layer = todo.pop(0)
        if layer.device in done:
            continue
        done.add(layer.device)
        below = stacks.below_layer(layer)
        todo += below
        found.append(
            ListedLayer(
                layer.path, layer.fstype, layer.device, layer.elsewhere, layers_below(below)
            )
        )
    return found
