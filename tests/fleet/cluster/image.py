# SPDX-License-Identifier: GPL-2.0-or-later
"""The image of the CSI driver's pod, which is also that of every pod's first process.

It has no distribution in it: the node's /usr is mounted in the driver's pod.
"""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.native.mirror import BINARY

DRIVER_IMAGE = "registry.example/driver"
_HERE = Path(__file__).parent
_LINKS = {
    **{name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")},
    "etc/mtab": "/proc/self/mounts",
}


def driver_image(directory: Path) -> Path:
    """Make the image in a new directory, and return its archive in the OCI layout."""
    root = directory / "root"
    for name in ("etc", "usr", "programs"):
        (root / name).mkdir(parents=True)
    for link, target in _LINKS.items():
        (root / link).symlink_to(target)
    shutil.copy(BINARY, root / "programs")
    shutil.copy(_HERE / "driver.py", root / "programs")
    listed = subprocess.run(["ldd", BINARY], check=True, capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S*/libfuse3\.so\.\S+)", listed):
        shutil.copy(library, root / "programs")
    pause = root / "programs" / "pause"
    options = ("-O2", "-Wall", "-Wextra", "-Werror", "-static")
    subprocess.run(["gcc", *options, "-o", pause, _HERE / "pause.c"], check=True)
    layer, layout, archive = (directory / name for name in ("layer.tar", "image", "image.tar"))
    _pack(root, layer)
    image = f"{layout}:1"
    _umoci("init", f"--layout={layout}")
    _umoci("new", f"--image={image}")
    _umoci("raw", "add-layer", f"--image={image}", str(layer))
    _umoci("config", f"--image={image}", "--config.entrypoint=/programs/pause")
    _pack(layout, archive)
    return archive


def _umoci(*words: str) -> None:
    subprocess.run(["umoci", *words], check=True, capture_output=True)


def _pack(directory: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        for path in sorted(directory.iterdir()):
            tar.add(path, path.name)
