# SPDX-License-Identifier: GPL-2.0-or-later
"""``make bench``: measured tables, printed and written to docs/benchmarks.md.

Every figure is a ratio of values from the same run. ``--only NAME`` runs one table and
leaves the others in the file as they are. The exit status is 1 if a table says that a wanted figure
was not reached.
"""

import argparse
import os
import sys

from fusetune.syscalls import CLONE_NEWNS, MS_PRIVATE, propagate, unshare
from tests.bench.advice import ADVICE
from tests.bench.against_grid import AGAINST_GRID
from tests.bench.bench_search import SEARCH
from tests.bench.commands import CALIBRATION, LIST, PUBLISHED, START
from tests.bench.contest import CONTESTS
from tests.bench.cost import COST
from tests.bench.deployed import DEPLOYED
from tests.bench.f2fs import F2FS
from tests.bench.fleet import FLEET
from tests.bench.live import LIVE
from tests.bench.misses import MISSES
from tests.bench.overruled import OVERRULED
from tests.bench.page import HEAD, NOT_REACHED, PAGE, Section, machine, read
from tests.bench.papers import TUNED_VS_STOCK
from tests.bench.shared import SHARED_FILE
from tests.bench.storm import STORM
from tests.bench.watching import WATCHING

SECTIONS: dict[str, Section] = {
    "contests": CONTESTS,
    "against-grid": AGAINST_GRID,
    "misses": MISSES,
    "deployed": DEPLOYED,
    "live": LIVE,
    "search": SEARCH,
    "list": LIST,
    "start": START,
    "calibration": CALIBRATION,
    "advice": ADVICE,
    "storm": STORM,
    "fleet": FLEET,
    "watching": WATCHING,
    "shared-file": SHARED_FILE,
    "cost": COST,
    "overruled": OVERRULED,
    "f2fs": F2FS,
    "published": PUBLISHED,
    "tuned_vs_stock": TUNED_VS_STOCK,
}


def command(name: str) -> str:
    """Return the command for one section, as shown on the page."""
    return f"`python3 -m tests.bench --only {name}` on "


def main() -> None:
    """Measure the requested tables, print them and write them to the page."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=SECTIONS)
    only = parser.parse_args().only
    if os.geteuid() != 0:
        sys.exit("make bench mounts file systems and writes to /sys: run it as root")
    # The mounts end with the last process that uses them, also when all are killed.
    unshare(CLONE_NEWNS)
    propagate("/", MS_PRIVATE)
    missed = False
    for name, section in SECTIONS.items():
        if only in (None, name):
            made = f"\n{command(name)}{machine()}.\n\n{section.about}\n\n{section.make()}\n"
            missed |= NOT_REACHED in made
            print(f"\n## {section.title}\n{made}", flush=True)
            _write(section.title, made)
    sys.exit(1 if missed else 0)


def _write(title: str, text: str) -> None:
    """Write a section to the page, so that later sections can read it there."""
    texts = {**read(), title: text}
    body = "".join(
        f"\n## {section.title}\n{texts[section.title].rstrip()}\n"
        for section in SECTIONS.values()
        if section.title in texts
    )
    PAGE.write_text(HEAD + body, encoding="utf-8")


if __name__ == "__main__":
    main()
