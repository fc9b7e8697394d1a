# SPDX-License-Identifier: GPL-2.0-or-later
"""A real Prometheus with our alert rules, behind node_exporter and other exporters."""

import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from tests import monitoring
from tests.native.mirror import PATIENCE, wait_for

_EVERY = "500ms"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


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
def serving(report: Callable[[], str]) -> Iterator[int]:
    """Serve what ``report`` returns as OpenMetrics, without node_exporter; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", _OPENMETRICS)
            self.end_headers()
            self.wfile.write(report().encode())

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

    The rules' times are those of a second. ``exporters``: ports that are asked for metrics, too,
    with the label ``instance`` of what they say, empty for the address.
    """

    def __init__(self, stack: ExitStack, directory: Path, exporters: Mapping[int, str]) -> None:
        self.directory = directory / "textfile"
        self.directory.mkdir()
        self._port, node = _free_port(), _free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        rules = re.sub(r"\bfor: \w+", "for: 1s", monitoring.ALERTS.read_text())
        rules = rules.replace("[10m]", "[2s]").replace("offset 9m", "offset 1s")
        (directory / "rules.yml").write_text(rules)
        jobs = [
            {
                "job_name": job,
                "static_configs": [
                    {
                        "targets": [f"127.0.0.1:{port}"],
                        "labels": {"instance": instance} if instance else {},
                    }
                    for port, instance in ports.items()
                ],
            }
            for job, ports in (("node", {node: ""}), ("direct", exporters))
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
        except OSError:  # it does not listen yet, or its storage is not ready
            return False
        return bool(found) and all(one["value"][1] == "1" for one in found)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now. Raises OSError where it is refused."""
        words = urlencode({"query": expression})
        with urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{words}", timeout=5) as reply:
            document = json.load(reply)
        assert document["status"] == "success", document
        found: list[dict[str, Any]] = document["data"]["result"]
        return found

    def wait(self, expression: str, at_least: int = 1) -> None:
        """Wait until an expression has so many series. Raises TimeoutError if it does not."""
        wait_for(lambda: len(self.query(expression)) >= at_least, expression)

    def firing(self, mount: Path) -> set[str]:
        """Return the names of the alerts of a mount that fire."""
        found = self.query(f'ALERTS{{alertstate="firing", mount="{mount}"}}')
        return {one["metric"]["alertname"] for one in found}
