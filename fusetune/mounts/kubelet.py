# SPDX-License-Identifier: GPL-2.0-or-later
"""Which Kubernetes volume a mount is, from the kubelet's file next to the mount point.

``vol_data.json`` names the CSI driver, the volume and its handle (kubernetes, pkg/volume/csi,
csi_mounter.go and csi_attacher.go, volDataKey). It names neither the storage class nor the
namespace; the namespace is in the name of the pod's directory of logs.
"""

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass

from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.syscalls import RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, openat2
from fusetune.untrusted import parse

#: The kubelet's directory (``--root-dir``): by default, of k0s, and of MicroK8s.
ROOTS = ("/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet")
_LOGS = "var/log/pods"
#: A pod's mount point, and a driver's staging mount point, in the kubelet's directory.
_MOUNT_POINT = re.compile(
    r"(?:pods/(?P<pod>[^/]+)/volumes/kubernetes\.io~csi/[^/]+/mount"
    r"|plugins/kubernetes\.io/csi/[^/]+/[^/]+/globalmount)"
)
_LARGEST = 1 << 16  # bytes; the kubelet writes less than 1 KiB
_LONGEST = 1024  # characters of a name: CSI allows 128 bytes, and drivers exceed it


@dataclass(frozen=True)
class KubeletVolume:
    """What the kubelet knows about a volume.

    ``csi_driver``: such as gcsfuse.csi.storage.gke.io; ``volume``: the persistent volume's name, or
    the pod's name for it if inline, None if not given; ``volume_handle``: the driver's name for it;
    ``namespace``: of the pod, None if unknown.
    """

    csi_driver: str
    volume: str | None
    volume_handle: str
    namespace: str | None = None


def kubelet_volume(host: Host, mount: Mount) -> KubeletVolume | None:
    """Return which volume is mounted, None if it is not one of the kubelet's or unknown.

    No path in a mount is touched, and files that users other than root can write are ignored.
    """
    found = None
    for path in (mount.path, *mount.also_at):
        one = _volume_at(host, path)
        if one and one.namespace:
            return one
        found = found or one
    return found


def namespace_to_come(host: Host, mount: Mount) -> bool:
    """Return whether the namespace of a volume is unknown only because no pod uses it yet.

    The kubelet creates a pod's directory of logs after it has mounted all volumes of the pod, and
    before any container of it starts (kubernetes, pkg/kubelet/kuberuntime/kuberuntime_sandbox.go,
    createPodSandbox()). If /var/log/pods has no directory at all, the logs are kept elsewhere, and
    the namespace stays unknown.
    """
    volume = kubelet_volume(host, mount)
    if volume is None or volume.namespace:
        return False
    with suppress(OSError):
        return bool(os.listdir(host.path(_LOGS)))
    return False


def _volume_at(host: Host, path: str) -> KubeletVolume | None:
    for root in ROOTS:
        match = _MOUNT_POINT.fullmatch(path.removeprefix(f"{root}/"))
        if path.startswith(f"{root}/") and match:
            directory = os.path.dirname(match[0])
            with suppress(OSError, ValueError, RecursionError):
                facts = parse(_content(host.path(root[1:]), f"{directory}/vol_data.json"))
                return _volume(facts, _namespace(host, match["pod"]))
    return None


def _content(root: str, file: str) -> bytes:
    """Return the file of this name in the kubelet's directory ``root``.

    OSError unless all directories on the way are on one file system, root's alone, and no links.
    """
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV
        parts = file.split("/")
        _check_owner(directory)
        for part in parts[:-1]:
            here = openat2(directory, part, os.O_PATH | os.O_DIRECTORY, resolve)
            os.close(directory)
            directory = here
            _check_owner(directory)
        flags = os.O_RDONLY | os.O_NONBLOCK
        with open(openat2(directory, parts[-1], flags, resolve), "rb") as stream:
            _check_owner(stream.fileno())
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError(f"{file} is not a regular file")
            return stream.read(_LARGEST)
    finally:
        os.close(directory)


def _check_owner(fd: int) -> None:
    found = os.fstat(fd)
    # In a test's directory tree, the user who runs the test takes root's place.
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("users other than root can write it")


def _volume(facts: object, namespace: str | None) -> KubeletVolume | None:
    if not isinstance(facts, dict):
        return None
    names = [facts.get(key) for key in ("driverName", "specVolID", "volumeHandle")]
    driver, volume, handle = (
        name if isinstance(name, str) and 0 < len(name) <= _LONGEST else None for name in names
    )
    if driver is None or handle is None:
        return None
    return KubeletVolume(driver, volume, handle, namespace)


def _namespace(host: Host, pod: str | None) -> str | None:
    """Return a pod's namespace: the kubelet names log directories NAMESPACE_NAME_UID."""
    with suppress(OSError):
        for name in os.listdir(host.path(_LOGS)) if pod else ():
            namespace, _, rest = name.partition("_")
            if rest.endswith(f"_{pod}"):
                return namespace
    return None
