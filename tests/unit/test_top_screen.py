# SPDX-License-Identifier: GPL-2.0-or-later
"""top's output: lines, the screen at two sizes, keys, and its end."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from fusetune.report.documents.layers import LayerBelow
from fusetune.report.documents.profile import BindingLimit, Latency
from fusetune.report.documents.top import Top
from fusetune.report.documents.top_mount import TopMount, TopOperation
from fusetune.report.top_rows import bytes_text, count_text, limit_line, table_rows, time_text
from fusetune.signals import Signals
from fusetune.top import loop
from fusetune.top.loop import run
from fusetune.top.output import Lines, Output
from fusetune.top.screen import Screen, rendered
from tests.unit.conftest import Tree

SIZES = [(80, 24), (200, 50), (40, 5), (20, 2)]


def _mount(number: int, *below: int, **fields: Any) -> TopMount:
    path = f"/srv/mounts/number-{number}"
    layers = [
        LayerBelow(f"/srv/mounts/number-{one}", "fuse.x", f"0:{one}", "open file", False)
        for one in below
    ]
    operation = TopOperation("READ", 10, 5.0, 40960, 20480.0, 4096.0, Latency(1, 2, 3), 0.1)
    shown = TopMount(
        *(path, "fuse.x", "source", f"0:{number}", f"0:{number}", layers),
        counted_by="module",
        why=None,
        seconds=2.0,
        lost=0,
        unrecorded=0,
        requests_per_second=1000.0 * number,
        bytes_per_second=4096.0 * number,
        mean_bytes=4096.0,
        latency_us=Latency(30, 950, 12_000),
        in_flight=2,
        mean_in_flight=2.0,
        max_background=12,
        background_limit_share=0.0,
        dirty_bytes=1 << 20,
        dirty_limit_bytes=16 << 20,
        written_back_bytes_per_second=0.0,
        readahead_unused_share=0.25,
        unanswered_seconds=0.0,
        limit=None,
        operations=[operation],
    )
    return replace(shown, **fields)


def _frame(*mounts: TopMount) -> Top:
    return Top(1_700_000_000.0, 2.0, mounts)


LIMIT = BindingLimit("max_background", "fusetune set /srv/mounts/number-3 max_background=24", "why")
MANY = _frame(
    _mount(1, 2),
    _mount(2),
    _mount(3, limit=LIMIT, background_limit_share=0.9),
    _mount(4, unanswered_seconds=12.0),
    *(_mount(number) for number in range(5, 60)),
)


def _lines(drawn: str) -> list[str]:
    """Return the text of what is drawn, without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).split("\r\n")


# The screen


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("operations", [False, True])
@pytest.mark.parametrize("frame", [None, _frame(), MANY])
def test_it_fits(frame: Top | None, width: int, height: int, operations: bool) -> None:
    lines = _lines(rendered(frame, width, height, 2.0, "bytes", operations))
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert lines[0].startswith("fusetune top, every "[:width])


@pytest.mark.parametrize(("width", "height"), SIZES[:2])
def test_everything_that_matters_is_on_it(width: int, height: int) -> None:
    lines = _lines(rendered(MANY, width, height, 2.0))
    assert lines[1] == "q quit  s sort: tree  o operations"
    assert lines[2].split() == [
        "mount",
        "by",
        "/s",
        "B/s",
        "size",
        "p50",
        "p95",
        "p99",
        "fly",
        "bg",
        "dirty",
        "waste",
    ]
    assert lines[3].split()[1:] == [
        "mod",
        "1k",
        "4K",
        "4K",
        "30us",
        "950us",
        "12ms",
        "2",
        "0%",
        "6%",
        "25%",
    ]
    assert lines[4].startswith("└─")
    assert lines[6].startswith("  limit max_background: fusetune set /srv/mounts/number-3 ")
    assert lines[7].startswith("NO REPLY 12s: ")
    assert "ber-4 " in lines[7]
    assert len(lines) == height
    assert lines[-1] == f"... {60 - (height - 4)} more lines"


def test_names_are_cut_at_their_begin() -> None:
    long = _mount(1, path="/srv/" + "very/" * 10 + "long")
    line = _lines(rendered(_frame(long), 80, 24, 2.0))[3]
    assert line.startswith("…")
    assert line[:21].endswith("very/long")


def test_what_a_server_names_is_printable() -> None:
    frame = _frame(_mount(1, path="/srv/\x1b[31m\n\ud800", why="\x07 of another"))
    for drawn in (rendered(frame, 200, 50, 2.0), frame.plain(operations=True)):
        assert not {"\x07", "\ud800"} & set(drawn)
        assert "\x1b[31m" not in drawn
        assert "/srv/\\x1b[31m\\n\\ud800" in drawn


def test_a_long_reason_is_wrapped() -> None:
    frame = _frame(_mount(1, why="it is " + "very " * 20 + "far"))
    lines = _lines(rendered(frame, 80, 24, 2.0))
    assert lines[4].startswith("requests of /srv/mounts/number-1 are not counted: it is very ")
    assert lines[5].endswith("very far")


def test_operations_are_shown_if_asked_for() -> None:
    plain, told = (
        _lines(rendered(_frame(_mount(1)), 80, 24, 2.0, "tree", on)) for on in (False, True)
    )
    assert told[:4] == plain
    assert told[4].split() == ["READ", "5", "20K", "4K", "1us", "2us", "3us", "0.1"]


def test_colour_only_where_it_means_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    colours = r"\x1b\[[0-9;]*3[0-9][0-9;]*m"
    drawn = rendered(MANY, 80, 24, 2.0).split("\r\n")
    coloured = [number for number, line in enumerate(drawn) if re.search(colours, line)]
    assert coloured == [5, 6, 7]  # at its limit, the limit, and without a reply
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(colours, rendered(MANY, 80, 24, 2.0))


# Rows


def test_sorting_keeps_stacks_together() -> None:
    def order(key: str) -> list[str]:
        mounts = [_mount(1, 2), _mount(2), _mount(3, in_flight=None)]
        return [row.mount.bdi or "" for row in table_rows(mounts, operations=False, order=key)]

    assert order("tree") == ["0:1", "0:2", "0:3"]
    assert order("requests") == ["0:3", "0:1", "0:2"]
    assert order("in flight") == ["0:1", "0:2", "0:3"]


def test_numbers_are_at_most_five_characters() -> None:
    counts = [0, 0.5, 9.96, 999.6, 1500, 10_000, 999_600, 5e6, 3e9]
    assert [*map(count_text, counts)] == ["0", "0.5", "10", "1k", "1.5k", "10k", "1M", "5M", "3G"]
    sizes = [0, 1023, 1536, 131072, 1 << 30, 1 << 40]
    assert [*map(bytes_text, sizes)] == ["0B", "1K", "1.5K", "128K", "1G", "1T"]
    times = [0.5, 999, 999.6, 12_345, 999_600, 12_300_000]
    assert [*map(time_text, times)] == ["0us", "999us", "1.0ms", "12ms", "1s", "12.3s"]
    assert (count_text(None), bytes_text(None)) == ("-", "-")


def test_lines_without_a_terminal() -> None:
    text = _frame(_mount(1, limit=LIMIT, lost=7, unrecorded=4)).plain(operations=True)
    when, headings, mount, operation, *others = re.sub(r"\x1b\[[0-9]*m", "", text).splitlines()
    assert when == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_700_000_000))
    assert headings.split()[:4] == ["mount", "by", "/s", "B/s"]
    assert mount.split()[:3] == ["/srv/mounts/number-1", "mod", "1k"]
    assert operation.split()[0] == "READ"
    assert others == [
        limit_line(_mount(3, limit=LIMIT)),
        "/srv/mounts/number-1: 7 requests may not have been counted",
        "/srv/mounts/number-1: sizes and latencies are from 6 of 10 requests",
        "",
    ]


# Writing


@contextmanager
def _soon(act: Callable[[], object]) -> Iterator[None]:
    """While entered, act after a moment, when the code inside is waiting."""
    before = signal.signal(signal.SIGALRM, lambda *_: act())
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_CLOEXEC)
    yield ends
    for end in ends:
        os.close(end)


def test_why_nothing_counts_is_said_once(pipe: tuple[int, int]) -> None:
    with Signals() as signals:
        lines = Lines(Output(signals, pipe[1]), operations=False, as_json=False)
        for why in ("this", "this", "that"):
            lines.show(_frame(_mount(1, why=why)))
    said = os.read(pipe[0], 65536).decode()
    assert re.findall("not counted: (.*)", said) == ["this", "that"]
    assert "\x1b" not in said


def test_a_signal_ends_a_write_that_nobody_reads(pipe: tuple[int, int]) -> None:
    with Signals() as signals:
        with _soon(lambda: os.kill(os.getpid(), signal.SIGTERM)):
            Output(signals, pipe[1]).write("x" * (1 << 20))
        assert signal.SIGTERM in signals.take()


# The loop


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of a terminal that is used for input and output."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    init, get_size = Output.__init__, os.get_terminal_size
    monkeypatch.setattr(Output, "__init__", lambda self, signals: init(self, signals, its))
    monkeypatch.setattr(os, "get_terminal_size", lambda _: get_size(its))
    monkeypatch.setattr(
        loop,
        "_view",
        lambda output, interval, **_: Screen(output, interval, operations=False, descriptor=its),
    )
    yield ours
    os.close(ours)
    os.close(its)


def test_keys(tree: Tree, terminal: int) -> None:
    tree.mount("/mnt/one")
    tree.live()
    before = termios.tcgetattr(terminal)
    started = time.monotonic()
    typed = iter((b"oxS", b"q"))

    def type_next() -> None:
        os.write(terminal, next(typed))
        signal.setitimer(signal.ITIMER_REAL, 0.3)

    with _soon(type_next):
        assert not run(tree.host, None, 20.0, 1)
    assert time.monotonic() - started < 10
    drawn = ""
    while select.select([terminal], [], [], 0)[0]:
        drawn += os.read(terminal, 65536).decode()
    assert "s sort: requests" in drawn
    assert drawn.startswith("\x1b[?1049h")
    assert drawn.endswith("\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(terminal) == before


@pytest.mark.parametrize("size", [(0, 0), (24, 0), (0, 80)])
def test_a_terminal_without_a_size_is_not_left_blank(
    tree: Tree, terminal: int, size: tuple[int, int]
) -> None:
    """A serial console has none, nor has a container's terminal at its start."""
    tree.mount("/mnt/one")
    tree.live()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
    assert not run(tree.host, None, 0.1, 1)
    drawn = ""
    while select.select([terminal], [], [], 0)[0]:
        drawn += os.read(terminal, 65536).decode()
    assert "fusetune top, every 0.1 s" in drawn
    assert "/mnt/one" in drawn


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(tree: Tree, capfd: pytest.CaptureFixture[str], number: int) -> None:
    with _soon(lambda: os.kill(os.getpid(), number)):
        assert not run(tree.host, None, 20.0, 1)
    assert capfd.readouterr().out == ""


def test_so_many_frames(tree: Tree, capfd: pytest.CaptureFixture[str]) -> None:
    assert not run(tree.host, None, 0.1, 3, as_json=True)
    assert len(capfd.readouterr().out.splitlines()) == 3
    assert not run(tree.host, None, 0.1, 1)
    assert "no FUSE mount" in capfd.readouterr().out
