# SPDX-License-Identifier: GPL-2.0-or-later
"""The collection on three hosts with real Ansible: a canary, batches, drift, rollback, a lost host.

The hosts are containers, two of Debian 12 and one of Debian 13, each with a slow mirrorfs. fio and
`auto` are real on the canary.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fleet.hosts import Fleet, Played
from tests.native.prometheus import Prometheus, serving
from tests.native.requirements import requires
from tests.system.container import Container

pytestmark = requires(
    *("ansible-playbook", "ansible-lint", "prometheus", "prometheus-node-exporter")
)

POINT = "/mnt/models"
SUITES = {"canary": "bookworm", "second": "bookworm", "third": "trixie"}
OTHERS = ("second", "third")
#: A gain that noise cannot hide: readahead on a server that takes 2 ms for each request.
SLOW = ("delay=2ms,served=8", "fsname=models")
ASKED = {
    "fusetune_mount": POINT,
    "fusetune_workloads": ["seq-read"],
    "fusetune_unguarded": ["mmap-read", "rand-read"],
    "fusetune_budget": "20s",
    "fusetune_serial": [1, 1],
}


class Mounts:
    """The mount of each host; ``bdis`` by host."""

    def __init__(self, bdis: dict[str, str]) -> None:
        self._files = {
            host: Path("/sys/class/bdi", bdi, "read_ahead_kb") for host, bdi in bdis.items()
        }

    def readahead(self) -> dict[str, int]:
        """Return read_ahead_kb of each host's mount."""
        return {host: int(file.read_text()) for host, file in self._files.items()}

    def set(self, host: str, value: int) -> None:
        """Set it by hand."""
        self._files[host].write_text(f"{value}\n")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Mounts]]:
    with ExitStack() as contexts:
        containers = {
            name: contexts.enter_context(Container(suite)) for name, suite in SUITES.items()
        }
        give_libfuse(containers["third"])
        bdis = {
            name: contexts.enter_context(container.mirror(POINT, *SLOW))
            for name, container in containers.items()
        }
        yield Fleet(tmp_path_factory.mktemp("fleet"), containers), Mounts(bdis)


def give_libfuse(host: Container) -> None:
    """mirrorfs is built for Debian 12, whose libfuse3 has another name than Debian 13's."""
    library = Path("/usr/lib/x86_64-linux-gnu/libfuse3.so.3")
    shutil.copy(library.resolve(), host.path(str(library)))


def reset(fleet: Fleet) -> None:
    """Restore every host."""
    for container in fleet.containers.values():
        container.run("fusetune", "reset", "--all")
        container.run("rm", "-rf", "/var/lib/fusetune", "/etc/fusetune")


def measured(host: Container, value: int) -> None:
    """Leave a host as if `auto` had chosen this readahead there."""
    host.run("fusetune", "set", POINT, f"read_ahead_kb={value}")
    host.run("fusetune", "save", POINT)
    host.run("sh", "-c", """sed -i 's/"by": "save"/"by": "auto"/' /var/lib/fusetune/saved/*""")


def rolled_out(fleet: Fleet, *words: str, **more: object) -> Played:
    return fleet.play("fusetune.fusetune.rollout", *words, **{**ASKED, **more})


def test_a_canary_measures_and_the_others_follow(fleet: tuple[Fleet, Mounts]) -> None:
    hosts, mounts = fleet
    reset(hosts)
    before = mounts.readahead()
    looked = rolled_out(hosts, "--check", "--diff")
    assert looked.status == 0, looked.text
    assert mounts.readahead() == before, "check mode changes nothing"
    assert looked.of("changed")["canary"] == 1

    for budget in ("20s", "120s"):  # a busy host proves less in the same time
        done = rolled_out(hosts, fusetune_budget=budget)
        if "proved nothing better" not in done.text:
            break
    assert done.status == 0, done.text
    after = mounts.readahead()
    assert after["canary"] > before["canary"]
    assert len(set(after.values())) == 1
    assert done.of("changed") == dict.fromkeys(SUITES, 1)

    again = rolled_out(hosts)
    assert (again.status, again.of("changed")) == (0, dict.fromkeys(SUITES, 0)), again.text

    second = hosts.containers["second"]
    second.run("fusetune", "reset", POINT)
    assert rolled_out(hosts, "--check").of("changed") == {"canary": 0, "second": 1, "third": 0}
    assert list(second.path("/var/lib/fusetune/saved").iterdir()) == [], "check mode imported"
    assert rolled_out(hosts).of("changed") == {"canary": 0, "second": 1, "third": 0}

    mounts.set("third", 64)
    looked = rolled_out(hosts, "--check", "--diff")
    assert looked.of("changed") == {"canary": 0, "second": 0, "third": 1}, looked.text
    assert '-    "read_ahead_kb": 64' in looked.text
    assert mounts.readahead()["third"] == 64
    assert rolled_out(hosts).of("changed") == {"canary": 0, "second": 0, "third": 1}
    assert mounts.readahead() == after


def test_it_stops_and_puts_back_where_a_host_fails(fleet: tuple[Fleet, Mounts]) -> None:
    """A section on the second host sets another value, so verify fails there."""
    hosts, mounts = fleet
    reset(hosts)
    measured(hosts.containers["canary"], 4096)
    broken = hosts.containers["second"].path("/etc/fusetune/mounts.d")
    broken.mkdir(parents=True)
    (broken / "wrong.toml").write_text("[[mount]]\nread_ahead = 5\n")
    done = rolled_out(hosts)
    assert done.status != 0
    assert "did you mean read_ahead_kb" in done.text
    assert mounts.readahead() == {"canary": 4096, "second": 128, "third": 128}
    assert "third" not in done.counts, "the rollout went on"


def test_it_stops_and_puts_back_where_a_host_gets_worse(fleet: tuple[Fleet, Mounts]) -> None:
    """Without readahead each page costs a request of 2 ms."""
    hosts, mounts = fleet
    reset(hosts)
    measured(hosts.containers["second"], 1024)
    measured(hosts.containers["canary"], 0)
    done = rolled_out(hosts, fusetune_worse=0.8, fusetune_budget="8s")
    assert done.status != 0
    assert "of its earlier speed; the host was restored" in done.text
    assert mounts.readahead() == {"canary": 0, "second": 1024, "third": 128}
    kept = hosts.containers["second"].run("fusetune", "show", POINT).stdout
    assert "saved: read_ahead_kb=1024" in kept
    assert "third" not in done.counts
    hosts.containers["second"].run("fusetune", "reset", POINT)
    measured(hosts.containers["canary"], 4096)
    done = rolled_out(hosts, fusetune_worse=0.8, fusetune_budget="8s")
    assert done.status == 0, done.text
    assert set(mounts.readahead().values()) == {4096}


def test_hosts_that_accept_only_signed_results(fleet: tuple[Fleet, Mounts], tmp_path: Path) -> None:
    """The second one then does not become 10 times faster, and so gets back what it kept."""
    hosts, mounts = fleet
    reset(hosts)
    measured(hosts.containers["second"], 2048)
    measured(hosts.containers["canary"], 4096)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    for name in OTHERS:
        signers = hosts.containers[name].path("/etc/fusetune/allowed_signers")
        signers.parent.mkdir(exist_ok=True)
        signers.write_text(f"fleet {key.with_suffix('.pub').read_text()}")
    done = rolled_out(hosts)
    assert done.status != 0
    assert "export.toml: not signed: " in done.text
    done = rolled_out(hosts, fusetune_key=str(key), fusetune_worse=10, fusetune_budget="8s")
    assert "of its earlier speed; the host was restored" in done.text
    assert mounts.readahead() == {"canary": 4096, "second": 2048, "third": 128}
    kept = hosts.containers["second"].run("fusetune", "show", POINT).stdout
    assert "saved: read_ahead_kb=2048" in kept
    done = rolled_out(hosts, fusetune_key=str(key))
    assert done.status == 0, done.text
    assert set(mounts.readahead().values()) == {4096}


def test_a_lost_host_stops_it(fleet: tuple[Fleet, Mounts]) -> None:
    hosts, mounts = fleet
    reset(hosts)
    measured(hosts.containers["canary"], 2048)
    leader = hosts.directory / "leaders" / "second"
    there = leader.read_text()
    leader.unlink()
    try:
        done = rolled_out(hosts)
    finally:
        leader.write_text(there)
    assert done.of("unreachable")["second"] == 1, done.text
    assert "third" not in done.counts
    assert mounts.readahead()["third"] == 128


def test_prometheus_is_asked(fleet: tuple[Fleet, Mounts], tmp_path: Path) -> None:
    """An alert fires on the second host once it has 4096, and another one all the time."""
    hosts, mounts = fleet
    labels = f'{{mount="{POINT}",knob="read_ahead_kb"}}'

    def report() -> str:
        drift = int(mounts.readahead()["second"] == 4096)
        lines = (f"fusetune_knob_value{labels} 4096", f"fusetune_knob_differs{labels} {drift}")
        return "\n".join([*lines, 'fusetune_source_older{name="fusetuned"} 1', "# EOF\n"])

    with ExitStack() as stack:
        port = stack.enter_context(serving(report))
        prometheus = Prometheus(stack, tmp_path, {port: "second:9100"})
        prometheus.wait('ALERTS{alertname="FusetuneModuleBehindKernel", alertstate="firing"}')
        asked = {"fusetune_prometheus": prometheus.address, "fusetune_prometheus_wait": 8}
        reset(hosts)
        measured(hosts.containers["canary"], 4096)
        done = rolled_out(hosts, **asked)
        assert done.status != 0
        assert "new in Prometheus: FusetuneDrift; the host was restored" in done.text
        assert mounts.readahead() == {"canary": 4096, "second": 128, "third": 128}
        assert "third" not in done.counts
        reset(hosts)
        measured(hosts.containers["canary"], 2048)
        done = rolled_out(hosts, **asked)
        assert done.status == 0, done.text
        assert set(mounts.readahead().values()) == {2048}
    hosts.containers["second"].run("fusetune", "reset", POINT)
    done = rolled_out(hosts, **asked)
    assert done.status != 0, "Prometheus has ended"
    assert "the host was restored" in done.text
    assert mounts.readahead()["second"] == 128


def test_values_by_module_and_facts(fleet: tuple[Fleet, Mounts]) -> None:
    hosts, mounts = fleet
    reset(hosts)
    knobs = {"read_ahead_kb": "1M"}
    task = {"fusetune.fusetune.fusetune_mount": {"path": POINT, "state": "present", "knobs": knobs}}
    facts: list[dict[str, object]] = [
        {"fusetune.fusetune.fusetune_facts": {}},
        {"ansible.builtin.assert": {"that": "ansible_facts.fusetune.differences == 0"}},
    ]
    play = [{"hosts": "all", "gather_facts": False, "tasks": [task, *facts]}]
    assert hosts.play(play, "--check").of("changed") == dict.fromkeys(SUITES, 1)
    assert set(mounts.readahead().values()) == {128}
    done = hosts.play(play)
    assert (done.status, done.of("changed")) == (0, dict.fromkeys(SUITES, 1)), done.text
    assert set(mounts.readahead().values()) == {1024}
    assert hosts.play(play).of("changed") == dict.fromkeys(SUITES, 0)
    knobs["read_ahead_kb"] = "128K"  # the kernel's default, which need not be kept
    assert hosts.play(play).of("changed") == dict.fromkeys(SUITES, 1)
    assert hosts.play(play).of("changed") == dict.fromkeys(SUITES, 0)
    knobs["read_ahead_kb"] = "1M"
    assert hosts.play(play).status == 0
    back = {"fusetune.fusetune.fusetune_mount": {"path": POINT, "state": "absent"}}
    play = [{"hosts": "all", "gather_facts": False, "tasks": [back]}]
    assert hosts.play(play).of("changed") == dict.fromkeys(SUITES, 1)
    assert set(mounts.readahead().values()) == {128}
    assert hosts.play(play).of("changed") == dict.fromkeys(SUITES, 0)
    # Neither mounted nor kept.
    nothing = {"fusetune.fusetune.fusetune_mount": {"path": "/mnt/none", "state": "absent"}}
    done = hosts.play([{"hosts": "all", "gather_facts": False, "tasks": [nothing]}])
    assert (done.status, done.of("changed")) == (0, dict.fromkeys(SUITES, 0)), done.text


def test_values_that_the_configuration_outweighs(fleet: tuple[Fleet, Mounts]) -> None:
    hosts, _ = fleet
    reset(hosts)
    sections = hosts.containers["second"].path("/etc/fusetune/mounts.d")
    sections.mkdir(parents=True)
    section = '[[mount]]\npath = "/mnt/*"\nread_ahead_kb = {}\n'
    (sections / "models.toml").write_text(section.format(2048))
    task = {"path": POINT, "state": "present", "knobs": {"read_ahead_kb": "1M"}}
    play = [{"hosts": "second", "tasks": [{"fusetune.fusetune.fusetune_mount": task}]}]
    done = hosts.play(play)
    assert done.of("failed") == {"second": 1}, done.text
    wrong = "/etc/fusetune/mounts.d/models.toml:3 sets read_ahead_kb=2048"
    assert f"set, but not for later mounts: {wrong}, which takes precedence" in done.text
    alone = section.replace("read_ahead_kb = {}", "leave_alone = true")
    (sections / "models.toml").write_text(alone)
    done = hosts.play(play)
    assert "not for later mounts: the configuration leaves the mount alone" in done.text
    (sections / "models.toml").write_text(section.format(1024))
    assert hosts.play(play).of("failed") == {"second": 0}
    assert hosts.play(play).of("changed") == {"second": 0}


def test_a_result_of_another_kernel_is_refused(fleet: tuple[Fleet, Mounts]) -> None:
    hosts, mounts = fleet
    reset(hosts)
    canary = hosts.containers["canary"]
    measured(canary, 4096)
    text = re.sub(r'kernel = ".*"', 'kernel = "4.19"', canary.run("fusetune", "export").stdout)
    task = {"path": POINT, "state": "imported", "content": text}
    play = [{"hosts": "second", "tasks": [{"fusetune.fusetune.fusetune_mount": task}]}]
    done = hosts.play(play)
    assert done.status != 0
    assert f"refused: {POINT}: it was measured on Linux 4.19, but this" in done.text
    assert mounts.readahead()["second"] == 128


def test_the_role_configures(fleet: tuple[Fleet, Mounts]) -> None:
    hosts, mounts = fleet
    reset(hosts)
    role = {
        "role": "fusetune.fusetune.fusetune",
        "fusetune_install": False,
        "fusetune_sections": {"models": f'[[mount]]\npath = "{POINT}"\nread_ahead_kb = "2M"\n'},
    }
    play = [{"hosts": "all", "gather_facts": False, "roles": [role]}]
    done = hosts.play(play)
    assert done.status == 0, done.text
    assert set(mounts.readahead().values()) == {2048}
    assert hosts.play(play).of("changed") == dict.fromkeys(SUITES, 0)


def test_the_role_installs_from_a_repository(fleet: tuple[Fleet, Mounts], tmp_path: Path) -> None:
    """The package is a dummy, but apt is real. The repository is not there at first."""
    hosts, _ = fleet
    control = "Package: fleet-test\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x.example>\n"
    made = tmp_path / "made" / "DEBIAN"
    made.mkdir(parents=True)
    (made / "control").write_text(f"{control}Description: made for a test\n")
    repository = tmp_path / "repository"
    repository.mkdir()
    subprocess.run(["dpkg-deb", "-b", made.parent, repository / "x.deb"], check=True)
    scan = ["dpkg-scanpackages", "."]
    listed = subprocess.run(scan, cwd=repository, check=True, capture_output=True)
    (repository / "Packages").write_bytes(listed.stdout)
    for host in hosts.containers.values():
        host.run("sh", "-c", "rm -rf /etc/apt/sources.list*; mkdir /etc/apt/sources.list.d")
    role = {
        "role": "fusetune.fusetune.fusetune",
        "fusetune_packages": ["fleet-test"],
        "fusetune_repository": "deb [trusted=yes] file:/repository ./",
    }
    play = [{"hosts": "all", "roles": [role]}]
    assert hosts.play(play, "--check").of("failed") == dict.fromkeys(SUITES, 0)
    done = hosts.play(play)
    assert done.of("failed") == dict.fromkeys(SUITES, 1), done.text
    assert "Failed to update apt cache" in done.text
    for host in hosts.containers.values():
        shutil.copytree(repository, host.path("/repository"))
    done = hosts.play(play)
    assert done.status == 0, done.text
    for host in hosts.containers.values():
        assert "install ok" in host.run("dpkg-query", "-Wf", "${Status}", "fleet-test").stdout
    assert hosts.play(play).of("changed") == dict.fromkeys(SUITES, 0)


def test_ansible_lint_finds_nothing(tmp_path: Path) -> None:
    Fleet(tmp_path, {}).lint()
