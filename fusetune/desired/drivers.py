# SPDX-License-Identifier: GPL-2.0-or-later
"""CSI drivers of Kubernetes that set values of their mounts themselves, repeatedly.

To add such a driver, add an entry to `SELF_TUNING`.
"""

from collections.abc import Mapping

from fusetune.host import Host
from fusetune.mounts.kubelet import kubelet_volume
from fusetune.mounts.mount import Mount

#: By driver, the live knobs that it sets (GoogleCloudPlatform/gcs-fuse-csi-driver: pathForParam()
#: and monitorKernelParamsFile(), whenever gcsfuse asks for others).
SELF_TUNING: Mapping[str, tuple[str, ...]] = {
    "gcsfuse.csi.storage.gke.io": ("read_ahead_kb", "max_background", "congestion_threshold"),
}


def left_to_driver(host: Host, mount: Mount) -> dict[str, str]:
    """Return, by knob, why it is left to the driver of ``mount``; empty for most mounts."""
    volume = kubelet_volume(host, mount)
    if volume is None:
        return {}
    return {
        name: f"{name} is left to the CSI driver {volume.csi_driver}, which sets it itself"
        for name in SELF_TUNING.get(volume.csi_driver, ())
    }
