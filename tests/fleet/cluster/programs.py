# SPDX-License-Identifier: GPL-2.0-or-later
"""Kubernetes' own programs, which Go builds once, and the Debian tree of a node.

Debian has containerd, runc, etcd and the network plugins, but no kubelet and no control plane.
"""

import json
import re
from pathlib import Path

from tests.fleet.chart import KUBERNETES
from tests.kernel.suites import Suite
from tests.system import golang

#: Not the host's, which may be of another version.
_CLIENT = "kubectl"
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", _CLIENT)
_PACKAGES = (
    *("containerd", "runc", "etcd-server", "containernetworking-plugins"),
    *("iproute2", "openssl", "python3", "python3-grpcio"),
)
_SYMBOLS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def node_tree() -> Path:
    """Return the Debian tree of a node; make it first (a minute) if it is not there."""
    return Suite("trixie", series="").made("cluster", *_PACKAGES)  # its kernel is not used


def programs() -> Path:
    """Return the directory of the programs, built first if they are not there."""
    return golang.programs(f"kubernetes-{KUBERNETES}", _build)


def _build(module: golang.Module, output: Path) -> None:
    module.requires()
    found = json.loads(module.go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"))
    module.requires(*_requirements(Path(found["GoMod"]).read_text()))
    # Otherwise the API server calls itself version 0, which the chart refuses.
    major, minor, _ = KUBERNETES.split(".")
    facts = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    flags = [f"-X={symbol}.{name}={fact}" for symbol in _SYMBOLS for name, fact in facts.items()]
    module.go(
        *("build", "-trimpath", f"-o={output}/", f"-ldflags=-s -w {' '.join(flags)}"),
        *(f"k8s.io/kubernetes/cmd/{name}" for name in _PROGRAMS),
    )


def _requirements(text: str) -> list[str]:
    """Return the lines of a go.mod that requires Kubernetes, whose own go.mod is ``text``.

    Kubernetes' repository holds further modules. Its go.mod takes them from there, which works in
    the repository only, so they are replaced by the versions that were published of them.
    """
    (go,) = re.findall(r"^go \S+$", text, re.M)
    parts = sorted(set(re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0$", text, re.M)))
    version = f"v0.{KUBERNETES.partition('.')[2]}"
    return [
        *(go, f"require k8s.io/kubernetes v{KUBERNETES}"),
        *(f"replace {part} => {part} {version}" for part in parts),
    ]
