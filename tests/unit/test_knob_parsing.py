# SPDX-License-Identifier: GPL-2.0-or-later
"""Which text is a value of a knob, and the error for any other."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.errors import UsageError
from fusetune.knobs import (
    LIVE,
    SYSTEM,
    Knob,
    Scope,
    named,
    parse_assignments,
    parse_number,
)

KNOBS = (*LIVE, *SYSTEM)
MAX_RATIO = next(knob for knob in LIVE if knob.name == "max_ratio")
READ_AHEAD = next(knob for knob in LIVE if knob.name == "read_ahead_kb")
PIPE = next(knob for knob in SYSTEM if knob.name == "fs.pipe-max-size")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("128", 128),
        (" 12 ", 12),
        ("16k", 16 << 10),
        ("16K", 16 << 10),
        ("16KiB", 16 << 10),
        ("2M", 2 << 20),
        ("2mb", 2 << 20),
        ("1G", 1 << 30),
        ("007", 7),
    ],
)
def test_numbers(text: str, value: int) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text", ["", " ", "-1", "+1", "1.5", "1e3", "0x10", "K", "1T", "1 K", "1KK", "K1", "9" * 19]
)
def test_no_numbers(text: str) -> None:
    with pytest.raises(UsageError, match="is not a whole number"):
        parse_number(text)


@given(st.text(max_size=8) | st.from_regex(r"\A\d{1,3}[kmgKMG\u212a]?(i?b)?\Z"))
def test_any_text_is_a_number_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert parse_number(text) >= 0


@given(st.sampled_from(KNOBS), st.integers(0, 1 << 40))
def test_what_is_parsed_is_in_range_and_on_a_step(knob: Knob, value: int) -> None:
    legal = (
        knob.low <= value and (knob.high is None or value <= knob.high) and value % knob.step == 0
    )
    if legal:
        assert knob.parse(str(value)) == value
    else:
        with pytest.raises(UsageError):
            knob.parse(str(value))


def test_a_suffix_counts_bytes() -> None:
    assert READ_AHEAD.parse("16M") == 16384
    assert READ_AHEAD.parse("16384") == 16384
    assert PIPE.parse("2M") == 2 << 20
    with pytest.raises(UsageError, match="max_ratio counts percent; give a number without suffix"):
        MAX_RATIO.parse("1K")


@pytest.mark.parametrize("text", ["5000B", "100B", "4097B"])
def test_bytes_that_are_no_whole_kib_are_refused(text: str) -> None:
    """Rounding down would turn 100 bytes of readahead into none at all."""
    with pytest.raises(UsageError):
        READ_AHEAD.parse(text)


def test_the_range_is_told() -> None:
    with pytest.raises(UsageError, match="max_ratio=101 is out of range: 0 to 100 percent"):
        MAX_RATIO.parse("101")
    with pytest.raises(UsageError, match=r"out of range: \d+ to 2147483648 bytes"):
        PIPE.parse("1")


def test_readahead_goes_in_pages() -> None:
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    with pytest.raises(UsageError, match=f"the kernel only accepts multiples of {page}"):
        READ_AHEAD.parse(str(page + 1))


def test_assignments() -> None:
    assert parse_assignments(("max_ratio=2", "read_ahead_kb=1M"), Scope.MOUNT) == {
        MAX_RATIO: 2,
        READ_AHEAD: 1024,
    }
    assert list(parse_assignments(("read_ahead_kb=0", "max_ratio=2"), Scope.MOUNT)) == [
        READ_AHEAD,
        MAX_RATIO,
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["max_ratio"], "'max_ratio' is not KNOB=VALUE"),
        (["=5"], "unknown knob ''"),
        (["max_ration=5"], "unknown knob 'max_ration': did you mean max_ratio?"),
        (["zzzz=5"], "unknown knob 'zzzz': known are read_ahead_kb, "),
        (["max_ratio=1", "max_ratio=2"], "max_ratio is given twice"),
        (["max_ratio="], "is not a whole number"),
        (["writeback_cache=1"], "needs a remount: "),
        (["fs.pipe-max-size=2M"], "fusetune set host fs.pipe-max-size=2M"),
    ],
)
def test_bad_assignments(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_assignments(tuple(words), Scope.MOUNT)
    assert message in str(raised.value)


def test_a_mounts_knob_on_the_host() -> None:
    with pytest.raises(UsageError, match="fusetune set MOUNT max_ratio=2"):
        parse_assignments(("max_ratio=2",), Scope.HOST)


@given(st.text(max_size=12))
def test_any_name_is_a_knob_or_a_usage_error(name: str) -> None:
    with suppress(UsageError):
        assert named(name).name == name
