# SPDX-License-Identifier: GPL-2.0-or-later
"""sysext.sh with made-up packages, as Debian 12 and later suites lay them out.

tests/fleet/test_sysext.py uses the image of real ones, of this host's suite.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.mirror import CHECKOUT

#: What the script runs besides the tools of every host.
_PROGRAMS = {
    "apt-get": 'cp "$DEBS"/*.deb "$(sed "s/.*archives=\\([^ ]*\\).*/\\1/" <<<"$*")"',
    "dpkg-architecture": 'case $1 in *MULTIARCH) echo "$TRIPLET" ;; *) echo "$ARCH" ;; esac',
    # A program would crash if version 0.18 set its interpreter before its rpath.
    "patchelf": "case $* in --print-interpreter*) echo /lib/ld-linux.so.2 ;;"
    ' *--set-interpreter*) [[ -e $DEBS/rpath ]] ;; *) touch "$DEBS/rpath" ;; esac',
    "mksquashfs": 'touch "$2"',
}


def _package(directory: Path, name: str, *files: str) -> None:
    """Make a package with these files, and links to the names before " -> "."""
    root = directory / name
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: all\n"
        "Maintainer: Test <test@test.example>\nDescription: test\n"
    )
    for file in (*files, f"usr/share/doc/{name}/copyright"):
        link, _, target = file.partition(" -> ")
        path = root / link
        path.parent.mkdir(parents=True, exist_ok=True)
        if target:
            path.symlink_to(target)
        else:
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
    subprocess.run(["dpkg-deb", "-b", root, directory], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("libraries", ["lib", "usr/lib"])
@pytest.mark.parametrize(
    ("debian", "triplet", "name"),
    [
        ("amd64", "x86_64-linux-gnu", "x86-64"),
        ("arm64", "aarch64-linux-gnu", "arm64"),
        ("ppc64el", "powerpc64le-linux-gnu", "ppc64-le"),
    ],
)
def test_libraries_and_architecture(
    tmp_path: Path, libraries: str, debian: str, triplet: str, name: str
) -> None:
    debs, bin_, tree = (tmp_path / name for name in ("debs", "bin", "tree"))
    python = ("usr/bin/python3.13", "usr/bin/python3 -> python3.13", "usr/lib/python3.13/os.py")
    _package(debs, "python", *python, "usr/lib/python3/dist-packages/x.py")
    _package(
        debs, "libc", f"{libraries}/{triplet}/libc.so.6", f"{libraries}/{triplet}/ld-linux.so.2"
    )
    _package(
        debs,
        "libz",
        f"usr/lib/{triplet}/libz.so.1.3",
        f"usr/lib/{triplet}/libz.so.1 -> libz.so.1.3",
    )
    bin_.mkdir()
    for program, text in _PROGRAMS.items():
        (bin_ / program).write_text(f"#!/bin/bash\nset -e\n{text}\n")
        (bin_ / program).chmod(0o755)
    (tree / "usr" / "share" / "fusetune").mkdir(parents=True)
    environment = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "DEBS": str(debs),
        "ARCH": debian,
        "TRIPLET": triplet,
    }
    done = subprocess.run(
        [CHECKOUT / "packaging" / "sysext.sh", tree, tmp_path / "fusetune.raw"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    own = tree / "usr" / "lib" / "fusetune" / "python"
    found = {str(path.relative_to(own / "lib")) for path in (own / "lib").rglob("*")}
    names = ("libc.so.6", "libz.so.1", "libz.so.1.3")
    assert found >= {"ld-linux.so.2", "python3.13/os.py", *(f"{triplet}/{one}" for one in names)}
    release = tree / "usr" / "lib" / "extension-release.d" / "extension-release.fusetune"
    assert f"ARCHITECTURE={name}\n" in release.read_text()
