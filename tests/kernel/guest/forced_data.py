# SPDX-License-Identifier: GPL-2.0-or-later
"""Data with mount options that override the server: writeback_cache, and all at once.

What holds there must also hold on stock if the server asks for the writeback cache itself.
"""

import errno
import os
import random
import signal
import struct
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from tests.kernel.guest import slots
from tests.kernel.guest.extend import appends_among_truncates
from tests.kernel.guest.programs import fio, fsx, pjdfstest, same_as_stock
from tests.kernel.guest.promises import Promised
from tests.kernel.guest.rig import PAGE, SOURCE, fresh_source, load, stock, tuned
from tests.native.mirror import Mirror, wait_for

WRITEBACK = "writeback_cache"
#: All options: mirrorfs supports each, and nobody else changes its source.
EVERY = (
    "writeback_cache+keep_cache+attr_timeout=99+entry_timeout=99+negative_timeout=99+no_access+"
    "no_xattr+no_file_caps+async_read+async_dio+parallel_dirops+big_writes+max_readahead=1048576+"
    "max_background=64+congestion_threshold=48+request_timeout=600+parallel_extend+max_pages=64+"
    "atomic_open"
)
_FORCED = (partial(tuned, mount=WRITEBACK), partial(tuned, mount=EVERY))
_STOCK = (partial(stock, "writeback"),)
#: Servers that are killed while they have WRITEs, and that refuse some.
_SLOW, _FAILING = "write_delay=3ms", "fail_every=7"
_RECORD = struct.Struct("=8sIIII")


def _on(
    mounts: Iterable[Callable[..., AbstractContextManager[Mirror]]],
    act: Callable[[Mirror], object],
    *options: str,
) -> None:
    load()
    for mounting in mounts:
        fresh_source()
        with mounting(*options) as mirror:
            act(mirror)


def check_forced_data_of_fsx() -> None:
    """Reads, writes, truncates, fallocates, copies and maps of one file, at random."""
    same_as_stock(fsx, mounts=(WRITEBACK, EVERY))


def check_forced_data_of_fio() -> None:
    """What several processes wrote, cached, direct and mapped, is read back right."""
    _on(_FORCED, fio)


def check_forced_data_of_pjdfstest() -> None:
    """All rules of POSIX that pjdfstest checks."""
    same_as_stock(partial(pjdfstest, rules=()), mounts=(WRITEBACK, EVERY))


def _written_and_mapped(mirror: Mirror) -> None:
    """Four writers share each page, and pages are dropped and read again meanwhile."""
    path = mirror.mountpoint / "file"
    path.write_bytes(bytes(slots.SLOTS * slots.SLOT))
    mine = [range(number, slots.SLOTS, 4) for number in range(4)]
    writers = [
        slots.by_map(path, mine[0], 6),
        slots.by_map(path, mine[1], 6),
        slots.by_calls(path, os.O_WRONLY, mine[2], 6),
        slots.by_calls(path, os.O_RDWR, mine[3], 6),
    ]
    with slots.processes(writers):
        for _ in range(10):
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("1\n")
    expected = b"".join(slots.record(slot, 6) for slot in range(slots.SLOTS))
    assert (SOURCE / path.name).read_bytes() == expected
    assert path.read_bytes() == expected


def check_forced_data_of_mapped_files() -> None:
    """Writers by mmap and by write(2) do not disturb each other's parts of a page."""
    _on(_FORCED, _written_and_mapped)


def _append(path: Path, flags: int, number: int, records: int) -> None:
    choose = random.Random(number)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | flags)
    for place in range(records):
        body = choose.randbytes(choose.randrange(2 * PAGE))
        whole = _RECORD.pack(b"record: ", number, place, len(body), zlib.crc32(body)) + body
        assert os.write(fd, whole) == len(whole)
    os.fsync(fd)
    os.close(fd)


def _appended(data: bytes) -> dict[int, list[int]]:
    """Return the positions of the records by writer, in order; the file must have nothing else."""
    found: dict[int, list[int]] = {}
    at = 0
    while at < len(data):
        head, number, place, size, crc = _RECORD.unpack_from(data, at)
        at += _RECORD.size + size
        assert head == b"record: ", (at, head)
        assert zlib.crc32(data[at - size : at]) == crc, (number, place)
        found.setdefault(number, []).append(place)
    return found


def _appended_by_two(mirror: Mirror) -> None:
    for flags in (0, os.O_DIRECT):
        path = mirror.mountpoint / f"log{flags}"
        with slots.processes(
            [partial(_append, path, 0, 0, 60), partial(_append, path, flags, 1, 60)]
        ):
            pass
        data = (SOURCE / path.name).read_bytes()
        assert _appended(data) == {0: list(range(60)), 1: list(range(60))}
        assert path.stat().st_size == len(data)
        assert path.read_bytes() == data


def check_forced_data_of_two_that_append() -> None:
    """No record is lost, torn or out of order, also if one writer bypasses the cache."""
    _on(_FORCED, _appended_by_two)
    _on(_FORCED, _appended_by_two, "direct_io")


def _truncated(mirror: Mirror) -> None:
    path, stop = mirror.mountpoint / "file", Path("/tmp/slots.stop")  # noqa: S108
    path.touch()
    stop.unlink(missing_ok=True)
    notes = [slots.Notes(f"writer{number}") for number in range(3)]
    cuts = slots.Notes("cuts")
    flags = (os.O_WRONLY, os.O_RDWR, os.O_WRONLY)
    with slots.processes(
        [
            slots.until(stop.exists, path, flags[n], range(n, slots.SLOTS, 3), notes[n])
            for n in range(3)
        ]
    ):
        slots.cut(path, 25, cuts)
        stop.touch()
    data = (SOURCE / path.name).read_bytes()
    writes = [note for one in notes for note in one.read()]
    kept = slots.expect_after_cuts(data, writes, cuts.read())
    assert kept >= 10, kept
    assert path.stat().st_size == len(data)
    assert path.read_bytes() == data
    Path("/proc/sys/vm/drop_caches").write_text("1\n")
    assert path.read_bytes() == data


def check_forced_data_of_truncated_files() -> None:
    """Truncated data does not come back; what is written later exists, and the size agrees."""
    _on(_FORCED, _truncated)
    _on(_FORCED, _truncated, "direct_io")
    _on(_FORCED, appends_among_truncates)


def _killed(mirror: Mirror) -> None:
    promised = Promised(mirror.mountpoint)
    gone = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, -signal.SIGBUS)
    with slots.processes(promised.programs(100_000), gone):
        wait_for(lambda: promised.batches() >= 4, "promises")
        time.sleep(random.random() / 5)
        mirror.kill()
    promised.expect_kept()


def check_forced_data_of_a_server_that_is_killed() -> None:
    """What fsync, close and the like promised exists; afterwards they promise nothing."""
    _on(_FORCED, _killed, _SLOW)


def _failing(mirror: Mirror) -> None:
    promised = Promised(mirror.mountpoint)
    with slots.processes(promised.programs(10)):
        pass
    assert promised.unpromised() > 0
    assert promised.batches() == 10
    promised.expect_kept()


def check_forced_data_of_writes_that_fail() -> None:
    """A write that the server refused was not promised."""
    _on(_FORCED, _failing, _FAILING)


def check_data_with_a_writeback_cache_of_the_servers() -> None:
    """Stock behaves in every way that is expected of the options here."""
    _on(_STOCK, _written_and_mapped)
    _on(_STOCK, _appended_by_two)
    _on(_STOCK, _truncated)
    _on(_STOCK, appends_among_truncates)
    _on(_STOCK, _killed, _SLOW)
    _on(_STOCK, _failing, _FAILING)
