# SPDX-License-Identifier: GPL-2.0-or-later
"""The measurements of five papers, and the fio jobs and mounts that reproduce them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusetune.bench.figures import (
    bytes_per_second,
    bytes_per_second_in_write,
    operations_per_second,
)
from fusetune.bench.workloads import Access, Workload

NATIVE = "native"
_GLOBAL = "[global]\nthread\nclocksource=clock_gettime\nfallocate=none\nioengine=psync\n"
_TIMED = _GLOBAL + "runtime=${FUSETUNE_RUNTIME}ms\n"


@dataclass(frozen=True)
class Series:
    """One way to mount: mirrorfs with ``options`` over a tmpfs; None: the tmpfs itself.

    ``module``: mount options of fusetuned, if it makes the mount; ``otherwise``: equivalent options
    of mirrorfs if fusetuned is not loaded. ``f2fs_threshold``: instead of mirrorfs, an image with
    this project's f2fs and this serialize_alloc_blocks.
    """

    options: str | None = ""
    module: str = ""
    otherwise: str = ""
    f2fs_threshold: int | None = None


@dataclass(frozen=True)
class Ratio:
    """A figure as a ratio to another, each named (series, workload), and what was published."""

    label: str
    over: tuple[str, str]
    under: tuple[str, str]
    published: float


@dataclass(frozen=True)
class Paper:
    """One paper: the ratios in its tables, their mounts and jobs, and what these stand for."""

    name: str
    title: str
    stands_for: str
    series: Mapping[str, Series]
    workloads: Sequence[Workload]
    ratios: Sequence[Ratio]


def _write(name: str, block: str, direct: bool = False) -> Workload:
    text = _TIMED + (
        f"[{name}]\nfilename=write-data\nrw=write\nbs={block}\ndirect={int(direct)}\n"
        "size=${FUSETUNE_WRITE_SIZE}\nend_fsync=1\n"
    )
    accesses = frozenset({Access.DIRECT_WRITE if direct else Access.BUFFERED_WRITE})
    figure = bytes_per_second if direct else bytes_per_second_in_write
    return Workload(
        name,
        f"writing in {block}",
        accesses,
        writes=True,
        figure=figure,
        text=text,
        least_bytes=4 << 20,
    )


def _read(name: str, block: str) -> Workload:
    text = _TIMED + (
        f"[{name}]\nfilename=read-data\nrw=read\nbs={block}\ndirect=1\nsize=${{FUSETUNE_READ_SIZE}}\n"
    )
    accesses = frozenset({Access.BUFFERED_READ})
    return Workload(name, f"direct reading in {block}", accesses, reads=True, text=text)


def _szeredi() -> Paper:
    series = {
        NATIVE: Series(None),
        "direct_io+splice": Series("direct_io,no_xattr"),
        "direct_io": Series("direct_io,no_xattr,splice=off"),
        "writeback+splice": Series("writeback,no_xattr"),
        "writeback": Series("writeback,no_xattr,splice=off"),
        "big_writes+splice": Series("no_xattr"),
        "big_writes": Series("no_xattr,splice=off"),
    }
    figures = {
        "write-4k": (1030, 80, 80, 500, 320, 75, 75),
        "write-128k": (1140, 750, 600, 520, 320, 470, 360),
    }
    return Paper(
        "szeredi",
        "Szeredi 2013: seven ways to write through FUSE on tmpfs",
        "fio replaces dd; the time in write(2) counts, without the fsync after it. Ratios are "
        "relative to the tmpfs itself.",
        series,
        [_write(name, name.partition("-")[2]) for name in figures],
        [
            Ratio(f"{label}, {name}", (label, name), (NATIVE, name), published / row[0])
            for name, row in figures.items()
            for label, published in list(zip(series, row, strict=True))[1:]
        ],
    )


def _hayasaka() -> Paper:
    pages = (32, 64, 128, 256, 512, 1024)
    figures = {
        "write": (304, 365, 414, 442, 442, 437),
        "direct-write": (388, 503, 595, 676, 762, 744),
        "direct-read": (485, 568, 612, 654, 795, 788),
    }
    # Beyond every kernel's limit, through the module; the server must request as much.
    series = {
        f"{count} pages": Series(
            f"max_write={4 * count}K,no_xattr", f"max_pages={count}" if count > 256 else ""
        )
        for count in pages
    }
    first = "32 pages"
    return Paper(
        "hayasaka",
        "Hayasaka 2012: pages per request",
        "fio with blocks of 4 MiB replaces iozone; ratios are relative to 32 pages (128 KiB).",
        series,
        [_write("write", "4m"), _write("direct-write", "4m", True), _read("direct-read", "4m")],
        [
            Ratio(f"{label}, {name}", (label, name), (first, name), published / row[0])
            for name, row in figures.items()
            for label, published in list(zip(series, row, strict=True))[1:]
        ],
    )


def _writers(count: int, shared: bool) -> Workload:
    """Return ``count`` writers that overwrite 1 MiB each, in one file or in separate files."""
    name = f"{'shared' if shared else 'own'}-{count}"
    place = (
        "filename=shared\noffset_increment=1m\n"
        if shared
        else f"filename_format=own-{count}.$jobnum\n"
    )
    text = _GLOBAL + (
        f"[{name}]\n{place}rw=write\noverwrite=1\nbs=64k\nsize=1m\ndirect=1\nnumjobs={count}\n"
    )
    return Workload(name, f"{count} direct writers", frozenset({Access.DIRECT_WRITE}), text=text)


def _singh_parallel() -> Paper:
    before = (2.6, 4.8, 2.7, 4.3, 3.0, 2.9)
    after = (2.6, 7.8, 14.3, 22.5, 23.7, 20.5)
    counts = (1, 2, 4, 8, 16, 32)
    server = "direct_io,write_delay=1ms,served=32"
    series = {
        "before": Series(server),
        "after": Series(server, "parallel_direct_writes", "parallel_direct_writes"),
    }
    return Paper(
        "singh-parallel",
        "Singh 2022: writers of one shared file",
        "A server that takes 1 ms per write replaces the storage, overwrites of 64 KiB its "
        "workload. Ratios are one shared file to separate files; published as equal after the "
        "change.",
        series,
        [_writers(count, shared) for count in counts for shared in (True, False)],
        [
            Ratio(
                f"{label}, {count} writers",
                (label, f"shared-{count}"),
                (label, f"own-{count}"),
                figure / best,
            )
            for label, figures in (("before", before), ("after", after))
            for count, figure, best in zip(counts, figures, after, strict=True)
        ],
    )


def _files(name: str, again: bool) -> Workload:
    """Return the creation of small files, or opening them again (bonnie++'s creates and reads)."""
    create = "ioengine=filecreate\ncreate_on_open=1\n"
    laid = f"[made]\n{create}" if again else ""
    wait = "stonewall\n" if again else ""
    remove = "[removed]\nstonewall\nioengine=filedelete\n"
    text = (
        _GLOBAL.replace("ioengine=psync\n", "")
        + "nrfiles=${FUSETUNE_FILES}\nfilesize=4k\nopenfiles=1\nfile_service_type=sequential\n"
        + "filename_format=small.$filenum\n"
        + f"{laid}[{name}]\n{wait}{create}{remove}"
    )
    position = 1 if again else 0
    return Workload(
        name,
        "opens of small files" if again else "small files made",
        frozenset({Access.METADATA}),
        makes_files=True,
        unit="operations_per_second",
        per_operation=True,
        figure=lambda jobs: operations_per_second([jobs[position]]),
        text=text,
    )


def _singh_atomic() -> Paper:
    server = "delay=200us,timeout=60,entry_timeout=0"
    series = {"stock": Series(server), "atomic_open": Series(server, "atomic_open")}
    figures = {"create": 1.32, "open": 1.27}
    return Paper(
        "singh-atomic",
        "Singh 2022: lookup and open in one request",
        "fio's filecreate replaces bonnie++, opens of existing files its reads; the server takes "
        "200 us per request, as over a network, and names expire at once.",
        series,
        [_files(name, name == "open") for name in figures],
        [
            Ratio(name, ("atomic_open", name), ("stock", name), published)
            for name, published in figures.items()
        ],
    )


def _yu() -> Paper:
    text = _GLOBAL + (
        "[writers]\nfilename_format=w.$jobnum\nrw=write\nbs=2m\nsize=16m\ndirect=1\nnumjobs=10\n"
        "unlink=1\n"
    )
    writers = Workload("writers", "10 direct writers", frozenset({Access.DIRECT_WRITE}), text=text)
    series = {
        "f2fs, one by one": Series(None, f2fs_threshold=64),
        "f2fs, as stock": Series(None, f2fs_threshold=0),
    }
    over, under = (("f2fs, one by one", "writers"), ("f2fs, as stock", "writers"))
    return Paper(
        "yu",
        "Yu 2015: ten direct writers on f2fs",
        "An image on this host's disk replaces their eMMC (published 1.20) and SD card (2.04). "
        "Both series are the f2fs of this project, with its serialize_alloc_blocks at 64 and at 0.",
        series,
        [writers],
        [Ratio("eMMC", over, under, 125 / 104), Ratio("SD card", over, under, 10.4 / 5.1)],
    )


PAPERS = {
    work.name: work for work in (_szeredi(), _hayasaka(), _singh_parallel(), _singh_atomic(), _yu())
}
