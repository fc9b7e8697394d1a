# SPDX-License-Identifier: GPL-2.0-or-later
"""Why each knob has its value, according to history, configuration and saved results."""

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
    """A knob and the sentences on it: its value, who set it, what keeps it, and what was tried."""

    state: KnobState
    sentences: Sequence[str]


def explain(mount: Mount | None, found: Inspected, history: History) -> list[Explained]:
    """Return what is known about each knob of a mount, or of the host if None."""
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
    knob = state.knob
    value = f"{state.value}" if knob.unit == "switch" else f"{state.value} {knob.unit}"
    if knob.stock is None:
        return (
            f"its value is {value}; the kernel's default depends on the memory size or is unknown"
        )
    if state.value == knob.stock:
        return f"its value is {value}, the kernel's default"
    return f"its value is {value}; the kernel's default is {knob.stock}"


def _who(state: KnobState, changes: Sequence[Entry]) -> str:
    """Return who set the value; ``changes``: the entries that changed the knob, latest last."""
    name = state.knob.name
    if not changes:
        if state.set_by == "fusetune":
            return "fusetune set it; the time and reason are no longer on record"
        if state.value == state.knob.stock:
            return "no change is on record"
        return "fusetune did not set it; the server's reply to INIT or somebody else did"
    last = changes[-1]
    old, new = last.changes[name]
    if new != state.value:
        return f"{_when(last)} set it to {new}; somebody else or a new mount has changed it since"
    said = f"{_when(last)} changed it from {old}"
    if last.gain is not None and last.ci95:
        low, high = last.ci95
        said += (
            f"; all changes of that run together gave {' and '.join(last.workloads)} "
            f"{last.gain:.2f} [{low:.2f}, {high:.2f}] times the speed before"
        )
    return said


def _when(entry: Entry) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.time))
    return f"'fusetune {entry.command}'{f' by {entry.user}' if entry.user else ''} on {day}"


def _kept(mount: Mount, state: KnobState, expected: Expected | None) -> Iterator[str]:
    """Yield what keeps the value for later mounts, and how to change it."""
    path = shell_word(mount.path)
    if expected is None:
        if state.value != state.knob.stock:
            yield f"it is not kept for the next mount; 'fusetune save {path}' keeps it"
        return
    if expected.refused:
        wanted = f"{expected.said_by} asks for {expected.value}"
        yield f"{wanted}, but policy refuses it: {expected.refused}"
    elif expected.value != state.value:
        yield (
            f"{expected.said_by} asks for {expected.value}; 'fusetune apply {path}' sets it again"
        )
    elif expected.shared:
        yield (
            f"it was measured or saved for {printable(expected.shared.saved.path)}, a similar "
            f"volume ({expected.origin}); 'fusetune auto {path}' measures this one"
        )
    elif expected.origin.line is None:
        yield f"it is saved for the next mount; 'fusetune forget {path}' removes it"
    else:
        yield f"{expected.origin} asks for it; to change it, edit that line"


def _tried(state: KnobState, entries: Sequence[Entry]) -> str:
    """Return what the latest run found that tried other values."""
    name = state.knob.name
    for entry in reversed(entries):
        for reason in entry.reasons:
            if entry.workloads and reason.startswith(f"{name}: "):
                found = reason.removeprefix(f"{name}: ")
                return f"{_when(entry)} measured {' and '.join(entry.workloads)}: {found}"
    if name in FOLLOWERS:
        one = FOLLOWERS[name]
        return f"'fusetune auto' sets it to {one.numerator}/{one.denominator} of {one.leader}"
    if name in SEARCHED:
        return "no run on record has tried other values; 'fusetune auto' would"
    return "'fusetune auto' does not try other values for it"
