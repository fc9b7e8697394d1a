# SPDX-License-Identifier: GPL-2.0-or-later
"""Debug kernels, built from a suite's own source with our configurations.

``python3 -m tests.kernel.debug SERIES TYPE [every] SEED... REPLIES`` runs `hostile` with each seed,
on a kernel with KASAN and lockdep that is a process on this host (UML). TYPE is fusetuned, or fuse
for the kernel's own; with ``every``, each mount of fusetuned has all of its options. Prints the
output, and exits with status 1 if the kernel complained.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.kernel import machine
from tests.kernel.suites import (
    SUITES,
    Suite,
    command_inside,
    import_module,
    inside,
    installed,
    rules,
)
from tests.system import tree

CONFIGS = Path(__file__).with_name("configs")
_PACKAGES = (
    *("bc", "bison", "flex", "gcc", "gawk", "kmod", "libc6-dev", "libelf-dev", "libssl-dev"),
    *("make", "openssl", "perl", "python3", "xz-utils"),
)
#: By kind of kernel: its architecture, as the kernel's Makefile names it, and files of configs/.
_KINDS = {
    "memory": ("x86_64", ("machine", "kasan", "faults")),
    "races": ("x86_64", ("machine", "kcsan")),
    "hostile": ("um", ("uml", "kasan")),
}
#: Options that some series or architectures lack.
_SOMEWHERE = {
    f"CONFIG_{name}=y" for name in ("DEBUG_ATOMIC_SLEEP", "FUSE_IO_URING", "FUSE_PASSTHROUGH")
}
_CONFIGURE = "make -s -C /linux O=/out ARCH={arch} KCONFIG_ALLCONFIG=/out/wanted allnoconfig"
#: After the build, only the programs that build modules are needed, not the objects.
_MAKE = """
make -s -j"$(nproc)" -C /linux O=/out ARCH={arch}
make -s -C /linux O=/out ARCH={arch} INSTALL_MOD_PATH=/out/installed modules_install
find /out -path /out/scripts -prune -o -path /out/tools -prune -o -name '*.[oa]' -exec rm {{}} +
"""
#: KCSAN samples accesses; it watches only the VFS, FUSE and our module. The kernel's makefiles
#: exclude the files that it must not instrument.
_WATCHED = """
export KCSAN_SANITIZE='$(if $(filter fs fs/fuse,$(obj)),y,n)'
"""
#: So that reports name each function.
_UNMIXED = "-fno-inline-functions -fno-inline-functions-called-once -fno-inline-small-functions"
_MODULE = """
kernel=$(ls /build/installed/lib/modules)
cp -r /build/installed/lib /out
rm -f "/out/lib/modules/$kernel/build" "/out/lib/modules/$kernel/source"
cp -r /module /tmp/module
make -s -C /linux O=/build ARCH={arch} M=/tmp/module KCFLAGS='{flags}' modules
nm /tmp/module/tuned/*.o >/out/symbols
make -s -C /linux O=/build ARCH={arch} M=/tmp/module INSTALL_MOD_PATH=/out \\
    INSTALL_MOD_DIR=updates/dkms modules_install
depmod -b /out "$kernel"
"""
#: It sees the host's files read-only; all consoles are one.
_UML = (
    *("mem=512M", "root=/dev/root", "rootfstype=hostfs", "rw", "init=/modules/hostile"),
    *("con=null", "con0=null,fd:1", "con1=fd:0,fd:1", "kasan_multi_shot"),
)
#: Parameters of a kernel in QEMU: continue after the first report, how often and for how many
#: microseconds KCSAN watches an access, and the size of the log.
_PARAMETERS = {
    "memory": "kasan_multi_shot",
    "races": "kcsan.skip_watch=2000 kcsan.udelay_task=5000 log_buf_len=16M",
}
#: Seconds for a build or a machine; on a busy host it takes some hours.
_TIMEOUT = 4 * 3600.0


@dataclass(frozen=True)
class Mistake:
    """A mistake to plant: a wrong text that replaces a right one in a file of the module."""

    file: str
    right: str
    wrong: str

    def plant(self, directory: Path) -> None:
        """Change the file in a copy of tuned/."""
        text = (directory / self.file).read_text()
        assert text.count(self.right) == 1, self
        (directory / self.file).write_text(text.replace(self.right, self.wrong))


@dataclass(frozen=True)
class Kernel:
    """A suite's kernel with one of our configurations: ``memory``, ``races`` or ``hostile``."""

    suite: Suite
    kind: str

    @property
    def arch(self) -> str:
        """The architecture."""
        return _KINDS[self.kind][0]

    def tree(self) -> Path:
        """Return the directory with the build tools for kernels of this suite."""
        return self.suite.made("debug", *_PACKAGES)

    def config(self) -> str:
        """Return the options that are set, as a file for KCONFIG_ALLCONFIG."""
        return "".join((CONFIGS / name).read_text() for name in _KINDS[self.kind][1])

    def make(self) -> str:
        """Return the script that builds the kernel, without its architecture."""
        return (_WATCHED if self.kind == "races" else "") + _MAKE

    def source(self) -> Path:
        """Return the unpacked source, kept for the build of modules."""
        name = f"linux-source-{self.suite.series}"

        def unpack(new: Path) -> None:
            new.mkdir()
            how = ("--strip-components=1", "-xf", self.suite.archive())
            subprocess.run(["tar", "-C", new, *how], check=True)

        version = self.suite.source_version()
        return tree.once(tree.cache("debug") / f"{name}-{version}", unpack)

    def build(self) -> Path:
        """Return the directory of the kernel; build it first (ten minutes) if needed.

        Raises RuntimeError with make's output, or with the options that the kernel did not accept.
        """
        source = self.source()
        compiler = installed(self.tree(), "gcc")
        made_of = "\n".join((source.name, compiler, self.arch, self.config(), self.make()))
        key = hashlib.sha256(made_of.encode()).hexdigest()[:12]
        name = f"{self.suite.series}-{self.kind}-{key}"

        def compile_in(new: Path) -> None:
            new.mkdir()
            (new / "wanted").write_text(self.config())
            for script in (_CONFIGURE, self.make()):
                made = script.format(arch=self.arch)
                done = inside(self.tree(), new, {source: "/linux"}, made, _TIMEOUT)
                if done.returncode:
                    raise RuntimeError(f"{name}: {done.stdout[-8000:]}")
                _check_options(new)

        return tree.once(source.with_name(name), compile_in)

    def module(self, out: Path, *mistakes: Mistake) -> None:
        """Build fusetuned for this kernel; ``out``/lib/modules has it and the kernel's own.

        ``out``/symbols lists the symbols of our own files. Raises RuntimeError with the output.
        """
        with tempfile.TemporaryDirectory(prefix="fusetune-import-") as scratch:
            module = Path(scratch, "fusetuned")
            imported = import_module("fusetuned", module, self.suite.source())
            if imported.returncode:
                raise RuntimeError(imported.stderr)
            for mistake in mistakes:
                mistake.plant(module / "tuned")
            directories = {self.source(): "/linux", self.build(): "/build", module: "/module"}
            flags = _UNMIXED if self.kind == "races" else ""
            script = _MODULE.format(arch=self.arch, flags=flags)
            done = inside(self.tree(), out, directories, script, _TIMEOUT)
            if done.returncode:
                raise RuntimeError(done.stdout[-8000:])


def _check_options(directory: Path) -> None:
    """Each wanted option must be set, because a missing checker finds nothing."""
    wanted = re.findall(r"^CONFIG_.*=.*$", (directory / "wanted").read_text(), re.MULTILINE)
    there = set((directory / ".config").read_text().splitlines())
    if missing := [line for line in wanted if line not in there | _SOMEWHERE]:
        raise RuntimeError(f"{directory.name}: not taken: {' '.join(missing)}")


def run_checks(kernel: Kernel, modules: Path, *checks: str) -> machine.Results:
    """Boot a machine on a ``memory`` or ``races`` kernel, and return the results of the checks.

    ``modules`` is what `Kernel.module` made.
    """
    image = machine.Image(kernel.build() / "arch" / "x86" / "boot", "bzImage", memory="2G")
    parameters = _PARAMETERS[kernel.kind]
    return machine.run(image, modules, *checks, parameters=parameters, patience=_TIMEOUT)


def functions(series: str, modules: Path) -> set[str]:
    """Return the functions whose races count: those in our files, and those that we change.

    ``modules`` is what `Kernel.module` made.
    """
    lines = (line.split() for line in (modules / "symbols").read_text().splitlines())
    names = {line[2].partition(".")[0] for line in lines if line[1:2] in (["t"], ["T"])}
    for hook in rules("fusetuned")["hook"]:
        sites = hook["sites"]
        every = sites if isinstance(sites, list) else sites[series]
        names |= {site.split()[1] for site in every}
    return names


def is_ours(race: str, functions: set[str]) -> bool:
    """Whether one of a race's accesses, by KCSAN's title, is in one of these ``functions``."""
    found = re.findall(r"(\w+)[\w.]* \[fusetuned\]", race)
    return any(name in functions for name in found)


def hostile(kernel: Kernel, modules: Path, name: str, seed: int, replies: int, *more: str) -> str:
    """Run `hostile` as the first process of a ``hostile`` kernel, and return the output.

    ``modules`` is what `Kernel.module` made, with the program hostile beside it; ``name`` is
    fusetuned or fuse; ``more`` are hostile's last arguments.
    """
    there = next((modules / "lib" / "modules").rglob(f"{name}.ko")).relative_to(modules)
    with tempfile.TemporaryDirectory(prefix="fusetune-hostile-") as out:
        command = command_inside(
            kernel.tree(),
            Path(out),
            {kernel.build(): "/build", modules: "/modules"},
            *("env", "HOME=/tmp", "/build/linux", *_UML),
            *("--", name, "/mnt/point", str(seed), str(replies), f"/modules/{there}", *more),
        )
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as running:
            try:
                # It may contain what the server sent.
                return running.communicate(timeout=_TIMEOUT)[0].decode(errors="replace")
            finally:
                running.kill()  # and with it all in its namespace


def _complaints(said: str) -> int | None:
    """Return how often the kernel complained, or None if it did not finish."""
    found = re.search(r'^\{"type".*"complaints": (\d+)', said, re.MULTILINE)
    return int(found[1]) if found and "reboot: Power down" in said else None


def main(series: str, name: str, *words: str) -> int:
    """Run from the command line."""
    more = [word for word in words[:1] if word == "every"]
    *seeds, replies = map(int, words[len(more) :])
    kernel = Kernel(next(suite for suite in SUITES if suite.series == series), "hostile")
    kernel.build()
    failed = False
    with tempfile.TemporaryDirectory(prefix="fusetune-debug-") as directory:
        kernel.module(Path(directory))
        machine.build_servers(Path(directory))
        for seed in seeds:
            said = hostile(kernel, Path(directory), name, seed, replies, *more)
            print(said[said.find("as init process") :], flush=True)
            failed |= _complaints(said) != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
