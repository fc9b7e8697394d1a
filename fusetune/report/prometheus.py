# SPDX-License-Identifier: GPL-2.0-or-later
"""`report` as Prometheus's text format, for node_exporter's textfile collector."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from fusetune import __version__
from fusetune.report.documents.base import MountIdentity
from fusetune.report.documents.inventory import HostReport
from fusetune.report.documents.sources import SourceVersion
from fusetune.text import printable

#: The values of a series' labels, and its number.
Sample = tuple[tuple[str, ...], float]

_MOUNT = ("mount", "fstype", "bdi")
_KNOB = (*_MOUNT, "knob", "unit")
_SOURCE = ("name", "source", "current")


@dataclass(frozen=True)
class Metric:
    """What a metric says, how it is taken from a report, and its labels.

    ``bdi`` is among the labels of each mount, so no two mounts share a series.
    """

    text: str
    samples: Callable[[HostReport], Iterator[Sample]]
    labels: tuple[str, ...] = ()


def metrics(report: HostReport) -> str:
    """Return a report as metrics, labels fit for one line whatever a mount is called."""
    registry = CollectorRegistry()
    for name, metric in METRICS.items():
        gauge = Gauge(name, metric.text, metric.labels, registry=registry)
        for labels, number in metric.samples(report):
            series = gauge.labels(*map(printable, labels)) if metric.labels else gauge
            series.set(number)
    return generate_latest(registry).decode("utf-8")


def _one(number: Callable[[HostReport], float]) -> Callable[[HostReport], Iterator[Sample]]:
    """Return what yields the only series of a metric without labels."""

    def samples(report: HostReport) -> Iterator[Sample]:
        yield (), number(report)

    return samples


def _info(report: HostReport) -> Iterator[Sample]:
    yield (__version__, report.host.kernel), 1


def _findings(report: HostReport) -> Iterator[Sample]:
    for name, count in Counter(finding.name for finding in report.findings).items():
        yield (name,), count


def _source(field: str, report: HostReport) -> Iterator[Sample]:
    for one in report.host.sources:
        number = getattr(one, field)
        if one.current and number is not None:
            yield (one.name, _version(one.source), _version(one.current)), number


def _version(source: SourceVersion) -> str:
    """Return the version of a source, that of its package where that is known."""
    return source.package_version or source.version


def _mount(mount: MountIdentity) -> tuple[str, ...]:
    return mount.path, mount.fstype, str(mount.bdi)


def _knob(field: str, report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        for knob in mount.knobs:
            number = getattr(knob, field)
            if number is not None:
                yield (*_mount(mount), knob.name, knob.unit), number


def _waiting(report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        yield _mount(mount), mount.waiting


def _layers(report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        for one in mount.below:
            yield (*_mount(mount), one.path, one.fstype, one.device, one.found_by), 1


def _gain(report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        if mount.saved and mount.saved.gain_ratio is not None:
            yield _mount(mount), mount.saved.gain_ratio


def _gain_end(position: int, report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        if mount.saved and mount.saved.gain_ratio is not None and mount.saved.ci95:
            yield _mount(mount), mount.saved.ci95[position]


METRICS = {
    "fusetune_info": Metric("Version of fusetune and kernel.", _info, ("version", "kernel")),
    "fusetune_mounts": Metric("FUSE mounts seen.", _one(lambda report: len(report.mounts))),
    "fusetune_differences": Metric(
        "Values that are not as kept.", _one(lambda report: report.differences)
    ),
    "fusetune_problems": Metric(
        "Files that cannot be used.", _one(lambda report: len(report.problems))
    ),
    "fusetune_dirty_percent": Metric(
        "What tuned mounts together may keep dirty, in percent of the host's limit.",
        _one(lambda report: report.dirty_percent),
    ),
    "fusetune_findings": Metric("Findings of doctor.", _findings, ("name",)),
    "fusetune_source_behind_releases": Metric(
        "Point releases that the code of a part in use is behind the kernel's or libfuse3's.",
        partial(_source, "releases_behind"),
        _SOURCE,
    ),
    "fusetune_source_older": Metric(
        "1: the code of a part in use is older than the kernel's or libfuse3's.",
        partial(_source, "older"),
        _SOURCE,
    ),
    "fusetune_knob_value": Metric("Value now.", partial(_knob, "value"), _KNOB),
    "fusetune_knob_stock": Metric("The kernel's default.", partial(_knob, "stock"), _KNOB),
    "fusetune_knob_expected": Metric("Value that is kept.", partial(_knob, "expected"), _KNOB),
    "fusetune_waiting_requests": Metric("Requests that wait for the server.", _waiting, _MOUNT),
    "fusetune_layer_info": Metric(
        "1: the mount lies on another one, below.",
        _layers,
        (*_MOUNT, "below", "below_fstype", "below_device", "found_by"),
    ),
    "fusetune_auto_gain_ratio": Metric("Speed after / before, of the last auto.", _gain, _MOUNT),
    "fusetune_auto_gain_low": Metric(
        "Lower end of the 95 % interval, of the last auto.", partial(_gain_end, 0), _MOUNT
    ),
    "fusetune_auto_gain_high": Metric(
        "Upper end of the 95 % interval, of the last auto.", partial(_gain_end, 1), _MOUNT
    ),
}
