# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual machines that run the checks of guest/ on a Debian kernel with our modules.

``python3 -m tests.kernel.machine SERIES [CHECK...]`` runs some of them by hand.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kernel import emulator
from tests.kernel.seaweedfs import seaweedfs
from tests.kernel.suites import MODULES, RIG, SUITES, USERLAND, Suite, import_module
from tests.libfuse.suites import library
from tests.native.mirror import CHECKOUT
from tests.system import tree


@dataclass(frozen=True)
class Crate:
    """A program, or the named example, of a Rust package, with other options for cargo."""

    name: str
    version: str
    example: str = ""
    options: tuple[str, ...] = ()


#: Test programs, and a server.
CRATES = (
    Crate("fsx", "0.3.2"),
    Crate("pjdfstest", "0.2.2"),
    # Speaks the kernel's protocol itself, without libfuse.
    Crate("fuser", "0.15.1", "simple", ("--no-default-features", "--features=abi-7-31")),
)
#: Seconds: emulated machines are some ten times slower than the host, which is also busy.
PATIENCE = 3600.0
_START = """\
# SPDX-License-Identifier: GPL-2.0-or-later
export PATH=/usr/sbin:/usr/bin:/sbin:/bin  # without an initramfs nobody has set it
cd /rig/checkout
exec python3 -B -m tests.kernel.guest {checks} >/dev/ttyS1 2>&1
"""
#: Runs in the tree of a suite, where /usr/src has the results of import_kernel.py. A module of the
#: kernel that ours replaces is kept.
_BUILD = """
kernel=$(ls /lib/modules)
cd "/lib/modules/$kernel"
mkdir -p /out/stock "/out/lib/modules/$kernel/kernel/fs"
cp kernel/fs/f2fs/f2fs.ko* /out/stock
for conf in /usr/src/*/dkms.conf; do
    name=$(basename "$(dirname "$conf")")
    module=${name%-*}/${name##*-}
    dkms install "$module" -k "$kernel" || { cat /var/lib/dkms/"$module"/build/make.log; exit 1; }
    dkms status "$module" | grep -F "$kernel" | grep -F installed
    cat "$(find -L "/var/lib/dkms/${name%-*}" -name make.log | head -n 1)"
done
cp -r updates modules.order modules.builtin modules.builtin.modinfo "/out/lib/modules/$kernel"
cp -r kernel/lib "/out/lib/modules/$kernel/kernel"
cp -r kernel/fs/fuse kernel/fs/overlayfs "/out/lib/modules/$kernel/kernel/fs"
depmod -b /out "$kernel"
"""


@dataclass
class Results:
    """The output of a machine: an entry for each check, in order, and its console."""

    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    complete: bool = False
    console: str = ""


@dataclass(frozen=True)
class Image:
    """What a machine boots, as files in a directory; and its memory, in QEMU's notation."""

    directory: Path
    kernel: str
    initrd: str = ""
    memory: str = "1G"

    def options(self) -> list[str]:
        """Return QEMU's options; the directory is seen as /boot."""
        options = ["-m", self.memory, "-kernel", f"/boot/{self.kernel}"]
        return options + (["-initrd", f"/boot/{self.initrd}"] if self.initrd else [])


def image_of(suite: Suite) -> Image:
    """Return the suite's own kernel."""
    kernel = suite.kernel()
    return Image(suite.tree() / "boot", f"vmlinuz-{kernel}", f"initrd.img-{kernel}")


def build(suite: Suite, modules: Sequence[Path], out: Path) -> str:
    """Build what import_kernel.py made, by dkms in the suite's tree; return the output.

    ``out``/lib/modules then has what a machine needs. Raises RuntimeError with dkms's output.
    """
    out.mkdir(parents=True, exist_ok=True)
    directories = {module: f"/usr/src/{package(module)}" for module in modules}
    done = suite.inside(out, directories, _BUILD)
    if done.returncode:
        raise RuntimeError(f"{suite.name}: {done.stdout}")
    return done.stdout


def package(module: Path) -> str:
    """Return the name of a module's directory in /usr/src: name and version in its dkms.conf."""
    said = dict(
        re.findall(r'^PACKAGE_(NAME|VERSION)="(.*)"$', (module / "dkms.conf").read_text(), re.M)
    )
    return f"{said['NAME']}-{said['VERSION']}"


def build_servers(out: Path) -> None:
    """Build for the machines' userland: our C programs, and the C files here.

    ``out`` then has mirrorfs, fusetune-intercept, async_reply.so, fail_nth, two_mounts and hostile.
    """
    names = ("mirrorfs", "intercept", "dkms/fusetuned/tuned", "tests/kernel")
    directories = {CHECKOUT / name: f"/checkout/{name}" for name in names}
    done = USERLAND.inside(
        out,
        directories,
        "make -s -C /checkout/mirrorfs BUILD=/tmp/build && cp /tmp/build/mirrorfs /out\n"
        "make -s -C /checkout/intercept BUILD=/tmp/build && cp /tmp/build/fusetune-intercept /out\n"
        "gcc -Wall -Wextra -Werror -shared -fPIC $(pkg-config --cflags fuse3) "
        "-o /out/async_reply.so /checkout/tests/kernel/async_reply.c\n"
        "gcc -O2 -Wall -Wextra -Werror -o /out/fail_nth /checkout/tests/kernel/fail_nth.c\n"
        "gcc -Wall -Wextra -Werror -o /out/two_mounts /checkout/tests/kernel/two_mounts.c "
        "$(pkg-config --cflags --libs fuse3)\n"
        "gcc -O2 -Wall -Wextra -Werror -static -pthread -I/checkout/dkms/fusetuned/tuned "
        "-o /out/hostile /checkout/tests/kernel/hostile/*.c",
    )
    if done.returncode:
        raise RuntimeError(done.stdout)


def program_of(crate: Crate) -> Path:
    """Return a crate's program; let cargo build it first if needed."""

    def install(new: Path) -> None:
        example = ("--example", crate.example) if crate.example else ()
        how = ("--quiet", "--locked", "--no-track", "--version", crate.version, "--root", new)
        command = ("cargo", "install", *how, *crate.options, *example, crate.name)
        subprocess.run(command, check=True, timeout=1800)

    directory = tree.once(tree.cache("cargo") / f"{crate.name}-{crate.version}", install)
    return directory / "bin" / (crate.example or crate.name)


def s3_server() -> Path:
    """Return the S3 server that the Makefile has for the benchmarks, built first if need be."""
    program = CHECKOUT / "build" / "gofakes3"
    program.parent.mkdir(exist_ok=True)
    with tree.locked(program):
        command = ("make", "-s", "-C", CHECKOUT, "build/gofakes3")
        subprocess.run(command, check=True, timeout=600)
    return program


def _base_image() -> Path:
    """Return the image that every machine starts from; make it first if needed."""
    directory = USERLAND.tree()
    made_by = hashlib.sha256(RIG.read_bytes()).hexdigest()[:12]
    image = directory.with_name(f"{directory.name}-{made_by}.ext4")
    with tree.locked(image):
        if not image.exists():
            for old in directory.parent.glob(f"{directory.name}-*.ext4"):
                old.unlink()
            subprocess.run([RIG, "image", directory, image], check=True, timeout=600)
    return image


def _stage(scratch: Path, built: Path, checks: tuple[str, ...]) -> None:
    """Make stage.ext4, the machine's second disk: modules, mirrorfs and the checks."""
    stage = scratch / "stage"
    shutil.copytree(built, stage)
    checkout = stage / "checkout"
    tests = CHECKOUT / "tests"
    names = ("__init__.py", "native/__init__.py", "native/mirror.py", "kernel/__init__.py")
    for path in (
        *(tests / name for name in names),
        *(tests / "kernel" / "guest").glob("*.py"),
        *(
            path
            for path in (CHECKOUT / "fusetune").rglob("*")
            if path.suffix in (".py", ".toml", ".fio")
        ),
        CHECKOUT / "udev" / "60-fusetune.rules",
    ):
        copy = checkout / path.relative_to(CHECKOUT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    (checkout / "build").mkdir()
    build_servers(checkout / "build")
    for crate in CRATES:
        shutil.copy(program_of(crate), checkout / "build" / crate.name)
    shutil.copy(s3_server(), checkout / "build")
    if not checks or "check_seaweedfs" in checks:
        shutil.copy(seaweedfs(), checkout / "build")
    shutil.copytree(library(USERLAND.name), checkout / "build" / "libfuse")
    (stage / "start").write_text(_START.format(checks=" ".join(checks)))
    image = scratch / "stage.ext4"
    how = ("-q", "-t", "ext4", "-O", "^has_journal", "-d")
    subprocess.run(["mke2fs", *how, stage, image, "256M"], check=True, timeout=60)


def _command(image: Image, scratch: Path, parameters: str, counted: bool) -> list[str | Path]:
    base = _base_image()
    directories = {image.directory: "/boot", base.parent: "/images"}
    with (scratch / "disk").open("wb") as file:
        file.truncate(3 << 30)
    append = "root=/dev/vda ro console=ttyS0 panic=-1 mitigations=off quiet init=/rig-init"
    # The host may be busy, so a processor that waits for it is not stuck.
    append += " watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120"
    options = [*image.options(), "-append", f"{append} {parameters}"]
    for disk in (f"/images/{base.name}", "/out/stage.ext4"):
        options += ["-drive", f"file={disk},format=raw,if=virtio,readonly=on"]
    options += ["-drive", "file=/out/disk,format=raw,if=virtio,cache=unsafe"]
    serials = ("console", "results")
    return emulator.machine(
        scratch,
        *options,
        serials=serials,
        directories=directories,
        counted=counted,
    )


def _read(scratch: Path) -> Results:
    results = Results()
    for name in ("console", "results"):
        path = scratch / name
        results.console += path.read_text(errors="replace") if path.exists() else ""
    for line in results.console.splitlines():
        if not line.startswith('{"check"') or not line.endswith("}"):
            continue  # lines of the kernel, or a line that was cut off when the machine ended
        entry = json.loads(line)
        results.checks[entry["check"]] = entry
        results.complete |= entry["check"] == "end"
    return results


def run(
    image: Image,
    built: Path,
    *checks: str,
    parameters: str = "",
    counted: bool = False,
    patience: float = PATIENCE,
) -> Results:
    """Boot a kernel with the modules in ``built``, and return the results of the checks.

    All checks run if none is named. ``parameters`` are added to the kernel's. With ``counted``,
    time in the machine is a count of instructions. After ``patience`` seconds the machine is ended.
    """
    with tempfile.TemporaryDirectory(prefix="fusetune-machine-") as directory:
        scratch = Path(directory)
        _stage(scratch, built, checks)
        command = _command(image, scratch, parameters, counted)
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as machine:
            try:
                machine.wait(patience)
            except subprocess.TimeoutExpired:
                pass  # its output so far shows where it is
            finally:
                machine.kill()
        return _read(scratch)


def made_and_run(series: str, *checks: str, counted: bool = False) -> Results:
    """Import and build the modules for one series, run checks there, return their results.

    f2fs, which takes long, is built only if a check has it in its name. ``counted``: as for `run`.
    """
    suite = next(suite for suite in SUITES if suite.series == series)
    names = [name for name in MODULES if name != "f2fs" or not checks or "f2fs" in str(checks)]
    with tempfile.TemporaryDirectory(prefix="fusetune-built-") as directory:
        modules = [Path(directory, name) for name in names]
        for name, module in zip(names, modules, strict=True):
            done = import_module(name, module, suite.source())
            if done.returncode:
                sys.exit(done.stderr)
        build(suite, modules, Path(directory, "built"))
        return run(image_of(suite), Path(directory, "built"), *checks, counted=counted)


def measured(series: str, name: str, *, counted: bool = False) -> Any:
    """Return what a measurement of guest/ returned, with everything made as by `made_and_run`.

    Raises RuntimeError with its failure, or with the machine's console if it was not reached.
    """
    said = made_and_run(series, name, counted=counted)
    entry = said.checks.get(name, {})
    if not entry.get("value"):
        raise RuntimeError(entry.get("failure") or said.console[-4000:])
    return entry["value"]


def main(series: str, *checks: str) -> None:
    """Build the modules for one series, run checks there, and print their results."""
    said = made_and_run(series, *checks)
    for entry in said.checks.values():
        value = entry["value"] or "ok"
        print(f"{entry['seconds']:6} s {entry['check']} {entry['failure'] or value}")
    if not said.complete:
        sys.exit(said.console)


if __name__ == "__main__":
    main(*sys.argv[1:])
