# SPDX-License-Identifier: GPL-2.0-or-later
"""Why each knob has its value, from what is on record: history, configuration, saved results."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusetune.changes.state import KnobState
from fusetune.desired.history import Entry, History
from fusetune.desired.inspect import Inspected
from fusetune.desired.resolve import Expected
from fusetune.mounts.mount import Mount
from fusetune.text import printable, shell_word
from fusetune.tuner.space import FOLLOWERS, SEARCHED


@dataclass(frozen=True)
class Explained:
    """A knob and the sentences on it: its value, who set it, who keeps it, and what was tried."""

    state: KnobState
    sentences: Sequence[str]


def explain(mount: Mount | None, found: Inspected, history: History) -> list[Explained]:
    """Return what is known of each knob of a mount, or of the host for None."""
    return [
        Explained(state, list(_sentences(mount, state, found, history.entries)))
        for state in found.states
    ]


def _sentences(
    mount: Mount | None, state: KnobState, found: Inspected, entries: Sequence[Entry]
) -> Iterator[str]:
    name = state.knob.name
    if state.value is None:
        yield f"it has no value: {state.absent}"
        return
    yield _value(state)
    yield _who(state, [one for one in entries if name in one.changes])
    if found.left_alone:
        yield f"nothing sets it on this mount: {found.left_alone}"
    elif mount:
        yield from _kept(mount, state, found.expected.get(name))
    if mount:
        yield _tried(state, entries)


def _value(state: KnobState) -> str:
    knob, value = state.knob, f"{state.value} {state.knob.unit}"
    if knob.stock is None:
        return f"it is {value}; the kernel's default follows the memory size, or is not known"
    if state.value == knob.stock:
        return f"it is {value}, the kernel's default"
    return f"it is {value}; the kernel's default is {knob.stock}"


def _who(state: KnobState, changes: Sequence[Entry]) -> str:
    """Say who set the value; ``changes``: the entries that changed the knob, the latest last."""
    name = state.knob.name
    if not changes:
        if state.set_by == "fusetune":
            return "fusetune set it; when and why is no longer on record"
        if state.value == state.knob.stock:
            return "no change of it is on record"
        return "fusetune did not set it: that was the server's reply to INIT, or somebody by hand"
    last = changes[-1]
    old, new = last.changes[name]
    if new != state.value:
        return f"{_when(last)} set it to {new}; somebody else, or a new mount, changed it since"
    said = f"{_when(last)} changed it from {old}"
    if last.gain is not None and last.ci95:
        low, high = last.ci95
        said += (
            f"; with all that was changed then, {' and '.join(last.workloads)} had "
            f"{last.gain:.2f} [{low:.2f}, {high:.2f}] times the speed before"
        )
    return said


def _when(entry: Entry) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.time))
    return f"'fusetune {entry.command}'{f' by {entry.user}' if entry.user else ''} on {day}"


def _kept(mount: Mount, state: KnobState, expected: Expected | None) -> Iterator[str]:
    """Say what keeps the value for later mounts, and how to have another one."""
    path = shell_word(mount.path)
    if expected is None:
        if state.value != state.knob.stock:
            yield f"nothing keeps it for the next mount; 'fusetune save {path}' does"
        return
    if expected.refused:
        yield f"{expected.said_by} asks for {expected.value}, which is refused: {expected.refused}"
    elif expected.value != state.value:
        yield (
            f"{expected.said_by} asks for {expected.value}; 'fusetune apply {path}' sets that again"
        )
    elif expected.shared:
        yield (
            f"it was measured or saved for {printable(expected.shared.saved.path)}, a like volume "
            f"({expected.origin}); 'fusetune auto {path}' measures this one"
        )
    elif expected.origin.line is None:
        yield f"it is saved for the next mount; 'fusetune forget {path}' ends that"
    else:
        yield f"{expected.origin} asks for it; change that line for another value"


def _tried(state: KnobState, entries: Sequence[Entry]) -> str:
    """Say what the latest run that tried other values found."""
    name = state.knob.name
    for entry in reversed(entries):
        for reason in entry.reasons:
            if entry.workloads and reason.startswith(f"{name}: "):
                found = reason.removeprefix(f"{name}: ")
                return f"{_when(entry)} measured {' and '.join(entry.workloads)}: {found}"
    if name in FOLLOWERS:
        one = FOLLOWERS[name]
        return f"'fusetune auto' makes it {one.numerator}/{one.denominator} of {one.leader}"
    if name in SEARCHED:
        return "no run on record tried other values; 'fusetune auto' does"
    return "'fusetune auto' does not try other values of it"
