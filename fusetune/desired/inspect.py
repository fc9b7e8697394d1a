# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount's values compared with the desired ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusetune.changes.journal import Journal, Record
from fusetune.changes.state import KnobState, knob_states
from fusetune.desired.config import load
from fusetune.desired.resolve import Expected, Resolver
from fusetune.desired.results import Saved, saved_for
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount


@dataclass(frozen=True)
class Check:
    """A knob that should have a value: its state, that value, and our last write of it."""

    state: KnobState
    expected: Expected
    last: Record | None = None

    @property
    def differs(self) -> bool:
        """Whether its value differs from the desired one.

        Values that policy forbids, and knobs that this kernel or mount lacks, do not count.
        """
        return (
            self.expected.refused is None
            and self.state.value is not None
            and self.state.value != self.expected.value
        )


@dataclass
class Inspected:
    """The knobs of a mount, or of the host, and what they should be.

    ``left_alone``: why nothing is set on it. If something cannot be read, the error is among the
    problems: ``journal_problem`` for the undo journal, ``saved_problem`` for the saved result,
    ``problem`` for the desired values.
    """

    states: Sequence[KnobState] = ()
    journal: Journal | None = None
    saved: Saved | None = None
    expected: Mapping[str, Expected] = field(default_factory=dict)
    left_alone: str | None = None
    journal_problem: str | None = None
    saved_problem: str | None = None
    problem: str | None = None

    @property
    def problems(self) -> list[str]:
        """The errors of everything that cannot be read, without repetitions."""
        found = (self.journal_problem, self.saved_problem, self.problem)
        return list(dict.fromkeys(filter(None, found)))

    @property
    def checks(self) -> list[Check]:
        """The kept knobs, in the order of their table."""
        return [
            Check(
                state,
                self.expected[state.knob.name],
                self.journal.last(state.knob.name) if self.journal else None,
            )
            for state in self.states
            if state.knob.name in self.expected
        ]


def inspect(host: Host, mount: Mount | None, resolver: Resolver | None) -> Inspected:
    """Inspect a mount, or the host for None; changes nothing, and touches no path in the mount.

    ``resolver`` is None if the configuration cannot be read.
    """
    found = Inspected()
    try:
        found.journal = Journal(host, mount)
    except FusetuneError as error:
        found.journal_problem = str(error)
    found.states = knob_states(host, mount, found.journal)
    if mount is None:
        return found
    try:
        found.saved = saved_for(host, mount)
    except FusetuneError as error:
        found.saved_problem = str(error)
    if resolver:
        try:
            found.left_alone, found.expected = resolver.resolve(mount)
        except FusetuneError as error:
            found.problem = str(error)
    return found


def inspect_one(host: Host, mount: Mount | None) -> Inspected:
    """Inspect one mount, or the host for None; an invalid configuration is among the problems."""
    if mount is None:
        return inspect(host, None, None)
    try:
        resolver = Resolver(host, load(host))
    except FusetuneError as error:
        found = inspect(host, mount, None)
        found.problem = str(error)
        return found
    return inspect(host, mount, resolver)
