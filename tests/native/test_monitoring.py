# SPDX-License-Identifier: GPL-2.0-or-later
"""Metrics, alert rules and dashboard in a real Prometheus, behind a real node_exporter."""

import json
import re
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from fusetune.report.documents.inventory import host_report
from fusetune.report.formats import FORMATS
from fusetune.report.inventory import take_inventory
from tests import monitoring
from tests.native.conftest import Fusetune, requires, sysfs_values, write_sysfs
from tests.native.mirror import PATIENCE, Mirror, wait_for
from tests.native.prometheus import Prometheus, serving
from tests.unit import sample_metrics
from tests.unit.conftest import Tree

pytestmark = requires("promtool", "prometheus", "prometheus-node-exporter")


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    """A report with every metric, by format; its host is a tree instead of /sys and /proc."""
    tree = Tree(tmp_path / "tree")
    sample_metrics.fill(tree)
    report = host_report(take_inventory(tree.host))
    return {name: FORMATS[name].render(report) for name in ("prometheus", "openmetrics")}


def _promtool(*words: str | Path, given: str | None = None) -> str:
    """Return what ``promtool`` prints; it must succeed."""
    done = subprocess.run(
        ["promtool", *words], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# promtool


def test_promtool_finds_no_fault_in_metrics(fusetune: Fusetune, texts: dict[str, str]) -> None:
    assert _promtool("check", "metrics", given=texts["prometheus"]) == ""
    real = fusetune("report", "--format", "prometheus").stdout
    assert _promtool("check", "metrics", given=real) == ""


def test_promtool_finds_no_fault_in_the_rules() -> None:
    assert "SUCCESS: 8 rules found" in _promtool("check", "rules", monitoring.ALERTS)


def test_each_alert_fires_clears_and_keeps_silent() -> None:
    tests = monitoring.DIRECTORY / "tests" / "alerts.yml"
    assert "SUCCESS" in _promtool("test", "rules", tests)
    named = set(re.findall(r"alertname: (\w+)", tests.read_text()))
    assert named == set(re.findall(r"alert: (\w+)", monitoring.ALERTS.read_text()))


def test_the_dashboards_queries_parse(tmp_path: Path) -> None:
    rules = [
        {"record": f"query{number}", "expr": expression}
        for number, (_, expression) in enumerate(monitoring.queries())
    ]
    file = tmp_path / "rules.yml"  # YAML includes JSON
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in _promtool("check", "rules", file)


# Prometheus and node_exporter


def test_each_query_of_the_dashboard_finds_what_it_shows(
    tmp_path: Path, texts: dict[str, str]
) -> None:
    """Metrics scraped from node_exporter, and directly as OpenMetrics."""
    with ExitStack() as stack:
        port = stack.enter_context(serving(lambda: texts["openmetrics"]))
        prometheus = Prometheus(stack, tmp_path, {port: ""})
        (prometheus.directory / "fusetune.prom").write_text(texts["prometheus"])
        lines = [line for line in texts["prometheus"].splitlines() if line[0] != "#"]
        for expected in (
            f'count by (job) ({{__name__=~"fusetune_.+"}}) == {len(lines)}',
            "count_over_time(fusetune_info[1m]) > 2",
        ):
            prometheus.wait(expected, at_least=2)
        prometheus.wait("node_textfile_scrape_error == 0")
        for _, expression in monitoring.queries():
            prometheus.wait(expression)
        for _, metric, label in monitoring.variables():
            prometheus.wait(f"count by ({label}) ({metric})")
            assert all(one["metric"] for one in prometheus.query(f"count by ({label}) ({metric})"))


def test_alerts_on_a_real_mount_fire_and_clear(
    tmp_path: Path, fusetune: Fusetune, mirror: Mirror
) -> None:
    """For a value changed by hand, and for a server stopped while a request waits."""
    fusetune.configure(f'[[mount]]\npath = "{mirror.mountpoint}"\nread_ahead_kb = 512\n')
    fusetune.json("apply", "--all")
    with ExitStack() as stack:
        prometheus = Prometheus(stack, tmp_path, {})

        def report() -> None:
            file = prometheus.directory / "fusetune.prom"
            done = fusetune("report", "--format", "prometheus", "--output", file, timeout=20)
            assert (done.returncode, done.stderr) == (0, "")

        def wait_for_alerts(*wanted: str) -> None:
            report()
            wait_for(lambda: prometheus.firing(mirror.mountpoint) == {*wanted}, f"alerts {wanted}")

        report()
        prometheus.wait("fusetune_knob_value")
        write_sysfs(mirror.bdi, read_ahead_kb=64)
        wait_for_alerts("FusetuneDrift")
        fusetune.json("apply", mirror.mountpoint)
        assert sysfs_values(mirror.bdi)["read_ahead_kb"] == 512
        wait_for_alerts()
        mirror.suspend()
        asking = subprocess.Popen(["stat", mirror.mountpoint / "none"], stderr=subprocess.DEVNULL)
        try:
            waiting = Path("/sys/fs/fuse/connections", mirror.bdi.partition(":")[2], "waiting")
            wait_for(lambda: waiting.read_text().strip() != "0", "a request")
            wait_for_alerts("FusetuneServerNotAnswering")
        finally:
            mirror.process.send_signal(signal.SIGCONT)
            asking.wait(PATIENCE)
        wait_for_alerts()
