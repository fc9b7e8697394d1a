# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``bench --suite``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.papers.run import PaperResult, Row
from fusetune.report.documents.base import Document, Interval95, Positive, Text
from fusetune.report.documents.figures import Cost
from fusetune.report.text import Table, ratio_text, value_text
from fusetune.schema import Rule


@dataclass(frozen=True)
class PublishedRatio:
    """One ratio of two speeds."""

    label: Annotated[Text, "Which speed it is."]
    published_ratio: Annotated[Positive, "The ratio in the published figures."]
    ratio: Annotated[
        Positive | None, "The ratio on this host, geometric mean over rounds; null if absent."
    ]
    ci95: Annotated[
        Interval95 | None, "95 % interval of the ratio, lower end first; null if absent."
    ]
    absent_reason: Annotated[
        Text | None, "Why it cannot be measured on this host; null if it was measured."
    ]


@dataclass(frozen=True)
class Paper:
    """A published paper."""

    name: Annotated[str, "Name of the paper, as given to --only.", Rule(pattern="^[a-z][a-z-]*$")]
    title: Annotated[Text, "Title: who measured what, and when."]
    stands_for: Annotated[Text, "What the jobs here reproduce, and what the ratios relate to."]
    rows: Annotated[Sequence[PublishedRatio], "Its ratios.", Rule(minItems=1)]
    cost: Cost


@dataclass(frozen=True)
class SuiteResult(Document):
    """Ratios of published papers, beside those measured on this host."""

    SCHEMA = "bench-suite"
    COMMANDS = ("bench --suite published",)

    works: Annotated[Sequence[Paper], "One entry for each paper.", Rule(minItems=1)]

    def parts(self) -> Iterator[str | Table]:
        """Yield a table for each paper, published ratios beside measured ones."""
        for paper in self.works:
            yield paper.title
            yield paper.stands_for
            yield Table(
                ("ratio of", "published", "here"),
                [
                    (row.label, f"{row.published_ratio:.2f}", _measured(row))
                    for row in paper.rows
                    if not row.absent_reason
                ],
            )
            for reason in dict.fromkeys(row.absent_reason for row in paper.rows):
                if reason:
                    absent = [row.label for row in paper.rows if row.absent_reason == reason]
                    yield f"{'; '.join(absent)}: {reason}"
            yield ""


def _measured(row: PublishedRatio) -> str:
    if row.ratio is None or row.ci95 is None:
        return value_text(None)
    return ratio_text(row.ratio, row.ci95)


def suite_result(results: Sequence[PaperResult]) -> SuiteResult:
    """Return the document: one entry of ``works`` for each paper."""
    return SuiteResult(
        [
            Paper(
                result.work.name,
                result.work.title,
                result.work.stands_for,
                [_row(row) for row in result.rows],
                Cost(result.seconds, result.bytes_written, result.evaluations),
            )
            for result in results
        ]
    )


def _row(row: Row) -> PublishedRatio:
    measured = row.measured
    return PublishedRatio(
        row.ratio.label,
        row.ratio.published,
        measured.ratio if measured else None,
        [measured.low, measured.high] if measured else None,
        row.absent,
    )
