# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel headers in the Debian archive, and builds of the module on each.

``python3 -m tests.kernel.headers`` builds on all of them, of every flavour.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.machine import package
from tests.kernel.suites import MODULES, SUITES, Suite, import_module
from tests.system import tree

_HEADERS = re.compile(r"linux-headers-(\d+\.\d+\.\d.*?)-((?:cloud-|rt-)?amd64)")
#: Other kernel packages that the headers need.
_PARTS = re.compile(r"linux-(?:headers-\d[^\s,]*-common(?:-rt)?|kbuild-[^\s,]+)")
#: In the suite's tree: each kernel's packages are unpacked, and removed after the build.
_BUILD = """
dkms add "$1" >/dev/null
cd /debs
unpack() {
    rm -rf /tmp/unpacked
    for deb; do dpkg-deb -x "$deb" /tmp/unpacked; done
    if [ -d /tmp/unpacked/lib ]; then
        cp -a /tmp/unpacked/lib/. /usr/lib
        rm -r /tmp/unpacked/lib
    fi
    cp -a /tmp/unpacked/. /
}
besides=$(cat /out/besides)
[ -z "$besides" ] || unpack $besides
while read -r kernel debs; do
    unpack $debs
    state=0
    dkms build "$1" -k "$kernel" >/tmp/said 2>&1 </dev/null || state=$?
    log=/var/lib/dkms/$1/$kernel/x86_64/log/make.log
    case $state in
        0) state=built; ! grep -i warning "$log" | grep -v ^readelf: || state=warned ;;
        77) state=skipped ;;
        *) state=failed; cat /tmp/said /var/lib/dkms/$1/build/make.log ;;
    esac
    echo "=$state $kernel"
    rm -rf /var/lib/dkms/"$1"/"$kernel" /usr/src/linux-headers-* /usr/lib/modules/"$kernel"
done </out/kernels
"""


@dataclass(frozen=True)
class Headers:
    """The headers of one kernel: its release, flavour, their packages, and their version."""

    release: str
    flavour: str
    packages: tuple[str, ...]
    version: str

    @property
    def series(self) -> str:
        """Return the kernel's series, such as 6.12."""
        return series_of(self.release)

    def order(self) -> list[int]:
        """Return a key that sorts by version."""
        release = self.release.removesuffix(f"-{self.flavour}")
        return [int(number) for number in re.findall(r"\d+", release)]


def series_of(release: str) -> str:
    """Return the series of a kernel, such as 7.3, from its release, which may be 7.3-amd64."""
    return ".".join(re.findall(r"\d+", release)[:2])


class Archive:
    """The archive of a whole suite, its updates and backports, with separate files for apt."""

    def __init__(self, suite: Suite) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache"), "fusetune", "headers")
        self.directory, self.tree = cache / suite.name, suite.tree()
        for part in ("lists/partial", "cache/archives/partial", "debs"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        backports = f"deb {tree.archive()} {suite.name}-backports main"
        lines = [*suite.sources(), *([] if suite.name == "sid" else [backports])]
        (self.directory / "sources.list").write_text("".join(f"{line}\n" for line in lines))

    def _apt(self, program: str, *words: str, directory: Path | None = None) -> str:
        own = {
            "Dir::Etc::sourcelist": self.directory / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": self.directory / "lists",
            "Dir::State::status": self.tree / "var/lib/dpkg/status",
            "Dir::Cache": self.directory / "cache",
            "Acquire::Check-Valid-Until": "false",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "APT::Sandbox::User": "root",
        }
        options = [f"-o{name}={value}" for name, value in own.items()]
        done = subprocess.run(
            [program, *options, *words], cwd=directory, check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{program} {words[0]}: {done.stderr}")
        return done.stdout

    def kernels(self) -> list[Headers]:
        """Return the headers in the archive, by version."""
        self._apt("apt-get", "update")
        names = self._apt("apt-cache", "pkgnames", "linux-headers-").split()
        wanted = [name for name in names if _HEADERS.fullmatch(name)]
        shown = self._apt("apt-cache", "show", "--no-all-versions", *wanted)
        found = []
        for stanza in shown.split("\n\n"):
            fields = dict(re.findall(r"^(\S+): (.*)$", stanza, re.MULTILINE))
            if match := _HEADERS.fullmatch(fields.get("Package", "")):
                release = f"{match[1]}-{match[2]}"
                parts = _PARTS.findall(fields["Depends"])
                packages = (fields["Package"], *parts)
                found.append(Headers(release, match[2], packages, fields["Version"]))
        return sorted(found, key=Headers.order)

    def package(self, name: str, version: str) -> Path:
        """Return a version of a package from the archive, downloaded once."""
        directory = self.directory / "packages"
        directory.mkdir(exist_ok=True)
        if not list(directory.glob(f"{name}_{version}_*.deb")):
            self._apt("apt-get", "download", f"{name}={version}", directory=directory)
        (deb,) = directory.glob(f"{name}_{version}_*.deb")
        return deb

    def _files(self, *words: str) -> dict[str, str]:
        """Return the files that apt would fetch, by package."""
        listed = self._apt("apt-get", "--print-uris", "-qq", "--no-install-recommends", *words)
        # 'URI' FILE SIZE HASH; the file's name begins with the package's.
        files = [line.split()[1] for line in listed.splitlines() if line.startswith("'")]
        return {file.partition("_")[0]: file for file in files}

    def besides(self, kernels: list[Headers]) -> list[str]:
        """Return packages, except the kernel's, that the headers need and the tree lacks."""
        names = {name for one in kernels for name in one.packages if "-kbuild-" in name}
        files = self._files("install", *sorted(names))
        return [name for name in files if not name.startswith("linux-")]

    def fetch(
        self, held: list[Headers], kernels: list[Headers], besides: list[str]
    ) -> dict[str, str]:
        """Download missing packages that ``kernels`` need; return each package's file.

        Removes files of kernels that are not among ``held``, those in the archive.
        """
        debs = self.directory / "debs"
        names = {name for one in held for name in one.packages}
        files = self._files("download", *sorted(names | {*besides}))
        for old in {path.name for path in debs.iterdir()} - set(files.values()):
            (debs / old).unlink()
        needed = {*besides, *(name for one in kernels for name in one.packages)}
        if missing := [name for name in sorted(needed) if not (debs / files[name]).exists()]:
            self._apt("apt-get", "download", *missing, directory=debs)
        return files


def outermost(kernels: list[Headers]) -> list[Headers]:
    """Return the oldest of each series, and the newest of rt, the flavour that differs most.

    The newest of the usual flavour is in the suite's tree, and other tests build on it.
    """
    newest = {one.series: one for one in kernels if one.flavour == "rt-amd64"}
    oldest = {one.series: one for one in reversed(kernels) if one.flavour == "amd64"}
    return [one for one in kernels if one in (*oldest.values(), *newest.values())]


def build(suite: Suite, module: Path, out: Path, *, every: bool = False) -> tuple[str, ...]:
    """Build by dkms on the archive's headers, with the suite's compiler; return a line per kernel.

    The line is "=STATE RELEASE", where STATE is built, warned (with a warning), skipped or failed.
    The output of failed builds is between the lines. ``every``: on all, not only the `outermost`.
    """
    archive = Archive(suite)
    held = archive.kernels()
    kernels = held if every else outermost(held)
    besides = archive.besides(kernels)
    files = archive.fetch(held, kernels, besides)
    out.mkdir(parents=True, exist_ok=True)
    lines = [f"{one.release} {' '.join(files[name] for name in one.packages)}" for one in kernels]
    (out / "kernels").write_text("\n".join([*lines, ""]))
    (out / "besides").write_text(" ".join(files[name] for name in besides))
    name = package(module)
    directories = {module: f"/usr/src/{name}", archive.directory / "debs": "/debs"}
    script = f"set -- {shlex.quote('/'.join(name.rsplit('-', 1)))}\n{_BUILD}"
    done = suite.inside(out, directories, script, timeout=3600)
    if done.returncode:
        raise RuntimeError(f"{suite.name}: {done.stdout}")
    return tuple(done.stdout.splitlines())


def main() -> None:
    """Build every module on all headers of all suites, print the table; status 1 if one failed."""
    bad = False
    sources = [suite.source() for suite in SUITES]
    with tempfile.TemporaryDirectory(prefix="fusetune-headers-") as directory:
        for name in MODULES:
            done = import_module(name, Path(directory, name), *sources)
            if done.returncode:
                sys.exit(done.stderr)
            for suite in SUITES:
                out = Path(directory, f"{name}-{suite.name}")
                for line in build(suite, Path(directory, name), out, every=True):
                    print(f"{name} {suite.name}: {line.removeprefix('=')}", flush=True)
                    bad |= line.startswith(("=failed", "=warned"))
    sys.exit(bad)


if __name__ == "__main__":
    main()
