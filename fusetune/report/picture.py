# SPDX-License-Identifier: GPL-2.0-or-later
"""Measurements of ``auto`` and ``bench`` as one self-contained SVG file (``--plot``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fusetune.report import charts
from fusetune.report.documents.auto import AutoResult
from fusetune.report.documents.bench import BenchResult, WorkloadFigure
from fusetune.report.html import templates
from fusetune.report.text import figure_text
from fusetune.text import printable

#: Size of the drawing, and where bars begin and end, in its own units.
_WIDTH, _LEFT, _RIGHT = 480, 8, 460
_FIRST, _CAPTION, _BAR, _GAP = 32, 20, 20, 10


@dataclass(frozen=True)
class Bar:
    """A figure with its interval: a bar, with a line over it from ``low`` to ``high``."""

    top: float
    length: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Panel:
    """A captioned part of a picture: a curve or bars. ``top``: its y in the picture."""

    caption: str
    curve: charts.Chart | None = None
    bars: Sequence[Bar] = field(default=())
    top: int = 0

    @property
    def height(self) -> int:
        """Its height, including the space below it."""
        drawn = charts.HEIGHT if self.curve else _BAR * len(self.bars)
        return _CAPTION + drawn + _GAP


def picture(document: AutoResult | BenchResult) -> str:
    """Return a document's measurements as SVG."""
    if isinstance(document, AutoResult):
        return auto_picture(document)
    return bench_picture(document)


def auto_picture(result: AutoResult) -> str:
    """Return the curve of each knob with several measured values, one below another, as SVG.

    If there is none, a line says so.
    """
    panels = [Panel(knob.caption(), charts.chart(knob)) for knob in result.curves]
    nothing = [Panel("no knob was measured at several values, or the server is unknown")]
    return _picture(result.mount.path, panels or nothing)


def bench_picture(result: BenchResult) -> str:
    """Return bars for each workload: one for each series, on the workload's own scale."""
    measured = [one for one in result.series if one.workloads]
    panels = []
    for position, workload in enumerate(measured[0].workloads):
        figures = [(one.label, one.workloads[position]) for one in measured]
        panels.append(Panel(workload.name, bars=_bars(figures)))
    return _picture(", ".join(one.label for one in measured), panels)


def _bars(figures: Sequence[tuple[str, WorkloadFigure]]) -> list[Bar]:
    most = max(one.ci95[1] for _, one in figures)
    scale = (_RIGHT - _LEFT) / most
    return [
        Bar(
            _CAPTION + _BAR * number,
            round(one.figure * scale, 1),
            round(_LEFT + one.ci95[0] * scale, 1),
            round(_LEFT + one.ci95[1] * scale, 1),
            f"{label}: {figure_text(one.figure, one.unit)}",
        )
        for number, (label, one) in enumerate(figures)
    ]


def _picture(title: str, panels: Iterable[Panel]) -> str:
    placed, top = [], _FIRST
    for panel in panels:
        placed.append(replace(panel, top=top))
        top += panel.height
    return (
        templates()
        .get_template("picture.svg")
        .render(title=printable(title), panels=placed, width=_WIDTH, height=top, left=_LEFT)
    )
