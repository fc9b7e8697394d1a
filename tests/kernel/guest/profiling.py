# SPDX-License-Identifier: GPL-2.0-or-later
"""`profile`, `top` and `report` agree with the server, on the kernel's FUSE and on the module.

Before Linux 6.12 FUSE has no tracepoints, and those of 6.12 do not know which request ends.
bpftrace then watches functions.
"""

import json
import mmap
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.kernel.guest import statistics_file
from tests.kernel.guest.rig import fresh_source, load, run, stock, tuned, unload
from tests.kernel.guest.statistics_file import NONE
from tests.kernel.guest.tool import start
from tests.native.mirror import Mirror, mounted_at, wait_for

#: A metric's name, its sample's operation and its bucket's upper bound, None if it has none.
_Series = tuple[str, str | None, str | None]
_BLOCK, _BLOCKS = 4096, 256
_FILES = 64
#: Of some 2000 runs of the BPF program; in most tests none is skipped.
_SKIPPED = 8
_TRACING = Path("/sys/kernel/tracing")
_DEBUG = Path("/sys/kernel/debug")
#: The server counts these, but they have no end.
_UNANSWERED = {"FORGET", "BATCH_FORGET"}
_PATIENCE = 300.0  # seconds; bpftrace compiles its program in an emulated machine


@contextmanager
def _mounted(kind: str, place: Path) -> Iterator[None]:
    mounted = mounted_at(place)
    if not mounted:
        run("mount", "-t", kind, kind, place)
    yield
    if not mounted:
        run("umount", place)


def _work(mirror: Mirror) -> None:
    """Write and read blocks, each in its own request, and look up names."""
    with mmap.mmap(-1, _BLOCK) as buffer:
        file = os.open(mirror.mountpoint / "file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        for number in range(_BLOCKS):
            os.pwritev(file, [buffer], number * _BLOCK)
        for number in range(_BLOCKS):
            os.preadv(file, [buffer], number * 7 % _BLOCKS * _BLOCK)
        os.close(file)
    for number in range(20):
        assert not (mirror.mountpoint / f"missing.{number}").exists()


def _in_flight(mirror: Mirror) -> int:
    return sum(one["in_flight"] for one in mirror.counters()["ops"].values())


def _watched(mirror: Mirror, work: Callable[[Mirror], None]) -> dict[str, Any]:
    """Watch ``work``; return the document of profile, once it has ended by a signal."""
    with start("profile", str(mirror.mountpoint), "--for", "1h", "--json") as process:
        assert process.stderr
        said = process.stderr.readline()
        assert "watching" in said, said + process.stderr.read()
        programs = run("bpftool", "prog", "show").stdout
        mirror.reset_counters()
        work(mirror)
        wait_for(lambda: not _in_flight(mirror), "rest")
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=_PATIENCE)
        assert process.returncode == 0, errors
    document: dict[str, Any] = json.loads(said)
    # These kernels have kprobes, and probes at functions' entries.
    is_watched = bool(re.search(r"fentry_\w+_fuse_file_read_", programs))
    assert is_watched == (document["source"] == "bpftrace"), programs
    return document


def _profile(mirror: Mirror) -> str:
    """Watch `_work`; return what counted its requests."""
    document = _watched(mirror, _work)
    _compare(document, mirror)
    source: str = document["source"]
    return source


def _heads(mirror: Mirror) -> None:
    """Read a block of each file, of every other one as sendfile(2) does."""
    with Path("/dev/null").open("wb") as null:
        for number in range(_FILES):
            with (mirror.mountpoint / f"head.{number}").open("rb", buffering=0) as file:
                if number % 2:
                    assert os.sendfile(null.fileno(), file.fileno(), 0, _BLOCK) == _BLOCK
                else:
                    assert len(file.read(_BLOCK)) == _BLOCK


def _map(mirror: Mirror) -> None:
    with (
        (mirror.mountpoint / "head.0").open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
    ):
        assert mapped[_BLOCK] == 0


def _tells_what_nothing_read(mirror: Mirror) -> None:
    """Compare with what the server has sent; after a page fault it is not known."""
    for number in range(_FILES):
        (mirror.source / f"head.{number}").write_bytes(bytes(32 * _BLOCK))
    found = _watched(mirror, _heads)["pattern"]
    sent = mirror.counters()["ops"]["READ"]["bytes"]
    assert sent >= 2 * _FILES * _BLOCK
    share = found["readahead_unused_share"]
    assert share is not None, found
    assert abs(share - (1 - _FILES * _BLOCK / sent)) < 0.05, (found, sent)
    found = _watched(mirror, _map)["pattern"]
    assert found["page_faults"] > 0, found
    assert found["readahead_unused_share"] is None, found


def _compare(document: dict[str, Any], mirror: Mirror) -> None:
    served = {
        name: one["count"]
        for name, one in mirror.counters()["ops"].items()
        if one["count"] and name not in _UNANSWERED
    }
    found = {one["operation"]: one for one in document["operations"]}
    # If a BPF program was interrupted, the kernel skips the next one on that processor.
    lost = document["lost"]
    assert lost <= (_SKIPPED if document["source"] == "bpftrace" else 0), document
    assert found.keys() == served.keys(), (found, served)
    missing = {name: served[name] - one["requests"] for name, one in found.items()}
    assert min(missing.values()) >= 0, (found, served)
    assert sum(missing.values()) <= lost, (found, served, lost)
    assert served["READ"] == served["WRITE"] == _BLOCKS
    assert served["LOOKUP"] > 20
    if document["source"] == "bpftrace":
        pattern = document["pattern"]
        assert _BLOCKS - lost <= min(pattern["reads"], pattern["writes"]), pattern
        assert max(pattern["reads"], pattern["writes"]) <= _BLOCKS, pattern
        assert pattern["direct_reads_share"] == 1, pattern
    for name in ("READ", "WRITE"):
        assert (_BLOCKS - lost) * _BLOCK <= found[name]["bytes"] <= _BLOCKS * _BLOCK, name
        assert 0 < found[name]["latency_us"]["p50"] <= found[name]["latency_us"]["p99"]
    # The end's tracepoint follows the mark for the waiter, who may send its next request before it
    # (fs/fuse/dev.c, fuse_request_end()). The module does not count these.
    most = (None,) if document["source"] == "module" else (1, 2)
    assert {found[name]["most_in_flight"] for name in ("READ", "WRITE")} <= set(most)


@contextmanager
def traced() -> Iterator[Mirror]:
    """Mount the kernel's own FUSE; `profile` must leave no program behind."""
    unload()
    fresh_source()
    with _mounted("tracefs", _TRACING):
        programs = run("bpftool", "prog", "show").stdout
        with stock() as mirror:
            yield mirror
        assert run("bpftool", "prog", "show").stdout == programs


def check_tool_profiles_the_kernels_own() -> None:
    """By tracepoints, or by functions if these do not suffice."""
    with traced() as mirror:
        assert _profile(mirror) == "bpftrace"


def check_tool_tells_what_nothing_read() -> None:
    """The share of what the server sent that no program read; after a page fault, none."""
    with traced() as mirror:
        _tells_what_nothing_read(mirror)


def check_tool_profiles_the_modules() -> None:
    """From the module's own statistics, without bpftrace."""
    load()
    fresh_source()
    with tuned() as mirror:
        assert _profile(mirror) == "module"


def check_tool_top_shows_what_the_module_counts() -> None:
    """The sum over all frames equals the module's file and the server's counters."""
    load()
    fresh_source()
    with tuned() as mirror, start("top", "-i", "1s", "--json") as process:
        assert process.stdout
        process.stdout.readline()  # from here on it reads the statistics
        before = statistics_file.read(mirror)
        mirror.reset_counters()
        _work(mirror)
        wait_for(lambda: not _in_flight(mirror), "rest")
        after = statistics_file.read(mirror)
        served = mirror.counters()["ops"]
        found: dict[str, Counter[str]] = {}
        shown: dict[str, Any] = {}
        end = time.monotonic() + _PATIENCE
        while not found or shown["operations"]:
            assert time.monotonic() < end, found
            (shown,) = json.loads(process.stdout.readline())["mounts"]
            assert (shown["counted_by"], shown["why"], shown["lost"]) == ("module", None, 0), shown
            for one in shown["operations"]:
                counts = found.setdefault(one["operation"], Counter())
                counts.update({name: one[name] for name in ("requests", "bytes")})
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=_PATIENCE)
        assert process.returncode == 0, errors
    counted = {name: one.count - before.get(name, NONE).count for name, one in after.items()}
    shown = {name: one["requests"] for name, one in found.items() if name not in _UNANSWERED}
    expected = {name: count for name, count in counted.items() if count and name not in _UNANSWERED}
    assert shown == expected, (shown, expected)
    for name in ("READ", "WRITE"):
        assert found[name]["requests"] == served[name]["count"] == _BLOCKS
        assert found[name]["bytes"] == _BLOCKS * _BLOCK, found[name]


def _metrics(mirror: Mirror) -> dict[_Series, float]:
    """Return the metrics of a mount."""
    with start("report", "--format", "prometheus") as process:
        text, errors = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 0, errors
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    samples = (sample for family in families for sample in family.samples)
    return {
        (one.name, one.labels.get("operation"), one.labels.get("le")): one.value
        for one in samples
        if one.labels.get("mount") == str(mirror.mountpoint)
    }


def check_tool_metrics_are_what_the_module_counts() -> None:
    """The first report starts the counters; later ones have them and the dirty pages."""
    load()
    fresh_source()
    with _mounted("debugfs", _DEBUG), tuned() as mirror:
        assert not [key for key in _metrics(mirror) if key[1]]
        _work(mirror)
        wait_for(lambda: not _in_flight(mirror), "rest")
        counted = statistics_file.read(mirror)
        found = _metrics(mirror)
    seconds = "fusetune_request_duration_seconds"
    assert {key[1] for key in found if key[1]} == set(counted)
    for name, one in counted.items():
        if name in _UNANSWERED:  # they may come at any time
            continue
        assert found["fusetune_requests_total", name, None] == one.count
        assert found["fusetune_request_errors_total", name, None] == one.errors
        assert found["fusetune_request_sent_bytes_total", name, None] == one.sent
        assert found["fusetune_request_received_bytes_total", name, None] == one.received
        assert found[f"{seconds}_sum", name, None] == one.time / 1e9
        assert found[f"{seconds}_count", name, None] == one.count
        assert found[f"{seconds}_bucket", name, "0.001024"] == sum(one.latency[:11])
    assert found["fusetune_requests_total", "WRITE", None] == _BLOCKS
    assert found["fusetune_dirty_bytes", None, None] >= 0
    assert found["fusetune_written_back_bytes_total", None, None] >= 0
    assert found["fusetune_waiting_requests", None, None] == 0
