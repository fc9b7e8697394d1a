# SPDX-License-Identifier: GPL-2.0-or-later
"""How the kernel reports a program's reads and writes: FUSE's functions, or system calls.

The functions are called for every read and write of an open file in a FUSE mount, regardless of
how it was requested. System calls are those of the whole host, so tracing them also costs other
programs some time, but a kernel without kprobes has nothing else.
"""

from collections.abc import Collection
from dataclasses import dataclass

#: The functions, each with the names of its parameters (fs/fuse/file.c, Linux 6.1 to 7.3).
FUNCTIONS = {"fuse_file_read_iter": ("iocb", "to"), "fuse_file_write_iter": ("iocb", "from")}


@dataclass(frozen=True)
class Call:
    """A probe of reads or writes, as bpftrace expressions for offset and length.

    ``file``: statements that make $file, or return if there is none.
    """

    probe: str
    file: str
    position: str
    length: str


@dataclass(frozen=True)
class CallProbes:
    """How a kernel reports reads and writes."""

    reads: tuple[Call, ...]
    writes: tuple[Call, ...]


def _function(name: str) -> Call:
    return Call(
        f"kprobe:{name}",
        "$call = (struct kiocb *)arg0; $file = $call->ki_filp;",
        "$call->ki_pos",
        "((struct iov_iter *)arg1)->count",
    )


BY_FUNCTIONS = CallProbes(*((_function(name),) for name in FUNCTIONS))

_OPENED = """$fdt = curtask->files->fdt;
	if ((uint64)args->fd >= (uint64)$fdt->max_fds) { return; }
	$file = (struct file *)*(uint64 *)((uint64)$fdt->fd + 8 * (uint64)args->fd);"""
_HERE, _VECTOR = "$file->f_pos", "args->vec->iov_len"
# Calls with one buffer: expressions for offset and length, and a condition.
_KINDS = {
    "": (_HERE, "args->count", ""),
    "p64": ("args->pos", "args->count", ""),
    "v": (_HERE, _VECTOR, "args->vlen == 1"),
    "pv": ("args->pos_l", _VECTOR, "args->vlen == 1"),
    # -1: at the file's own position.
    "pv2": (f"(args->pos_l >> 63 ? {_HERE} : args->pos_l)", _VECTOR, "args->vlen == 1"),
}


def by_system_calls(servers: Collection[int]) -> CallProbes:
    """Return the system calls of all processes except these, by the kernel's numbering.

    A server's own reads and writes are irrelevant, and often as many as those of its users.
    """
    others = [f"pid != {number}" for number in sorted(servers)]

    def calls(name: str) -> tuple[Call, ...]:
        found = []
        for kind, (position, length, condition) in _KINDS.items():
            whole = f"{'p' * kind.startswith('p')}{name}{kind.removeprefix('p')}"
            terms = " && ".join([*others, *([condition] if condition else [])])
            probe = f"tracepoint:syscalls:sys_enter_{whole}{f' /{terms}/' if terms else ''}"
            found.append(Call(probe, _OPENED, position, length))
        return tuple(found)

    return CallProbes(calls("read"), calls("write"))
