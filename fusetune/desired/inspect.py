# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount's values beside what they should be."""

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
        """Whether it has another value than it should.

        A value that policy forbids, or a knob that this kernel or mount lacks, does not differ.
        """
        return (
            self.expected.refused is None
            and self.state.value is not None
            and self.state.value != self.expected.value
        )


@dataclass
class Inspected:
    """The knobs of a mount, or of the host, and what they should be.

    ``left_alone``: why nothing is set on it. Where something cannot be read, its text is among
    the problems: ``journal_problem`` of the undo journal, ``saved_problem`` of the saved result,
    ``problem`` of what the mount should have.
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
        """Everything that cannot be read, each said once."""
        found = (self.journal_problem, self.saved_problem, self.problem)
        return list(dict.fromkeys(filter(None, found)))

    @property
    def checks(self) -> list[Check]:
        """The knobs that are to be kept, in the order of their table."""
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

    ``resolver`` is None where the configuration cannot be read.
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
    """Inspect one mount, or the host for None; a wrong configuration is among the problems."""
    if mount is None:
        return inspect(host, None, None)
    try:
        resolver = Resolver(host, load(host))
    except FusetuneError as error:
        found = inspect(host, mount, None)
        found.problem = str(error)
        return found
    return inspect(host, mount, resolver)
