# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/benchmarks.md: its sections and how their figures are written."""

import os
import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetune.bench.intervals import Interval

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
HEAD = """\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# Benchmarks

`make bench`, run as root, generates this page. Each section names its machine, and the command
that generates it alone. The figures in brackets are a 95 % interval of the mean ratio, or the
minimum and the maximum of the ratios, as each section says. Unless a section says otherwise, a
speed or a time is a ratio of two figures measured in the same run, and the server is mirrorfs over
tmpfs.
"""
#: How a table says that a figure is not what is wanted.
NOT_REACHED = "NOT REACHED"


@dataclass(frozen=True)
class Section:
    """One section: its text about the method, its tables' headings, and what measures them.

    ``make`` returns the section's tables. Raises RuntimeError if the measurement failed.
    """

    title: str
    about: str
    headings: tuple[Sequence[str], ...]
    make: Callable[[], str]


def read() -> dict[str, str]:
    """Return the text of each section of the page, by title."""
    old = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", old, re.MULTILINE | re.DOTALL))


def machine() -> str:
    """Describe this machine: kernel, cores, memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    fio = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True)
    return (
        f"Linux {platform.release().split('-')[0]} {platform.machine()}, {os.cpu_count()} cores, "
        f"{memory} GiB; Python {platform.python_version()}, {fio.stdout.strip()}"
    )


def ratio(interval: Interval) -> str:
    """Return a ratio and its interval as a table's cell."""
    return f"{interval.ratio:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def verdict(is_reached: bool) -> str:
    """Return whether a wanted figure is reached, as a table's cell."""
    return "reached" if is_reached else NOT_REACHED


def heading(cells: Sequence[str]) -> str:
    """Return the row of a Markdown table that names its columns."""
    return f"| {' | '.join(cells)} |"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(heading(row) for row in (headings, ["---"] * len(headings), *rows))
