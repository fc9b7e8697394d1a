# SPDX-License-Identifier: GPL-2.0-or-later
"""DKMS builds the module in each suite, with that suite's compiler and headers."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.by_suite import by_suite
from tests.kernel.machine import package
from tests.kernel.suites import MODULES, SUITES, USERLAND, Suite
from tests.native.mirror import CHECKOUT

#: Their DKMS and apt are trixie's, or differ little from them.
_SELDOM = ("sid", *(suite.name for suite in SUITES if not suite.whole))
_EVERY = by_suite(SUITES, _SELDOM)
_PROBED = by_suite((suite for suite in SUITES if suite.series != "6.1"), _SELDOM)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.series)
def test_builds_without_a_warning(suite: Suite, built: Callable[[Suite], tuple[Path, str]]) -> None:
    out, said = built(suite)
    assert not re.findall(r".*(?:warning|WARN|cannot open).*", said)
    made = {path.name.partition(".")[0] for path in out.glob("lib/modules/*/updates/dkms/*")}
    assert made == set(MODULES)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        # For each change, one series tests that it replaces the kernel's own.
        pytest.param(s, n, marks=[] if s == USERLAND else [pytest.mark.long])
        for s in SUITES
        for n in MODULES
    ],
    ids=lambda value: value if isinstance(value, str) else value.series,
)
def test_comes_with_its_kernels_only_and_goes(
    suite: Suite, name: str, modules: dict[str, Path], tmp_path: Path
) -> None:
    """The hook of a kernel's installation must not fail for an unsupported kernel, or apt fails.

    Removal restores the state before: the kernel's own module, if ours has replaced it.
    """
    there = f"/usr/src/{package(modules[name])}"
    module = "/".join(package(modules[name]).rsplit("-", 1))
    script = f"""
        mkdir /lib/modules/6.5.0-other
        ln -s /lib/modules/{suite.kernel()}/build /lib/modules/6.5.0-other/build
        cd /lib/modules/{suite.kernel()}
        find . -name '{name}.ko*' | sort | xargs -r sha256sum >/tmp/before
        dkms add {there}
        dkms autoinstall -k 6.5.0-other
        test -z "$(find /lib/modules/6.5.0-other -name '{name}.ko*')"
        dkms autoinstall -k {suite.kernel()}
        modinfo -k {suite.kernel()} -n {name} | grep /updates/
        # Once more, now that it was built for a kernel that it is for.
        dkms autoinstall -k 6.5.0-other
        dkms remove {module} --all
        find . -name '{name}.ko*' | sort | xargs -r sha256sum | diff - /tmp/before
    """
    done = suite.inside(tmp_path, {modules[name]: there}, script)
    assert done.returncode == 0, done.stdout


def _supported() -> str:
    """Return the kernels in dkms.conf that a module supports."""
    return "^({})[.-]".format("|".join(each.series.replace(".", "\\.") for each in SUITES))


@_EVERY
def test_an_older_f2fs_is_left_out(suite: Suite, modules: dict[str, Path], tmp_path: Path) -> None:
    """With an older package, an older point release, and if the administrator allows it."""
    package_version = suite.kernel_version()
    same = suite.recorded(package_version)
    version = same.split()[0]
    point = int(version.rpartition(".")[2])
    # The release candidates precede the first point release.
    older = f"{suite.series}.{point - 1}" if point else f"{version} linux {suite.series}~rc0-1"
    name = package(modules["f2fs"])
    script = f"""
        cp -r /module /usr/src/{name}
        record=/usr/src/{name}/{suite.series}.source
        said() {{
            [ -z "$2" ] || echo "$2" >$record
            bash -c 'kernelver={suite.kernel()}; . "$1"
                echo "=$2, auto $AUTOINSTALL, kernels $BUILD_EXCLUSIVE_KERNEL, $refused"' \
                bash /usr/src/{name}/dkms.conf "$1"
        }}
        said source
        said same "{same}"
        said revision "{same}~0"
        said unknown {version}
        said newer {suite.series}.{point + 1}
        said older "{older}"
        dkms add /usr/src/{name}
        dkms autoinstall -k {suite.kernel()}
        dkms build {"/".join(name.rsplit("-", 1))} -k {suite.kernel()} && state=0 || state=$?
        echo "=build $state"
        find /lib/modules/*/updates /var/lib/dkms -name 'f2fs.ko*' | sed 's/^/=left /'
        mkdir /etc/fusetune && echo f2fs=yes >/etc/fusetune/older.conf
        said allowed
    """
    done = suite.inside(tmp_path, {modules["f2fs"]: "/module"}, script)
    assert done.returncode == 0, done.stdout
    said = re.findall(r"^=(.*)$", done.stdout, re.M)
    built = f", auto yes, kernels {_supported()}, "
    refused = (
        ", auto , kernels ^$, its source, Linux {}, is older than the kernel's own f2fs, "
        f"{package_version}, and coccinelle is not installed; to use the older one anyway, put "
        "the line 'f2fs=yes' into /etc/fusetune/older.conf"
    )
    assert said == [
        f"source{built}",
        f"same{built}",
        f"revision{refused.format(f'{package_version}~0')}",
        f"unknown{built}",
        f"newer{built}",
        f"older{refused.format(older.split()[-1])}",
        "build 77",
        f"allowed{built}",
    ]


@_PROBED
def test_builds_on_headers_of_either_kind(
    suite: Suite, modules: dict[str, Path], tmp_path: Path
) -> None:
    """The headers of a series have one of the two; the other is created here.

    The module is only compiled, and fits no kernel.
    """
    there = f"/usr/src/{package(modules['fusetuned'])}"
    script = rf"""
        header=$(echo /usr/src/linux-headers-*-common/include/linux/backing-file.h)
        grep -q 'backing_file_open(const struct file \*' "$header"
        sed -i 's/backing_file_open(const struct file \*/backing_file_open(const struct path */' \
            "$header"
        dkms add {there}
        dkms build fusetuned/{there.rpartition("-")[2]} -k {suite.kernel()} ||
            {{ cat /var/lib/dkms/fusetuned/*/build/make.log; exit 1; }}
        ! grep -i warning "$(find -L /var/lib/dkms/fusetuned -name make.log | head -n 1)"
    """
    done = suite.inside(tmp_path, {modules["fusetuned"]: there}, script)
    assert done.returncode == 0, done.stdout


@_PROBED
def test_builds_on_sources_of_either_kind(
    suite: Suite, modules: dict[str, Path], tmp_path: Path
) -> None:
    """Within 6.12 fuse_iget() has gained and lost a counter argument; remove it here."""
    module = shutil.copytree(modules["fusetuned"], tmp_path / "module")
    calls = 0
    for path in (module / suite.series).glob("*.[ch]"):
        text = path.read_text()
        last = r",\s+(?:u64 evict_ctr|evict_ctr|0|fuse_get_evict_ctr\(\S+\))\)"
        text, times = re.subn(rf"(fuse_iget\((?!\))[^;{{]*?){last}(?=;|\n{{)", r"\1)", text)
        body = r"(\nstruct inode \*fuse_iget\([^;]*?\)\n{.*?\n}\n)"
        text = re.sub(body, lambda m: m[1].replace("evict_ctr", "0"), text, flags=re.DOTALL)
        path.write_text(text.replace("fuse_get_evict_ctr", "fuse_get_evicted"))
        calls += times
    assert calls >= 6
    there = f"/usr/src/{package(module)}"
    script = f"""
        dkms add {there}
        dkms build fusetuned/{there.rpartition("-")[2]} -k {suite.kernel()} ||
            {{ cat /var/lib/dkms/fusetuned/*/build/make.log; exit 1; }}
        ! grep -i warning "$(find -L /var/lib/dkms/fusetuned -name make.log | head -n 1)"
    """
    done = suite.inside(tmp_path, {module: there}, script)
    assert done.returncode == 0, done.stdout


# Builds that fail


def _version(module: Path) -> str:
    return package(module).rpartition("-")[2]


_PACKAGE = """
mkdir -p /tmp/package/DEBIAN /tmp/package/usr/src
cp -r /module "/tmp/package/usr/src/fusetuned-$version"
cat >/tmp/package/DEBIAN/control <<CONTROL
Package: fusetuned-dkms
Version: $version
Architecture: all
Maintainer: Nobody <nobody@localhost>
Depends: dkms
Description: the module, as a package has it
CONTROL
cat >/tmp/package/DEBIAN/postinst <<POSTINST
#!/bin/sh
set -e
/usr/lib/dkms/common.postinst fusetuned $version /usr/share/fusetuned "" "\\$2" ||
    echo "fusetuned was not built; 'fusetune module status' says why" >&2
POSTINST
chmod 755 /tmp/package/DEBIAN/postinst
dpkg-deb --build /tmp/package /tmp/fusetuned.deb >/dev/null
kernel=$(ls /lib/modules)
"""
_INSTALL = """
dpkg -i /tmp/fusetuned.deb
echo "=audit $(dpkg --audit)"
echo "=apt $(apt-get -qq -y -f install 2>&1)"
echo "=stock $(dpkg --verify "linux-image-$kernel" | grep -v /boot/ || true)"
echo "=module $(find /lib/modules -name 'fusetuned.ko*')"
cd /checkout
printf '=kernels %s\\n' "$(python3 -B -c '
import json
from dataclasses import asdict
from fusetune.host import Host
from fusetune.kmod.kinds import KINDS
from fusetune.kmod.state import status
(state,) = status(Host(), KINDS[:1]).states
print(json.dumps([asdict(one) for one in state.kernels]))')"
"""
#: What goes wrong, and what `status` then shows for the kernel.
_FAILURES = {
    "unsupported kernel": (
        "mv /lib/modules/$kernel /lib/modules/6.5.0-other",
        ("skipped", "it is not for this kernel, only for those that match"),
    ),
    "no headers": (
        "rm /lib/modules/$kernel/build",
        ("skipped", "its headers are missing: apt install linux-headers-"),
    ),
    "no compiler": (
        "unset DEBIAN_KERNEL_USE_CCACHE; rm /usr/bin/gcc* /usr/bin/x86_64-linux-gnu-gcc*",
        ("failed", "gcc-\\d+: not found"),
    ),
    "full disk": (
        "mount -t tmpfs -o size=700k tmpfs /var/lib/dkms",
        ("failed", "no space left: \\d+ KiB are free in /var/lib/dkms"),
    ),
}


def install(suite: Suite, module: Path, out: Path, before: str) -> dict[str, str]:
    """Install a package of the module after ``before``; return the script's = lines."""
    directories = {module: "/module", CHECKOUT / "fusetune": "/checkout/fusetune"}
    script = f"version={_version(module)}\n{_PACKAGE}\n{before}\n{_INSTALL}"
    done = suite.inside(out, directories, script)
    assert done.returncode == 0, done.stdout
    said = (line[1:].partition(" ") for line in done.stdout.splitlines() if line.startswith("="))
    return {name: rest for name, _, rest in said}


@_EVERY
@pytest.mark.parametrize("failure", _FAILURES)
def test_a_build_that_fails_leaves_apt_and_fuse_alone(
    suite: Suite, failure: str, modules: dict[str, Path], tmp_path: Path
) -> None:
    before, (state, why) = _FAILURES[failure]
    said = install(suite, modules["fusetuned"], tmp_path, before)
    (kernel,) = json.loads(said.pop("kernels"))
    stock = said.pop("stock")
    assert said == {"audit": "", "apt": "", "module": ""}
    # Nothing else in the kernel's own files has changed.
    assert not stock or failure == "unsupported kernel"
    assert kernel["state"] == state
    assert re.search(why, kernel["reason"]), kernel
    assert (kernel["log_file"] is None) == (state == "skipped")


@_EVERY
def test_a_package_builds_the_module(
    suite: Suite, modules: dict[str, Path], tmp_path: Path
) -> None:
    """Without the fault the same package installs, so the failures above are due to it."""
    module = modules["fusetuned"]
    said = install(suite, module, tmp_path, ":")
    (kernel,) = json.loads(said["kernels"])
    assert (kernel["state"], kernel["version"]) == ("installed", _version(module))
    assert said["module"].startswith(f"/lib/modules/{suite.kernel()}/updates/dkms/fusetuned.ko")
    assert (said["audit"], said["apt"], said["stock"]) == ("", "", "")


# The commands that lead there


@_EVERY
def test_module_build(suite: Suite, modules: dict[str, Path], tmp_path: Path) -> None:
    """It builds and installs; without a compiler it says so, and what was installed stays."""
    script = """
        cd /checkout
        cat >/tmp/build.py <<'PYTHON'
import os
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.kmod.actions import build
from fusetune.kmod.kinds import KINDS

(kernel,) = os.listdir("/lib/modules")
try:
    (state,) = build(Host(), KINDS[:1], kernel).states
    print("=built", *[(one.kernel, one.state, one.version) for one in state.kernels])
except FusetuneError as error:
    print("=failed", error)
PYTHON
        without_compiler() {
            for compiler in /usr/bin/gcc* /usr/bin/x86_64-linux-gnu-gcc*; do
                mv "$compiler" "$compiler.away"
            done
            env -u DEBIAN_KERNEL_USE_CCACHE PYTHONPATH=. python3 -B /tmp/build.py
            for compiler in /usr/bin/*.away; do mv "$compiler" "${compiler%.away}"; done
        }
        files() {
            find /lib/modules/*/updates /var/lib/dkms -name 'fusetuned.ko*' -exec sha256sum {} +
        }
        without_compiler
        PYTHONPATH=. python3 -B /tmp/build.py
        files >/tmp/installed
        without_compiler
        files | diff /tmp/installed -
        [ "$(wc -l </tmp/installed)" = 2 ]
        PYTHONPATH=. python3 -B /tmp/build.py
    """
    there = f"/usr/src/{package(modules['fusetuned'])}"
    directories = {modules["fusetuned"]: there, CHECKOUT / "fusetune": "/checkout/fusetune"}
    done = suite.inside(tmp_path, directories, script)
    assert done.returncode == 0, done.stdout
    said = [line for line in done.stdout.splitlines() if line.startswith("=")]
    failed, built = said[::2], said[1::2]
    assert len(failed) == 2
    for each in failed:
        assert each.startswith(f"=failed fusetuned was not built for {suite.kernel()}: ")
        assert re.search(r"gcc-\d+: not found; see /var/lib/dkms/\S+$", each), done.stdout
    assert built == 2 * [f"=built {(suite.kernel(), 'installed', _version(modules['fusetuned']))}"]


def test_make_puts_the_source_where_dkms_looks(tmp_path: Path) -> None:
    suite = SUITES[0]
    make: list[str | Path] = ["make", "-s", "-C", CHECKOUT, "install-dkms", f"DESTDIR={tmp_path}"]
    for sources, code in ((suite.source(), 0), ("", 2)):
        command = [*make, f"SOURCES={sources}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
    assert "no Linux sources; apt-get install one of linux-source-6.1 " in done.stderr
    (directory,) = (tmp_path / "usr" / "src").iterdir()
    assert directory.name == package(directory)
    assert (directory / suite.series / "fuse_i.h").exists()
