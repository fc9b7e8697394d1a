# SPDX-License-Identifier: GPL-2.0-or-later
"""A program's output is read up to a size limit, and JSON up to a depth limit.

A program that other users control may write endlessly; Python's parser recurses.
"""

import json
import math
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.errors import FusetuneError
from fusetune.untrusted import DEEPEST, LARGEST, communicate, parse

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


def nested(depth: int) -> bytes:
    return b'{"\\"[[": ' * (depth - 1) + b"[]" + b"}" * (depth - 1)


@pytest.mark.slow
@given(VALUES, st.booleans())
def test_json_means_what_it_says(value: object, plain: bool) -> None:
    text = json.dumps(value, ensure_ascii=plain)
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        encoded = json.dumps(value).encode()
    assert parse(encoded) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"1" * 21,
        "[]".encode("utf-16"),
        b'"' + b"x" * LARGEST + b'"',
        nested(DEEPEST + 1),
        b"[" * LARGEST,
        ("[" + "\u5b22" * 40).encode("utf-16-le") * 1000,
    ],
    ids=range(12),
)
def test_what_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse(text)


def test_the_deepest_and_the_largest() -> None:
    assert parse(nested(DEEPEST))
    assert len(parse(b'"' + b"x" * (LARGEST - 2) + b'"')) == LARGEST - 2
    assert parse(b'"' + b"[" * 1000 + b'"') == "[" * 1000
    assert not math.isinf(parse(b"1e308"))


def started(*words: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()


def test_both_outputs_of_a_program() -> None:
    process = started("sh", "-c", "cat; echo problem >&2; exit 3")
    assert communicate(process, b"text", 30) == (b"text", b"problem\n")
    assert process.returncode == 3
    end(process)


def test_a_very_long_time_is_no_error() -> None:
    """epoll(7) cannot wait that long."""
    process = started("cat")
    assert communicate(process, b"text", 1e12) == (b"text", b"")
    end(process)


def test_a_program_that_reads_nothing() -> None:
    process = started("true")
    process.wait()
    assert communicate(process, b"text", 30) == (b"", b"")
    end(process)


@pytest.mark.parametrize("where", ["", ">&2"])
def test_a_program_that_never_stops_talking(where: str) -> None:
    process = started("sh", "-c", f"exec yes {where}")
    with pytest.raises(FusetuneError, match=f"sh wrote more than {LARGEST} bytes"):
        communicate(process, b"", 30)
    end(process)


@pytest.mark.parametrize("words", ["exec sleep 30", "exec >&- 2>&-; exec sleep 30"])
def test_a_program_that_does_not_end(words: str) -> None:
    process = started("sh", "-c", words)
    begin = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        communicate(process, b"", 0.2)
    assert time.monotonic() - begin < 20
    end(process)
