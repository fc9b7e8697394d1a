# SPDX-License-Identifier: GPL-2.0-or-later
"""The formats of ``report``. A new one is one more entry in the table."""

from collections.abc import Callable
from dataclasses import dataclass

import click

from fusetune.report.documents.inventory import HostReport


@dataclass(frozen=True)
class Format:
    """What a format is for, and what writes a report in it."""

    purpose: str
    render: Callable[[HostReport], str]


def _text(report: HostReport) -> str:
    return click.unstyle(report.as_text())


def _prometheus(report: HostReport) -> str:
    from fusetune.report.prometheus import metrics  # noqa: PLC0415 - others need no client of it

    return metrics(report)


def _openmetrics(report: HostReport) -> str:
    from fusetune.report.prometheus import openmetrics  # noqa: PLC0415 - as above

    return openmetrics(report)


FORMATS = {
    "text": Format("people", _text),
    "json": Format("programs", HostReport.as_json),
    "prometheus": Format("node_exporter's textfile collector", _prometheus),
    "openmetrics": Format("other readers of metrics", _openmetrics),
}
