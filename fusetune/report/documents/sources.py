# SPDX-License-Identifier: GPL-2.0-or-later
"""The age of the code that our parts were made from, in documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.kmod.kinds import KINDS
from fusetune.report.documents.base import Count, Object, Text
from fusetune.schema import Rule
from fusetune.source_age import LIBRARY, Age, Source


def part() -> Object:
    """Return the schema of a part's name."""
    return {
        "description": "The part: a module as DKMS knows it, or libfuse3-tuned.",
        "type": "string",
        "enum": [*(kind.name for kind in KINDS), LIBRARY],
    }


@dataclass(frozen=True)
class SourceVersion:
    """A version of another project's code."""

    version: Annotated[
        str, "Version of the Linux kernel or of libfuse.", Rule(pattern=r"^\d+\.\d+\.\d+$")
    ]
    package: Annotated[
        Text | None,
        "The distribution's package that contains it; null if unknown.",
    ]
    package_version: Annotated[Text | None, "Version of that package; null if unknown."]


@dataclass(frozen=True)
class SourceAge:
    """One of our parts in use, and how old its code is."""

    name: Annotated[str, part]
    source: Annotated[SourceVersion, "Where its code was taken from."]
    current: Annotated[
        SourceVersion | None,
        "What the distribution has: the running kernel, or its libfuse3; null if it does not say.",
    ]
    releases_behind: Annotated[
        Count | None,
        "Point releases that the source is behind, 0 if it is as new; null if the series differ "
        "or one is unknown.",
    ]
    older: Annotated[
        bool | None,
        "Whether the source is older; package revisions count if both are known. Null if the "
        "current version is unknown.",
    ]
    summary: Annotated[Text, "The same as a sentence."]


Sources = Annotated[
    Sequence[SourceAge],
    "How old our parts in use are that are made from other projects' code.",
]


def source_version(source: Source) -> SourceVersion:
    """Return a version in the form of documents."""
    return SourceVersion(source.version, source.package, source.package_version)


def source_age(age: Age) -> SourceAge:
    """Return a part's age in the form of documents."""
    return SourceAge(
        age.name,
        source_version(age.source),
        source_version(age.current) if age.current else None,
        age.behind,
        age.older,
        age.summary,
    )


def source_ages(ages: Iterable[Age]) -> list[SourceAge]:
    """Return the ages of parts in the form of documents."""
    return [source_age(age) for age in ages]
