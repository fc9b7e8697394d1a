# SPDX-License-Identifier: GPL-2.0-or-later
"""The history of a mount: its entries, its length, and damage to it."""

import fcntl
import json
import os
import pwd
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fusetune.desired import history
from fusetune.desired.history import History, history_named, history_of, record
from fusetune.desired.persist import forget_kept, save_now
from fusetune.desired.reconcile import reconcile
from fusetune.desired.request import set_values
from fusetune.desired.reset import reset
from fusetune.desired.results import Conditions, Run
from fusetune.errors import FusetuneError
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.report.documents.history import history_document
from tests.unit.conftest import STOCK, Tree
from tests.unit.kept_values import resolver
from tests.unit.knob_values import knobs


def _set(tree: Tree, mount: Mount, **values: int) -> None:
    set_values(tree.host, mount, knobs(**values), (), force=False, dry_run=False)


def _file(tree: Tree) -> Path:
    (file,) = (tree.host.state_dir / "history").glob("*.jsonl")
    return file


def _commands(found: History) -> list[str]:
    return [entry.command for entry in found.entries]


@pytest.mark.usefixtures("knob_files")
def test_every_change_is_on_record(tree: Tree, mounted: Mount) -> None:
    _set(tree, mounted, read_ahead_kb=512)
    _set(tree, mounted, read_ahead_kb=512)  # which changes nothing
    save_now(tree.host, mounted, admin=False, dry_run=False)
    file = tree.root / "etc/fusetune.toml"
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 20\n"), mounted, by="watch")
    forget_kept(tree.host, "/mnt/one", admin=False, dry_run=False)
    reset(tree.host, mounted)
    first, saved, kept, forgotten, last = history_of(tree.host, mounted).entries
    assert (first.command, first.changes) == ("set", {"read_ahead_kb": [128, 512]})
    assert (saved.command, saved.changes) == ("save", {})
    assert "read_ahead_kb=512 kept in /" in saved.reasons[0]
    assert (kept.command, kept.changes) == ("watch", {"max_ratio": [STOCK["max_ratio"], 20]})
    assert kept.reasons == [f"{file}:2 asks for it"]
    assert forgotten.command == "forget"
    assert last.changes == {"read_ahead_kb": [512, 128], "max_ratio": [20, STOCK["max_ratio"]]}


def test_what_was_not_done_is_not_on_record(tree: Tree, mounted: Mount) -> None:
    set_values(tree.host, mounted, knobs(max_ratio=20), (), force=False, dry_run=True)
    reconcile(resolver(tree, "[[mount]]\nmax_ratio = 20\n"), mounted, dry_run=True)
    reset(tree.host, mounted)
    assert history_of(tree.host, mounted) == History()
    assert not tree.host.state_dir.exists()


def test_the_host_has_a_history_of_its_own(tree: Tree, mounted: Mount) -> None:
    record(tree.host, None, "set", {"fs.pipe-max-size": (1, 2)})
    record(tree.host, mounted, "save")
    assert _commands(history_of(tree.host, None)) == ["set"]
    assert _commands(history_of(tree.host, mounted)) == ["save"]


@pytest.mark.parametrize(
    ("loginuid", "user"),
    [("0\n", "root"), ("4294967295\n", None), ("54321\n", "54321"), ("", None), (None, None)],
)
def test_who(
    tree: Tree,
    mounted: Mount,
    monkeypatch: pytest.MonkeyPatch,
    loginuid: str | None,
    user: str | None,
) -> None:
    known = {0: pwd.struct_passwd(("root", "x", 0, 0, "", "/root", "/bin/sh"))}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: known[uid])
    if loginuid is not None:
        tree.write("proc/self/loginuid", loginuid)
    record(tree.host, mounted, "save")
    assert history_of(tree.host, mounted).entries[0].user == user


def test_the_latest_entries_stay(tree: Tree, mounted: Mount) -> None:
    tree.write("etc/fusetune.toml", "[history]\nkeep = 3\n")
    for number in range(7):
        record(tree.host, mounted, f"set {number}")
        assert len(_file(tree).read_text().splitlines()) == min(number + 1, 3) + 1
    assert _commands(history_of(tree.host, mounted)) == ["set 4", "set 5", "set 6"]


def test_fewer_entries_than_there_are_to_be(tree: Tree, mounted: Mount) -> None:
    """After a crash the file is rewritten, and no complete entry is lost."""
    for number in range(4):
        record(tree.host, mounted, f"set {number}")
    with _file(tree).open("a") as stream:
        stream.write('{"time": 1.0, "comm')
    record(tree.host, mounted, "set 4")
    record(tree.host, mounted, "set 5")
    found = history_of(tree.host, mounted)
    assert _commands(found) == [f"set {number}" for number in range(6)]
    assert not found.problems


def test_none_are_kept(tree: Tree, mounted: Mount) -> None:
    record(tree.host, mounted, "set", keep=5)
    assert _file(tree).exists()
    tree.write("etc/fusetune.toml", "[history]\nkeep = 0\n")
    record(tree.host, mounted, "set")
    assert history_of(tree.host, mounted) == History()
    assert not list((tree.host.state_dir / "history").glob("*.jsonl"))


def test_a_wrong_configuration_keeps_nothing_from_being_noted(tree: Tree, mounted: Mount) -> None:
    tree.write("etc/fusetune.toml", "[history]\nkeep = -1\n")
    record(tree.host, mounted, "set")
    assert _commands(history_of(tree.host, mounted)) == ["set"]


def test_mounts_that_nothing_happened_to_for_longest_are_dropped(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_MOST_FILES", 2)
    record(tree.host, mounted, "set")
    os.utime(_file(tree), (1, 1))
    for number, path in enumerate(("/mnt/two", "/mnt/three")):
        tree.mount(path, device=f"0:{number + 60}")
        tree.live(f"0:{number + 60}", str(number + 60))
        record(tree.host, _mount(tree, path), "set")
    assert history_of(tree.host, mounted) == History()
    assert _commands(history_of(tree.host, _mount(tree, "/mnt/two"))) == ["set"]
    assert _commands(history_of(tree.host, _mount(tree, "/mnt/three"))) == ["set"]


def _mount(tree: Tree, path: str) -> Mount:
    return next(mount for mount in discover(tree.host) if mount.path == path)


def test_a_history_that_cannot_be_written_fails_no_command(tree: Tree, mounted: Mount) -> None:
    tree.write("var/lib/history", "a file in place of the directory")
    _set(tree, mounted, read_ahead_kb=512)
    assert tree.values()["read_ahead_kb"] == 512


def test_links_are_not_followed(tree: Tree, mounted: Mount) -> None:
    record(tree.host, mounted, "set")
    file, elsewhere = _file(tree), tree.write("elsewhere", "theirs\n")
    file.unlink()
    file.symlink_to(elsewhere)
    record(tree.host, mounted, "set")
    assert elsewhere.read_text() == "theirs\n"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"time": "now", "command": "set", "user": null}',
        '{"time": NaN, "command": "set", "user": null}',
        '{"time": 1, "command": 5, "user": null}',
        '{"time": 1, "command": "set", "user": null, "changes": {"max_ratio": [1]}}',
        '{"time": 1, "command": "set", "user": null, "changes": {"max_ratio": ["1", 2]}}',
        '{"time": 1, "command": "set", "user": null, "reasons": [1]}',
        '{"time": 1, "command": "set", "user": null, "ci95": 3}',
        '{"time": 1, "command": "set", "user": null, "ci95": [2.5]}',
        '{"time": 1e20, "command": "set", "user": null}',
        pytest.param('{"time": 1' + 400 * "0" + ', "command": "set", "user": null}', id="too late"),
        pytest.param(20_000 * "[", id="too deep"),
        '{"time": 1, "command": "set", "user": null, "run": {"blocks": 3}}',
        '{"time": 1, "command": "set", "user": null, "later": 3}',
    ],
)
def test_damaged_entries_are_told_and_left_out(tree: Tree, mounted: Mount, line: str) -> None:
    record(tree.host, mounted, "set")
    with _file(tree).open("a") as stream:
        stream.write(line + "\n")
    record(tree.host, mounted, "reset")
    found = history_of(tree.host, mounted)
    assert _commands(found) == ["set", "reset"]
    assert found.problems == (f"1 of 3 entries of {_file(tree)} are damaged",)


def test_a_clock_that_was_set_back_changes_no_order(
    tree: Tree, mounted: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    for when, command in ((2000.0, "save"), (1000.0, "set")):
        monkeypatch.setattr("time.time", lambda when=when: when)
        record(tree.host, mounted, command)
    assert _commands(history_of(tree.host, mounted)) == ["save", "set"]


def test_a_run_is_read_as_it_was_written(tree: Tree, mounted: Mount) -> None:
    conditions = Conditions("/bin/server", None, "6.12", 0, {"seq-read": "bytes_per_second"})
    run = Run(conditions, [[({"max_ratio": 1}, {"seq-read": 2.5})]])
    facts: dict[str, Any] = {
        "gain": 1.5,
        "ci95": (1.25, 1.75),
        "workloads": ["seq-read"],
        "reasons": ["So."],
    }
    record(tree.host, mounted, "auto", {"max_ratio": (1, 20)}, run=run, **facts)
    (entry,) = history_of(tree.host, mounted).entries
    assert entry.run == run
    assert (entry.gain, entry.ci95) == (1.5, [1.25, 1.75])
    text = history_document("/mnt/one", History([entry]), 5).as_text().splitlines()
    assert text[0].endswith("  auto, seq-read: 1.50 [1.25, 1.75] times the speed before")
    assert text[1:] == ["  max_ratio 1 -> 20", "  - So."]


def test_a_mount_that_is_gone_is_found_by_its_path(tree: Tree, mounted: Mount) -> None:
    record(tree.host, mounted, "set")
    tree.write("proc/self/mountinfo", "")
    path, found = history_named(tree.host, "/mnt/one")
    assert (path, _commands(found)) == ("/mnt/one", ["set"])
    with pytest.raises(FusetuneError, match="/mnt/other"):
        history_named(tree.host, "/mnt/other")


def test_the_oldest_are_left_out(tree: Tree, mounted: Mount) -> None:
    for number in range(3):
        record(tree.host, mounted, f"set {number}")
    document = history_document("/mnt/one", history_of(tree.host, mounted), 2)
    assert [entry.command for entry in document.entries] == ["set 1", "set 2"]
    assert json.loads(document.as_json())["left_out"] == 1
    assert document.as_text().startswith("1 older entries are left out; --count shows more\n")
    assert history_document(None, History(), 2).as_text() == "no entries\n"


def test_who_adds_an_entry_waits_for_the_one_before(tree: Tree, mounted: Mount) -> None:
    record(tree.host, mounted, "set")
    lock = tree.host.state_dir / "history" / ".lock"
    assert lock.stat().st_mode & 0o777 == 0o600  # so that no user can lock it
    with lock.open() as held, ThreadPoolExecutor(1) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        added = pool.submit(record, tree.host, mounted, "reset")
        with pytest.raises(TimeoutError):
            added.result(0.2)
        assert _commands(history_of(tree.host, mounted)) == ["set"]
        fcntl.flock(held, fcntl.LOCK_UN)
        added.result(10)
    assert _commands(history_of(tree.host, mounted)) == ["set", "reset"]
