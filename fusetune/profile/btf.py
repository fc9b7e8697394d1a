# SPDX-License-Identifier: GPL-2.0-or-later
"""Offsets of members in the kernel's structures, from its type information (BTF).

The format is Documentation/bpf/btf.rst. A module's types are in a separate file, which shares the
strings of vmlinux; /sys/kernel/btf has both. bpftrace supports types of modules only in newer
releases, and only these few members are needed.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_INT, _ARRAY, _STRUCT, _UNION, _ENUM, _FUNC, _PROTO = 1, 3, 4, 5, 6, 12, 13
_VAR, _SECTION, _TAG, _ENUM64 = 14, 15, 17, 19
# Bytes after each type of a kind: fixed, and per part.
_MORE = {
    **dict.fromkeys((_INT, _VAR, _TAG), (4, 0)),
    **dict.fromkeys((_STRUCT, _UNION, _SECTION, _ENUM64), (0, 12)),
    **dict.fromkeys((_ENUM, _PROTO), (0, 8)),
    _ARRAY: (12, 0),
}


@dataclass(frozen=True)
class _File:
    """The types and strings of one BTF file."""

    types: bytes
    strings: bytes

    @classmethod
    def read(cls, path: Path) -> "_File":
        data = path.read_bytes()
        if len(data) < _HEADER.size:
            raise ValueError(f"{path} is too short")
        magic, _, _, length, at, size, strings_at, strings_size = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError(f"{path} has no BTF of this machine")
        at, strings_at = length + at, length + strings_at
        return cls(data[at : at + size], data[strings_at : strings_at + strings_size])

    def every(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield kind, place of the name, number of parts, size or type, and where the parts are."""
        at = 0
        while at < len(self.types):
            name, info, size = _TYPE.unpack_from(self.types, at)
            kind, parts = info >> 24 & 0x1F, info & 0xFFFF
            at += _TYPE.size
            yield kind, name, parts, size, at
            fixed, each = _MORE.get(kind, (0, 0))
            at += fixed + each * parts


class Types:
    """The types of a module, or of vmlinux where its code is built in.

    Raises ValueError or `struct.error` for an invalid file, OSError if there is none.
    """

    def __init__(self, directory: Path, module: str) -> None:
        """Read ``directory``, which is /sys/kernel/btf."""
        self._file = base = _File.read(directory / "vmlinux")
        self._strings = base.strings
        #: Each file, and the number of its first type.
        self._files = [(base, 1)]
        own = directory / module
        #: Whether the module's code is in vmlinux.
        self.built_in = not own.exists()
        if not self.built_in:
            self._file = _File.read(own)
            self._strings += self._file.strings
            self._files.append((self._file, 1 + sum(1 for _ in base.every())))

    def _text(self, at: int) -> str:
        return self._strings[at : self._strings.index(b"\0", at)].decode()

    def offsets(self, structures: Mapping[str, Collection[str]]) -> dict[tuple[str, str], int]:
        """Return the offset, in bytes, of members of structures, by both names.

        Missing members are left out; of several structures with one name, one counts.
        """
        found: dict[tuple[str, str], int] = {}
        for kind, name, parts, _, at in self._file.every():
            if kind == _STRUCT and name and (structure := self._text(name)) in structures:
                for part in range(parts):
                    member, _, bits = _TYPE.unpack_from(self._file.types, at + 12 * part)
                    # The upper byte is a bit field's size, with the flag of such structures.
                    key = structure, self._text(member)
                    if key[1] in structures[structure]:
                        found.setdefault(key, (bits & 0xFFFFFF) // 8)
        return found

    def parameters(self, functions: set[str]) -> dict[str, tuple[str, ...]]:
        """Return the names of the parameters of functions of the module and of vmlinux."""
        prototypes: dict[int, tuple[_File, int, int]] = {}
        found: dict[str, int] = {}
        # A prototype that vmlinux also has is stored only there.
        for file, first in self._files:
            for number, (kind, name, parts, of, at) in enumerate(file.every(), first):
                if kind == _PROTO:
                    prototypes[number] = file, parts, at
                elif kind == _FUNC and (function := self._text(name)) in functions:
                    found[function] = of
        return {function: self._names(*prototypes[of]) for function, of in found.items()}

    def _names(self, file: _File, parts: int, at: int) -> tuple[str, ...]:
        places = range(at, at + 8 * parts, 8)
        return tuple(self._text(struct.unpack_from("<I", file.types, one)[0]) for one in places)
