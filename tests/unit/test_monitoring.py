# SPDX-License-Identifier: GPL-2.0-or-later
"""The dashboard and the alert rules use only metrics and labels in the table."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from fusetune.kmod.kinds import KINDS
from fusetune.knobs import LIVE
from fusetune.report.prometheus import METRICS
from tests.monitoring import ALERTS, DASHBOARD, queries
from tests.unit.conftest import CHECKOUT

#: node_exporter's metric about the file (collector/textfile.go).
_COLLECTOR = {"node_textfile_mtime_seconds": {"file"}}
#: Labels that Prometheus adds to each series; a histogram's parts also have ``le``.
_ADDED = {"instance", "job"}
_LABELS = {name: set(metric.labels) for name, metric in METRICS.items()} | _COLLECTOR
_PARTS = {
    f"{name}_{part}": set(metric.labels) | ({"le"} if part == "bucket" else set())
    for name, metric in METRICS.items()
    for part in ("bucket", "sum", "count")
    if metric.type == "histogram"
}
_KNOWN = _LABELS | _PARTS
#: Labels whose values are our own names.
_VALUES = {
    "knob": {knob.name for knob in LIVE},
    "name": {*(kind.name for kind in KINDS), "libfuse3-tuned"},
}


def alerts() -> Iterator[tuple[str, str]]:
    """The name and the expression of each alert."""
    rules = re.split(r"^ +- alert: ", ALERTS.read_text(), flags=re.M)[1:]
    for rule in rules:
        found = re.search(r"^( +)expr: *[|>]?-?(.*\n(?:\1 .*\n)*)", rule, re.M)
        assert found, rule
        yield rule.partition("\n")[0], found[2]


EXPRESSIONS = {**dict(alerts()), **dict(queries())}


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def used(expression: str) -> Iterator[tuple[str, str]]:
    """The metrics of an expression, each with its selectors."""
    yield from re.findall(r"\b((?:fusetune|node)_\w+)(?:\{([^}]*)\})?", expression)


def test_there_are_expressions() -> None:
    assert len(dict(alerts())) == ALERTS.read_text().count("expr:") > 0
    assert len(dict(queries())) == DASHBOARD.read_text().count('"expr":')


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_metrics_and_labels_are_in_the_table(name: str) -> None:
    expression = EXPRESSIONS[name]
    found = list(used(expression))
    assert found
    for metric, selectors in found:
        assert metric in _KNOWN
        for label, operator, value in re.findall(r"(\w+) *(!?=~?) *\"([^\"]*)\"", selectors):
            assert label in _KNOWN[metric] | _ADDED
            if operator in ("=", "!=") and label in _VALUES:
                assert value in _VALUES[label]
    labels = set().union(*(_KNOWN[metric] for metric, _ in found)) | _ADDED
    for words in re.findall(r"\b(?:by|without|on|ignoring) *\(([^)]*)\)", expression):
        assert set(re.split(r", *", words)) <= labels


@pytest.mark.parametrize("scriptlets", ["debian/fusetune.prerm", "rpm/fusetune.spec"])
def test_the_last_metrics_go_with_the_package(scriptlets: str) -> None:
    """Otherwise node_exporter would serve them for ever. No run may write them again."""
    service = (CHECKOUT / "systemd" / "fusetune-report.service").read_text()
    (file,) = re.findall(r"^ExecStart=.* --output (\S+)$", service, re.M)
    text = (CHECKOUT / scriptlets).read_text()
    stop = re.search(r"\bstop (?:.*\\\n)*.*\bfusetune-report[.]service", text)
    remove = re.search(rf"^\trm -f {re.escape(file)}$", text, re.M)
    assert stop
    assert remove
    assert stop.end() < remove.start()


@pytest.mark.parametrize("metric", METRICS)
def test_counters_are_used_as_counters(metric: str) -> None:
    """A counter and a histogram only within a rate or an increase, a gauge in neither."""
    counts = METRICS[metric].type != "gauge"
    for expression in EXPRESSIONS.values():
        for found in re.finditer(rf"(\w+)?(\()?\b{metric}(?:_bucket|_sum|_count)?\b", expression):
            assert (found[1] in ("rate", "increase")) == counts, expression


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for _, expression in queries() for name, _ in used(expression)}
    behind = {"fusetune_knob_expected"}  # what differs from it is shown
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in shown} - _COLLECTOR.keys() == (
        METRICS.keys() - behind
    )


def test_legends_name_labels_of_their_query() -> None:
    for panel in panels():
        for target in panel.get("targets", []):
            expression = target["expr"]
            kept = re.findall(r"\bby *\(([^)]*)\)", expression)
            labels = (
                set(re.split(r", *", kept[0])) - {"le"}
                if kept
                else set().union(*(_KNOWN[metric] for metric, _ in used(expression)), _ADDED)
            )
            assert set(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))) <= labels


def test_panels_have_their_own_ids_and_places() -> None:
    identifiers = [panel["id"] for panel in panels()]
    assert len(identifiers) == len(set(identifiers)) > 20
    places = [panel["gridPos"] for panel in panels()]
    for one in places:
        assert 0 <= one["x"] < one["x"] + one["w"] <= 24
        assert one["h"] > 0 <= one["y"]
    for one, other in itertools.combinations(places, 2):
        beside = any(
            first[axis] + first[length] <= second[axis]
            for first, second in ((one, other), (other, one))
            for axis, length in (("x", "w"), ("y", "h"))
        )
        assert beside, (one, other)


def test_panels_ask_the_data_source_that_is_chosen() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__all"} <= variables
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        for one in (panel, *panel.get("targets", [])) if panel["type"] != "row" else ():
            assert one["datasource"] == chosen
        references = [target["refId"] for target in panel.get("targets", [])]
        assert len(references) == len(set(references))
