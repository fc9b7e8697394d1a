# SPDX-License-Identifier: GPL-2.0-or-later
"""The chart on a real Kubernetes: one node, whose volumes are those of a CSI driver.

Helm installs it as docs/kubernetes.md says. Values are read from the node's sysfs.
"""

import os
import re
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.chart import CHART, RELEASE
from tests.fleet.cluster.cluster import Cluster
from tests.fleet.cluster.image import DRIVER_IMAGE, driver_image
from tests.fleet.namespaces import STOCK, TUNED
from tests.fleet.package import build_image, make_package
from tests.native.mirror import wait_for
from tests.native.requirements import requires

pytestmark = [
    pytest.mark.long,
    requires("go", "gcc", "umoci", "mmdebstrap", "dh_builddeb", "nsenter"),
]

NAMESPACE = "fusetune"
IMAGE = "registry.example/fusetune"
INSTALL = (RELEASE, CHART, f"--namespace={NAMESPACE}")
SECTION = """
[[mount]]
csi_driver = "mirror.csi.*"
server = "mirrorfs"
read_ahead_kb = "1M"
max_background = 64
"""
#: A PodMonitor's definition, as the API server needs it to store one.
MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "PodMonitor", "plural": "podmonitors"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    image = build_image(make_package(directory, "bookworm"), directory / "fusetune.tar")
    images = {IMAGE: image, DRIVER_IMAGE: driver_image(directory / "driver")}
    with Cluster(images) as cluster:
        network = os.readlink(f"/proc/{cluster.leader}/ns/net")
        for name in (NAMESPACE, "ml-1", "web"):
            cluster.kubectl("create", "namespace", name)
        yield cluster
    assert left(network) == []


def left(network: str) -> list[str]:
    """Return what is left on the host of a cluster with this network namespace."""
    found = [str(path) for path in Path("/sys/fs/cgroup").rglob("fusetune-cluster*")]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [line for line in mounts if "fusetune-cluster" in line]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if os.readlink(process / "ns" / "net") == network:
                found.append((process / "comm").read_text())
    return found


@contextmanager
def installed(cluster: Cluster, **values: Any) -> Iterator[None]:
    """Install the chart, and at the end uninstall it if that was not done."""
    try:
        deploy(cluster, "install", image={"repository": IMAGE}, **values)
        yield
    finally:
        cluster.helm("uninstall", RELEASE, f"--namespace={NAMESPACE}")
        wait_for(lambda: not pods(cluster), "the end of the pods")


def pods(cluster: Cluster) -> list[Any]:
    """Return our pods."""
    found: list[Any] = cluster.get("pods", namespace=NAMESPACE)["items"]
    return found


def deploy(cluster: Cluster, *how: str, **values: Any) -> None:
    """Run `helm install` or `helm upgrade`, and wait until the DaemonSet's pod is ready."""
    done = cluster.helm(*how, *INSTALL, **values)
    assert done.returncode == 0, done.stderr
    where = f"--namespace={NAMESPACE}"
    try:
        cluster.kubectl("rollout", "status", f"ds/{RELEASE}", where, "--timeout=2m")
    except AssertionError as error:
        said = cluster.kubectl("describe", "pods", where)
        raise AssertionError(f"{error}\n{said}\n{cluster.logs()}") from error


@contextmanager
def used(cluster: Cluster, name: str, namespace: str = "ml-1", source: Any = None) -> Iterator[str]:
    """Run a pod that uses a volume, by default of its own, and give the volume's bdi.

    The pod runs then, or is about to: the volume has just been mounted.
    """
    volume = source or {"csi": {"driver": "mirror.csi.example"}}
    container = {"name": "pause", "image": f"{DRIVER_IMAGE}:1", "imagePullPolicy": "Never"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [{**container, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", **volume}],
        },
    }
    before = volumes(cluster)
    cluster.apply(pod)
    try:
        wait_for(lambda: bool(volumes(cluster) - before), "a volume")
        (point,) = volumes(cluster) - before
        yield cluster.device(point)
    finally:
        cluster.kubectl("delete", "pod", name, f"--namespace={namespace}", "--timeout=1m")
    wait_for(lambda: volumes(cluster) <= before, "the end of a mount")


def volumes(cluster: Cluster) -> set[str]:
    """Return where the node has mounted volumes of CSI drivers."""
    text = Path(f"/proc/{cluster.leader}/mountinfo").read_text()
    return set(re.findall(r" (\S+/kubernetes\.io~csi/\S+/mount) ", text))


def exec_watch(cluster: Cluster, *words: str) -> str:
    """Run a command in the container that sets the values."""
    how = ("exec", f"--namespace={NAMESPACE}", f"ds/{RELEASE}", "--container=watch")
    return cluster.kubectl(*how, "--", *words)


def test_volumes_are_tuned_and_undone_at_uninstall(cluster: Cluster) -> None:
    with used(cluster, "early") as early, installed(cluster, config=SECTION):
        cluster.become(early, TUNED, 10)  # the time of a start
        with used(cluster, "late") as late:
            cluster.become(late, TUNED)
            assert "/kubernetes.io~csi/data/mount" in exec_watch(cluster, "fusetune", "list")
            exec_watch(cluster, "fusetune", "verify")
            done = cluster.helm("uninstall", RELEASE, f"--namespace={NAMESPACE}")
            assert done.returncode == 0, done.stderr
            wait_for(lambda: not pods(cluster), "the end of the pods")
            assert (cluster.values(early), cluster.values(late)) == (STOCK, STOCK)
            assert [*cluster.path("/var/lib/fusetune/undo").glob("*")] == []


def test_sections_by_driver_and_namespace(cluster: Cluster) -> None:
    section = "[[mount]]\ncsi_driver = 'mirror.csi.*'\nnamespace = 'ml-*'\nread_ahead_kb = '4M'\n"
    with installed(cluster, mounts={"models.toml": section}), used(cluster, "ours") as ours:
        cluster.become(ours, STOCK | {"read_ahead_kb": 4096})
        with used(cluster, "other", "web") as other:
            cluster.wait("pod/other", "Ready", "web")
            time.sleep(1)
            assert cluster.values(other) == STOCK


def test_an_upgrade_reaches_the_mounts(cluster: Cluster) -> None:
    with installed(cluster, config=SECTION), used(cluster, "one") as bdi:
        cluster.become(bdi, TUNED)
        deploy(cluster, "upgrade", "--reuse-values", config=SECTION.replace("64", "48"))
        cluster.become(bdi, TUNED | {"max_background": 48}, 10)


def test_the_pod_monitor_finds_metrics(cluster: Cluster) -> None:
    """Prometheus asks the port of that name of each pod that the selector finds."""
    cluster.apply(MONITORS)
    cluster.wait("crd/podmonitors.monitoring.coreos.com", "Established")
    metrics = {"podMonitor": True, "interval": 10}
    with used(cluster, "one"), installed(cluster, config=SECTION, metrics=metrics):
        spec = cluster.get("podmonitor", RELEASE, namespace=NAMESPACE)["spec"]
        chosen = ",".join(f"{k}={v}" for k, v in spec["selector"]["matchLabels"].items())
        (pod,) = cluster.get("pods", f"--selector={chosen}", namespace=NAMESPACE)["items"]
        (endpoint,) = spec["podMetricsEndpoints"]
        ports = [port for one in pod["spec"]["containers"] for port in one.get("ports", ())]
        (port,) = (one["containerPort"] for one in ports if one["name"] == endpoint["port"])
        address = f"http://{pod['status']['podIP']}:{port}/metrics"

        def served() -> str:
            ask = f"import urllib.request as r; print(r.urlopen('{address}').read().decode())"
            command = [*cluster.enter("--net"), "/usr/bin/python3", "-c", ask]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            return done.stdout

        wait_for(lambda: "fusetune_knob_value" in served(), "metrics", 30)
        knob = r'^fusetune_knob_value\{.*knob="max_background".*\} 64'
        assert re.search(knob, served(), re.M), served()


def persistent(name: str, claim: str = "") -> dict[str, Any]:
    """Return a persistent volume of the class "models", whose server takes 2 ms a request."""
    spec: dict[str, Any] = {
        "capacity": {"storage": "16Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "models",
        "csi": {
            "driver": "mirror.csi.example",
            "volumeHandle": "weights",
            "volumeAttributes": {"options": "delay=2ms,served=8"},
        },
    }
    if claim:
        spec["claimRef"] = {"name": claim, "namespace": "ml-1"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


def measured(cluster: Cluster) -> str:
    """Return what the Job exports; on a node with other work, it needs more time to prove it."""
    options = ["--workload=seq-read", "--no-guard=mmap-read", "--no-guard=rand-read"]
    job = f"job/{RELEASE}-auto"
    how = ("--namespace", NAMESPACE)
    for budget in ("30s", "120s"):
        auto = {
            "enabled": True,
            "storageClass": "models",
            "nodeSelector": {"fusetune": "canary"},
            "budget": budget,
            "options": options,
        }
        deploy(cluster, "upgrade", "--reuse-values", auto=auto)

        def ended() -> list[str]:
            conditions = cluster.get(job, namespace=NAMESPACE)["status"].get("conditions", [])
            return [one["type"] for one in conditions if one["type"] in ("Complete", "Failed")]

        wait_for(lambda: bool(ended()), "the end of the Job", 600)
        if ended() == ["Complete"]:
            return cluster.kubectl("logs", job, "--container=export", *how)
        # Then the container export has found nothing to print.
        (pod,) = cluster.get("pods", "--selector=job-name", namespace=NAMESPACE)["items"]
        (auto,) = pod["status"]["initContainerStatuses"]
        said = cluster.kubectl("logs", job, "--container=auto", *how)
        assert auto["state"]["terminated"]["exitCode"] == 0, said
        cluster.kubectl("delete", job, *how)  # a Job cannot be changed
    raise AssertionError("nothing better was proven")


def test_a_job_measures_and_its_result_follows_the_volume(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubectl("label", "node", "node", "fusetune=canary")
    cluster.apply(persistent("first"))
    with installed(cluster):
        result = measured(cluster)
        (exported,) = tomllib.loads(result)["result"]
        chosen = {name: exported["values"].get(name, value) for name, value in STOCK.items()}
        assert chosen["read_ahead_kb"] > STOCK["read_ahead_kb"]
        file = tmp_path / "models.toml"
        file.write_text(result)
        how = ("--namespace", NAMESPACE)
        cluster.kubectl("create", "configmap", "fusetune-results", f"--from-file={file}", *how)
        new = {"auto": {"enabled": False}, "results": "fusetune-results"}
        deploy(cluster, "upgrade", "--reuse-values", **new)
        assert cluster.get("jobs", namespace=NAMESPACE)["items"] == []
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "weights", "namespace": "ml-1"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "models",
                "volumeName": "second",
                "resources": {"requests": {"storage": "16Gi"}},
            },
        }
        cluster.apply(persistent("second", "weights"), claim)
        source = {"persistentVolumeClaim": {"claimName": "weights"}}
        with used(cluster, "user", source=source) as bdi:
            cluster.become(bdi, chosen)
