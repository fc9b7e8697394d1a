# SPDX-License-Identifier: GPL-2.0-or-later
"""What DKMS makes of the module in each suite, with that suite's compiler and headers."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.machine import package
from tests.kernel.suites import MODULES, SUITES, Suite

_EVERY = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.series)
_PROBED = [suite for suite in SUITES if suite.series != "6.1"]


@_EVERY
def test_builds_without_a_warning(suite: Suite, built: Callable[[Suite], tuple[Path, str]]) -> None:
    out, said = built(suite)
    assert not re.findall(r".*(?:warning|WARNING|cannot open).*", said)
    made = {path.name.partition(".")[0] for path in out.glob("lib/modules/*/updates/dkms/*")}
    assert made == set(MODULES)


@_EVERY
@pytest.mark.parametrize("name", MODULES)
def test_comes_with_its_kernels_only_and_goes(
    suite: Suite, name: str, modules: dict[str, Path], tmp_path: Path
) -> None:
    """What runs when a kernel is installed must not fail where it is another, or apt would.

    Removal leaves what was there before: of a name that ours takes, the kernel's own.
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
        dkms remove {module} --all
        find . -name '{name}.ko*' | sort | xargs -r sha256sum | diff - /tmp/before
    """
    done = suite.inside(tmp_path, {modules[name]: there}, script)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("suite", _PROBED, ids=lambda suite: suite.series)
def test_builds_on_headers_of_either_kind(
    suite: Suite, modules: dict[str, Path], tmp_path: Path
) -> None:
    """Headers of one series have one or the other; the other is made here.

    It is only compiled: it goes with no kernel.
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
