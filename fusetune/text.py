# SPDX-License-Identifier: GPL-2.0-or-later
"""Text of paths: unescaped from the kernel, printable, quoted; numbers with nouns."""

import os
import re
import shlex

_PLAIN_IN_UNIT = re.compile(r"[^\s\"'\\;#]+")


def unescape(field: bytes) -> str:
    """Decode a mountinfo field: octal escapes (fs/seq_file.c, mangle_path), any bytes."""
    raw = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 0xFF]), field)
    return os.fsdecode(raw)


def printable(path: str) -> str:
    """Return ``path`` for one line of text, without line breaks, control or undecodable bytes."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in path)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, whose plural ends in s: "1 mount", "2 mounts"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def shell_word(path: str) -> str:
    """Return ``path`` as a shell word that a user may copy."""
    if path.isprintable():
        return shlex.quote(path)
    return "$'" + "".join(f"\\x{byte:02x}" for byte in os.fsencode(path)) + "'"


def unit_word(word: str) -> str:
    """Return ``word`` as a word in a unit file, where specifiers and variables stay as they are."""
    if _PLAIN_IN_UNIT.fullmatch(word):
        return word
    return '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'
