# SPDX-License-Identifier: GPL-2.0-or-later
"""A node without Kubernetes: podman runs the containers of pods as their manifests ask for.

What the kubelet and containerd do with a manifest, as far as the chart uses it, is done here by
podman's options: host paths with their propagation, capabilities, seccomp, a read-only root, users,
limits of memory, and ConfigMaps as the kubelet's files and links.
"""

import errno
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.fleet.namespaces import Namespaces
from tests.native.mirror import BINARY, children, wait_for

_NODE = Path(__file__).with_name("node.sh")
_PATIENCE = 30.0
_PROPAGATION = {"HostToContainer": "rslave", "Bidirectional": "rshared", "None": "rprivate"}
_KUBELET = "/var/lib/kubelet"
#: Podman's default profile of seccomp, and the one here.
_PODMANS = Path("/usr/share/containers/seccomp.json")
_SECCOMP = "/var/lib/seccomp.json"
#: Where the node has a pod's ConfigMaps and empty directories.
_VOLUMES = "/var/lib/volumes"

Manifest = Mapping[str, Any]


class Node(Namespaces):
    """A node for as long as the context lasts; nothing is left of it.

    ``image``: an archive that the pods' containers are of.
    """

    def __init__(self, image: Path) -> None:
        super().__init__()
        self._image = image

    def __enter__(self) -> Self:
        unshare = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        assert self._start(*unshare, _NODE) == "ready\n"
        assert self._process
        (self.leader,) = children(self._process.pid)
        self.path(_SECCOMP).write_text(_profile())
        said = self.podman("load", "--quiet", f"--input={self._image}")
        self.image = said.partition("Loaded image: ")[2].strip()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._end(_PATIENCE)
        finally:
            _remove_cgroups()

    def podman(self, *words: str | Path, check: bool = True) -> str:
        """Run podman on the node, and return what it says."""
        how = ("--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none")
        done = self.run("podman", *how, *words, check=check)
        return done.stdout + done.stderr

    def volume(self, pod: str, name: str = "data") -> str:
        """Return where a pod's volume is mounted."""
        return f"{_KUBELET}/pods/{pod}/volumes/kubernetes.io~csi/{name}/mount"

    @contextmanager
    def mounted(
        self, pod: str, *options: str, uid: int = 0, namespace: str = "default", **facts: str
    ) -> Iterator[str]:
        """Mount a volume for a pod as a CSI driver does, and give its bdi.

        mirrorfs runs as user ``uid`` in a container of its own, whose mounts are propagated to the
        node. ``facts``: of vol_data.json.
        """
        point = self.volume(pod)
        self.path(point).mkdir(parents=True)
        os.chown(self.path(point), uid, uid)
        about = {"driverName": "mirror.csi.example", "volumeHandle": "one", **facts}
        self.path(point).with_name("vol_data.json").write_text(json.dumps(about))
        self.path(f"/var/log/pods/{namespace}_x_{pod}").mkdir()
        chosen = [word for option in options for word in ("-o", option)]
        source = "/var/lib/source"
        self.path(source).mkdir(exist_ok=True)
        name = f"driver-{pod}"
        user = f"setpriv --reuid={uid} --regid={uid} --clear-groups"
        server = f'chmod 666 /dev/fuse && exec {user} /mirrorfs -f "$@"'
        binds = (
            f"{_KUBELET}:{_KUBELET}:rbind,rshared",
            f"{source}:/source",
            f"{BINARY}:/mirrorfs:ro",
        )
        libraries = ("/lib:/lib:ro", "/lib64:/lib64:ro", "/usr:/usr:ro,suid")
        self.podman(
            *("run", "--detach", f"--name={name}", "--privileged", "--network=none"),
            *(f"--volume={bind}" for bind in (*binds, *libraries)),
            *("--entrypoint=/bin/sh", self.image, "-c", server, "mirrorfs"),
            *(*chosen, "/source", point),
        )
        try:
            wait_for(lambda: bool(self.device(point)), f"mount of {point}", _PATIENCE)
            yield self.device(point)
        finally:
            self.podman("stop", "--time=5", name)
            self.run("umount", "--lazy", point, check=False)
            self.podman("rm", "--force", name)
            shutil.rmtree(self.path(f"{_KUBELET}/pods/{pod}"))
            self.path(f"/var/log/pods/{namespace}_x_{pod}").rmdir()

    def pod(
        self,
        spec: Manifest,
        configs: Mapping[str, Manifest],
        claims: Mapping[str, str] | None = None,
    ) -> "Pod":
        """Return a pod of this spec.

        ``configs``: the data of ConfigMaps, by name; ``claims``: where the node has the volumes of
        claims, by name.
        """
        return Pod(self, spec, configs, claims or {})


class Pod:
    """A pod for as long as the context lasts; its init containers have ended well then."""

    def __init__(
        self,
        node: Node,
        spec: Manifest,
        configs: Mapping[str, Manifest],
        claims: Mapping[str, str],
    ) -> None:
        self._node, self._spec, self._configs, self._claims = node, spec, configs, claims
        self._started: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._sources = {one["name"]: self._source(one) for one in self._spec["volumes"]}
            for container in self._spec.get("initContainers", ()):
                self.start(container)
                assert self.wait(container["name"]) == 0, self.log(container["name"])
            for container in self._spec["containers"]:
                self.start(container)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def start(self, container: Manifest) -> None:
        """Start one container."""
        self._started.append(container["name"])
        self._node.podman("run", "--detach", *self._options(container))

    def end(self) -> None:
        """End it as the kubelet does: SIGTERM, SIGKILL after 30 s, and its directories go."""
        for name in self._started:
            self._node.podman("stop", "--time=30", name)
        for name in self._started:
            self._node.podman("rm", "--force", name)
        self._started = []
        shutil.rmtree(self._node.path(_VOLUMES), ignore_errors=True)

    def wait(self, name: str) -> int:
        """Wait until a container ends, and return its status."""
        return int(self._node.podman("wait", name))

    def log(self, name: str) -> str:
        """Return what a container printed."""
        return self._node.podman("logs", name)

    def run(self, name: str, *words: str, check: bool = True) -> str:
        """Run a command in a container, as `kubectl exec` does."""
        return self._node.podman("exec", name, *words, check=check)

    def kill(self, name: str) -> None:
        """Let a container die at once."""
        self._node.podman("kill", f"--signal={signal.SIGKILL:d}", name)

    def restart(self, name: str) -> None:
        """Start a container again that has ended, as the kubelet does."""
        self._node.podman("start", name)

    def _options(self, container: Manifest) -> list[str]:
        """Return podman's options and words for a container."""
        rights = {**self._spec["securityContext"], **container["securityContext"]}
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
        assert rights["allowPrivilegeEscalation"] is False
        options = [f"--name={container['name']}", "--network=none", "--cap-drop=all"]
        options += ["--security-opt=no-new-privileges", f"--security-opt=seccomp={_SECCOMP}"]
        options += [f"--user={_user(rights)}"]
        options += [f"--cap-add={name}" for name in rights["capabilities"].get("add", ())]
        options += [f"--memory={_bytes(container['resources']['limits']['memory'])}"]
        if self._spec["hostPID"]:
            options += ["--pid=host"]
        if rights["readOnlyRootFilesystem"]:
            options += ["--read-only", "--read-only-tmpfs=false"]
        for mount in container["volumeMounts"]:
            how = ["rbind", _PROPAGATION[mount.get("mountPropagation", "None")]]
            how += ["ro" if mount.get("readOnly") else "rw"]
            source = self._sources[mount["name"]]
            if part := mount.get("subPath"):
                source = f"{source}/{part}"
            options += [f"--volume={source}:{mount['mountPath']}:{','.join(how)}"]
        words = container.get("command", [])
        if words:
            options += [f"--entrypoint={json.dumps(words)}"]
        return [*options, self._node.image, *container.get("args", ())]

    def _source(self, volume: Manifest) -> str:
        """Return the node's directory of a volume, made if the kubelet would."""
        name = volume["name"]
        if path := volume.get("hostPath", {}).get("path"):
            found = self._node.path(path)
            if volume["hostPath"]["type"] == "DirectoryOrCreate":
                found.mkdir(parents=True, exist_ok=True)
            assert found.is_dir(), f"{path} is missing on the node"
            return str(path)
        if claim := volume.get("persistentVolumeClaim"):
            return self._claims[claim["claimName"]]
        directory = self._node.path(f"{_VOLUMES}/{name}")
        directory.mkdir(parents=True)
        if config := volume.get("configMap"):
            _write_config(directory, self._configs[config["name"]])
        else:
            assert "emptyDir" in volume
            directory.chmod(0o777)
        return f"{_VOLUMES}/{name}"


def _write_config(directory: Path, data: Manifest) -> None:
    """Write a ConfigMap as the kubelet does (kubernetes, pkg/volume/util/atomic_writer.go)."""
    now = directory / "..2026_01_01_00_00_00.1"
    now.mkdir()
    os.symlink(now.name, directory / "..data")
    for name, text in data.items():
        (now / name).write_text(text)
        os.symlink(f"..data/{name}", directory / name)
    directory.chmod(0o777)


def _profile() -> str:
    """Return what containerd allows; podman's profile allows one system call more to fusetune."""
    profile = json.loads(_PODMANS.read_text())
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name != "pivot_root"]
    return json.dumps({**profile, "defaultErrnoRet": errno.EPERM, "defaultErrno": "EPERM"})


def _user(rights: Manifest) -> str:
    return f"{rights['runAsUser']}:{rights.get('runAsGroup', 0)}"


def _bytes(quantity: str) -> str:
    """Return a quantity of Kubernetes as podman has it."""
    assert quantity.endswith(("Mi", "Gi")), quantity
    return quantity[:-1].lower()


def _remove_cgroups() -> None:
    """Remove what podman leaves of cgroups; those in use by another podman stay."""
    for parent in Path("/sys/fs/cgroup").rglob("libpod_parent"):
        for directory in (*parent.glob("*"), parent):
            if directory.is_dir():
                with suppress(OSError):
                    directory.rmdir()
