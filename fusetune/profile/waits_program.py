# SPDX-License-Identifier: GPL-2.0-or-later
"""The bpftrace program that reports how long programs wait in calls on one mount.

System calls are identified by the file of their descriptor, page faults by the device of their
file, so the kind of FUSE does not matter. As in `program`, each map has at most 4096 entries.
io_uring, sendfile(2), splice(2) and copy_file_range(2) are not observed.
"""

from enum import IntEnum

from fusetune.profile.program import BUCKET

#: Nanoseconds between marks, which is also the accuracy of a file's opening time.
TICK = 100_000_000
MARK = "mark"
#: Maximum number of calls examined per tick, as in `program`.
_LOOKED = 3000
_PAGE = 4096
#: Parts of an inode's number and of a page's index that identify a page of a thread's last fault.
_INODES, _PAGES = 0x7FFFFFFF, 0xFFFFFFFF
#: Waiting calls are printed by the lowest bits of their thread's number; of several with the same
#: bits, the last. bpftrace exits if an entry is deleted while it prints a map; these are not.
_SLOTS = 256
#: Opened files are forgotten after this many, because closing is not fully observed.
_OPENED = 3000


class Kind(IntEnum):
    """What a program waits for; the number is in the lowest bits of a key."""

    READ = 1
    WRITE = 2
    FAULT = 3


KIND_BITS = 2

_READS = ("read", "pread64", "readv", "preadv", "preadv2")
_WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
_SYNCS = ("fsync", "fdatasync")
_OPENS = ("open", "openat", "openat2", "creat")

# First, because bpftrace 0.23 infers the types of maps from their first use.
_BEGIN = """
BEGIN {
	@looked = (uint64)0; @opens = (uint64)0;
	@from[(uint64)0] = (uint64)0; @to[(uint64)0] = (uint64)0;
}
"""

# The file of a descriptor, if it is the mount's.
_FILE = """
	$fdt = curtask->files->fdt;
	if ((uint64)DESCRIPTOR < (uint64)$fdt->max_fds) {
		$file = (struct file *)*(uint64 *)((uint64)$fdt->fd + 8 * (uint64)DESCRIPTOR);
		if ((uint64)$file != 0 && $file->f_inode->i_sb->s_dev == (uint64)DEVICE) {
			BODY
		}
	}
"""

# A file's readahead is the mount's when it is opened (mm/readahead.c, file_ra_state_init()). So a
# read's key has the tick in which its file was opened, 0 if that was not observed.
_OPEN = "@opened[(uint64)$file] = nsecs / TICK; @opens = @opens + 1;"

_ENTER = """$tick = (uint64)(nsecs / TICK);
			$looked = @looked;
			if ($looked >> 16 != $tick) { $looked = $tick << 16; }
			if (($looked & 65535) < LOOKED) {
				@looked = $looked + 1;
				$what = (uint64)KEY;
				$since = nsecs;
				@what[(uint64)tid] = $what;
				@since[(uint64)tid] = $since;
				@waiting[(uint64)tid & SLOTS] = $since;
				@waiting_for[(uint64)tid & SLOTS] = $what;
			}"""
_OF_READ = f"((uint64)@opened[(uint64)$file] << {KIND_BITS}) | {Kind.READ:d}"

# close(2) of a written file sends its dirty data and waits (fs/fuse/file.c,
# fuse_flush()). FMODE_WRITE is 2.
_CLOSE = f"if ($file->f_mode & 2) {{ {_ENTER} }}"

# EAGAIN, EINTR, and the codes that restart a call (ERESTARTSYS and others) are not errors.
_EXIT = """
tracepoint:syscalls:sys_exit_NAME /@since[(uint64)tid]/ {
	$what = @what[(uint64)tid];
	$since = @since[(uint64)tid];
	$took = nsecs - $since;
	if (@waiting[(uint64)tid & SLOTS] == $since) { @waiting[(uint64)tid & SLOTS] = (uint64)0; }
	delete(@since[(uint64)tid]);
	delete(@what[(uint64)tid]);
	@waited[$what] = sum($took);
	@calls[$what] = count();
	$result = (int64)args->ret;
	if ($result > 0) { @bytes[$what] = sum($result); }
	if ($result < 0 && $result != -11 && $result != -4 && $result > -512) {
		@failed[$what] = count();
	}
	LATENCY
}
"""

_LATENCY = f"""$us = (uint64)($took / 1000);
	if ($us > 4294967295) {{ $us = (uint64)4294967295; }}
	{BUCKET}
	@latency[$what, $bucket] = count();"""

# A fault first maps the cached pages of the aligned range around it, usually 64 KiB (mm/memory.c,
# do_fault_around()). If its own page is not among them, mm_filemap_fault follows. It then sleeps
# uninterruptibly, and is retried from the beginning. No event shows that a fault has found its
# page, so the first other sleep ends it.
#
# With less readahead than that range, a program that reads it whole waits several times. So
# consecutive faults of a thread within one range count as one page: how many such ranges there are
# depends on the program, not on the mount's values.
_FAULTS = f"""
tracepoint:filemap:mm_filemap_fault /args->s_dev == (uint64)DEVICE/ {{
	@fault[(uint64)tid] = (uint64)1;
	$inode = ((uint64)args->i_ino & {_INODES}) << 32;
	$page = $inode | ((uint64)args->index & {_PAGES});
	if ($page < @from[(uint64)tid] || $page > @to[(uint64)tid]) {{
		@from[(uint64)tid] = $page;
		@to[(uint64)tid] = $page;
		@bytes[(uint64){Kind.FAULT:d}] = sum({_PAGE});
		@calls[(uint64){Kind.FAULT:d}] = count();
	}}
}}
tracepoint:filemap:mm_filemap_map_pages /args->s_dev == (uint64)DEVICE/ {{
	delete(@fault[(uint64)tid]);
	$inode = ((uint64)args->i_ino & {_INODES}) << 32;
	$from = $inode | ((uint64)args->index & {_PAGES});
	$to = $inode | ((uint64)args->last_index & {_PAGES});
	if ($to < @from[(uint64)tid] || $from > @to[(uint64)tid]) {{
		@bytes[(uint64){Kind.FAULT:d}] = sum({_PAGE});
		@calls[(uint64){Kind.FAULT:d}] = count();
	}}
	@from[(uint64)tid] = $from;
	@to[(uint64)tid] = $to;
}}
interval:s:10 {{ clear(@from); clear(@to); }}
tracepoint:sched:sched_switch /@fault[(uint64)args->prev_pid] || @slept[(uint64)args->next_pid]/ {{
	$from = (uint64)args->prev_pid;
	$to = (uint64)args->next_pid;
	if (@fault[$from] != 0) {{
		if (args->prev_state & 2) {{
			$since = nsecs;
			@slept[$from] = $since;
			@sleeping[$from & SLOTS] = $since;
		}} else if (args->prev_state & 1) {{
			delete(@fault[$from]);
		}}
	}}
	if (@slept[$to] != 0) {{
		$what = (uint64){Kind.FAULT:d};
		$since = @slept[$to];
		$took = nsecs - $since;
		if (@sleeping[$to & SLOTS] == $since) {{ @sleeping[$to & SLOTS] = (uint64)0; }}
		delete(@slept[$to]);
		@waited[$what] = sum($took);
		LATENCY
	}}
}}
"""

_MAPS = ("waited", "calls", "bytes", "failed", "latency")


def waits_program(device: int, *, faults: bool) -> str:
    """Return the program for the mount with the number ``device`` in the kernel's dev_t.

    ``faults``: the kernel has the tracepoints of page faults.
    """
    parts = [_BEGIN]
    parts += [_at_exit(f"sys_exit_{name}", "args->ret", _OPEN) for name in _OPENS]
    for names, key in ((_READS, _OF_READ), (_WRITES + _SYNCS, f"{Kind.WRITE:d}")):
        parts += [_at_enter(name, _ENTER.replace("KEY", key)) for name in names]
    parts.append(_at_enter("close", _CLOSE.replace("KEY", f"{Kind.WRITE:d}")))
    calls = (*_READS, *_WRITES, *_SYNCS, "close")
    parts += [_EXIT.replace("NAME", name) for name in calls]
    parts += [_FAULTS] if faults else []
    parts.append(_marks(faults=faults))
    text = "".join(parts).replace("LATENCY", _LATENCY)
    numbers = {"DEVICE": device, "LOOKED": _LOOKED, "SLOTS": _SLOTS - 1, "TICK": TICK}
    for word, number in numbers.items():
        text = text.replace(word, str(number))
    return text


def _at_enter(name: str, body: str) -> str:
    file = _FILE.replace("BODY", body).replace("DESCRIPTOR", "args->fd")
    return f"tracepoint:syscalls:sys_enter_{name} {{{file}}}\n"


def _at_exit(event: str, descriptor: str, body: str) -> str:
    file = _FILE.replace("BODY", body).replace("DESCRIPTOR", descriptor)
    return f"tracepoint:syscalls:{event} /{descriptor} >= 0/ {{{file}}}\n"


def _marks(*, faults: bool) -> str:
    """Return the probe that prints the maps, starting with waiting calls, and a mark."""
    now = ("waiting", "waiting_for", *(("sleeping",) if faults else ()))
    printed = " ".join(f"print(@{name});" for name in now)
    counted = " ".join(f"print(@{name}); clear(@{name});" for name in _MAPS)
    return (
        f"interval:ms:{TICK // 1_000_000} {{ {printed} {counted} "
        f'printf("{MARK} %llu\\n", nsecs); }}\n'
        f"interval:s:1 /@opens > {_OPENED}/ {{ clear(@opened); @opens = (uint64)0; }}\n"
    )
