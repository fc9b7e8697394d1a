# SPDX-License-Identifier: GPL-2.0-or-later
"""Kubernetes' own programs, which Go builds once, and the Debian tree of a node.

Debian has containerd, runc, etcd and the network plugins, but no kubelet and no control plane.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.fleet.chart import KUBERNETES
from tests.kernel.suites import Suite
from tests.system import tree

_PROGRAMS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kubelet", "kubectl"),
)
#: Its kernel is not used.
_SUITE = Suite("trixie-backports", series="")
_PACKAGES = (
    *("containerd", "runc", "etcd-server", "containernetworking-plugins"),
    *("iproute2", "openssl", "python3", "python3-grpcio"),
    # Kubernetes needs a newer Go than the suite's own.
    *("golang-go/trixie-backports", "golang-src/trixie-backports"),
)
_SYMBOLS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def node_tree() -> Path:
    """Return the Debian tree of a node; make it first (a minute) if it is not there."""
    return _SUITE.made("cluster", *_PACKAGES)


def programs() -> Path:
    """Return the directory of the programs, built first if they are not there."""
    directory = tree.cache("go") / f"kubernetes-{KUBERNETES}"
    with tree.locked(directory):
        if not directory.exists():
            new = directory.with_name(f"{directory.name}.new")
            with tempfile.TemporaryDirectory(prefix="fusetune-kubernetes-") as scratch:
                _build(Path(scratch), new)
            new.rename(directory)
    return directory


def _build(module: Path, output: Path) -> None:
    """Build the programs in a module that asks for them."""
    go = node_tree() / "usr" / "lib" / "go"
    environment = {
        **os.environ,
        "GOROOT": str(go),
        "GOCACHE": str(module / "cache"),
        "GOFLAGS": "-mod=mod",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }
    program = go / "bin" / "go"
    file = module / "go.mod"
    file.write_text("module cluster\n")
    wanted = f"k8s.io/kubernetes@v{KUBERNETES}"
    found = json.loads(_run(module, environment, program, "mod", "download", "-json", wanted))
    file.write_text(_requiring(Path(found["GoMod"]).read_text()))
    # Otherwise the API server calls itself version 0, which the chart refuses.
    major, minor, _ = KUBERNETES.split(".")
    facts = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    flags = [f"-X={symbol}.{name}={fact}" for symbol in _SYMBOLS for name, fact in facts.items()]
    output.mkdir(exist_ok=True)
    _run(
        *(module, environment, program, "build", "-trimpath", f"-o={output}/"),
        *(f"-ldflags=-s -w {' '.join(flags)}",),
        *(f"k8s.io/kubernetes/cmd/{name}" for name in _PROGRAMS),
    )


def _requiring(text: str) -> str:
    """Return the go.mod of a module that requires Kubernetes, whose own go.mod is ``text``.

    Kubernetes' repository holds further modules. Its go.mod takes them from there, which works in
    the repository only, so they are replaced by the versions that were published of them.
    """
    (go,) = re.findall(r"^go \S+$", text, re.M)
    parts = sorted(set(re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0$", text, re.M)))
    version = f"v0.{KUBERNETES.partition('.')[2]}"
    lines = [
        *("module cluster", go, f"require k8s.io/kubernetes v{KUBERNETES}"),
        *(f"replace {part} => {part} {version}" for part in parts),
    ]
    return "\n".join([*lines, ""])


def _run(module: Path, environment: Mapping[str, str], *words: str | Path) -> str:
    command = ["nice", *words]
    done = subprocess.run(
        command, cwd=module, env=environment, stdout=subprocess.PIPE, check=True, timeout=3600
    )
    return done.stdout.decode()
