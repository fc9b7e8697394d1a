# SPDX-License-Identifier: GPL-2.0-or-later
"""The Helm chart: by Helm itself, by Kubernetes' schemas, and wrong values in one line."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from fusetune import __version__
from tests.fleet.chart import CHART, KUBERNETES, Rendered, helm, render, validate
from tests.native.mirror import CHECKOUT, PATIENCE, wait_for
from tests.native.requirements import requires

pytestmark = requires("go")

AUTO = {"enabled": True, "storageClass": "models", "nodeSelector": {"canary": "yes"}}
EVERYTHING: dict[str, Any] = {
    "config": "[policy]\nmax_dirty_percent = 50\n",
    "mounts": {"models.toml": "[[mount]]\nmax_background = 64\n"},
    "signers": "ops@example.com ssh-ed25519 AAAA\n",
    "results": "models",
    "paths": ["/var/lib/kubelet", "/mnt"],
    "metrics": {
        "textfile": "/var/lib/node_exporter",
        "podMonitor": True,
        "alerts": True,
        "labels": {"release": "prometheus"},
    },
    "networkPolicy": {"from": [{"namespaceSelector": {}}]},
    "imagePullSecrets": [{"name": "registry"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-node-critical",
    "podAnnotations": {"a": "b"},
    "auto": {**AUTO, "options": ["--workload=seq-read", "--files=/volume/weights"]},
}
SCHEMAS = {"ConfigMap", "DaemonSet", "Job", "NetworkPolicy", "PersistentVolumeClaim"}
OTHERS = {"PodMonitor", "PrometheusRule"}  # of the Prometheus operator


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    done = helm("lint", "--strict", CHART, **values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout
    assert "[WARNING]" not in done.stdout


def test_manifests_are_as_kubernetes_has_them(tmp_path: Path) -> None:
    rendered = render(**EVERYTHING)
    kinds = {one["kind"] for one in rendered.manifests}
    assert kinds == SCHEMAS | OTHERS
    for one in rendered.manifests:
        if one["kind"] in OTHERS:
            continue
        file = tmp_path / f"{one['kind']}.yaml"
        file.write_text(yaml.safe_dump(one))
        done = validate(file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "INFO" in done.stdout, done.stdout
        wrong = yaml.safe_dump({**one, "specs": {}})
        file.write_text(wrong)
        assert validate(file).returncode != 0, "an unknown key must be found"


def test_versions_and_alerts_have_one_source() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
    rules = yaml.safe_load((CHECKOUT / "monitoring" / "alerts.yml").read_text())
    assert render(**EVERYTHING).kind("PrometheusRule")["spec"] == rules


def test_prometheus_scrapes_often_enough() -> None:
    """It looks back five minutes; a longer interval, such as the report's, leaves gaps."""
    rendered = render(metrics={"podMonitor": True, "interval": 300})
    (endpoint,) = rendered.kind("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["interval"] == "60s"


def test_the_last_metrics_go_with_the_pod(tmp_path: Path) -> None:
    """The node's own node_exporter would serve them for ever."""
    file, program = tmp_path / "fusetune.prom", tmp_path / "bin" / "fusetune"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho metrics >{file}\n")
    program.chmod(0o755)
    (report,) = (
        one
        for one in render(**EVERYTHING).pod("DaemonSet")["containers"]
        if one["name"] == "report"
    )
    command = [word.replace("/metrics/", f"{tmp_path}/") for word in report["command"]]
    path = f"{program.parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        command, env={**os.environ, "PATH": path}, start_new_session=True
    ) as container:
        try:
            wait_for(file.exists, "a report")
            container.terminate()
            container.wait(PATIENCE)
            assert not file.exists()
        finally:
            with suppress(ProcessLookupError):  # it had not slept yet
                os.killpg(container.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("script", "ends", "said"),
    [
        ("echo $* >{file}", 0, "auto --budget=10m /volume"),
        ("echo none >{file}; exit 4", 0, "none"),
        ("echo failed >{file}; exit 1", 1, "failed"),
        (
            "trap 'sleep 0.5; echo back >{file}; exit 130' TERM; touch {file}.on; sleep 60 & wait",
            1,
            "back",
        ),
    ],
    ids=["better", "nothing better", "failed", "ended"],
)
def test_how_the_job_ends(tmp_path: Path, script: str, ends: int, said: str) -> None:
    file, program = tmp_path / "said", tmp_path / "bin" / "fusetune"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script.format(file=file)}\n")
    program.chmod(0o755)
    (auto,) = render(auto=AUTO).pod("Job")["initContainers"]
    path = f"{program.parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        auto["command"], env={**os.environ, "PATH": path}, start_new_session=True
    ) as container:
        try:
            if "TERM" in script:
                wait_for(file.with_suffix(".on").exists, "auto")
                container.terminate()
            assert container.wait(PATIENCE) == ends
            assert file.read_text() == f"{said}\n"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(container.pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["123", "true", "null", "1e3"])
def test_names_that_yaml_takes_for_something_else_stay_strings(name: str) -> None:
    """Such a name is valid in Kubernetes (RFC 1123)."""
    values = {"priorityClassName": name, "seLinuxType": name, "results": name}
    auto = {**AUTO, "storageClass": name, "size": "16"}
    words = ("template", name, CHART, f"--kube-version={KUBERNETES}", f"--namespace={name}")
    done = helm(*words, **values, auto=auto)
    assert done.returncode == 0, done.stderr
    found = Rendered.of(done.stdout)
    claim = found.kind("PersistentVolumeClaim")["spec"]
    assert claim["storageClassName"] == name
    assert claim["resources"]["requests"]["storage"] == "16"
    pod = found.pod("DaemonSet")
    assert pod["priorityClassName"] == name
    assert pod["securityContext"]["seLinuxOptions"]["type"] == name
    for one in found.manifests:
        assert one["metadata"]["namespace"] == name
        assert one["metadata"]["labels"]["app.kubernetes.io/instance"] == name

    auto = {"enabled": True, "claim": name, "nodeSelector": {"canary": "yes"}}
    (volume,) = (
        one["persistentVolumeClaim"]
        for one in render(auto=auto).pod("Job")["volumes"]
        if one["name"] == "volume"
    )
    assert volume["claimName"] == name


def test_rights_are_the_least() -> None:
    """No pod has a token, the node's network, all rights or a root that can be written."""
    rendered = render(**EVERYTHING)
    for kind in ("DaemonSet", "Job"):
        spec = rendered.pod(kind)
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostIPC", "serviceAccountName"} & spec.keys()
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            rights = container["securityContext"]
            assert rights["capabilities"]["drop"] == ["ALL"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["allowPrivilegeEscalation"] is False
            assert "privileged" not in rights
            assert container["resources"]["limits"]["memory"]
    (metrics,) = (
        one for one in rendered.pod("DaemonSet")["containers"] if one["name"] == "metrics"
    )
    assert metrics["securityContext"]["runAsNonRoot"] is True
    assert "add" not in metrics["securityContext"]["capabilities"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metrics": {"port": 80}}, "metrics.port"),
        ({"metrics": {"port": 65536}}, "metrics.port"),
        ({"metrics": {"interval": 5}}, "metrics.interval"),
        ({"metrics": {"interval": 301}}, "metrics.interval"),
        ({"metrics": {"textfile": "relative"}}, "metrics.textfile"),
        ({"metrics": {"port": 0, "podMonitor": True}}, "podMonitor needs metrics.port"),
        ({"paths": ["var/lib/kubelet"]}, "paths.0"),
        ({"paths": []}, "paths"),
        ({"mounts": {"../x.toml": ""}}, "mounts"),
        ({"mounts": {"x.conf": ""}}, "mounts"),
        ({"image": {"digest": "sha256:12"}}, "image.digest"),
        ({"undo": "yes"}, "undo"),
        ({"maxUnavailable": "0%"}, "maxUnavailable"),
        ({"results": "No_Name"}, "results"),
        ({"resource": {}}, "resource"),
        ({"auto": {"enabled": True}}, "auto.claim or auto.storageClass"),
        ({"auto": {**AUTO, "claim": "x"}}, "one of auto.claim and auto.storageClass"),
        ({"auto": {"enabled": True, "claim": "x"}}, "auto.nodeSelector"),
        ({"auto": {**AUTO, "budget": "4s"}}, "auto.budget"),
        ({"auto": {**AUTO, "budget": "1d"}}, "auto.budget"),
        ({"auto": {**AUTO, "size": "lots"}}, "auto.size"),
        ({"auto": {**AUTO, "size": "16K"}}, "auto.size"),
        ({"auto": {**AUTO, "accessMode": "Any"}}, "auto.accessMode"),
        ({"auto": {**AUTO, "options": ["seq-read"]}}, "auto.options.0"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    done = helm("template", "x", CHART, f"--kube-version={KUBERNETES}", **values)
    assert done.returncode != 0, done.stdout
    assert message in done.stderr, done.stderr
