# SPDX-License-Identifier: GPL-2.0-or-later
"""Knobs by name, and one whose file cannot be written."""

from fusetune.knobs import LIVE, SYSTEM, Knob

KNOBS = {knob.name: knob for knob in (*LIVE, *SYSTEM)}


# As long as the defaults, because a file in a tree, unlike sysfs, keeps what is not overwritten.
NEW = {
    "read_ahead_kb": 256,
    "max_background": 64,
    "congestion_threshold": 8,
    "max_ratio": 5,
    "strict_limit": 0,
}


def knobs(**values: int) -> dict[Knob, int]:
    return {KNOBS[name]: value for name, value in values.items()}
