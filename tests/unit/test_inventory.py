# SPDX-License-Identifier: GPL-2.0-or-later
"""The report: one object for people and Prometheus, safe with any name of a mount."""

import shutil
from collections.abc import Iterator

import click
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from fusetune.desired.curve import Curve
from fusetune.desired.results import Run, save
from fusetune.errors import FusetuneError
from fusetune.mounts.discover import discover
from fusetune.report.documents.expected import Origin
from fusetune.report.documents.inventory import FuseModule, HostReport, host_report
from fusetune.report.formats import FORMATS, written
from fusetune.report.inventory import take_inventory
from fusetune.report.prometheus import metrics, openmetrics
from fusetune.tuner import curves
from tests import schemas
from tests.unit.conftest import Tree
from tests.unit.sample_run import RUN

HOSTILE = [
    '/mnt/"} 1\nfusetune_up 1',
    "/mnt/new\nline\ttab",
    "/mnt/\x1b[31mred\x1b]0;title\x07",
    "/mnt/\udcff\udc80",
    "/mnt/back\\slash\\n",
    "/mnt/größe 日本\u202e",
]


@pytest.fixture
def host_tree(tree: Tree) -> Tree:
    """A host with its usual files and one mount, 20 of whose 30 percent were set by hand."""
    tree.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n")
    tree.write("proc/sys/kernel/osrelease", "6.12.94+deb13-amd64\n")
    tree.write("sys/module/fuse/parameters/enable_uring", "N\n")
    tree.write("usr/lib/x86_64-linux-gnu/libfuse3.so.3.17.2", "")
    tree.write("usr/lib/x86_64-linux-gnu/libfuse3.so.4", "")
    tree.system()
    shutil.rmtree(tree.root / "sys/module/fusetuned")
    tree.mount("/mnt/one")
    tree.live(values={"max_ratio": 20}, waiting=3)
    tree.write("etc/fusetune.toml", '[[mount]]\npath = "/mnt/*"\nmax_ratio = 30\n')
    return tree


def report(tree: Tree) -> HostReport:
    """The document, valid by its schema."""
    document = host_report(take_inventory(tree.host))
    schemas.check(document)
    return document


def series(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each sample, as read by Prometheus's own parser."""
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def test_the_host(host_tree: Tree) -> None:
    host = report(host_tree).host
    assert (host.kernel, host.memory_bytes) == ("6.12.94+deb13-amd64", 2 << 20)
    assert host.modules == [FuseModule("fuse", built_in=True, version=None)]
    assert host.libfuse_versions == ["3.17.2"]
    host_tree.write("sys/module/fusetuned/initstate", "live\n")
    host_tree.write("sys/module/fusetuned/version", "0.1.0\n")
    module = report(host_tree).host.modules[1]
    assert module == FuseModule("fusetuned", built_in=False, version="0.1.0")


def test_a_mount_as_it_is_and_should_be(host_tree: Tree) -> None:
    (mount,) = discover(host_tree.host)
    save(host_tree.host, mount, {"max_ratio": 10, "read_ahead_kb": 256}, "auto", 1.5, (1.2, 1.9))
    document = report(host_tree)
    (found,) = document.mounts
    knobs = {knob.name: knob for knob in found.knobs}
    ratio, ahead = knobs["max_ratio"], knobs["read_ahead_kb"]
    assert (ratio.stock, ratio.value, ratio.expected) == (1, 20, 30)
    assert (ratio.set_by, ratio.differs) == ("other", True)
    assert ratio.origin == Origin(str(host_tree.root / "etc/fusetune.toml"), 3)
    assert (ahead.value, ahead.expected, ahead.set_by) == (128, 256, "stock")
    assert found.waiting == 3
    assert found.saved
    assert (found.saved.gain_ratio, found.saved.ci95) == (1.5, (1.2, 1.9))
    assert (document.differences, document.dirty_percent) == (2, 20)
    assert {finding.name for finding in document.findings} >= {"waiting"}


def test_an_empty_name_is_not_every_mount(host_tree: Tree) -> None:
    with pytest.raises(FusetuneError):
        take_inventory(host_tree.host, "")


def test_wrong_configuration_is_a_problem_not_a_failure(host_tree: Tree) -> None:
    host_tree.write("etc/fusetune.toml", "[[mount]]\nmax_rato = 3\n")
    document = report(host_tree)
    (problem,) = document.problems
    assert "fusetune.toml:2" in problem
    assert document.differences == 0
    assert {n: v for n, _, v in series(metrics(document))}["fusetune_problems"] == 1


def test_prometheus_has_every_value_once(host_tree: Tree) -> None:
    (mount,) = discover(host_tree.host)
    save(host_tree.host, mount, {"max_ratio": 10}, "auto", 1.5, (1.2, 1.9))
    document = report(host_tree)
    found = list(series(metrics(document)))
    keys = [(name, *sorted(labels.items())) for name, labels, _ in found]
    assert len(keys) == len(set(keys))
    by_name = {name: value for name, labels, value in found if "knob" not in labels}
    assert by_name["fusetune_mounts"] == 1
    assert by_name["fusetune_differences"] == 1
    assert by_name["fusetune_waiting_requests"] == 3
    assert by_name["fusetune_auto_gain_ratio"] == 1.5
    assert by_name["fusetune_auto_gain_low"] == 1.2
    knobs = {(name, labels["knob"]): value for name, labels, value in found if "knob" in labels}
    assert knobs["fusetune_knob_value", "max_ratio"] == 20
    assert knobs["fusetune_knob_expected", "max_ratio"] == 30
    assert knobs["fusetune_knob_stock", "read_ahead_kb"] == 128
    assert ("fusetune_knob_expected", "read_ahead_kb") not in knobs


@pytest.mark.parametrize("path", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_inert(tree: Tree, path: str) -> None:
    tree.write("proc/meminfo", "MemTotal: 2048 kB\n")
    tree.write("proc/sys/kernel/osrelease", "6.12\n")
    for number in (40, 41):
        tree.mount(path, f"0:{number}", "fuse." + path.replace("/", ""), path)
        tree.live(f"0:{number}", str(number))
    document = report(tree)
    assert [mount.path for mount in document.mounts] == [path, path]
    assert openmetrics(document).replace("\n", "").isprintable()
    families = read_openmetrics(openmetrics(document))  # type: ignore[no-untyped-call]
    assert not [one.name for one in families if not one.name.startswith("fusetune_")]
    text = metrics(document)
    assert text.replace("\n", "").isprintable()
    values = [
        labels["bdi"]
        for name, labels, value in series(text)
        if name == "fusetune_knob_value" and labels["knob"] == "max_ratio"
    ]
    assert values == ["0:40", "0:41"]
    assert not [name for name, _, _ in series(text) if name == "fusetune_up"]
    assert click.unstyle(document.as_text()).replace("\n", "").isprintable()
    for form in ("html", "markdown"):
        shown = FORMATS[form].render(document)
        assert shown.replace("\n", "").isprintable()
        shown.encode("utf-8")


def test_what_a_mount_lies_on(host_tree: Tree) -> None:
    host_tree.mount("/mnt/up", "0:49", source="/mnt/one/x", number=60)
    host_tree.live("0:49", "49")
    document = report(host_tree)
    lower, upper = document.mounts
    assert lower.below == []
    assert [(one.path, one.fstype, one.found_by) for one in upper.below] == [
        ("/mnt/one", "fuse.mirrorfs", "source")
    ]
    text = document.as_text()
    assert "\n  lies on /mnt/one (fuse.mirrorfs, found by source)\n" in text
    (labels,) = (
        labels for name, labels, _ in series(metrics(document)) if name == "fusetune_layer_info"
    )
    assert (labels["mount"], labels["below"]) == ("/mnt/up", "/mnt/one")
    assert (labels["below_device"], labels["found_by"]) == ("0:40", "source")


def test_text_names_what_differs(host_tree: Tree) -> None:
    lines = report(host_tree).as_text().splitlines()
    assert [line.split()[0] for line in lines if line.endswith("DIFFERS")] == ["max_ratio"]
    assert any("3 requests wait" in line for line in lines)


def test_a_report_as_text_has_no_styles(host_tree: Tree) -> None:
    document = report(host_tree)
    assert "\x1b[1m" in document.as_text()  # of headings, for a terminal
    assert FORMATS["text"].render(document).replace("\n", "").isprintable()


def test_only_formats_that_show_measurements_model_them(
    host_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer writes the metrics, and a model takes a while."""
    (mount,) = discover(host_tree.host)
    save(host_tree.host, mount, {"max_ratio": 5}, "auto", 1.5, (1.2, 1.9), RUN)
    inventory = take_inventory(host_tree.host)
    modelled: list[Run] = []

    def seen(run: Run) -> list[Curve]:
        modelled.append(run)
        return []

    monkeypatch.setattr(curves, "curves", seen)
    for form in FORMATS:
        modelled.clear()
        assert written(inventory, form)
        assert modelled == ([] if form in ("text", "prometheus", "openmetrics") else [RUN])


def test_metrics_say_how_old_the_module_is(host_tree: Tree) -> None:
    for name, text in (("version", "0.1.0"), ("parameters/source", "6.12.94")):
        host_tree.write(f"sys/module/fusetuned/{name}", f"{text}\n")
    host_tree.write("proc/sys/kernel/version", "#1 SMP Debian 6.12.117-1 (date)\n")
    found = {name: (labels, value) for name, labels, value in series(metrics(report(host_tree)))}
    labels = {"name": "fusetuned", "source": "6.12.94", "current": "6.12.117-1"}
    assert found["fusetune_source_behind_releases"] == (labels, 23)
    assert found["fusetune_source_older"] == (labels, 1)


def test_text_says_how_old_the_module_is(host_tree: Tree) -> None:
    for name, text in (("version", "0.1.0"), ("parameters/source", "6.12.94")):
        host_tree.write(f"sys/module/fusetuned/{name}", f"{text}\n")
    assert "\nfusetuned is made from 6.12.94, not older than the running kernel, 6.12.94\n" in (
        report(host_tree).as_text()
    )
