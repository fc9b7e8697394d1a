# SPDX-License-Identifier: GPL-2.0-or-later
"""The chart, rendered by real Helm, which Go builds once."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from tests.native.mirror import CHECKOUT
from tests.system import tree

CHART = CHECKOUT / "kubernetes" / "chart"
#: The version that the manifests are rendered for and validated against.
KUBERNETES = "1.36.3"
RELEASE = "fusetune"
#: The last version for Debian 12's Go.
_HELM = "v3.12.3"
_VALIDATE = CHECKOUT / "build" / "kubernetes" / "bin" / "kubernetes-validate"


def helm_program() -> Path:
    """Return Helm's program, built first (minutes) if it is not there."""

    def install(new: Path) -> None:
        command = ["go", "install", "-ldflags=-s -w", f"helm.sh/helm/v3/cmd/helm@{_HELM}"]
        environment = {**os.environ, "GOBIN": str(new)}
        subprocess.run(command, cwd="/", env=environment, check=True, timeout=1800)

    return tree.once(tree.cache("go") / f"helm-{_HELM}", install) / "helm"


def helm(*words: str | Path, **values: Any) -> subprocess.CompletedProcess[str]:
    """Run Helm with these values of the chart."""
    return subprocess.run(
        [helm_program(), *words, "--values=-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@dataclass(frozen=True)
class Rendered:
    """What Helm makes of the chart: ``text``, and the manifests in it."""

    text: str
    manifests: list[Mapping[str, Any]]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what Helm has printed."""
        return cls(text, [one for one in yaml.safe_load_all(text) if one])

    def kind(self, kind: str) -> Mapping[str, Any]:
        """Return the one manifest of a kind."""
        (found,) = (one for one in self.manifests if one["kind"] == kind)
        return found

    def pod(self, kind: str) -> dict[str, Any]:
        """Return the spec of the pods of a DaemonSet or Job."""
        spec: dict[str, Any] = self.kind(kind)["spec"]["template"]["spec"]
        return spec

    @property
    def configs(self) -> dict[str, Mapping[str, str]]:
        """Return the data of the ConfigMap by its name."""
        found = self.kind("ConfigMap")
        return {found["metadata"]["name"]: found["data"] or {}}


def render(**values: Any) -> Rendered:
    """Render the chart with these values."""
    done = helm("template", RELEASE, CHART, f"--kube-version={KUBERNETES}", **values)
    assert done.returncode == 0, done.stderr
    return Rendered.of(done.stdout)


def validate(file: Path) -> subprocess.CompletedProcess[str]:
    """Compare manifests with the schemas of Kubernetes; it knows no custom resources."""
    version = KUBERNETES.rpartition(".")[0]
    command: list[str | Path] = [_VALIDATE, "--strict", f"--kubernetes-version={version}", file]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
