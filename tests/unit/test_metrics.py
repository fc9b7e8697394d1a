# SPDX-License-Identifier: GPL-2.0-or-later
"""The metrics of a report, read by the official parsers of both text formats."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from fusetune.report.documents.inventory import HostReport, host_report
from fusetune.report.formats import FORMATS
from fusetune.report.inventory import take_inventory
from fusetune.report.prometheus import METRICS
from tests import schemas
from tests.unit.conftest import Tree
from tests.unit.sample_metrics import COUNTED, DEBUG, PAGES, STATISTICS, empty, fill

Families = Callable[[str], Iterator[Any]]
READERS: dict[str, Families] = {"prometheus": read_text, "openmetrics": read_openmetrics}
both = pytest.mark.parametrize("form", READERS)
#: Of the mount that the module serves, and of the one with dirty pages.
READ = (("bdi", "0:41"), ("operation", "READ"))
ONE = (("bdi", "0:40"),)


@pytest.fixture
def full(tree: Tree) -> Tree:
    """A host on which every metric has a value."""
    fill(tree)
    return tree


def report(tree: Tree) -> HostReport:
    """The document, valid by its schema."""
    document = host_report(take_inventory(tree.host))
    schemas.check(document)
    return document


def families(tree: Tree, form: str) -> dict[str, Any]:
    """What a parser of the format reads, by the name in `METRICS`."""
    found = {one.name: one for one in READERS[form](FORMATS[form].render(report(tree)))}
    counters = {name for name, metric in METRICS.items() if metric.type == "counter"}
    return {
        f"{name}_total" if f"{name}_total" in counters else name: one for name, one in found.items()
    }


def values(tree: Tree, *wanted: tuple[str, str], form: str = "prometheus") -> dict[str, float]:
    """The samples with these labels, by name; of buckets, by name and upper end."""
    return {
        sample.name + sample.labels.get("le", ""): sample.value
        for family in families(tree, form).values()
        for sample in family.samples
        if set(wanted) <= sample.labels.items()
    }


@both
def test_every_metric_has_its_type_text_and_labels(full: Tree, form: str) -> None:
    found = families(full, form)
    assert found.keys() == METRICS.keys()
    for name, metric in METRICS.items():
        assert (found[name].type, found[name].documentation) == (metric.type, metric.text)
        assert found[name].samples, name
        for sample in found[name].samples:
            assert {*sample.labels} - {"le"} == set(metric.labels), name


@both
def test_what_is_unknown_has_no_series(tree: Tree, form: str) -> None:
    empty(tree)
    samples = {name for name, one in families(tree, form).items() if one.samples}
    always = {"info", "mounts", "differences", "problems", "dirty_percent", "max_dirty_percent"}
    assert samples - {"fusetune_findings"} == {
        f"fusetune_{name}" for name in (*always, "mounts_elsewhere")
    }


def test_a_value_that_cannot_be_read_is_not_zero(full: Tree) -> None:
    (full.root / "sys/fs/fuse/connections/40/waiting").unlink()
    (full.root / DEBUG).unlink()
    full.write("etc/fusetune.toml", "wrong\n")
    text = FORMATS["prometheus"].render(report(full))
    assert 'fusetune_waiting_requests{bdi="0:49"' in text
    assert 'fusetune_waiting_requests{bdi="0:40"' not in text
    assert "\nfusetune_dirty_bytes{" not in text
    assert "\nfusetune_max_dirty_percent " not in text
    assert "requests wait" not in report(full).as_text()


@both
def test_what_the_module_counts(full: Tree, form: str) -> None:
    found = values(full, *READ, form=form)
    assert found["fusetune_requests_total"] == 13
    assert found["fusetune_request_errors_total"] == 2
    assert found["fusetune_request_sent_bytes_total"] == 520
    assert found["fusetune_request_received_bytes_total"] == 53248
    seconds = "fusetune_request_duration_seconds"
    assert found[f"{seconds}_sum"] == 4.25
    assert found[f"{seconds}_count"] == found[f"{seconds}_bucket+Inf"] == 13
    ends = [name.removeprefix(f"{seconds}_bucket") for name in found if "_bucket" in name]
    assert len(ends) == 24
    assert found[f"{seconds}_bucket1e-06"] == 0
    assert found[f"{seconds}_bucket2e-06"] == 6
    assert found[f"{seconds}_bucket1.048576"] == 6
    assert found[f"{seconds}_bucket2.097152"] == 8
    assert found[f"{seconds}_bucket4.194304"] == 9


def test_requests_without_a_reply_took_no_time(full: Tree) -> None:
    found = values(full, ("bdi", "0:41"), ("operation", "FORGET"))
    assert found.pop("fusetune_requests_total") == 7
    assert {name.partition("_seconds")[0] for name in found} == {
        f"fusetune_request_{name}_total" for name in ("errors", "sent_bytes", "received_bytes")
    }


@pytest.mark.parametrize("text", ["", "READ count\n", None])
def test_a_module_that_counts_nothing(full: Tree, text: str | None) -> None:
    """The first reading is empty, another module's may differ, and an older one has no file."""
    full.write(STATISTICS, text) if text is not None else Path(full.root, STATISTICS).unlink()
    assert values(full, ("bdi", "0:41"), ("operation", "READ")) == {}
    (tuned,) = (one for one in report(full).mounts if one.bdi == "0:41")
    assert tuned.operations == ([] if text == "" else None)


def test_the_kernels_own_mounts_have_no_statistics(full: Tree) -> None:
    full.write("sys/fs/fuse/connections/40/statistics", COUNTED)
    assert {one.bdi: one.operations is None for one in report(full).mounts} == {
        "0:40": True,
        "0:41": False,
        "0:49": True,
    }


def test_dirty_pages_in_bytes(full: Tree) -> None:
    found = values(full, *ONE)
    assert found["fusetune_dirty_bytes"] == 100 << 10
    assert found["fusetune_dirty_limit_bytes"] == 1000 << 10
    assert found["fusetune_dirty_pausing_bytes"] == 750 << 10
    assert found["fusetune_written_back_bytes_total"] == 12 << 10
    full.live(values={"strict_limit": 0})
    assert "fusetune_dirty_pausing_bytes" not in values(full, *ONE)
    full.write(DEBUG, PAGES.replace("BdiDirtyThresh", "BdiDirtyLimit"))
    assert not [name for name in values(full, *ONE) if "dirty" in name or "written" in name]


def test_drift_by_knob(full: Tree) -> None:
    """One of the two kept values differs; the others have no series."""
    found = {
        sample.labels["knob"]: sample.value
        for sample in families(full, "prometheus")["fusetune_knob_differs"].samples
    }
    assert found == {"max_ratio": 1, "read_ahead_kb": 0}


def test_lag_of_module_and_library(full: Tree) -> None:
    for name, behind, current in (("fusetuned", 23, "6.12.117-1"), ("libfuse3-tuned", 2, "3.17.4")):
        found = values(full, ("name", name), ("current", current))
        assert found == {"fusetune_source_behind_releases": behind, "fusetune_source_older": 1}


def test_the_last_auto(full: Tree) -> None:
    found = values(full, *ONE)
    (saved,) = (one.saved for one in report(full).mounts if one.saved)
    ends = [found[f"fusetune_auto_gain_{name}"] for name in ("low", "ratio", "high")]
    assert ends == [1.2, 1.5, 1.9]
    assert found["fusetune_saved_timestamp_seconds"] == saved.time_seconds > 1.7e9


def test_two_mounts_of_the_same_labels_have_one_series(tree: Tree) -> None:
    """Neither has a bdi, so they look alike; parsers refuse duplicate series."""
    empty(tree)
    for number in (40, 41):
        tree.mount("/mnt/same", f"0:{number}", number=number)
        tree.live(None, str(number))
    text = FORMATS["prometheus"].render(report(tree))
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if line[0] != "#"]
    assert len(lines) == len(set(lines))
    assert 'mount="/mnt/same"' in text
