# SPDX-License-Identifier: GPL-2.0-or-later
"""`report` as Prometheus's text format, for node_exporter's textfile collector."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Info, generate_latest

from fusetune import __version__
from fusetune.text import printable

Object = Mapping[str, Any]
_MOUNT = ("mount", "fstype", "bdi")
_KNOB = (*_MOUNT, "knob", "unit")
_SOURCE = ("name", "source", "current")


@dataclass(frozen=True)
class Metric:
    """What a metric says, and its labels."""

    text: str
    labels: tuple[str, ...] = ()


METRICS = {
    "fusetune_info": Metric("Version of fusetune and kernel.", ("version", "kernel")),
    "fusetune_mounts": Metric("FUSE mounts seen."),
    "fusetune_differences": Metric("Values that are not as kept."),
    "fusetune_problems": Metric("Files that cannot be used."),
    "fusetune_dirty_percent": Metric(
        "What tuned mounts together may keep dirty, in percent of the host's limit."
    ),
    "fusetune_findings": Metric("Findings of doctor.", ("name",)),
    "fusetune_source_behind_releases": Metric(
        "Point releases that the code of a part in use is behind the kernel's or libfuse3's.",
        _SOURCE,
    ),
    "fusetune_source_older": Metric(
        "1: the code of a part in use is older than the kernel's or libfuse3's.", _SOURCE
    ),
    "fusetune_knob_value": Metric("Value now.", _KNOB),
    "fusetune_knob_stock": Metric("The kernel's default.", _KNOB),
    "fusetune_knob_expected": Metric("Value that is kept.", _KNOB),
    "fusetune_waiting_requests": Metric("Requests that wait for the server.", _MOUNT),
    "fusetune_auto_gain_ratio": Metric("Speed after / before, of the last auto.", _MOUNT),
    "fusetune_auto_gain_low": Metric("Lower end of the 95 % interval, of the last auto.", _MOUNT),
    "fusetune_auto_gain_high": Metric("Upper end of it, of the last auto.", _MOUNT),
}


def metrics(document: Object) -> str:
    """Return ``report``'s object as metrics, labels fit for one line whatever a mount is called.

    ``bdi`` is among the labels of each mount, so no two mounts share a series.
    """
    registry = CollectorRegistry()
    host = document["host"]
    # Info adds "_info" by itself, and takes its labels with their values.
    Info("fusetune", METRICS["fusetune_info"].text, registry=registry).info(
        {"version": __version__, "kernel": printable(host["kernel"])}
    )
    _host(registry, document)
    _sources(registry, host["sources"])
    _mounts(registry, document["mounts"])
    _gains(registry, document["mounts"])
    return generate_latest(registry).decode("utf-8")


def _gauge(registry: CollectorRegistry, name: str) -> Gauge:
    """Return the gauge of this name in `METRICS`."""
    metric = METRICS[name]
    return Gauge(name, metric.text, metric.labels, registry=registry)


def _host(registry: CollectorRegistry, document: Object) -> None:
    for name, value in (
        ("mounts", len(document["mounts"])),
        ("differences", document["differences"]),
        ("problems", len(document["problems"])),
        ("dirty_percent", document["dirty_percent"]),
    ):
        _gauge(registry, f"fusetune_{name}").set(value)
    findings = _gauge(registry, "fusetune_findings")
    for finding in document["findings"]:
        findings.labels(printable(finding["name"])).inc()


def _sources(registry: CollectorRegistry, sources: list[Object]) -> None:
    behind = _gauge(registry, "fusetune_source_behind_releases")
    older = _gauge(registry, "fusetune_source_older")
    for one in sources:
        if one["current"]:
            values = (one["name"], _version(one["source"]), _version(one["current"]))
            older.labels(*values).set(one["older"])
            if one["releases_behind"] is not None:
                behind.labels(*values).set(one["releases_behind"])


def _version(source: Object) -> str:
    """Return the version of a source, that of its package where that is known."""
    return printable(source["package_version"] or source["version"])


def _labels(mount: Object) -> list[str]:
    return [printable(str(mount[name])) for name in ("path", "fstype", "bdi")]


def _mounts(registry: CollectorRegistry, mounts: list[Object]) -> None:
    value, stock, expected = (
        _gauge(registry, f"fusetune_knob_{name}") for name in ("value", "stock", "expected")
    )
    waiting = _gauge(registry, "fusetune_waiting_requests")
    for mount in mounts:
        labels = _labels(mount)
        waiting.labels(*labels).set(mount["waiting"])
        for knob in mount["knobs"]:
            for gauge, number in (
                (value, knob["value"]),
                (stock, knob["stock"]),
                (expected, knob["expected"]),
            ):
                if number is not None:
                    gauge.labels(*labels, knob["name"], knob["unit"]).set(number)


def _gains(registry: CollectorRegistry, mounts: list[Object]) -> None:
    gauges = [_gauge(registry, f"fusetune_auto_gain_{end}") for end in ("ratio", "low", "high")]
    for mount in mounts:
        saved = mount["saved"]
        if not saved or saved["gain_ratio"] is None:
            continue
        numbers = [saved["gain_ratio"], *(saved["ci95"] or ())]
        for gauge, number in zip(gauges, numbers, strict=False):
            gauge.labels(*_labels(mount)).set(number)
