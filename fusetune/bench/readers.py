# SPDX-License-Identifier: GPL-2.0-or-later
"""The readers of a job file: each in its own part of an existing file, or of many files."""

import re
from collections.abc import Sequence
from itertools import cycle

from fusetune.bench.ranges import Range
from fusetune.bench.workloads import sections_of

#: Concurrent readers may together be this many times as fast as one before their parts end.
_FASTER_TOGETHER = 4
_BLOCK = 128 << 10  # bytes: parts are multiples of it, so that each has a whole block
#: Says which part of which file a section reads, and how many readers it has.
_PLACE = re.compile(
    r"^(?:filename|filename_format|offset|offset_increment|size|filesize|numjobs)=.*\n",
    re.MULTILINE,
)
#: Says how many files a section makes, and what they are called.
_MADE = re.compile(r"^(?:filename_format|nrfiles)=.*\n", re.MULTILINE)


def readers(job: str) -> dict[str, int]:
    """Return how many concurrent readers each section of a job file has, by the section's name."""
    found = {}
    for name, options in sections_of(job)[1].items():
        several = re.search(r"^numjobs=(\d+)$", options, re.MULTILINE)
        found[name] = int(several[1]) if several else 1
    return found


def block_and_step(job: str, apart: int) -> tuple[int, int]:
    """Return the bytes of a reader's block, and from its start to that of the next one.

    Random page faults are ``apart`` bytes apart.
    """
    said = re.search(r"^bs=(\d+)([km])$", job, re.MULTILINE)
    assert said, job  # noqa: S101 - a job file of this package
    block = int(said[1]) << {"k": 10, "m": 20}[said[2]]
    return block, apart if "FUSETUNE_SKIPPED" in job else block


def ranges_worth(count: int) -> int:
    """Return how many ranges have as many bytes as all parts of ``count`` readers may have."""
    return min(count, _FASTER_TOGETHER)


def parts(ranges: Sequence[Range], count: int) -> list[Range]:
    """Return a part of one of the ``ranges`` for each of ``count`` concurrent readers.

    The parts of a range, which has at least 128 KiB for each reader, are equally far apart.
    """
    sharing = -(-count // len(ranges))
    length = ranges[0].length
    apart = length // sharing // _BLOCK * _BLOCK
    most = length * ranges_worth(count) // count // _BLOCK * _BLOCK
    return [
        Range(one.file, one.offset + number // len(ranges) * apart, min(apart, most))
        for number, one in zip(range(count), cycle(ranges), strict=False)
    ]


def placed(job: str, places: Sequence[Sequence[tuple[str, Range]]]) -> str:
    """Return a job file whose readers each read a part of a file instead of what it names.

    ``places``: for each section, the name of the file and the part, of each of its readers.
    """
    text, sections = sections_of(_PLACE.sub("", job))
    for (section, options), here in zip(sections.items(), places, strict=True):
        for number, (name, part) in enumerate(here):
            where = f"filename={name}\noffset={part.offset}\nsize={part.length}\n"
            text += f"[{section}.{number}]\n{where}{options}"
    return text


def opening(job: str, names: Sequence[str]) -> str:
    """Return a job file whose only job opens the files of these names instead of those it makes."""
    text, sections = sections_of(_MADE.sub("", job))
    ((section, options),) = sections.items()
    return f"{text}[{section}]\nfilename={':'.join(names)}\n{options}"
