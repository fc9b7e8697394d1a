# SPDX-License-Identifier: GPL-2.0-or-later
"""The output of fusetune without a command: the state of the mounts, and what to type next."""

from fusetune.changes.state import KnobState
from fusetune.knobs.base import DEAD
from fusetune.report.inventory import InventoriedMount, Inventory
from fusetune.text import counted, printable, shell_word

_HELP = "    (all commands: fusetune --help)"


def overview(inventory: Inventory) -> list[str]:
    """Return the lines; none if there are no FUSE mounts."""
    if not inventory.mounts:
        return []
    ours = [one for one in inventory.mounts if not one.left_alone]
    stock = [one for one in ours if not any(map(_tuned, one.states))]
    alone = len(inventory.mounts) - len(ours)
    return [
        f"{counted(len(inventory.mounts), 'FUSE mount')}: {len(ours) - len(stock)} tuned, "
        f"{len(stock)} with the kernel's defaults, {alone} left alone",
        _kept(sum(len(one.differing) for one in ours)),
        _findings(len(inventory.diagnosis.findings) + len(inventory.problems)),
        f"next: {_next([one for one in stock if not any(map(_dead, one.states))])}",
    ]


def _tuned(state: KnobState) -> bool:
    return None not in (state.value, state.knob.stock) and state.value != state.knob.stock


def _dead(state: KnobState) -> bool:
    return state.absent == DEAD


def _kept(differing: int) -> str:
    if not differing:
        return "all values are as kept"
    return f"not as kept: {counted(differing, 'value')}; 'fusetune verify' lists them"


def _findings(number: int) -> str:
    if not number:
        return "nothing limits FUSE on this host"
    return f"what limits FUSE here: {counted(number, 'finding')}; 'fusetune doctor' shows remedies"


def _next(stock: list[InventoriedMount]) -> str:
    if stock:
        path = printable(shell_word(stock[0].mount.path))
        return f"fusetune auto {path}{_HELP}"
    return f"fusetune report{_HELP}"
