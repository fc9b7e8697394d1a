# SPDX-License-Identifier: GPL-2.0-or-later
"""Offsets and parameters from the kernel's type information, and the resulting probes.

The format is Documentation/bpf/btf.rst; tests/native/test_profile.py reads the running kernel's.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from fusetune.profile.btf import Types
from fusetune.profile.calls import FUNCTIONS, KPROBE
from fusetune.profile.requests import TRACEPOINTS, by_functions, by_tracepoints

_STRUCT, _FUNC, _PROTO, _INT, _ENUM, _ARRAY = 4, 12, 13, 1, 6, 3


class Writer:
    """Makes a BTF file; ``base``: the strings and the number of types that precede its own."""

    def __init__(self, base: "Writer | None" = None) -> None:
        self._before: bytes = base.strings if base else b""
        self.strings: bytes = self._before or b"\0"
        self.count: int = base.count if base else 0
        self._types = b""

    def text(self, word: str) -> int:
        """Return the offset of a string, which is added if no file has it."""
        entry = b"\0" + word.encode() + b"\0"
        if entry not in self.strings:
            self.strings += entry[1:]
        return self.strings.index(entry) + 1

    def type(self, kind: int, name: str, parts: int, size: int, more: bytes) -> int:
        """Add a type; return its number."""
        place = self.text(name) if name else 0
        self._types += struct.pack("<III", place, kind << 24 | parts, size) + more
        self.count += 1
        return self.count

    def structure(self, name: str, **members: int) -> None:
        """Add a structure; ``members``: their offsets in bytes."""
        parts = [struct.pack("<III", self.text(one), 0, 8 * at) for one, at in members.items()]
        self.type(_STRUCT, name, len(members), 0, b"".join(parts))

    def prototype(self, *parameters: str) -> int:
        """Add a prototype; return its number."""
        parts = [struct.pack("<II", self.text(one), 0) for one in parameters]
        return self.type(_PROTO, "", len(parts), 0, b"".join(parts))

    def function(self, name: str, *parameters: str) -> None:
        """Add a function with its prototype."""
        self.type(_FUNC, name, 0, self.prototype(*parameters), b"")

    def write(self, path: Path) -> None:
        """Write the file."""
        own = self.strings[len(self._before) :]
        header = (0xEB9F, 1, 0, 24, 0, len(self._types), len(self._types), len(own))
        path.write_bytes(struct.pack("<HBBIIIII", *header) + self._types + own)


def write(
    directory: Path,
    begin: str = "fuse_simple_request",
    parameters: tuple[str, ...] = ("fm", "args"),
    functions: Mapping[str, tuple[str, ...]] | None = None,
    *,
    built_in: bool = False,
) -> None:
    """Write vmlinux with a few types, and the module fuse with FUSE's types of Linux 6.1.

    ``begin``: the function with which requests begin, except background requests.
    ``functions``: further functions of vmlinux. ``built_in``: FUSE's types are in vmlinux too.
    """
    base = Writer()
    base.type(_INT, "int", 0, 4, bytes(4))
    base.type(_ENUM, "state", 3, 4, bytes(24))
    base.type(_ARRAY, "", 0, 0, bytes(12))
    base.structure("file", f_inode=32, args=40)
    for name, names in {"vfs_read": ("file", "buf"), **(functions or {})}.items():
        base.function(name, *names)
    shared = {name: base.prototype(*names) for name, names in FUNCTIONS.items()}
    module = base if built_in else Writer(base)
    module.structure("fuse_mount", fc=8, fs=16)
    module.structure("fuse_conn", dev=344)
    module.structure("fuse_args", nodeid=0, opcode=12)
    module.structure("fuse_req", args=32, **{"in": 56, "out": 96}, fm=136)
    module.function(begin, *parameters)
    module.function("fuse_simple_background", "fm", "args", "gfp_flags")
    module.function("fuse_request_end", "req")
    for name, number in shared.items():  # whose prototypes vmlinux also has
        module.type(_FUNC, name, 0, number, b"")
    base.write(directory / "vmlinux")
    if not built_in:
        module.write(directory / "fuse")


def test_a_modules_types_stand_on_those_of_the_kernel(tmp_path: Path) -> None:
    write(tmp_path)
    types = Types(tmp_path, "fuse")
    assert types.offsets({"fuse_req": ("in", "fm", "none"), "other": ("x",)}) == {
        ("fuse_req", "in"): 56,
        ("fuse_req", "fm"): 136,
    }
    assert types.parameters({"fuse_simple_background", "vfs_read", "none"}) == {
        "fuse_simple_background": ("fm", "args", "gfp_flags"),
        "vfs_read": ("file", "buf"),
    }


def test_what_is_built_in_is_in_the_kernels_own(tmp_path: Path) -> None:
    write(tmp_path)
    types = Types(tmp_path, "ext4")
    assert types.offsets({"file": ("f_inode",)}) == {("file", "f_inode"): 32}
    assert types.parameters({"vfs_read"}) == {"vfs_read": ("file", "buf")}


@pytest.mark.parametrize(
    ("probe", "begin", "parameters", "names"),
    [
        (KPROBE, "fuse_simple_request", ("fm", "args"), ("arg0", "arg1", "arg1", "arg0")),
        # Linux 6.12
        (
            *(KPROBE, "__fuse_simple_request", ("idmap", "fm", "args")),
            ("arg1", "arg2", "arg1", "arg0"),
        ),
        # Older releases of bpftrace do not know a module's types.
        (
            *("kfunc", "fuse_simple_request", ("fm", "args")),
            tuple(f"(uint64)args->{name}" for name in ("fm", "args", "args", "req")),
        ),
    ],
)
def test_the_probes_of_functions_read_these_members(
    tmp_path: Path,
    probe: str,
    begin: str,
    parameters: tuple[str, ...],
    names: tuple[str, str, str, str],
) -> None:
    """``names``: of the mount, and of the arguments of both kinds of request; of an ended one."""
    write(tmp_path, begin, parameters)
    found = by_functions(Types(tmp_path, "fuse"), probe)
    assert found
    mount, arguments, backgrounds, request = names
    first, background = found.sends
    assert first.sent_probe == f"{probe}:{begin}"
    assert first.sent_device == f"*(uint32 *)(*(uint64 *)({mount} + 8) + 344)"
    assert first.sent_opcode == f"*(uint32 *)({arguments} + 12)"
    assert first.sent_key == arguments
    assert background.sent_probe == f"{probe}:fuse_simple_background"
    assert background.sent_key == backgrounds
    end = found.end
    assert end.ended_key == f"*(uint64 *)({request} + 32)"
    assert f"({request} + 56) - 80" in end.ended_bytes
    assert f"({request} + 96) - 16" in end.ended_bytes
    probes = f"{first.sent_probe} {background.sent_probe} {end.ended_probe} "
    assert found.text("SENT_PROBE ", "ENDED_PROBE ") == probes


def test_the_probes_of_a_built_in_fuse_name_the_members(tmp_path: Path) -> None:
    write(tmp_path, "__fuse_simple_request", ("idmap", "fm", "args"), built_in=True)
    types = Types(tmp_path, "fuse")
    assert types.built_in
    found = by_functions(types, "kfunc")
    assert found
    probes = [one.sent_probe for one in found.sends]
    assert probes == ["kfunc:__fuse_simple_request", "kfunc:fuse_simple_background"]
    assert {(one.sent_device, one.sent_opcode, one.sent_key) for one in found.sends} == {
        ("args->fm->fc->dev", "args->args->opcode", "(uint64)args->args")
    }
    assert found.end.ended_probe.startswith("kfunc:fuse_request_end /args->req->fm->fc->dev ==")
    assert found.end.ended_key == "(uint64)args->req->args"


@pytest.mark.parametrize("parameters", [("args", "fm"), ("fm", "args", "flags")])
def test_other_functions_are_not_watched(tmp_path: Path, parameters: tuple[str, ...]) -> None:
    write(tmp_path, parameters=parameters)
    assert by_functions(Types(tmp_path, "fuse"), KPROBE) is None
    assert by_functions(Types(tmp_path, "fuse"), "kfunc") is None


def test_tracepoints_tell_once_requests_are_numbered_before(tmp_path: Path) -> None:
    assert by_tracepoints(None, KPROBE) == TRACEPOINTS
    write(tmp_path)
    assert by_tracepoints(Types(tmp_path, "fuse"), KPROBE) is None
    write(tmp_path, "fuse_request_assign_unique", ("fiq", "req"))
    assert by_tracepoints(Types(tmp_path, "fuse"), KPROBE) == TRACEPOINTS


def test_a_function_whose_parameter_is_known_tells_ends(tmp_path: Path) -> None:
    write(tmp_path, "fuse_request_assign_unique", ("fiq", "req"), built_in=True)
    found = by_tracepoints(Types(tmp_path, "fuse"), "fentry")
    assert found
    assert found.sends == TRACEPOINTS.sends
    assert found.end.ended_probe == (
        "fentry:fuse_request_end /args->req->fm->fc->dev == (uint64)DEVICE/"
    )
    assert found.end.ended_key == "args->req->in.h.unique"
    assert not found.queued


@pytest.mark.parametrize("content", [b"", b"\x9f\xeb", b"x" * 100])
def test_what_is_no_type_information(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "vmlinux").write_bytes(content)
    with pytest.raises(ValueError, match="vmlinux"):
        Types(tmp_path, "fuse")
