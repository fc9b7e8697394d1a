# SPDX-License-Identifier: GPL-2.0-or-later
"""`report` as one HTML file that needs no network and no script."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fusetune import __version__
from fusetune.knobs import LIVE_BY_NAME
from fusetune.report import charts, grouped
from fusetune.report.documents.inventory import HostReport
from fusetune.report.text import figure_text, ratio_text
from fusetune.text import counted, printable

#: Maximum size of a page in bytes, unless names and values of its mounts alone exceed it.
MOST = 1 << 20
_TEMPLATES = Path(__file__).with_name("templates")
# Placeholder for a mount's measurements. Names cannot contain one, because < is escaped.
_PLACE = re.compile(r"<!--measured \d+-->\n")


def page(report: HostReport) -> str:
    """Return a report as HTML.

    If the page would exceed `MOST`, the trials and then the curves of the last mounts are left
    out, and a note says so.
    """
    environment = templates()
    findings = grouped.findings(report)
    found_on: dict[str, list[int]] = {}
    for number, one in enumerate(findings, 1):
        for path in dict.fromkeys(one.mounts):
            found_on.setdefault(path, []).append(number)
    numbered = list(enumerate(report.mounts, 1))
    frame = environment.get_template("report.html").render(
        report=report,
        findings=findings,
        found_on=found_on,
        numbers={mount.path: number for number, mount in reversed(numbered)},
        known={mount.path: mount for mount in reversed(report.mounts)},
        summaries={
            knob.name: (knob.unit, LIVE_BY_NAME[knob.name].summary)
            for mount in report.mounts
            for knob in mount.knobs
        },
        version=__version__,
    )
    parts = _measured(environment, report, len(_PLACE.sub("", frame).encode()))
    return _PLACE.sub(lambda place: parts[place[0]], frame)


def _measured(environment: Environment, report: HostReport, size: int) -> dict[str, str]:
    """Return the content of each placeholder: the curves that fit, then the trials that fit.

    ``size``: bytes of the page without placeholders.
    """
    macros: Any = environment.get_template("measured.html").make_module()
    measured = [(number, one) for number, one in enumerate(report.mounts, 1) if one.measured]
    nothing, no_trials = map(str, map(macros.left_out, ("curves and trials", "trials")))
    room = MOST - size - len(measured) * len(nothing)
    curves = _first(room, (f"{macros.curves(one, i)}{no_trials}" for i, one in measured), nothing)
    room -= sum(len(each.encode()) - len(nothing) for each in curves)
    trials = _first(
        room, (str(macros.trials(one)) for _, one in measured[: len(curves)]), no_trials
    )
    found = [
        each.removesuffix(no_trials) + more for each, more in zip(curves, trials, strict=False)
    ]
    found += curves[len(trials) :]
    found += [nothing] * (len(measured) - len(curves))
    return {f"<!--measured {i}-->\n": each for (i, _), each in zip(measured, found, strict=True)}


def _first(room: int, parts: Iterable[str], instead: str) -> list[str]:
    """Return the first parts that fit into ``room`` bytes, and ``instead`` for the others."""
    kept = []
    for part in parts:
        room -= len(part.encode()) - len(instead)
        if room < 0:
            break
        kept.append(part)
    return kept


@functools.cache  # it keeps the compiled templates
def templates() -> Environment:
    """Return the template environment: each value is escaped and printable on one line."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": counted,
        "date": _date,
        "figure": figure_text,
        "ratio": ratio_text,
    }
    environment.globals |= {
        "chart": charts.chart,
        "drawing": charts,
        "origins": grouped.origins,
        "stack": grouped.stack,
        "differing": grouped.differing,
    }
    return environment


def _shown(value: Any) -> Any:
    """Return a template's value as shown on the page, on one line."""
    if value is None:
        return "-"
    return value if isinstance(value, Markup) else printable(str(value))


def _date(seconds: float) -> str:
    """Return a time in seconds since the epoch as a date, to the minute."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):  # out of range
        return f"{seconds:g} s after the epoch"
