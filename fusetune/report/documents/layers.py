# SPDX-License-Identifier: GPL-2.0-or-later
"""What documents say of the mounts that a mount lies on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

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
