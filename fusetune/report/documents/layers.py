# SPDX-License-Identifier: GPL-2.0-or-later
"""What documents say of the mounts that a mount lies on."""

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
    "the mount's device is an image there; mount option: the kernel's overlayfs names it; "
    "argument: a path in the server's command line leads there; source: the source of the mount "
    "does. The last two are what the server says, and may be wrong.",
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
        """The layer and how it was found, in a few words."""
        where = ", in another mount namespace" if self.elsewhere else ""
        return f"{self.path} ({self.fstype}, found by {self.found_by}{where})"


Below = Annotated[
    Sequence[LayerBelow],
    "The mounts that it lies on itself, without what those lie on; empty if none is known.",
]


def layers_below(layers: Sequence[Layer]) -> list[LayerBelow]:
    """Return what a document says of the layers below a mount."""
    return [
        LayerBelow(one.path, one.fstype, one.device, str(one.found_by), one.elsewhere)
        for one in layers
    ]


class Branch(Protocol):
    """What a tree of mounts is drawn from: a mount with what it lies on."""

    @property
    def device(self) -> str: ...
    @property
    def below(self) -> Sequence[LayerBelow] | None: ...


def branches(
    mounts: Sequence[Branch], known: Mapping[str, Branch]
) -> Iterator[tuple[str, str, str]]:
    """Yield what is drawn before each mount, its device, and how it was found.

    ``known``: all mounts by their device. A mount is above what it lies on. What lies below several
    is drawn at each, and what that lies on only once: a stack may have many more ways down than
    mounts.
    """
    below_some = {layer.device for one in known.values() for layer in one.below or ()}
    seen: set[str] = set()
    # Mounts that lie on each other in a circle are below some mount, all of them.
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
