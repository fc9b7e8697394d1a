# SPDX-License-Identifier: GPL-2.0-or-later
"""Metrics, alert rules and dashboard in a real Prometheus, behind a real node_exporter."""

import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from fusetune.report.documents.inventory import host_report
from fusetune.report.formats import FORMATS
from fusetune.report.inventory import take_inventory
from tests import monitoring
from tests.native.conftest import Fusetune, requires, sysfs_values, write_sysfs
from tests.native.mirror import PATIENCE, Mirror, wait_for
from tests.unit import sample_metrics
from tests.unit.conftest import Tree

pytestmark = requires("promtool", "prometheus", "prometheus-node-exporter")

_EVERY = "500ms"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


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
    assert "SUCCESS: 7 rules found" in _promtool("check", "rules", monitoring.ALERTS)


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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def _running(log: Path, *words: str) -> Iterator[None]:
    with log.open("wb") as stream:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def _serving(text: str) -> Iterator[int]:
    """Serve a report as OpenMetrics, without node_exporter; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", _OPENMETRICS)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(PATIENCE)


class Prometheus:
    """Prometheus with our rules, and node_exporter, which reads the files in ``directory``.

    All times in the rules are one second. ``exporters``: ports of more exporters to scrape.
    """

    def __init__(self, stack: ExitStack, directory: Path, exporters: list[int]) -> None:
        self.directory = directory / "textfile"
        self.directory.mkdir()
        self._port, node = _free_port(), _free_port()
        rules = re.sub(r"\bfor: \w+", "for: 1s", monitoring.ALERTS.read_text())
        (directory / "rules.yml").write_text(rules.replace("[10m]", "[2s]"))
        jobs = [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for name, port in [("node", node), *(("direct", port) for port in exporters)]
        ]
        config = {
            "global": {"scrape_interval": _EVERY, "scrape_timeout": _EVERY}
            | {"evaluation_interval": _EVERY},
            "rule_files": [str(directory / "rules.yml")],
            "scrape_configs": jobs,
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))
        exporter = (
            *("prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{node}"),
            *("--collector.disable-defaults", "--collector.textfile"),
            f"--collector.textfile.directory={self.directory}",
        )
        server = (
            *("prometheus", f"--web.listen-address=127.0.0.1:{self._port}"),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
        )
        stack.enter_context(_running(directory / "node_exporter.log", *exporter))
        stack.enter_context(_running(directory / "prometheus.log", *server))
        wait_for(self._scrapes, "a scrape of every exporter")

    def _scrapes(self) -> bool:
        try:
            found = self.query("up")
        except OSError:  # it is not listening yet, or its storage is not ready
            return False
        return bool(found) and all(one["value"][1] == "1" for one in found)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression. Raises OSError if it is refused."""
        words = urlencode({"query": expression})
        with urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{words}", timeout=5) as reply:
            document = json.load(reply)
        assert document["status"] == "success", document
        found: list[dict[str, Any]] = document["data"]["result"]
        return found

    def wait(self, expression: str, at_least: int = 1) -> None:
        """Wait until an expression has this many series. Raises TimeoutError if it does not."""
        wait_for(lambda: len(self.query(expression)) >= at_least, expression)

    def firing(self, mount: Path) -> set[str]:
        """Return the names of a mount's firing alerts."""
        found = self.query(f'ALERTS{{alertstate="firing", mount="{mount}"}}')
        return {one["metric"]["alertname"] for one in found}


def test_each_query_of_the_dashboard_finds_what_it_shows(
    tmp_path: Path, texts: dict[str, str]
) -> None:
    """Metrics scraped from node_exporter, and directly as OpenMetrics."""
    with ExitStack() as stack:
        port = stack.enter_context(_serving(texts["openmetrics"]))
        prometheus = Prometheus(stack, tmp_path, [port])
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
        prometheus = Prometheus(stack, tmp_path, [])

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
