# SPDX-License-Identifier: GPL-2.0-or-later
"""What can be tuned: every knob, in tables by where it is set.

To add a knob, add an entry to ``live``, ``system`` or ``remount``.
"""

import difflib
from collections.abc import Sequence

from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.knobs.base import Absent, Knob, Scope, parse_number
from fusetune.knobs.live import LIVE
from fusetune.knobs.remount import REMOUNT, RemountKnob
from fusetune.knobs.system import SYSTEM
from fusetune.mounts.mount import Mount

__all__ = [
    "LIVE",
    "LIVE_BY_NAME",
    "REMOUNT",
    "SYSTEM",
    "Absent",
    "Knob",
    "RemountKnob",
    "Scope",
    "knobs_of",
    "named",
    "out_of_range",
    "parse_assignments",
    "parse_number",
]

#: Knobs of one mount, by name.
LIVE_BY_NAME = {knob.name: knob for knob in LIVE}


def named(name: str) -> Knob | RemountKnob:
    """Return the knob of that name. Raises UsageError that suggests the nearest name."""
    known: dict[str, Knob | RemountKnob] = {knob.name: knob for knob in (*LIVE, *SYSTEM)}
    for knob in REMOUNT:
        known.setdefault(knob.name, knob)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    raise UsageError(f"unknown knob {name!r}: {hint}")


def parse_assignments(words: tuple[str, ...], scope: Scope) -> dict[Knob, int]:
    """Parse ``KNOB=V`` words for knobs of ``scope``; a knob given twice is an error.

    Raises UsageError that names the word and, for a knob of another scope, how to set it.
    """
    values: dict[Knob, int] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not KNOB=VALUE")
        knob = named(name)
        if isinstance(knob, RemountKnob):
            raise UsageError(
                f"{name} is fixed when the mount is made and needs a remount: {knob.remedy}"
            )
        if knob.scope is not scope:
            target = "host" if knob.scope is Scope.HOST else "MOUNT"
            raise UsageError(f"{name} is set per {knob.scope}: fusetune set {target} {name}={text}")
        if knob in values:
            raise UsageError(f"{name} is given twice; give it once")
        values[knob] = knob.parse(text)
    return values


def knobs_of(host: Host, mount: Mount | None) -> Sequence[Knob]:
    """Return the knobs of a mount, each with its range and default there, or of the host."""
    if mount is None:
        return SYSTEM
    return [knob.on(host, mount) for knob in LIVE if mount.is_tuned_type or knob.init_line is None]


def out_of_range(host: Host, mount: Mount | None, knob: Knob, value: int) -> str | None:
    """Return why ``value`` is out of the mount's own range, None if it is not."""
    if value < knob.low:
        return f"{knob.name}={value} is out of range: the smallest value is {knob.low}"
    most = knob.on(host, mount).high
    if most is None or value <= most:
        return None
    return f"{knob.name}={value}: INIT negotiated {most}; more needs a remount"
