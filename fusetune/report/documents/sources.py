# SPDX-License-Identifier: GPL-2.0-or-later
"""What documents say of how old the code is that a part of ours was made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.kmod.kinds import KINDS
from fusetune.report.documents.base import Count, Object, Text
from fusetune.schema import Rule
from fusetune.source_age import Age, Source


def part() -> Object:
    """Return the shape of the name of a part of ours."""
    return {
        "description": "The part: a module as DKMS knows it, or libfuse3-tuned.",
        "type": "string",
        "enum": [*(kind.name for kind in KINDS), "libfuse3-tuned"],
    }


@dataclass(frozen=True)
class SourceVersion:
    """A version of other projects' code."""

    version: Annotated[
        str, "Version of the Linux kernel or of libfuse.", Rule(pattern=r"^\d+\.\d+\.\d+$")
    ]
    package: Annotated[
        Text | None,
        "The distribution's package that held it; null where that is not known.",
    ]
    package_version: Annotated[Text | None, "Version of that package; null where it is not known."]


@dataclass(frozen=True)
class SourceAge:
    """A part of ours in use, and how old its code is."""

    name: Annotated[str, part]
    source: Annotated[SourceVersion, "Where its code was taken from."]
    current: Annotated[
        SourceVersion | None,
        "What the distribution has: the running kernel, or its libfuse3; null where it does not "
        "say.",
    ]
    releases_behind: Annotated[
        Count | None,
        "Point releases that the source is behind, 0 where it is as new; null where the series "
        "differ or one is not known.",
    ]
    older: Annotated[
        bool | None,
        "Whether the source is older; revisions of packages count where both are known. Null where "
        "the current version is not known.",
    ]
    summary: Annotated[Text, "The same in words."]


Sources = Annotated[
    Sequence[SourceAge],
    "How old the parts of ours in use are that are made from other projects' code.",
]


def source_version(source: Source) -> SourceVersion:
    """Return what a document says of a version."""
    return SourceVersion(source.version, source.package, source.package_version)


def source_age(age: Age) -> SourceAge:
    """Return what a document says of a part's age."""
    return SourceAge(
        age.name,
        source_version(age.source),
        source_version(age.current) if age.current else None,
        age.behind,
        age.older,
        age.summary,
    )


def source_ages(ages: Iterable[Age]) -> list[SourceAge]:
    """Return what a document says of the ages of parts."""
    return [source_age(age) for age in ages]
