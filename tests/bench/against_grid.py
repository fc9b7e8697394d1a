# SPDX-License-Identifier: GPL-2.0-or-later
"""auto against an exhaustive grid: page faults, many streams, a read-only mount, a neighbour."""

from tests.bench.contest import ABOUT_GRID, BLOCKS, CHOICES, MORE_SERVERS, STOCK, ratios, tables
from tests.bench.page import Section

_OTHERS = {"stock": STOCK}
AGAINST_GRID = Section(
    "auto and the grid: more workloads and hosts",
    "Speed with the values that auto chose, as a ratio to the speed with the grid's best values "
    f"and with stock. The brackets contain the 95 % interval over {BLOCKS} blocks; each block "
    f"measures each of them once. {ABOUT_GRID} auto runs with --no-guard. The read-only mount has "
    "three files, which auto reads because of --files. The neighbour is a program that uses a "
    "whole processor for 1 to 5 s, then rests for 1 to 5 s, and so on.",
    (ratios(_OTHERS), CHOICES),
    lambda: tables(MORE_SERVERS, _OTHERS),
)
