# SPDX-License-Identifier: GPL-2.0-or-later
"""The image, run with just the mounts, rights and propagation that the chart's manifests ask for.

There is no Kubernetes: podman takes the kubelet's place (`tests.fleet.node`). FUSE servers run in
containers of their own, and their mounts come to the node below the kubelet's directory.
"""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fusetune.desired.signatures import sign
from tests.fleet.chart import Rendered, render
from tests.fleet.namespaces import FUSECTL, STOCK, TUNED
from tests.fleet.node import Node, Pod
from tests.fleet.package import build_image, make_package
from tests.native.mirror import CHECKOUT, wait_for
from tests.native.requirements import requires

pytestmark = requires("go", "podman", "runc", "umoci", "mmdebstrap", "dh_builddeb")

SUITE = "bookworm"
SECTION = "[[mount]]\nread_ahead_kb = '1M'\nmax_background = 64\n"
#: A gain that no noise hides: readahead on a server that takes 2 ms a request.
SLOW = ("delay=2ms,served=8", "fsname=models", "allow_other")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("packages"), SUITE)


@pytest.fixture(scope="module")
def image(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_image(packages, tmp_path_factory.mktemp("image") / "image.tar")


@pytest.fixture(scope="module")
def node(image: Path) -> Iterator[Node]:
    with Node(image) as node:
        yield node


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave nothing saved to the next test."""
    yield
    if "node" in request.fixturenames:
        node = request.getfixturevalue("node")
        for directory in map(node.path, ("/var/lib/fusetune", "/run/fusetune")):
            shutil.rmtree(directory, ignore_errors=True)


def daemons(node: Node, *, only: str = "", **chosen: Any) -> Pod:
    """Return the DaemonSet's pod; ``only``: with this container alone."""
    rendered = render(**chosen)
    spec = rendered.pod("DaemonSet")
    if only:
        spec["containers"] = [one for one in spec["containers"] if one["name"] == only]
    return node.pod(spec, configs(rendered, chosen))


def configs(rendered: Rendered, chosen: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    found = rendered.configs
    if "results" in chosen:
        found[chosen["results"]] = {"models.toml": ""}
    return found


def watching(node: Node, **chosen: Any) -> Pod:
    return daemons(node, only="watch", **chosen)


def left(node: Node) -> list[str]:
    """Return the journals on the node."""
    return [file.name for file in node.path("/var/lib/fusetune/undo").glob("*")]


def test_the_image_is_the_same_each_time(packages: Path, image: Path, tmp_path: Path) -> None:
    again = build_image(packages, tmp_path / "again.tar")
    found = [
        json.loads(
            subprocess.run(
                ["tar", "-xOf", file, "./index.json"], check=True, capture_output=True
            ).stdout
        )
        for file in (image, again)
    ]
    assert found[0]["manifests"][0]["digest"] == found[1]["manifests"][0]["digest"]
    assert image.read_bytes() == again.read_bytes()


def test_volumes_are_tuned_as_they_come_and_undone_at_uninstall(node: Node) -> None:
    with node.mounted("early") as early, watching(node, config=SECTION) as pod:
        node.become(early, TUNED, 10)  # the time of a start
        with node.mounted("late") as late:
            node.become(late, TUNED)
            assert node.volume("late") in pod.run("watch", "fusetune", "list")
            pod.run("watch", "fusetune", "verify")
            Path("/sys/class/bdi", late, "read_ahead_kb").write_text("256\n")
            pod.end()
            assert node.values(early) == STOCK
            assert node.values(late) == STOCK | {"read_ahead_kb": 256}, "a value of another's"
            assert left(node) == [f"{late}.journal"]


def test_an_upgrade_sets_the_new_values(node: Node) -> None:
    with node.mounted("one") as bdi:
        with watching(node, config=SECTION):
            node.become(bdi, TUNED, 10)
        assert node.values(bdi) == STOCK
        with watching(node, config=SECTION.replace("64", "48")):
            node.become(bdi, TUNED | {"max_background": 48}, 10)
        assert left(node) == []


def test_without_undo_values_stay(node: Node) -> None:
    with node.mounted("one") as bdi:
        for _ in range(2):
            with watching(node, config=SECTION, undo=False) as pod:
                node.become(bdi, TUNED, 10)
                wait_for(lambda: bool(pod.run("watch", "fusetune", "list")), "a start")
            assert node.values(bdi) == TUNED


def test_a_container_that_dies_leaves_nothing_behind(node: Node) -> None:
    with node.mounted("one") as bdi, watching(node, config=SECTION) as pod:
        node.become(bdi, TUNED, 10)
        pod.kill("watch")
        pod.wait("watch")
        assert node.values(bdi) == TUNED
        pod.restart("watch")
        with node.mounted("two") as other:
            node.become(other, TUNED, 10)
            pod.end()
            assert (node.values(bdi), node.values(other)) == (STOCK, STOCK)
    assert left(node) == []


def test_a_pod_keeps_no_mount_alive(node: Node) -> None:
    with node.mounted("one") as bdi, watching(node, config=SECTION) as pod:
        node.become(bdi, TUNED, 10)
        assert node.volume("one") in pod.run("watch", "cat", "/proc/self/mountinfo")
        node.run("umount", node.volume("one"))
        assert node.volume("one") not in pod.run("watch", "cat", "/proc/self/mountinfo")
        wait_for(lambda: not Path("/sys/class/bdi", bdi).exists(), "the end of the super block")


@pytest.mark.parametrize("without", ["", "DAC_OVERRIDE", "SYS_ADMIN", "SYS_PTRACE"])
def test_each_right_is_used(node: Node, without: str) -> None:
    """A user's mount, whose server is to be known, on a node that has not mounted fusectl."""
    by_server = "[[mount]]\nserver = 'mirrorfs'\nmax_background = 64\n"
    rendered = render(config=f"{by_server}[[mount]]\nread_ahead_kb = '1M'\n")
    spec = rendered.pod("DaemonSet")
    spec["containers"] = spec["containers"][:1]
    rights = spec["containers"][0]["securityContext"]["capabilities"]["add"]
    assert len(rights) == 3
    if without:
        rights.remove(without)
    with ExitStack() as contexts:
        node.run("umount", FUSECTL)
        mounting = ("mount", "-t", "fusectl", "fusectl", FUSECTL)
        contexts.callback(node.run, *mounting)
        pod = contexts.enter_context(node.pod(spec, rendered.configs))
        bdi = contexts.enter_context(node.mounted("one", uid=1))
        set_at_once = "read_ahead_kb 128 -> 1024"  # needs none of these rights
        wait_for(lambda: set_at_once in pod.log("watch"), set_at_once)
        node.run(*mounting)
        contexts.callback(node.run, "umount", FUSECTL)
        assert node.values(bdi) == TUNED | ({"max_background": 12} if without else {})


def test_sections_by_driver_and_namespace(node: Node) -> None:
    by_volume = "[[mount]]\ncsi_driver = 'mirror.*'\nnamespace = 'ml-*'\nread_ahead_kb = '1M'\n"
    with watching(node, mounts={"ml.toml": by_volume}, config="[[mount]]\nmax_background = 64\n"):
        with node.mounted("one", namespace="ml-1") as ours:
            node.become(ours, TUNED)
        with node.mounted("two", namespace="web") as other:
            node.become(other, STOCK | {"max_background": 64})
        with node.mounted("three", namespace="ml-1", driverName="x" * 70_000) as huge:
            node.become(huge, STOCK | {"max_background": 64})


def test_values_that_a_driver_sets_itself_are_left_to_it(node: Node) -> None:
    section = f"{SECTION}max_ratio = 20\n"
    gke = "gcsfuse.csi.storage.gke.io"
    with watching(node, config=section) as pod, node.mounted("one", driverName=gke) as bdi:
        ratio = Path("/sys/class/bdi", bdi, "max_ratio")
        wait_for(lambda: int(ratio.read_text()) == 20, "max_ratio", 1.0)
        assert node.values(bdi) == STOCK
        said = pod.run("watch", "fusetune", "doctor", check=False)
        assert "left to the CSI driver gcsfuse.csi.storage.gke.io" in said


def test_a_wrong_configuration_is_told_in_one_line(node: Node) -> None:
    with watching(node, config="[[mount]]\nread_ahead = 5\n") as pod:
        assert pod.wait("watch") != 0
        (line,) = pod.log("watch").splitlines()
        assert "/etc/fusetune/fusetune.toml:2" in line
        assert "did you mean read_ahead_kb" in line


def test_the_nodes_limits_are_left_alone(node: Node) -> None:
    """/proc/sys is read-only in a container, as Kubernetes has it; one line says so."""
    limit = Path("/proc/sys/fs/pipe-max-size")
    before = limit.read_text()
    section = f"{SECTION}pipe_max_size = '4M'\n"
    with watching(node, config=section) as pod, node.mounted("one") as bdi:
        node.become(bdi, TUNED)
        wait_for(lambda: "pipe-max-size" in pod.log("watch"), "a line", 5)
        _, line = pod.log("watch").splitlines()
        assert line.endswith("/proc/sys/fs/pipe-max-size: Read-only file system")
    assert limit.read_text() == before


def test_metrics_are_served_without_rights(node: Node) -> None:
    ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9723/metrics').read().decode())"
    with node.mounted("one") as bdi, daemons(node, config=SECTION) as pod:
        node.become(bdi, TUNED, 10)

        def served() -> bool:
            return "fusetune_knob_value" in pod.run("metrics", "python3", "-c", ask, check=False)

        wait_for(served, "metrics", 20)
        text = pod.run("metrics", "python3", "-c", ask)
        assert re.search(r'^fusetune_knob_value\{.*knob="max_background".*\} \d+', text, re.M)
        assert "node_textfile_mtime_seconds{" in text
        assert "go_goroutines" not in text
        assert pod.run("metrics", "id", "-u").strip() == "65534"


def measured(node: Node) -> str:
    """Return what the Job exports; a node with other work proves less in the same time."""
    auto = {
        "enabled": True,
        "storageClass": "models",
        "nodeSelector": {"canary": "yes"},
        "options": ["--workload=seq-read", "--no-guard=mmap-read", "--no-guard=rand-read"],
    }
    with node.mounted("canary", *SLOW):
        for budget in ("30s", "120s"):
            rendered = render(auto={**auto, "budget": budget})
            claim = rendered.kind("PersistentVolumeClaim")["metadata"]["name"]
            claims = {claim: node.volume("canary")}
            with node.pod(rendered.pod("Job"), rendered.configs, claims) as job:
                status = job.wait("export")
                said = job.log("export")
                if status == 0:
                    return said
                assert "nothing is saved for /volume" in said, job.log("auto") + said
    raise AssertionError("nothing better was proven")


def test_a_job_measures_and_its_result_follows_the_volume(node: Node, tmp_path: Path) -> None:
    """One node measures a volume; what it prints is signed, and set on another mount of it."""
    result = measured(node)
    (exported,) = tomllib.loads(result)["result"]
    chosen = {name: exported["values"].get(name, value) for name, value in STOCK.items()}
    assert chosen["read_ahead_kb"] > STOCK["read_ahead_kb"]
    shutil.rmtree(node.path("/var/lib/fusetune"))

    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    kind, public, _ = key.with_name("key.pub").read_text().split()
    rendered = render(results="models", signers=f"ops@example.com {kind} {public}\n")
    spec = rendered.pod("DaemonSet")
    spec["containers"] = spec["containers"][:1]
    other = re.sub(r'^(kernel = )"[^"]*"', r'\1"2.6"', result, flags=re.M)
    files = {"a.toml": "no export", "b.toml": other, "models.toml": result}
    files |= {f"{name}.sig": sign(text.encode(), key) for name, text in files.items()}
    files["unsigned.toml"] = result
    with node.pod(spec, {**rendered.configs, "models": files}) as pod:
        said = pod.log("import")
        assert "/results/a.toml is not imported" in said
        assert "/results/unsigned.toml: not signed" in said
        assert "it was measured on Linux 2.6" in said
        with node.mounted("another", *SLOW) as bdi:
            node.become(bdi, chosen)
        with node.mounted("stranger", *SLOW[:1], "fsname=other", volumeHandle="two") as bdi:
            with node.mounted("last", *SLOW) as last:
                node.become(last, chosen)
            assert node.values(bdi) == STOCK


@pytest.mark.parametrize("what", ["none", "suite"])
def test_an_image_without_a_package_is_refused(what: str, tmp_path: Path) -> None:
    directory = tmp_path / SUITE
    if what == "suite":
        directory.mkdir()
    command = [CHECKOUT / "kubernetes" / "image.sh", directory, tmp_path / "image.tar"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "has no package fusetune; run make deb" in line
    assert not (tmp_path / "image.tar").exists()
