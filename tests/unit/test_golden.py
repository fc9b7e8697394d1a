# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON of every command on a recorded tree of /proc and /sys, byte for byte, except the last
digits of a model's results: since Python 3.12, sum() rounds differently.

Field names, their order and their units are a contract. To extend a command's JSON, delete its file
in golden/ and run this test with FUSETUNE_RECORD=1.
"""

import importlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusetune.mounts.discover import discover
from tests.unit.conftest import INIT, Tree
from tests.unit.sample_documents import SERVED, all_documents
from tests.unit.sample_metrics import COUNTED, DEBUG, PAGES

GOLDEN = Path(__file__).parent / "golden"
#: A number with more digits than all versions of Python agree on.
_LONG_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{10,}(?![\w.])")

#: These need programs or servers, so their JSON comes from objects made by hand.
BY_HAND = ("auto", "bench", "bench-suite", "lib-change", "lib-status", "module", "profile", "top")

#: Each line uses the tree as left by the previous lines.
RUNS = {
    "list": ["list"],
    "show": ["show /mnt/one", "show /mnt/tuned", "show host"],
    "advise": ["advise /mnt/one", "advise /mnt/one -w metadata"],
    "remount": ["remount /mnt/one --dry-run --accept writeback"],
    "set": [
        "set /mnt/one max_ratio=30 --dry-run",
        "set /mnt/one max_ratio=30 read_ahead_kb=256",
        "set host fs.pipe-max-size=2M --persist",
    ],
    "save": ["save /mnt/one --dry-run", "save /mnt/one"],
    "auto-preview": ["auto /mnt/one --dry-run"],
    "verify": ["verify /mnt/one", "verify"],
    "apply": ["apply --all --dry-run", "apply /mnt/one"],
    "report": ["report", "report /mnt/one"],
    "doctor": ["doctor"],
    "forget": ["forget /mnt/one --dry-run", "forget /mnt/one"],
    "reset": ["reset /mnt/one", "reset --all"],
    "history": ["history /mnt/one", "history host -n 1"],
    "explain": ["explain /mnt/one max_ratio read_ahead_kb", "explain /mnt/tuned"],
}


@pytest.fixture
def recorded(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A host with three mounts: of the kernel's FUSE, of our module, and an excluded one."""
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "6.12", "", "x86_64")))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.5)
    monkeypatch.setattr(time, "localtime", time.gmtime)
    tree.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n")
    tree.write("proc/sys/kernel/osrelease", "6.12.94+deb13-amd64\n")
    tree.write("proc/sys/kernel/version", "#1 SMP Debian 6.12.117-1 (date)\n")
    tree.write("sys/module/fuse/parameters/enable_uring", "N\n")
    tree.write("sys/module/fusetuned/version", "0.1.0\n")
    tree.write("sys/module/fusetuned/initstate", "live\n")
    tree.write("sys/module/fusetuned/parameters/source", "6.12.94 linux-source-6.12 6.12.94-1\n")
    tree.write("usr/lib/x86_64-linux-gnu/libfuse3.so.3.17.2", "")
    tree.system()
    tree.mount("/mnt/one")
    tree.mount("/mnt/again")
    tree.live(values={"max_ratio": 20, "congestion_threshold": 7}, waiting=3)
    control = "sys/fs/fusetuned/connections"
    tree.mount("/mnt/tuned", device="0:41", fstype="fusetuned.mirrorfs")
    tree.live("0:41", "41", control, {"max_pages": 256}, owner=1000)
    tree.write(f"{control}/41/init", INIT.format(256, "async_read max_pages"))
    tree.write(f"{control}/41/statistics", COUNTED)
    tree.write(DEBUG, PAGES)
    tree.mount("/var/lib/lxcfs", device="0:42", fstype="fuse.lxcfs")
    tree.live("0:42", "42")
    tree.write("sys/fs/fuse/connections/77/waiting", "0\n")
    tree.write(
        "etc/fusetune.toml",
        '[policy]\nallow_users = ["no-such-user"]\n\n'
        '[[mount]]\npath = "/mnt/tuned"\nmax_ratio = 30\nmax_background = 24\n',
    )
    return tree


def _run(tree: Tree, line: str, capsys: pytest.CaptureFixture[str]) -> str:
    name, *words = line.split()
    command = importlib.import_module(f"fusetune.cli.{name}_").command
    capsys.readouterr()
    command.main([*words, "--json"], prog_name=name, obj=tree.host, standalone_mode=False)
    return capsys.readouterr().out


def _runs(tree: Tree, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str]]:
    for schema, lines in RUNS.items():
        if schema == "verify":  # by somebody else
            tree.live(values={"max_ratio": 7, "read_ahead_kb": 256}, waiting=3)
        if schema == "remount":
            tree.write("etc/fstab", "# first\nsource /mnt/one fuse.mirrorfs ro 0 0\n")
        printed = [_run(tree, line, capsys) for line in lines]
        yield schema, "".join(printed).replace(str(tree.root), "/tree")


def _rounded(text: str) -> str:
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.9g}", text)


def _by_hand() -> Iterator[tuple[str, str]]:
    documents = [one.as_object() for one in all_documents(SERVED)]
    for schema in BY_HAND:
        wanted = [one for one in documents if one["schema"] == f"fusetune.{schema}/1"]
        yield schema, "".join(json.dumps(one, indent=2) + "\n" for one in wanted)


def test_json_is_as_recorded(recorded: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(discover(recorded.host)) == 3
    printed = dict(_by_hand()) | dict(_runs(recorded, capsys))
    if os.environ.get("FUSETUNE_RECORD"):
        for schema, text in printed.items():
            if not (GOLDEN / f"{schema}.json").exists():
                (GOLDEN / f"{schema}.json").write_text(text)
    assert sorted(printed) == sorted(file.stem for file in GOLDEN.iterdir())
    for schema, text in printed.items():
        assert _rounded(text) == _rounded((GOLDEN / f"{schema}.json").read_text()), schema
