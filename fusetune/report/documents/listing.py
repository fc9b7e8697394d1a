# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``list``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.changes.policy import excluded_reason
from fusetune.mounts.mount import Mount
from fusetune.report.documents.base import (
    Count,
    Document,
    KnobValues,
    MountIdentity,
    MountPoint,
    Text,
)
from fusetune.report.text import Table, value_text
from fusetune.schema import Rule


@dataclass(frozen=True)
class ListedMount(MountIdentity):
    """A FUSE mount with its values."""

    also_at: Annotated[
        Sequence[MountPoint],
        "The other mount points of the same super block (bind mounts).",
        Rule(uniqueItems=True),
    ]
    connection: Annotated[
        str | None,
        "Name of the mount's directory under /sys/fs/fuse/connections: its device number; null "
        "where there is none.",
        Rule(pattern="^[0-9]+$"),
    ]
    owner_uid: Annotated[Count, "User id of who mounted it."]
    knobs: KnobValues
    tuned: Annotated[bool, "Whether any live knob differs from the kernel's default."]
    excluded_reason: Annotated[
        Text | None, "Why fusetune leaves the mount alone by itself; null if it does not."
    ]


@dataclass(frozen=True)
class Listing(Document):
    """Every FUSE mount of this mount namespace, in the order of mounting."""

    SCHEMA = "list"
    COMMANDS = ("list",)

    mounts: Annotated[Sequence[ListedMount], "The mounts."]

    def parts(self) -> Iterator[str | Table]:
        """Yield a table with a column for each knob."""
        if not self.mounts:
            yield "no FUSE mount"
            return
        names = sorted({name for mount in self.mounts for name in mount.knobs})
        yield Table(
            ("mount", "type", "bdi", *names, "tuned"),
            [
                (
                    mount.path,
                    mount.fstype,
                    value_text(mount.bdi),
                    *(value_text(mount.knobs.get(name)) for name in names),
                    "left alone" if mount.excluded_reason else "yes" if mount.tuned else "no",
                )
                for mount in self.mounts
            ],
            right=" ".join(names),
        )


def listing(mounts: Sequence[tuple[Mount, Mapping[str, int], bool]]) -> Listing:
    """Return the document for mounts, their live values, and whether they are tuned."""
    return Listing(
        [
            ListedMount(
                mount.path,
                mount.fstype,
                mount.source,
                mount.bdi,
                mount.also_at,
                mount.connection,
                mount.owner_uid,
                values,
                tuned,
                excluded_reason(mount),
            )
            for mount, values, tuned in mounts
        ]
    )
