# SPDX-License-Identifier: GPL-2.0-or-later
"""Start and end of mirrorfs: one-line refusals, readiness, signals, and crashes.

The messages and exit codes are described in mirrorfs(1).
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
from pathlib import Path

import pytest

from tests.native.mirror import BINARY, mounted_at, unmount, wait_for
from tests.native.mirrorfs.calls import (
    Mount,
    refused,
    run,
    serving,
    write_all,
)
from tests.native.requirements import requires

pytestmark = requires()


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("max_write=4095", "give 4K to"),
        ("max_write=1T", "give 4K to"),
        ("max_write=64KB", "give 4K to"),
        ("max_readahead=", "give 4K to"),
        ("max_background=0", "give 1 to 65535"),
        ("max_background=65536", "give 1 to 65535"),
        ("max_background=1.0", "give 1 to 65535"),
        ("threads=-1", "give 1 to"),
        ("served=0,delay=1ms", "give 1 to 1024"),
        ("served=4", "give delay="),
        ("fail_every=0", "give 1 to 4294967295"),
        ("delay=5", "us, ms or s"),
        ("delay=1.ms", "us, ms or s"),
        ("delay=61s", "us, ms or s"),
        ("delay=99999999999999999999s", "us, ms or s"),
        ("delay=18446744073709551.9us", "us, ms or s"),  # 2^64 ns and a little more
        ("delay=18446744073.8s", "us, ms or s"),
        ("timeout=18446744073.8", "seconds"),
        ("timeout=soon", "seconds"),
        ("entry_timeout=soon", "seconds"),
        ("negative_timeout=-1", "seconds"),
        ("atomic_open=yes", "off, echo or on"),
        ("bandwidth=1K", "bytes a second"),
        ("splice=move", "splice=move"),
        ("splice=read+", "splice=read+"),
        ("writeback=1", "writeback=1"),
        ("no_such_option", "no_such_option"),
        ("writeback,direct_io", "leave one out"),
        ("passthrough,writeback", "leave one out"),
        ("counters=", "counters="),
        ("tuned,allow_other", "give it in tuned_options="),
        ("tuned,clone_fd", "leave one out"),
        ("tuned_options=max_pages=64", "give tuned too"),
        ("tuned,tuned_options=", "combined with +"),
    ],
)
def test_bad_options_are_refused(source: Path, mountpoint: Path, option: str, reason: str) -> None:
    refused(2, reason, "-o", option, source, mountpoint)


def test_bad_places_are_refused(source: Path, mountpoint: Path, tmp_path: Path) -> None:
    inside = source / "inside"
    inside.mkdir()
    file = tmp_path / "file"
    file.touch()
    refused(2, "MOUNTPOINT: missing", source)
    refused(2, "one argument too many", source, mountpoint, inside)
    refused(2, "inside MOUNTPOINT", inside, source)
    refused(2, "inside SOURCE", source, inside)
    refused(2, "inside MOUNTPOINT", source, source)
    refused(2, "inside MOUNTPOINT", "-o", f"counters={mountpoint}/c", source, mountpoint)
    refused(1, "No such file", "-o", f"counters={tmp_path}/no/c", source, mountpoint)
    refused(1, "No such file", tmp_path / "missing", mountpoint)
    refused(1, "Not a directory", source, file)


def test_help_names_every_option() -> None:
    manual = (BINARY.parents[1] / "man" / "mirrorfs.1").read_text()
    shown = run("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    options = re.findall(r"^    -o (\w+)", shown.stdout.split("Options of libfuse")[0], re.M)
    assert len(set(options)) >= 18
    for option in options:
        assert f"Cm {option}" in manual, option


def test_background_start_is_ready_and_final_document_is_written(
    source: Path, mountpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Relative names must still work after chdir("/").
    monkeypatch.chdir(tmp_path)
    counters = tmp_path / "counters.json"
    (source / "file").write_text("x")
    try:
        started = run("-o", "counters=counters.json", "source", "mnt")
        assert (started.returncode, started.stderr) == (0, "")
        assert mounted_at(mountpoint) is not None
        assert (mountpoint / "file").read_text() == "x"
    finally:
        unmount(mountpoint)
    wait_for(lambda: bool(json.loads(counters.read_bytes())["final"]), "the final document")
    document = json.loads(counters.read_bytes())
    assert document["ops"]["READ"]["count"] == 1
    # Only init would reap it here, so a zombie counts as ended.
    wait_for(lambda: not running(document["pid"]), "the server's end")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_cleanly(mount: Mount, sig: signal.Signals) -> None:
    mirror = mount()
    write_all(mirror.mountpoint / "file", b"x")
    # A busy mount also ends.
    fd = os.open(mirror.mountpoint / "file", os.O_RDONLY)
    mirror.process.send_signal(sig)
    assert mirror.process.wait(20) == 0
    with pytest.raises(OSError, match="not connected"):
        os.close(fd)
    assert mounted_at(mirror.mountpoint) is None
    last = mirror.counters()
    assert last["final"] is True
    assert last["ops"]["WRITE"]["count"] == 1


def test_one_thread_serves_and_ends(source: Path, mountpoint: Path) -> None:
    with serving(mountpoint, "-s", source):
        write_all(mountpoint / "file", b"x")
        assert (source / "file").read_bytes() == b"x"


def test_a_crash_leaves_nothing_that_hinders_the_next_start(mount: Mount) -> None:
    mirror = mount()
    write_all(mirror.mountpoint / "file", b"x")
    mirror.kill()
    with pytest.raises(OSError, match="not connected"):
        os.stat(mirror.mountpoint / "file")
    mirror.unmount()
    assert mounted_at(mirror.mountpoint) is None
    again = mount()
    assert (again.mountpoint / "file").read_bytes() == b"x"


def test_a_file_can_be_closed_when_the_server_has_no_free_descriptor(mount: Mount) -> None:
    mirror = mount()
    pid, kind = mirror.process.pid, resource.RLIMIT_NOFILE
    fd = os.open(mirror.mountpoint / "file", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"x")
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (0, before[1]))
    try:
        os.close(fd)
    finally:
        resource.prlimit(pid, kind, before)
    assert (mirror.source / "file").read_bytes() == b"x"
    flush = mirror.counters()["ops"]["FLUSH"]
    assert (flush["count"], flush["errors"]) == (1, 0)
