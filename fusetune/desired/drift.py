# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether mounts have what they should have, and if not, who changed it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusetune.changes.journal import Journal, Record
from fusetune.changes.state import KnobState, knob_states
from fusetune.desired.resolve import Expected, Resolver
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.text import printable


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


@dataclass(frozen=True)
class Verified:
    """A mount's checks; ``left_alone``: why there are none, ``problem``: why some are missing."""

    mount: Mount
    checks: Sequence[Check] = ()
    left_alone: str | None = None
    problem: str | None = None


def verify(host: Host, resolver: Resolver, mounts: Sequence[Mount]) -> list[Verified]:
    """Compare what each mount has with what it should have; changes nothing."""
    return [_verify(host, resolver, mount) for mount in mounts]


def _verify(host: Host, resolver: Resolver, mount: Mount) -> Verified:
    problem = None
    try:
        journal = Journal(host, mount)
    except FusetuneError as error:
        journal, problem = None, str(error)
    try:
        left_alone, expected = resolver.resolve(mount)
    except FusetuneError as error:
        return Verified(mount, problem=f"{printable(mount.path)}: {error}")
    checks = [
        Check(state, expected[state.knob.name], journal.last(state.knob.name) if journal else None)
        for state in knob_states(host, mount, journal)
        if state.knob.name in expected
    ]
    return Verified(mount, checks, left_alone, problem)
