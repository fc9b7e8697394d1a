# SPDX-License-Identifier: GPL-2.0-or-later
"""What DKMS makes of the module in each suite, with that suite's compiler and headers."""

import re
from pathlib import Path

import pytest

from tests.kernel.machine import build, version
from tests.kernel.suites import SUITES, Suite

_EVERY = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.series)
_PROBED = [suite for suite in SUITES if suite.series != "6.1"]


@_EVERY
def test_builds_without_a_warning(suite: Suite, module: Path, tmp_path: Path) -> None:
    said = build(suite, module, tmp_path)
    assert not re.findall(r".*(?:warning|WARNING|cannot open).*", said)
    assert list(tmp_path.glob("lib/modules/*/updates/dkms/fusetuned.ko*"))


@_EVERY
def test_other_kernels_are_skipped_without_error(
    suite: Suite, module: Path, tmp_path: Path
) -> None:
    """What runs when another kernel is installed: it must not fail, or apt would."""
    there = f"/usr/src/fusetuned-{version(module)}"
    script = f"""
        mkdir /lib/modules/6.5.0-other
        ln -s /lib/modules/{suite.kernel()}/build /lib/modules/6.5.0-other/build
        dkms add fusetuned/{version(module)}
        dkms autoinstall -k 6.5.0-other
        find /lib/modules/6.5.0-other -name 'fusetuned.ko*'
        test -z "$(find /lib/modules/6.5.0-other -name 'fusetuned.ko*')"
        dkms autoinstall -k {suite.kernel()}
        test -n "$(find /lib/modules/{suite.kernel()} -name 'fusetuned.ko*')"
    """
    done = suite.inside(tmp_path, {module: there}, script)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("suite", _PROBED, ids=lambda suite: suite.series)
def test_builds_on_headers_of_either_kind(suite: Suite, module: Path, tmp_path: Path) -> None:
    """Headers of one series have one or the other; the other is made here.

    It is only compiled: it goes with no kernel.
    """
    there = f"/usr/src/fusetuned-{version(module)}"
    script = rf"""
        header=$(echo /usr/src/linux-headers-*-common/include/linux/backing-file.h)
        grep -q 'backing_file_open(const struct file \*' "$header"
        sed -i 's/backing_file_open(const struct file \*/backing_file_open(const struct path */' \
            "$header"
        dkms add fusetuned/{version(module)}
        dkms build fusetuned/{version(module)} -k {suite.kernel()} ||
            {{ cat /var/lib/dkms/fusetuned/*/build/make.log; exit 1; }}
        ! grep -i warning "$(find -L /var/lib/dkms/fusetuned -name make.log | head -n 1)"
    """
    done = suite.inside(tmp_path, {module: there}, script)
    assert done.returncode == 0, done.stdout
