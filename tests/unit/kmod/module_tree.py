# SPDX-License-Identifier: GPL-2.0-or-later
"""A directory tree of a host with kernels, DKMS and the module; programs are recorded, not run."""

import os
import subprocess
from collections.abc import Callable

from fusetune.kmod import kinds, state
from fusetune.kmod.kinds import Words
from fusetune.report.documents.modules import ModuleReport, module_report
from tests.unit.conftest import Tree

RUNNING, OLDER, OTHER = "6.12.94+deb13-amd64", "6.12.9+deb13-amd64", "6.5.0-other"
FUSETUNED = kinds.named("fusetuned")
DKMS = "var/lib/dkms/fusetuned"
LOG = """\
DKMS (dkms-3.2.2) make.log for fusetuned/0.1.0 for kernel {} (x86_64)
make: Entering directory
/bin/sh: 1: gcc-14: not found
make[1]: *** [6.12/dev.o] Error 127
"""


class Programs:
    """Runs nothing: records the words, and returns a prepared result for the first one.

    ``source`` is the source of an installed module in modinfo's output, which is not recorded.
    """

    def __init__(self, source: str = "", **answers: tuple[int, str]) -> None:
        self.source = source
        self.ran: list[Words] = []
        self.answers = answers
        self.then: dict[str, Callable[[], object]] = {}
        self.does: dict[str, Callable[[Words], tuple[int, str]]] = {}

    def __call__(self, words: Words) -> subprocess.CompletedProcess[str]:
        if "tuned_source" in words:
            return subprocess.CompletedProcess(words, 0, f"{self.source}\n", "")
        self.ran.append(words)
        does = self.does.get(words[0])
        code, said = does(words) if does else self.answers.get(words[0], (0, ""))
        if code == 0:
            self.then.get(words[0], lambda: None)()
        out, err = (said, "") if code == 0 else ("", said)
        return subprocess.CompletedProcess(words, code, out, err)


def installed(tree: Tree, kernel: str = RUNNING) -> None:
    """As DKMS leaves it after a build."""
    tree.write(f"usr/lib/modules/{kernel}/updates/dkms/fusetuned.ko.xz", "")
    tree.write(f"{DKMS}/0.1.0/{kernel}/x86_64/module/fusetuned.ko.xz", "")
    os.symlink(f"0.1.0/{kernel}/x86_64", tree.root / DKMS / f"kernel-{kernel}-x86_64")


def in_kernel(tree: Tree, source: str | None = None) -> None:
    """As the module appears when loaded; ``source`` as recorded by import_kernel.py."""
    facts = {"initstate": "live", "version": "0.1.0", "srcversion": "ABC"}
    if source:
        facts["parameters/source"] = source
    for name, text in facts.items():
        tree.write(f"sys/module/fusetuned/{name}", text + "\n")


def found(tree: Tree, run: Programs | None = None) -> ModuleReport:
    """The document of `status`."""
    return module_report(state.status(tree.host, FUSETUNED, run or Programs()))


VERSION_H = """\
#define LINUX_VERSION_CODE 393664
#define LINUX_VERSION_MAJOR 6
#define LINUX_VERSION_PATCHLEVEL 12
#define LINUX_VERSION_SUBLEVEL {}
"""
