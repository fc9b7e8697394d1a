# SPDX-License-Identifier: GPL-2.0-or-later
"""The bpftrace program: constant except for numbers, with bounded memory.

Every map has at most 4096 entries, bpftrace's default. It stores no names chosen by a server or a
user: requests are identified by the operation's number, open files by address.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fusetune.profile.calls import Block, Call, CallProbes
from fusetune.profile.requests import TRACEPOINTS, Requests, with_words

#: Operations with this number or above are counted as one.
REST = 63
_READ_OPCODE = 15
#: Buckets per doubling of a latency: 8, so figures are accurate to 7 %.
_STEPS_LOG2 = 3
READY, MARK = "ready", "mark"
#: Maximum number of requests, and of calls by the mount's users, examined per second. Additional
#: requests are only counted, additional calls are ignored, so the cost for the mount is bounded.
_TRACKED, _LOOKED = 1000, 1000
#: Of additional reads, one in this many is examined, to estimate the sum of their bytes.
_SAMPLED = 16
#: Of the requests examined in a second, the number in flight is determined for each of this many
#: first ones, and then for every so many.
_FIRST, _EACH = 64, 16
#: Slots for threads in page faults, by the lowest bits of their number.
_SLOTS = 4096
# Bits in the class of a system call.
ELSEWHERE, SEQUENTIAL, DIRECT, APPEND = 2, 1, 4, 8


#: Statements that compute $bucket, the bucket of a latency, from $us, at most 2^32 - 1
#: microseconds.
BUCKET = f"""$log = (uint64)0;
		$rest = $us;
		if ($rest >= 65536) {{ $log = $log + 16; $rest = $rest >> 16; }}
		if ($rest >= 256) {{ $log = $log + 8; $rest = $rest >> 8; }}
		if ($rest >= 16) {{ $log = $log + 4; $rest = $rest >> 4; }}
		if ($rest >= 4) {{ $log = $log + 2; $rest = $rest >> 2; }}
		if ($rest >= 2) {{ $log = $log + 1; }}
		$bucket = $us;
		if ($log > {_STEPS_LOG2}) {{
			$bucket = (($log - {_STEPS_LOG2 - 1}) << {_STEPS_LOG2})
				| (($us >> ($log - {_STEPS_LOG2})) & {(1 << _STEPS_LOG2) - 1});
		}}
"""

# Faults on cached pages do not count: @faulting has the threads whose last fault, or examined call,
# on the mount is a fault that has sent no READ so far. Of several in one slot, it has the last.
# Only examined requests look there, to keep the cost of the others low.
_FAULTING = f"@faulting[(uint64)tid & {_SLOTS - 1}]"
_FAULT_BEGINS = f"{_FAULTING} = (uint64)tid;"
_FAULT_ENDS = f"if ({_FAULTING} == (uint64)tid) {{ {_FAULTING} = (uint64)0; }}"
_FAULT_READS = f"""if ($op == {_READ_OPCODE} && {_FAULTING} == (uint64)tid) {{
			{_FAULTING} = (uint64)0;
			@faults = count();
		}}"""

# Each CPU has separate counters, because bpftrace's ++ is not atomic; their sum is the number of
# requests in flight. Sends count once all probes are attached, and bpftrace detaches the probe of
# sends first, so each counted request also has its end counted.
# `Requests` fills in how a kernel reports requests. "/*" would begin a comment.
_SENT = f"""
SENT_PROBE / SENT_DEVICE == (uint64)DEVICE/ {{
	$tracked = @tracked;
	if ($tracked == 0) {{ return; }}
	$op = (uint64)SENT_OPCODE;
	if ($op > {REST}) {{ $op = (uint64){REST}; }}
	@requests[$op] = count();
	if ($tracked <= {_TRACKED}) {{
		@tracked = $tracked + 1;
		{_FAULT_READS}
		@sent[SENT_KEY] = (nsecs << 6) | $op;
		$own = ((uint64)cpu << 6) | $op;
		@net[$own] = @net[$own] + 1;
		if ($tracked <= {_FIRST} || $tracked % {_EACH} == 0) {{
			$sum = (int64)0;
			$i = (uint64)0;
			while ($i < CPUS) {{
				$sum = $sum + (int64)@net[($i << 6) | $op];
				$i = $i + 1;
			}}
			@most[$op] = max($sum);
		}}
		SENT_BYTES
	}}
}}
"""
_ENDED = f"""
ENDED_PROBE {{
	$begun = @sent[ENDED_KEY];
	if ($begun != 0) {{
		delete(@sent[ENDED_KEY]);
		$op = $begun & {REST};
		$own = ((uint64)cpu << 6) | $op;
		@net[$own] = @net[$own] - 1;
		ENDED_BYTES
		$us = (nsecs - ($begun >> 6)) / 1000;
		if ($us > 4294967295) {{ $us = (uint64)4294967295; }}
		{BUCKET}		@latency[$op, $bucket] = count();
	}}
}}
"""


_PAUSES = """
tracepoint:writeback:balance_dirty_pages /args->bdi == "BDI"/ {
	if (args->pause > 0) { @paused_ms = sum(args->pause); }
}
"""

#: Page faults by the tracepoint, which exists since Linux 6.12.
FAULTS = f"""
tracepoint:filemap:mm_filemap_fault /args->s_dev == (uint64)DEVICE/ {{ {_FAULT_BEGINS} }}
"""
#: And by the function that contains it (mm/filemap.c), with the names of its parameters.
FAULT_FUNCTION = {"filemap_fault": ("vmf",)}
FAULTS_BY_FUNCTION = f"""
kprobe:filemap_fault {{
	$fault = (struct vm_fault *)arg0;
	if ($fault->vma->vm_file->f_inode->i_sb->s_dev == (uint64)DEVICE) {{ {_FAULT_BEGINS} }}
}}
"""

# A first read, and one at the start of the file, is not classified: the address may be that of a
# closed file. `_calls` fills in how a kernel reports a call.
_CALL = """
	$looked = @looked;
	if ($looked >= LOOKED) { BEYOND }
	FILE
	if ($file->f_inode->i_sb->s_dev == (uint64)DEVICE) {
		if ($looked < LOOKED) { @looked = $looked + 1; }
		FAULT_ENDS
		$epoch = @epoch;
		$flags = (uint64)$file->f_flags;
		$size = (uint64)$file->f_inode->i_size;
		$at = (uint64)POSITION;
		$length = (uint64)LENGTH;
		$class = (uint64)0;
		if ($flags & O_DIRECT) { $class = $class | BIT_DIRECT; }
		BODY
	}
"""

# @streaming is the time between sequential reads of one open file; divided by the examined part of
# each second, @window, it is how many files were read at the same time.
# @asked is how many bytes were read. The kernel fetches whole pages, so the rest of the first and
# the last one counts as well, unless a read continues the one before. Where the server gives no
# size, all that was asked for counts. Beyond LOOKED, one in SAMPLED reads counts for all of these.
_READ = """$times = $looked >= LOOKED ? (uint64)SAMPLED : (uint64)1;
		if ($size == 0) { @asked = sum($length * $times); }
		if ($at < $size && $length > 0) {
			$end = $at + $length;
			if ($end > $size) { $end = $size; }
			$to = (($end + 4095) >> 12) << 12;
			if ($to > $size) { $to = $size; }
			$pages = $to - (($at >> 12) << 12);
			if ($times > 1) { @asked = sum($pages * $times); return; }
			$now = nsecs;
			$then = @read_at[(uint64)$file];
			@read_at[(uint64)$file] = $now;
			@until = $now;
			$last = @read_end[(uint64)$file, $epoch];
			if ($last == $at && $at != 0) {
				$pages = $end - $at;
				$class = $class | BIT_SEQUENTIAL;
				if ($then < @since) { $then = @since; }
				if ($now > $then) { @streaming = sum($now - $then); }
			} else if ($last != 0 && $at != 0) {
				$class = $class | BIT_ELSEWHERE;
			}
			@asked = sum($pages);
			@read_end[(uint64)$file, $epoch] = $end;
			@reads[$class] = count();
		}"""

_WRITTEN = """if ($length > 0) {
			if ($flags & O_APPEND) { $at = $size; }
			if ($at >= $size) { $class = $class | BIT_APPEND; }
			$last = @write_end[(uint64)$file, $epoch];
			if ($last == $at && $at != 0) {
				$class = $class | BIT_SEQUENTIAL;
			} else if ($last != 0 && $at != 0) {
				$class = $class | BIT_ELSEWHERE;
			}
			@write_end[(uint64)$file, $epoch] = $at + $length;
			@writes[$class] = count();
		}"""

# First, because bpftrace 0.23 infers the types of maps from their first use. @tracked and @looked
# count within a second; until all probes are attached, they are 0 and NEVER.
_BEGIN = """
BEGIN {
	@tracked = (uint64)0; @looked = (uint64)NEVER; @epoch = (uint64)0;
	@since = (uint64)0; @until = (uint64)0; @window = (uint64)0;
	@faulting[(uint64)0] = (uint64)0;
}
"""
# With a new @epoch, open files are forgotten, because there is a gap in the examined calls.
_EACH_SECOND = """
interval:s:1 /@tracked != 0/ {
	@tracked = 1;
	if (@looked >= LOOKED) { @epoch = @epoch + 1; }
	STREAMS
	@since = nsecs;
	@looked = 0;
}
"""
_STREAMS = """if (@until > @since) { @window = @window + @until - @since; }
	print(@streaming); print(@window);"""
_FORGET = """clear(@net); clear(@tracked); clear(@looked); clear(@epoch);
	clear(@since); clear(@until); clear(@faulting);"""
_READY = "@tracked = 1; @looked = 0; @since = nsecs;"

# The last probe to be attached signals that all are. Open files are forgotten after a while,
# because their closing is not observed.
_END = f"""
interval:s:10 {{ clear(@read_end); clear(@write_end); clear(@read_at); }}
interval:ms:50 /@tracked == 0/ {{ {_READY} printf("{READY}\\n"); }}
END {{
	{_STREAMS}
	{_FORGET} clear(@read_end); clear(@write_end); clear(@read_at);
}}
"""

# Without the probes of calls; the maps are as in `_END`.
_PLAIN_END = f"""
interval:ms:50 /@tracked == 0/ {{ {_READY} printf("{READY}\\n"); }}
END {{ {_FORGET} clear(@window); }}
"""


# Of `live_program`. Entries of these maps are never deleted while printed, because bpftrace would
# exit. Sends are printed before ends, so that none seems to lack a record.
_LIVE_MAPS = ("requests", "net", "bytes", "latency")
_LIVE_PEAKS = ("largest", "most")
_LIVE_CALLS = "interval:s:10 { clear(@read_end); clear(@read_at); }\n"


@dataclass(frozen=True)
class Abilities:
    """What this kernel can report: how it reports ``requests``, and what else.

    ``pauses``: it has the tracepoint of throttling. ``faults``: the probe of page faults, empty if
    it has none. ``calls``: how it reports reads and writes, None if it does not.
    """

    pauses: bool
    faults: str
    calls: CallProbes | None
    requests: Requests = TRACEPOINTS


def program(device: int, bdi: str, cpus: int, abilities: Abilities) -> str:
    """Return the program for the mount whose number, as the kernel's dev_t, is ``device``.

    It prints its counts at exit. ``bdi``: its name in /sys/class/bdi, digits and
    lower-case letters. ``cpus``: possible CPUs.
    """
    parts = [abilities.requests.text(_SENT, _ENDED)]
    parts += [_PAUSES] if abilities.pauses else []
    parts.append(abilities.faults)
    if abilities.calls:
        writes = _calls(abilities.calls.writes, _WRITTEN, "return;")
        parts += _by_probe([*_reads(abilities.calls), *writes])
    parts.append(_each_second(abilities))
    parts.append(_END if abilities.calls else _PLAIN_END)
    return _with_numbers(parts, device, bdi, cpus)


def live_program(device: int, bdi: str, cpus: int, abilities: Abilities, every: float) -> str:
    """Return a program like `program` that prints its counts repeatedly.

    It prints a mark with the kernel's nanoseconds when it starts counting, and every ``every``
    seconds its maps and such a mark. It does not observe writes of programs, because removing each
    probe takes the kernel a while.
    """
    parts = [abilities.requests.text(_SENT, _ENDED)]
    parts += [_PAUSES] if abilities.pauses else []
    parts.append(abilities.faults)
    parts += [*_by_probe(_reads(abilities.calls)), _LIVE_CALLS] if abilities.calls else []
    parts.append(_each_second(abilities))
    maps = [*_LIVE_MAPS]
    maps += ["paused_ms"] if abilities.pauses else []
    maps += ["faults"] if abilities.faults else []
    maps += ["reads", "asked"] if abilities.calls else []
    maps += ["unseen"] if abilities.calls and abilities.calls.unseen else []
    counted = " ".join(f"print(@{name});" for name in maps)
    peaks = " ".join(f"print(@{name}); clear(@{name});" for name in _LIVE_PEAKS)
    mark = f'printf("{MARK} %llu\\n", nsecs);'
    milliseconds = round(every * 1000)
    parts.append(f"interval:ms:{milliseconds} /@tracked/ {{ {counted} {peaks} {mark} }}\n")
    parts.append(f"interval:ms:50 /@tracked == 0/ {{ {_READY} {mark} }}\n")
    return _with_numbers(parts, device, bdi, cpus)


def _each_second(abilities: Abilities) -> str:
    return _EACH_SECOND.replace("STREAMS", _STREAMS if abilities.calls else "")


def _with_numbers(parts: Sequence[str], device: int, bdi: str, cpus: int) -> str:
    text = "".join((_BEGIN, *parts))
    for word, number in {
        "DEVICE": device,
        "CPUS": cpus,
        "LOOKED": _LOOKED,
        "SAMPLED": _SAMPLED,
        "NEVER": _LOOKED + 1,
        "O_DIRECT": os.O_DIRECT,
        "O_APPEND": os.O_APPEND,
        "BIT_DIRECT": DIRECT,
        "BIT_SEQUENTIAL": SEQUENTIAL,
        "BIT_ELSEWHERE": ELSEWHERE,
        "BIT_APPEND": APPEND,
    }.items():
        text = text.replace(word, str(number))
    return text.replace("BDI", bdi)


def _calls(calls: Sequence[Call], body: str, beyond: str) -> list[Block]:
    """Return the program's blocks for calls; ``body``: the statements for each examined call.

    ``beyond``: the statements for additional calls.
    """
    part = _CALL.replace("BODY", body).replace("BEYOND", beyond)
    part = part.replace("FAULT_ENDS", _FAULT_ENDS)
    return [Block(call.probe, call.condition, with_words(part, call)) for call in calls]


def _reads(calls: CallProbes) -> list[Block]:
    sampled = "if ($looked == NEVER || rand % SAMPLED != 0) { return; }"
    return [*_calls(calls.reads, _READ, sampled), *calls.unseen]


def _by_probe(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the program's parts, one for each probe, whose first block that applies is executed."""
    by_probe: dict[str, list[Block]] = {}
    for block in blocks:
        by_probe.setdefault(block.probe, []).append(block)
    for probe, same in by_probe.items():
        texts = [f"if ({b.condition}) {{{b.text}}}" if b.condition else b.text for b in same]
        yield f"\n{probe}\n\t{' else '.join(texts)}\n}}\n"


def bucket_middle(bucket: int) -> float:
    """Return the microseconds in the middle of a bucket of the program's latencies."""
    if bucket < 1 << (_STEPS_LOG2 + 1):
        return bucket + 0.5
    log = (bucket >> _STEPS_LOG2) + _STEPS_LOG2 - 1
    width = 1 << (log - _STEPS_LOG2)
    return (1 << log) + (bucket & ((1 << _STEPS_LOG2) - 1)) * width + width / 2
