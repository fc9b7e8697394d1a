# SPDX-License-Identifier: GPL-2.0-or-later
"""How the kernel reports a program's reads and writes: FUSE's functions, or system calls.

The functions are called for every read and write of an open file in a FUSE mount, regardless of
how it was requested. System calls are those of the whole host, so tracing them also costs other
programs some time, but a kernel without kprobes has nothing else.
"""

from collections.abc import Collection, Sequence
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
    """How a kernel reports reads and writes.

    ``unseen``: bpftrace probes for the kinds of reads that the probes of ``reads`` miss.
    """

    reads: tuple[Call, ...]
    writes: tuple[Call, ...]
    unseen: tuple[str, ...] = ()


def _function(name: str) -> Call:
    return Call(
        f"kprobe:{name}",
        "$call = (struct kiocb *)arg0; $file = $call->ki_filp;",
        "$call->ki_pos",
        "((struct iov_iter *)arg1)->count",
    )


#: Since Linux 6.5, splice(2) and sendfile(2) read through this function (mm/filemap.c) instead of
#: FUSE's.
SPLICE = {"filemap_splice_read": ("in", "ppos", "pipe", "len", "flags")}
_SPLICED = Call(
    "kprobe:filemap_splice_read", "$file = (struct file *)arg0;", "*(uint64 *)arg1", "arg3"
)


def calls_by_functions(*, splice: bool) -> CallProbes:
    """Return the functions; ``splice``: whether the kernel has the one of `SPLICE`."""
    reads, writes = map(_function, FUNCTIONS)
    return CallProbes((reads, _SPLICED) if splice else (reads,), (writes,))


def _opened(descriptor: str) -> str:
    """Return statements that make $file of a system call's descriptor."""
    return f"""$fdt = curtask->files->fdt;
	if ((uint64)args->{descriptor} >= (uint64)$fdt->max_fds) {{ return; }}
	$file = (struct file *)*(uint64 *)((uint64)$fdt->fd + 8 * (uint64)args->{descriptor});"""


_UNSEEN = """
PROBE {
	FILE
	if ($file->f_inode->i_sb->s_dev == (uint64)DEVICE) { @unseen = count(); }
}
"""
# Reading calls whose length is unknown: their descriptor, and a condition.
_LENGTHLESS = {
    **dict.fromkeys(("readv", "preadv", "preadv2"), ("fd", "args->vlen != 1")),
    "sendfile64": ("in_fd", ""),
    "splice": ("fd_in", ""),
    "copy_file_range": ("fd_in", ""),
}
#: System calls that may read any file; which one is unknown.
FILELESS = ("io_submit", "io_uring_enter")
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


def by_system_calls(servers: Collection[int], fileless: Sequence[str] = ()) -> CallProbes:
    """Return the system calls of all processes except these, by the kernel's numbering.

    A server's own reads and writes are irrelevant, and often as many as those of its users.
    ``fileless``: those of `FILELESS` that the kernel has.
    """
    others = [f"pid != {number}" for number in sorted(servers)]

    def entered(name: str, condition: str = "") -> str:
        terms = " && ".join([*others, *([condition] if condition else [])])
        return f"tracepoint:syscalls:sys_enter_{name}{f' /{terms}/' if terms else ''}"

    def calls(name: str) -> tuple[Call, ...]:
        found = []
        for kind, (position, length, condition) in _KINDS.items():
            whole = f"{'p' * kind.startswith('p')}{name}{kind.removeprefix('p')}"
            found.append(Call(entered(whole, condition), _opened("fd"), position, length))
        return tuple(found)

    unseen = [
        _UNSEEN.replace("PROBE", entered(name, condition)).replace("FILE", _opened(descriptor))
        for name, (descriptor, condition) in _LENGTHLESS.items()
    ]
    unseen += [f"{entered(name)} {{ @unseen = count(); }}\n" for name in fileless]
    return CallProbes(calls("read"), calls("write"), tuple(unseen))
