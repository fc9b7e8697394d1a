# SPDX-License-Identifier: GPL-2.0-or-later
"""A Kubernetes of one node, with a CSI driver whose volumes are mirrorfs mounts.

Control plane, kubelet, containerd and runc are the real ones, as are Helm and kubectl. They run in
namespaces of this host, with its kernel (`boot.sh`).
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import yaml

from tests.fleet.chart import helm_program
from tests.fleet.cluster.programs import node_tree, programs
from tests.fleet.namespaces import Namespaces
from tests.native.mirror import children, wait_for

_HERE = Path(__file__).parent
_PATIENCE = 120.0
#: The lines of each program's log that are shown when the cluster does not start.
_LINES = 15

Manifest = Mapping[str, Any]


class Cluster(Namespaces):
    """A cluster for as long as the context lasts; nothing is left of it.

    ``images``: archives in the OCI layout, by the repository of the image.
    """

    kinds = ("--mount", "--uts", "--ipc", "--net", "--pid")

    def __init__(self, images: Mapping[str, Path]) -> None:
        super().__init__()
        self._images = images
        self._environment = {**os.environ, "KUBECONFIG": str(_HERE / "kubeconfig.yaml")}

    def __enter__(self) -> Self:
        command = (_HERE / "boot.sh", "boot", node_tree(), programs())
        with ExitStack() as unless_it_boots:
            said = self._start(*command)
            unless_it_boots.callback(self._end, _PATIENCE)
            self._wait_for_boot(int(said))
            unless_it_boots.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end(_PATIENCE)

    def _wait_for_boot(self, inner: int) -> None:
        wait_for(lambda: bool(children(inner)), "the node's first process")
        (self.leader,) = children(inner)
        try:
            wait_for(self._answers, "the API server", _PATIENCE)
            for repository, archive in self._images.items():
                self._import(repository, archive)
            self.apply(*yaml.safe_load_all((_HERE / "driver.yaml").read_text()))
            self.wait("node/node", "Ready")
            self.wait("pod/driver", "Ready", "kube-system")
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, "the node ended"
        return self._kubectl("get", "--raw=/readyz").returncode == 0

    def _import(self, repository: str, archive: Path) -> None:
        """Give containerd an image, as if it were pulled."""
        command = ["ctr", "--namespace=k8s.io", "images", "import"]
        command += [f"--base-name={repository}", "-"]
        with archive.open("rb") as image:
            done = subprocess.run(
                [*self.enter(*self.kinds), *command],
                stdin=image,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr

    def logs(self) -> str:
        """Return the last lines that each of the node's programs has printed."""
        found = []
        for log in sorted(self.path("/var/log/cluster").glob("*")):
            found += [f"== {log.name}", *log.read_text(errors="replace").splitlines()[-_LINES:]]
        return "\n".join(found)

    def _called(
        self, program: Path, words: Sequence[str | Path], given: str | None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of this host in the node's network."""
        return subprocess.run(
            [*self.enter("--net"), program, *words],
            input=given,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    def _kubectl(
        self, *words: str | Path, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self._called(programs() / "kubectl", words, given)

    def kubectl(self, *words: str | Path, given: str | None = None) -> str:
        """Run kubectl, and return what it prints."""
        done = self._kubectl(*words, given=given)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def helm(self, *words: str | Path, **values: Any) -> subprocess.CompletedProcess[str]:
        """Run Helm, with these values of a chart if there are any."""
        given = ("--values=-",) if values else ()
        return self._called(helm_program(), [*words, *given], json.dumps(values))

    def apply(self, *manifests: Manifest) -> None:
        """Create or change objects."""
        every = {"apiVersion": "v1", "kind": "List", "items": manifests}
        self.kubectl("apply", "--filename=-", given=json.dumps(every))

    def get(self, *words: str, namespace: str = "default") -> Any:
        """Return an object, or a list of objects."""
        return json.loads(self.kubectl("get", *words, f"--namespace={namespace}", "--output=json"))

    def wait(self, name: str, condition: str, namespace: str = "default") -> None:
        """Wait until an object such as pod/x is there and has a condition such as Ready."""
        where = f"--namespace={namespace}"
        wait_for(lambda: self._kubectl("get", name, where).returncode == 0, name)
        self.kubectl("wait", name, where, f"--for=condition={condition}", "--timeout=2m")
