# SPDX-License-Identifier: GPL-2.0-or-later
"""The mounts of published papers, stock compared with module and tuned library; for tests/bench."""

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path

from fusetune.bench.papers.catalogue import NATIVE, PAPERS
from tests.kernel.guest.rig import SOURCE, count, fresh_source, load, run, set_pipe_limit, stock
from tests.kernel.guest.rig import tuned as by_module
from tests.kernel.guest.tuned_library import environment
from tests.native.mirror import Mirror

ROUNDS = 6
_FILES = 100
#: mirrorfs's options in the papers, as options of the tuned library.
_LIBRARY = {"no_xattr": "no_file_caps", "writeback": "writeback_cache"}
#: What dd does by workload, with two numbers: total bytes, and bytes per block.
_DD: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "write-4k": (4 << 20, 4 << 10, ("if=/dev/zero", "of={}/file")),
    "write-128k": (8 << 20, 128 << 10, ("if=/dev/zero", "of={}/file")),
    "write": (16 << 20, 4 << 20, ("if=/dev/zero", "of={}/file")),
    "direct-write": (16 << 20, 4 << 20, ("if=/dev/zero", "of={}/file", "oflag=direct")),
    "direct-read": (16 << 20, 4 << 20, ("if={}/read", "iflag=direct", "of=/dev/null")),
}
#: By "stock" or "tuned", mount, and workload, joined by "|": seconds of each round.
Seconds = dict[str, list[float]]
#: The same for the bytes of the largest request, or the requests for each file.
Sizes = dict[str, float]


def _library_options(options: str) -> str:
    words = ["tuned"]
    for word in filter(None, options.split(",")):
        name, _, value = word.partition("=")
        if name == "max_write":
            words.append(f"max_pages={int(value.removesuffix('K')) // 4}")
        else:
            words.append(_LIBRARY.get(word, word))
    return ",".join(words)


def _mounted(stack: ExitStack, work: str) -> dict[str, Mirror]:
    """Mount each series of a paper twice: stock, and the same with module and library."""
    mirrors = {}
    for number, (label, series) in enumerate(PAPERS[work].series.items()):
        if series.options is None:
            continue
        own = filter(None, series.options.split(","))
        mirrors[f"stock|{label}"] = stack.enter_context(stock(*own, point=f"/mnt/stock{number}"))
        with environment(_library_options(series.options)):
            mirror = stack.enter_context(stock(point=f"/mnt/tuned{number}"))
        mirrors[f"tuned|{label}"] = mirror
        for knob, value in (("strict_limit", 0), ("max_ratio", 100)):
            Path("/sys/class/bdi", mirror.bdi, knob).write_text(f"{value}\n")
    return mirrors


def _dd(directory: Path, workload: str) -> float:
    """Return the seconds that dd reports, which do not include writeback."""
    size, block, ends = _DD[workload]
    words = [word.format(directory) for word in ends]
    said = run("dd", *words, f"bs={block}", f"count={size // block}").stderr
    if (directory / "file").exists():
        run("sync", directory / "file")
        (directory / "file").unlink()
    found = re.search(r"copied, ([\d.e+-]+) s", said)
    assert found, said
    return float(found[1])


def _writes(work: str) -> tuple[Seconds, Sizes]:
    names = [workload.name for workload in PAPERS[work].workloads]
    with ExitStack() as stack:
        directories = {f"stock|{NATIVE}": fresh_source()}
        run("dd", "if=/dev/zero", f"of={SOURCE}/read", "bs=1M", "count=16")
        mirrors = _mounted(stack, work)
        sizes: Sizes = {}
        for label, mirror in mirrors.items():
            directories[label] = mirror.mountpoint
            for name in names:
                mirror.reset_counters()
                _dd(mirror.mountpoint, name)
                op = "READ" if name == "direct-read" else "WRITE"
                sizes[f"{label}|{name}"] = count(mirror, op, "largest_bytes")
        # Measure what is compared close together, because the host drifts.
        pairs = [(label, name) for name in names for label in directories]
        seconds: Seconds = {f"{label}|{name}": [] for label, name in pairs}
        for turn in range(ROUNDS):
            for label, name in pairs[::-1] if turn % 2 else pairs:
                seconds[f"{label}|{name}"].append(_dd(directories[label], name))
    return seconds, sizes


def _open_all(directory: Path, turn: int, flags: int) -> float:
    # A name from an earlier round would be looked up twice, because it is cached.
    began = time.perf_counter()
    for number in range(_FILES):
        os.close(os.open(directory / f"small.{turn}.{number}", flags))
    return time.perf_counter() - began


def _opens(work: str) -> tuple[Seconds, Sizes]:
    """Create small files, and open them all again."""
    seconds: Seconds = {}
    sizes: Sizes = {}
    own = (PAPERS[work].series["stock"].options or "").split(",")
    with ExitStack() as stack:
        fresh_source()
        mirrors = {
            "stock|stock": stack.enter_context(stock(*own)),
            "tuned|atomic_open": stack.enter_context(by_module(*own, mount="atomic_open")),
        }
        for turn in range(ROUNDS):
            for label in sorted(mirrors, reverse=turn % 2 == 1):
                for name, flags in (("create", os.O_CREAT | os.O_WRONLY), ("open", os.O_RDONLY)):
                    mirrors[label].reset_counters()
                    taken = _open_all(mirrors[label].mountpoint, turn, flags)
                    seconds.setdefault(f"{label}|{name}", []).append(taken)
                    ops = mirrors[label].counters()["ops"].values()
                    sizes[f"{label}|{name}"] = round(sum(op["count"] for op in ops) / _FILES, 1)
                for path in SOURCE.iterdir():
                    path.unlink()
    return seconds, sizes


def measure_works() -> dict[str, tuple[Seconds, Sizes]]:
    """Return by paper the seconds of each round, and the sizes or numbers of requests."""
    load()
    set_pipe_limit(8 << 20)
    return {
        "szeredi": _writes("szeredi"),
        "hayasaka": _writes("hayasaka"),
        "singh-atomic": _opens("singh-atomic"),
    }
