# SPDX-License-Identifier: GPL-2.0-or-later
"""The formats of ``report``. A new one needs only an entry in the table."""

from collections.abc import Callable
from dataclasses import dataclass

import click

from fusetune.report.documents.inventory import HostReport, host_report
from fusetune.report.inventory import Inventory
from fusetune.report.markdown import markdown


@dataclass(frozen=True)
class Format:
    """A format: its purpose, its writer, and whether it shows measurements."""

    purpose: str
    render: Callable[[HostReport], str]
    measured: bool = False


def _text(report: HostReport) -> str:
    return click.unstyle(report.as_text())


def _prometheus(report: HostReport) -> str:
    from fusetune.report.prometheus import metrics  # noqa: PLC0415 - only used by these

    return metrics(report)


def _openmetrics(report: HostReport) -> str:
    from fusetune.report.prometheus import openmetrics  # noqa: PLC0415 - as above

    return openmetrics(report)


def _html(report: HostReport) -> str:
    from fusetune.report.html import page  # noqa: PLC0415 - only HTML needs the template engine

    return page(report)


FORMATS = {
    "text": Format("people", _text),
    "json": Format("programs", HostReport.as_json, measured=True),
    "prometheus": Format("node_exporter's textfile collector", _prometheus),
    "openmetrics": Format("other readers of metrics", _openmetrics),
    "html": Format("browsers and print", _html, measured=True),
    "markdown": Format("tickets", markdown, measured=True),
}


def written(inventory: Inventory, name: str) -> str:
    """Return the report of an inventory in the named format."""
    chosen = FORMATS[name]
    return chosen.render(host_report(inventory, measured=chosen.measured))
