# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether mounts have their desired values, and if not, who changed them."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusetune.desired.inspect import Check, inspect
from fusetune.desired.resolve import Resolver
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.text import printable


@dataclass(frozen=True)
class Verified:
    """A mount's checks; ``left_alone``: why there are none, ``problem``: why some are missing."""

    mount: Mount
    checks: Sequence[Check] = ()
    left_alone: str | None = None
    problem: str | None = None


def verify(host: Host, resolver: Resolver, mounts: Sequence[Mount]) -> list[Verified]:
    """Compare each mount's values with the desired ones; changes nothing."""
    return [_verify(host, resolver, mount) for mount in mounts]


def _verify(host: Host, resolver: Resolver, mount: Mount) -> Verified:
    found = inspect(host, mount, resolver)
    if found.problem:
        return Verified(mount, problem=f"{printable(mount.path)}: {found.problem}")
    return Verified(mount, found.checks, found.left_alone, found.journal_problem)
