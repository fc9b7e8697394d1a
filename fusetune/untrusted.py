# SPDX-License-Identifier: GPL-2.0-or-later
"""Output of programs that other users may control, limited in size and depth."""

import json
import math
import os
import re
import selectors
import subprocess
import time
from contextlib import suppress
from typing import Any, NoReturn

from fusetune.errors import FusetuneError

#: Maximum output of a program, and nesting depth of its JSON. fio writes less than 10 KiB per job,
#: nested seven deep.
LARGEST, DEEPEST = 1 << 20, 32
_TOKEN = re.compile(rb'\\.|["{}\[\]]', re.DOTALL)
_PART = 1 << 16
_DIGITS = 20  # of 2^64
_LONGEST_WAIT = 1e6  # seconds: epoll_wait(2) accepts less than 2^31 ms


def parse(text: bytes) -> Any:
    """Parse the JSON ``text``.

    Raises ValueError for invalid JSON, like `json.loads`, for numbers that are not finite, and for
    text longer than `LARGEST` or nested deeper than `DEEPEST`.
    """
    if len(text) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    _check_depth(text)
    # json guesses the encoding of bytes, and brackets have other positions in other encodings.
    return json.loads(
        text.decode(), parse_constant=_not_finite, parse_float=_finite, parse_int=_whole
    )


def _check_depth(text: bytes) -> None:
    depth, in_string = 0, False
    for token in _TOKEN.finditer(text):
        char = token[0]
        if char == b'"':
            in_string = not in_string
        elif not in_string and char in b"{[":
            depth += 1
            if depth > DEEPEST:
                raise ValueError(f"nested more than {DEEPEST} deep")
        elif not in_string and char in b"}]":
            depth -= 1


def _not_finite(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _finite(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"{word} is too large")
    return value


def _whole(word: str) -> int:
    if len(word) > _DIGITS:
        raise ValueError(f"a number of {len(word)} digits")
    return int(word)


def communicate(
    process: subprocess.Popen[bytes], stdin: bytes, seconds: float
) -> tuple[bytes, bytes]:
    """Give ``stdin`` to ``process``, wait for its end, and return its stdout and stderr.

    All three are pipes, and ``stdin`` fits a pipe (64 KiB). Raises FusetuneError once the process
    has written more than `LARGEST`, and `subprocess.TimeoutExpired` after ``seconds``; the process
    still runs then.
    """
    deadline = time.monotonic() + min(seconds, _LONGEST_WAIT)
    given, *outputs = filter(None, (process.stdin, process.stdout, process.stderr))
    with suppress(BrokenPipeError), given:
        given.write(stdin)
    said: dict[Any, bytearray] = {stream: bytearray() for stream in outputs}
    with selectors.DefaultSelector() as selector:
        for stream in said:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, seconds)
            for key, _ in ready:
                part = os.read(key.fd, _PART)
                said[key.fileobj] += part
                if not part:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
            if sum(map(len, said.values())) > LARGEST:
                raise FusetuneError(f"{_name(process)} wrote more than {LARGEST} bytes")
    process.wait(max(0.0, deadline - time.monotonic()))
    stdout, stderr = (bytes(said[stream]) for stream in outputs)
    return stdout, stderr


def _name(process: subprocess.Popen[bytes]) -> str:
    words = process.args
    return str(words[0] if isinstance(words, list | tuple) else words)
