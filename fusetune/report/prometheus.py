# SPDX-License-Identifier: GPL-2.0-or-later
"""`report` as Prometheus's text format, for node_exporter's textfile collector."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from fusetune import __version__
from fusetune.report.documents.base import MountIdentity
from fusetune.report.documents.counted import CountedOperation, DirtyMemory
from fusetune.report.documents.inventory import HostReport
from fusetune.report.documents.sources import SourceVersion
from fusetune.text import printable


@dataclass(frozen=True)
class Durations:
    """Latencies of requests: counts as in `CountedOperation.latency_counts`, and their sum."""

    counts: Sequence[int]
    seconds: float

    def buckets(self) -> list[tuple[str, float]]:
        """Return the upper end of each bucket, in seconds, and its cumulative count."""
        ends = [*(str((1 << n) / 1e6) for n in range(len(self.counts) - 1)), "+Inf"]
        return list(zip(ends, accumulate(self.counts), strict=True))


#: A series: the values of its labels, and its value.
Sample = tuple[tuple[str, ...], float | Durations]
Samples = Callable[[HostReport], Iterator[Sample]]

_FAMILIES = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}
_MOUNT = ("mount", "fstype", "bdi")
_KNOB = (*_MOUNT, "knob", "unit")
_OPERATION = (*_MOUNT, "operation")
_SOURCE = ("name", "source", "current")


@dataclass(frozen=True)
class Metric:
    """A metric: its help text, how it is read from a report, its labels, and its type.

    Every metric of a mount has the label ``bdi``, so no two mounts share a series. The name of a
    counter ends in ``_total``. Unknown values have no series.
    """

    text: str
    samples: Samples
    labels: tuple[str, ...] = ()
    type: str = "gauge"


class _Report(Collector):
    """A report as a collector of prometheus_client."""

    def __init__(self, report: HostReport) -> None:
        self._report = report

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        """Yield each metric with its series, with labels that are printable on one line."""
        for name, metric in METRICS.items():
            family = _FAMILIES[metric.type](name, metric.text, labels=metric.labels)
            series = {
                tuple(map(printable, labels)): value
                for labels, value in metric.samples(self._report)
            }
            for labels, value in series.items():
                if isinstance(value, Durations):
                    family.add_metric(labels, value.buckets(), value.seconds)
                else:
                    family.add_metric(labels, value)
            yield family


def metrics(report: HostReport) -> str:
    """Return a report as metrics in Prometheus's text format, version 0.0.4."""
    return generate_latest(_registry(report)).decode("utf-8")


def openmetrics(report: HostReport) -> str:
    """Return a report as metrics in the text format of OpenMetrics 1.0."""
    text: bytes = generate_openmetrics(_registry(report))  # type: ignore[no-untyped-call]
    return text.decode("utf-8")


def _registry(report: HostReport) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Report(report))
    return registry


def _one(number: Callable[[HostReport], float | None]) -> Samples:
    """Return a function that yields the single series of a metric, if it has a value."""

    def samples(report: HostReport) -> Iterator[Sample]:
        if (found := number(report)) is not None:
            yield (), found

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
    """Return the version of a source; that of its package if known."""
    return source.package_version or source.version


def _mount(mount: MountIdentity) -> tuple[str, ...]:
    return mount.path, mount.fstype, str(mount.bdi)


def _knob(field: str, report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        for knob in mount.knobs:
            number = getattr(knob, field)
            if number is not None:
                yield (*_mount(mount), knob.name, knob.unit), number


def _differs(report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        for knob in mount.knobs:
            if knob.expected is not None and knob.value is not None:
                yield (*_mount(mount), knob.name, knob.unit), knob.differs


def _waiting(report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        if mount.waiting is not None:
            yield _mount(mount), mount.waiting


def _dirty(number: Callable[[DirtyMemory], int | None]) -> Samples:
    """Return a function that yields a number for each mount whose dirty pages are known."""

    def samples(report: HostReport) -> Iterator[Sample]:
        for mount in report.mounts:
            if mount.dirty and (found := number(mount.dirty)) is not None:
                yield _mount(mount), found

    return samples


def _operations(value: Callable[[CountedOperation], float | Durations | None]) -> Samples:
    """Return a function that yields a value for each operation that the module counts."""

    def samples(report: HostReport) -> Iterator[Sample]:
        for mount in report.mounts:
            for one in mount.operations or ():
                if (found := value(one)) is not None:
                    yield (*_mount(mount), one.operation), found

    return samples


def _durations(one: CountedOperation) -> Durations | None:
    """Return the latencies of requests, None if none of them had a reply."""
    return Durations(one.latency_counts, one.seconds) if any(one.latency_counts) else None


def _layers(report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        for one in mount.below:
            yield (*_mount(mount), one.path, one.fstype, one.device, one.found_by), 1


def _saved(report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        if mount.saved:
            yield (*_mount(mount), mount.saved.by), mount.saved.time_seconds


def _gain(report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        if mount.saved and mount.saved.gain_ratio is not None:
            yield _mount(mount), mount.saved.gain_ratio


def _gain_end(position: int, report: HostReport) -> Iterator[Sample]:
    for mount in report.mounts:
        if mount.saved and mount.saved.gain_ratio is not None and mount.saved.ci95:
            yield _mount(mount), mount.saved.ci95[position]


def _counted(text: str, number: Callable[[CountedOperation], int]) -> Metric:
    """Return a metric of one of the module's counters, for each operation."""
    return Metric(text, _operations(number), _OPERATION, "counter")


METRICS = {
    "fusetune_info": Metric("Version of fusetune and kernel.", _info, ("version", "kernel")),
    "fusetune_mounts": Metric("Number of FUSE mounts.", _one(lambda report: len(report.mounts))),
    "fusetune_differences": Metric(
        "Values that differ from those kept.", _one(lambda report: report.differences)
    ),
    "fusetune_problems": Metric(
        "Files of the configuration and of fusetune's state that cannot be used.",
        _one(lambda report: len(report.problems)),
    ),
    "fusetune_dirty_percent": Metric(
        "Dirty memory allowed to all tuned mounts together, in percent of the host's limit.",
        _one(lambda report: report.dirty_percent),
    ),
    "fusetune_max_dirty_percent": Metric(
        "Configured bound of fusetune_dirty_percent.", _one(lambda report: report.max_dirty_percent)
    ),
    "fusetune_mounts_elsewhere": Metric(
        "FUSE mounts in other mount namespaces, such as containers.",
        _one(lambda report: report.mounts_elsewhere),
    ),
    "fusetune_findings": Metric("Findings of doctor.", _findings, ("name",)),
    "fusetune_source_behind_releases": Metric(
        "Point releases by which a part in use is behind the kernel or libfuse3.",
        partial(_source, "releases_behind"),
        _SOURCE,
    ),
    "fusetune_source_older": Metric(
        "1 if a part in use was made from older code than the kernel or libfuse3.",
        partial(_source, "older"),
        _SOURCE,
    ),
    "fusetune_knob_value": Metric("Current value.", partial(_knob, "value"), _KNOB),
    "fusetune_knob_stock": Metric("The kernel's default.", partial(_knob, "stock"), _KNOB),
    "fusetune_knob_expected": Metric("Kept value.", partial(_knob, "expected"), _KNOB),
    "fusetune_knob_differs": Metric("1 if the value differs from the kept one.", _differs, _KNOB),
    "fusetune_waiting_requests": Metric("Requests that wait for the server.", _waiting, _MOUNT),
    "fusetune_requests_total": _counted(
        "Completed requests, counted by the module fusetuned.", lambda one: one.requests
    ),
    "fusetune_request_errors_total": _counted("Requests that failed.", lambda one: one.errors),
    "fusetune_request_sent_bytes_total": _counted(
        "Bytes after the headers of requests.", lambda one: one.sent_bytes
    ),
    "fusetune_request_received_bytes_total": _counted(
        "Bytes after the headers of replies.", lambda one: one.received_bytes
    ),
    "fusetune_request_duration_seconds": Metric(
        "Time from creation to completion, including the wait for a slot among max_background.",
        _operations(_durations),
        *(_OPERATION, "histogram"),
    ),
    "fusetune_dirty_bytes": Metric(
        "Pages of the mount that are dirty or being written.",
        _dirty(lambda one: one.dirty_bytes),
        _MOUNT,
    ),
    "fusetune_dirty_limit_bytes": Metric(
        "The mount's limit for dirty pages.", _dirty(lambda one: one.limit_bytes), _MOUNT
    ),
    "fusetune_dirty_pausing_bytes": Metric(
        "Dirty pages above which the kernel throttles writers, if the limit is strict.",
        _dirty(lambda one: one.pausing_bytes),
        _MOUNT,
    ),
    "fusetune_written_back_bytes_total": Metric(
        "Bytes written back from the page cache.",
        _dirty(lambda one: one.written_back_bytes),
        *(_MOUNT, "counter"),
    ),
    "fusetune_layer_info": Metric(
        "1 if the mount lies on the mount in the label below.",
        _layers,
        (*_MOUNT, "below", "below_fstype", "below_device", "found_by"),
    ),
    "fusetune_saved_timestamp_seconds": Metric(
        "Time when auto or save saved the kept values, in seconds since the epoch.",
        _saved,
        (*_MOUNT, "by"),
    ),
    "fusetune_auto_gain_ratio": Metric("Speed after / before the last auto.", _gain, _MOUNT),
    "fusetune_auto_gain_low": Metric(
        "Lower end of the 95 % interval of fusetune_auto_gain_ratio.", partial(_gain_end, 0), _MOUNT
    ),
    "fusetune_auto_gain_high": Metric(
        "Upper end of the 95 % interval of fusetune_auto_gain_ratio.", partial(_gain_end, 1), _MOUNT
    ),
}
