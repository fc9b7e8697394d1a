# SPDX-License-Identifier: GPL-2.0-or-later
"""`report` as Prometheus's text format, for node_exporter's textfile collector."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Info, generate_latest

from fusetune import __version__
from fusetune.text import printable

Object = Mapping[str, Any]
_MOUNT = ("mount", "fstype", "bdi")


def metrics(document: Object) -> str:
    """Return ``report``'s object as metrics, labels fit for one line whatever a mount is called.

    ``bdi`` is among the labels of each mount, so no two mounts share a series.
    """
    registry = CollectorRegistry()
    host = document["host"]
    Info("fusetune", "Version of fusetune and kernel.", registry=registry).info(
        {"version": __version__, "kernel": printable(host["kernel"])}
    )
    _host(registry, document)
    _sources(registry, host["sources"])
    _mounts(registry, document["mounts"])
    _gains(registry, document["mounts"])
    return generate_latest(registry).decode("utf-8")


def _host(registry: CollectorRegistry, document: Object) -> None:
    for name, text, value in (
        ("mounts", "FUSE mounts seen.", len(document["mounts"])),
        ("differences", "Values that are not as kept.", document["differences"]),
        ("problems", "Files that cannot be used.", len(document["problems"])),
        (
            "dirty_percent",
            "What tuned mounts together may keep dirty, in percent of the host's limit.",
            document["dirty_percent"],
        ),
    ):
        Gauge(f"fusetune_{name}", text, registry=registry).set(value)
    findings = Gauge("fusetune_findings", "Findings of doctor.", ["name"], registry=registry)
    for finding in document["findings"]:
        findings.labels(printable(finding["name"])).inc()


def _sources(registry: CollectorRegistry, sources: list[Object]) -> None:
    labels = ["name", "source", "current"]
    behind = Gauge(
        "fusetune_source_behind_releases",
        "Point releases that the code of a part in use is behind the kernel's or libfuse3's.",
        labels,
        registry=registry,
    )
    older = Gauge(
        "fusetune_source_older",
        "1: the code of a part in use is older than the kernel's or libfuse3's.",
        labels,
        registry=registry,
    )
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
        Gauge(f"fusetune_knob_{name}", text, [*_MOUNT, "knob", "unit"], registry=registry)
        for name, text in (
            ("value", "Value now."),
            ("stock", "The kernel's default."),
            ("expected", "Value that is kept."),
        )
    )
    waiting = Gauge(
        "fusetune_waiting_requests", "Requests that wait for the server.", _MOUNT, registry=registry
    )
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
    names = ("fusetune_auto_gain_ratio", "fusetune_auto_gain_low", "fusetune_auto_gain_high")
    texts = ("Speed after / before", "Lower end of the 95 % interval", "Upper end of it")
    gauges = [
        Gauge(name, f"{text}, of the last auto.", _MOUNT, registry=registry)
        for name, text in zip(names, texts, strict=True)
    ]
    for mount in mounts:
        saved = mount["saved"]
        if not saved or saved["gain_ratio"] is None:
            continue
        numbers = [saved["gain_ratio"], *(saved["ci95"] or ())]
        for gauge, number in zip(gauges, numbers, strict=False):
            gauge.labels(*_labels(mount)).set(number)
