# SPDX-License-Identifier: GPL-2.0-or-later
"""The files in monitoring/, for their tests."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parents[1] / "monitoring"
ALERTS = DIRECTORY / "alerts.yml"
DASHBOARD = DIRECTORY / "dashboard.json"


def queries() -> Iterator[tuple[str, str]]:
    """Yield each query of the dashboard with a name; its variables match everything."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", _any(target["expr"])


def variables() -> Iterator[tuple[str, str, str]]:
    """Yield each variable that is queried from Prometheus: its name, the metric and the label."""
    for one in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if one["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"])
            assert found, one
            yield one["name"], _any(found[1]), found[2]


def _any(expression: str) -> str:
    return re.sub(r"\$\w+", ".*", expression)
