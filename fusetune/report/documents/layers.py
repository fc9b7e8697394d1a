# SPDX-License-Identifier: GPL-2.0-or-later
"""The mounts that a mount lies on, in documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from fusetune.mounts.stack import FoundBy, Layer
from fusetune.report.documents.base import MountPoint, Text
from fusetune.schema import Rule

Device = Annotated[
    str, "Device number, as in /proc/self/mountinfo.", Rule(pattern="^[0-9]+:[0-9]+$")
]
FoundByWord = Annotated[
    str,
    "How it was found. open file: the server has a file or directory open there; loop device: "
    "the mount's device is an image there; mount option: an option of the kernel's overlayfs; "
    "argument: a path in the server's command line; source: the source of the mount. The last two "
    "are claims of the server and may be wrong.",
    Rule(enum=list(FoundBy)),
]
Elsewhere = Annotated[
    bool, "Whether it is mounted in the server's mount namespace and not in this one."
]


@dataclass(frozen=True)
class LayerBelow:
    """A mount that another mount lies on."""

    path: MountPoint
    fstype: Annotated[Text, "File system type as in /proc/self/mountinfo."]
    device: Device
    found_by: FoundByWord
    elsewhere: Elsewhere

    @property
    def text(self) -> str:
        """A short description of the layer and how it was found."""
        where = ", in another mount namespace" if self.elsewhere else ""
        return f"{self.path} ({self.fstype}, found by {self.found_by}{where})"


Below = Annotated[
    Sequence[LayerBelow],
    "The mounts directly below it; empty if none is known.",
]


def layers_below(layers: Sequence[Layer]) -> list[LayerBelow]:
    """Return the layers below a mount in the form of documents."""
    return [
        LayerBelow(one.path, one.fstype, one.device, str(one.found_by), one.elsewhere)
        for one in layers
    ]


class Branch(Protocol):
    """A node of a tree of mounts: a mount and the mounts directly below it."""

    @property
    def device(self) -> str: ...
    @property
    def below(self) -> Sequence[LayerBelow] | None: ...


def branches(
    mounts: Sequence[Branch], known: Mapping[str, Branch]
) -> Iterator[tuple[str, str, str]]:
    """Yield the prefix of each line of the tree, the mount's device, and how it was found.

    ``known``: all mounts by device. A mount is drawn above the mounts that it lies on. A layer
    below several mounts is drawn below each of them, but the layers below it only once: there may
    be exponentially many paths through a stack.
    """
    below_some = {layer.device for one in known.values() for layer in one.below or ()}
    seen: set[str] = set()
    # In a cycle, each mount is below some other mount.
    tops = [one.device for one in mounts if one.device not in below_some]
    for top in (*tops, *(one.device for one in mounts)):
        if top in seen:
            continue
        todo = [("", "", top, "")]
        while todo:
            drawn, indent, device, found_by = todo.pop()
            yield drawn, device, found_by
            if device in seen:
                continue
            seen.add(device)
            layers = list(known[device].below or ())
            for number, layer in enumerate(reversed(layers)):
                mark, more = ("└─", "  ") if number == 0 else ("├─", "│ ")
                todo.append((indent + mark, indent + more, layer.device, layer.found_by))
