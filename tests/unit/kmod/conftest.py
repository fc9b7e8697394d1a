# SPDX-License-Identifier: GPL-2.0-or-later
"""A host with kernels and DKMS, in a directory tree."""

import pytest

from tests.unit.conftest import CHECKOUT, Tree
from tests.unit.kmod.module_tree import OLDER, OTHER, RUNNING, VERSION_H


@pytest.fixture
def host_tree(tree: Tree) -> Tree:
    """A host with three kernels and the module's source, with nothing built yet."""
    tree.write("proc/sys/kernel/osrelease", RUNNING + "\n")
    for kernel in (RUNNING, OLDER, OTHER):
        tree.write(f"usr/lib/modules/{kernel}/build/include/x.h", "")
    tree.write(
        "usr/src/fusetuned-0.1.0/dkms.conf",
        'BUILD_EXCLUSIVE_KERNEL="^(6\\.1|6\\.12|7\\.2|7\\.3)[.-]"\n',
    )
    tree.write("sys/module/fuse/parameters/enable_uring", "N\n")
    return tree


@pytest.fixture
def f2fs(host_tree: Tree) -> Tree:
    """A host whose kernels are 6.12.94 and 6.12.9, and f2fs-tuned made from 6.12.90."""
    directory = "usr/src/f2fs-tuned-0.1.0"
    filled = {"#VERSION#": "0.1.0", "#PACKAGE#": "f2fs-tuned", "#REPLACES#": "f2fs"}
    for file in ("dkms.conf", "source.sh"):
        text = (CHECKOUT / "dkms" / file).read_text().replace("#KERNELS#", r"6\.12")
        for mark, value in filled.items():
            text = text.replace(mark, value)
        host_tree.write(f"{directory}/{file}", text)
    host_tree.write(f"{directory}/6.12.source", "6.12.90 linux-source-6.12 6.12.90-1\n")
    for kernel, sublevel in ((RUNNING, 94), (OLDER, 9)):
        header = f"usr/lib/modules/{kernel}/build/include/generated/uapi/linux/version.h"
        host_tree.write(header, VERSION_H.format(sublevel))
    return host_tree
