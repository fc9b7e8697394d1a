# SPDX-License-Identifier: GPL-2.0-or-later
"""How the kernel reports a program's reads and writes: FUSE's functions, or system calls.

The functions are called for every read and write of an open file in a FUSE mount, regardless of
how it was requested. System calls are those of the whole host, so tracing them also costs other
programs some time, but a kernel without kprobes has nothing else.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

#: Bpftrace's name for probes that every kernel with kprobes has.
KPROBE = "kprobe"
#: The functions, each with the names of its parameters (fs/fuse/file.c, Linux 6.1 to 7.3).
FUNCTIONS = {"fuse_file_read_iter": ("iocb", "to"), "fuse_file_write_iter": ("iocb", "from")}


@dataclass(frozen=True)
class Call:
    """A probe of reads or writes, as bpftrace expressions for offset and length.

    ``probe``: with the statements before its blocks. ``file``: statements that make $file, or
    return if there is none. ``condition``: of this call's block, if the probe has several.
    """

    probe: str
    file: str
    position: str
    length: str
    condition: str = ""


@dataclass(frozen=True)
class Block:
    """Statements for a probe, and their condition if it has several blocks."""

    probe: str
    condition: str
    text: str


@dataclass(frozen=True)
class CallProbes:
    """How a kernel reports reads and writes.

    ``unseen``: for the kinds of reads that the probes of ``reads`` miss.
    """

    reads: tuple[Call, ...]
    writes: tuple[Call, ...]
    unseen: tuple[Block, ...] = ()


def _function(name: str, probe: str) -> Call:
    call, data = FUNCTIONS[name]
    if probe == KPROBE:
        call, data = "(struct kiocb *)arg0", "((struct iov_iter *)arg1)"
    else:
        call, data = f"args->{call}", f"args->{data}"
    file = f"$call = {call}; $file = $call->ki_filp;"
    return Call(f"{probe}:{name} {{", file, "$call->ki_pos", f"{data}->count")


#: Since Linux 6.5, splice(2) and sendfile(2) read through this function (mm/filemap.c) instead of
#: FUSE's.
SPLICE = {"filemap_splice_read": ("in", "ppos", "pipe", "len", "flags")}
_SPLICED = Call(
    "kprobe:filemap_splice_read {", "$file = (struct file *)arg0;", "*(uint64 *)arg1", "arg3"
)


def calls_by_functions(probe: str, *, splice: bool) -> CallProbes:
    """Return the functions; ``splice``: whether the kernel has the one of `SPLICE`.

    ``probe``: `KPROBE`, or bpftrace's name for probes that know the functions' parameters.
    """
    reads, writes = (_function(name, probe) for name in FUNCTIONS)
    return CallProbes((reads, _SPLICED) if splice else (reads,), (writes,))


#: Calls that read or write a file at its own position, at a given one, with buffers, with flags.
_KINDS = ("{}", "p{}64", "{}v", "p{}v", "p{}v2")
_CALLS = tuple(kind.format(name) for name in ("read", "write") for kind in _KINDS)
#: Calls that read a file without a buffer, and those that may read any file; which one is unknown.
_COPIES, _FILELESS = ("sendfile64", "splice", "copy_file_range"), ("io_submit", "io_uring_enter")
_GENERIC = (63, 67, 65, 69, 286, 64, 68, 66, 70, 287, 71, 76, 285, 2, 426)
#: Numbers of these calls by machine (uname -m): arch/x86/entry/syscalls/syscall_64.tbl, and
#: include/uapi/asm-generic/unistd.h.
NUMBERS = {
    machine: dict(zip((*_CALLS, *_COPIES, *_FILELESS), numbers, strict=True))
    for machine, numbers in {
        "x86_64": (0, 17, 19, 295, 327, 1, 18, 20, 296, 328, 40, 275, 326, 209, 426),
        **dict.fromkeys(("aarch64", "riscv64", "loongarch64"), _GENERIC),
    }.items()
}
#: Fails for the calls of a 32-bit program, which have other numbers
#: (arch/x86/include/asm/thread_info.h, TS_COMPAT). Other machines with 32-bit programs do not tell.
_NATIVE = {"x86_64": "(curtask->thread_info.status & 2) == 0"}
_FILE = """$fdt = curtask->files->fdt;
		if ((uint64)DESCRIPTOR >= (uint64)$fdt->max_fds) { return; }
		$file = (struct file *)*(uint64 *)((uint64)$fdt->fd + 8 * (uint64)DESCRIPTOR);"""
# Each argument is read once: for several reads, the compiler may compute an address, which the
# kernel forbids.
_SYSTEM_CALL = """tracepoint:raw_syscalls:sys_enter {
	$id = (uint64)args->id;
	if (!CONDITION) { return; }
	$first = (uint64)args->args[0];
	$second = (uint64)args->args[1];
	$third = (uint64)args->args[2];
	$fourth = (uint64)args->args[3];"""
# In preadv2, -1 is the file's own position.
_POSITION = "(AT_POSITION && !($fourth >> 63) ? $fourth : (uint64)$file->f_pos)"
_LENGTH = """$count = $third;
		if (IS_VECTOR) { $count = (uint64)((struct iovec *)uptr($second))->iov_len; }
		"""
_UNSEEN = """
		if (IS_FILELESS) { @unseen = count(); return; }
		$fd = $first;
		if (IS_SENDFILE) { $fd = $second; }
		FILE
		if ($file->f_inode->i_sb->s_dev == (uint64)DEVICE) { @unseen = count(); }
"""


def by_system_calls(servers: Collection[int], machine: str) -> CallProbes | None:
    """Return the system calls of all processes except these, by the kernel's numbering.

    None for a ``machine`` (uname -m) that is not in `NUMBERS`. A server's own reads and writes are
    irrelevant, and often as many as those of its users. All use one tracepoint, of every system
    call, because the kernel takes a while to remove a probe from each one.
    """
    if machine not in NUMBERS:
        return None
    numbers = NUMBERS[machine]

    def is_one(names: Iterable[str]) -> str:
        return "(" + " || ".join(f"$id == {numbers[name]}" for name in names) + ")"

    native = [_NATIVE[machine]] if machine in _NATIVE else []
    terms = [is_one(numbers), *native, *(f"pid != {number}" for number in sorted(servers))]
    probe = _SYSTEM_CALL.replace("CONDITION", f"({' && '.join(terms)})")

    def call(name: str) -> Call:
        own, placed, *vectors = (kind.format(name) for kind in _KINDS)
        # The length of several buffers is unknown.
        condition = f"{is_one([own, placed])} || ({is_one(vectors)} && $third == 1)"
        file = _LENGTH.replace("IS_VECTOR", is_one(vectors))
        file += _FILE.replace("DESCRIPTOR", "$first")
        position = _POSITION.replace("AT_POSITION", is_one([placed, *vectors[1:]]))
        return Call(probe, file, position, "$count", condition)

    vectors = [kind.format("read") for kind in _KINDS[2:]]
    text = _UNSEEN.replace("IS_FILELESS", is_one(_FILELESS))
    text = text.replace("IS_SENDFILE", is_one(_COPIES[:1]))
    text = text.replace("FILE", _FILE.replace("DESCRIPTOR", "$fd"))
    unseen = Block(probe, is_one([*vectors, *_COPIES, *_FILELESS]), text)
    return CallProbes((call("read"),), (call("write"),), (unseen,))
