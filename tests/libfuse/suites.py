# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian suites whose libfuse3 is supported, each as a tree with its sources and compiler."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.suites import inside, series_in, with_cached_spatch
from tests.native.mirror import CHECKOUT
from tests.system import tree

IMPORT = CHECKOUT / "libfuse" / "import_libfuse.py"
#: Servers for the virtual machines of tests/kernel, and the one that is sanitized there.
EXAMPLES = ("hello", "passthrough", "passthrough_ll")
SANITIZED_EXAMPLE = "passthrough_ll"
#: Builds library and servers again in /out/sanitized: one program each, with sanitizers.
SANITIZE = """
    export LDFLAGS="-static-libasan -static-libubsan"
    meson setup -Db_sanitize=address,undefined -Db_lundef=false -Dudevrulesdir=/tmp \\
        --default-library=static -Dtests=false -Dutils=false /out/sanitized /out/source
    ninja -C /out/sanitized example/hello example/passthrough_fh example/passthrough_ll
"""
_PACKAGES = (
    *("abigail-tools", "ccache", "fuse3", "libfuse3-dev", "strace", "valgrind"),
    *("gocryptfs", "sshfs", "openssh-sftp-server"),
)
_HOOKS = (
    "DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends build-dep fuse3",
    "cd /usr/src && apt-get -q source fuse3 && rm -f fuse3_*",
)


@dataclass(frozen=True)
class Suite:
    """A Debian suite and the series of the libfuse3 it ships."""

    name: str
    series: str

    def tree(self) -> Path:
        """Return the directory of this suite; make it first (minutes) if needed."""
        options = (
            "--variant=minbase",
            f"--include={','.join(_PACKAGES)}",
            "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
            '--aptopt=Acquire::Check-Valid-Until "false"',
            *(f"--customize-hook=chroot \"$1\" sh -ec '{hook}'" for hook in _HOOKS),
        )
        lines = (f"{kind} {tree.archive()} {self.name} main" for kind in ("deb", "deb-src"))
        return tree.made(self.name, "libfuse", options, *lines)

    def source(self) -> Path:
        """Return the distribution's patched source of libfuse3, in the tree."""
        (directory,) = (self.tree() / "usr" / "src").glob(f"fuse3-{self.series}.*")
        return directory

    def inside(self, out: Path, script: str) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root in the tree, which is not changed, and return the result.

        ``out`` is /out there; the checkout is /checkout, read-only.
        """
        return inside(self.tree(), out, {CHECKOUT: "/checkout"}, script, 3600)


SUITES = tuple(Suite(name, series) for series, name in series_in(IMPORT.parent).items())


def import_library(output: Path, source: Path) -> subprocess.CompletedProcess[str]:
    """Run import_libfuse.py and return the result."""
    return subprocess.run(
        [sys.executable, IMPORT, output, source],
        env=with_cached_spatch(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def build(suite: Suite, out: Path, tests: str) -> str:
    """Import and build a suite's library below ``out``/new; return the output.

    ``tests``: "yes" also runs libfuse's own. Raises RuntimeError with the output.
    """
    done = import_library(out / "source", suite.source())
    if done.returncode:
        raise RuntimeError(done.stderr)
    # libfuse's tests compare inode numbers, which the tree's overlay changes.
    script = "mount -t tmpfs tmpfs /tmp\n" + (
        f"TESTS={tests} /checkout/libfuse/build.sh /out/source /out/new"
    )
    ended = suite.inside(out, script)
    if ended.returncode:
        raise RuntimeError(ended.stdout[-8000:])
    return ended.stdout


def library(name: str) -> Path:
    """Return a directory with the library of the suite of this name; build it if it changed.

    It also has libfuse's ``EXAMPLES`` and sanitized-``SANITIZED_EXAMPLE``.
    """
    suite = next(suite for suite in SUITES if suite.name == name)
    files = [CHECKOUT / "dkms" / "hooks.py", CHECKOUT / "dkms/fusetuned/tuned/protocol.h"]
    files.append(Path(__file__))
    files += [path for path in (CHECKOUT / "libfuse").rglob("*") if path.is_file()]
    made_from = hashlib.sha256()
    for path in sorted(files):
        made_from.update(path.read_bytes())
    made = suite.tree()
    kept = made.with_name(f"{made.name}-{made_from.hexdigest()[:12]}.library")
    with tree.locked(kept):
        if not kept.exists():
            with tempfile.TemporaryDirectory(prefix="libfuse-") as scratch:
                build(suite, Path(scratch), "no")
                sanitized = suite.inside(Path(scratch), SANITIZE)
                if sanitized.returncode:
                    raise RuntimeError(sanitized.stdout[-8000:])
                (directory,) = Path(scratch).glob("new/usr/lib/*/fusetune")
                for example in EXAMPLES:
                    (program,) = Path(scratch).glob(f"source/obj-*/example/{example}")
                    shutil.copy(program, directory)
                shutil.copy(
                    Path(scratch) / "sanitized" / "example" / SANITIZED_EXAMPLE,
                    directory / f"sanitized-{SANITIZED_EXAMPLE}",
                )
                shutil.copytree(directory, kept)
    return kept
