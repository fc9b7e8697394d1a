# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of a mount's knobs: values, and who set them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fusetune.changes.journal import Journal
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME, Absent, Knob, knobs_of
from fusetune.mounts.mount import Mount


@dataclass(frozen=True)
class KnobState:
    """The state of a knob: ``value`` in its unit, or None with the reason in ``absent``.

    ``set_by``: "stock" if it has the kernel's default, "fusetune" if it has the last value that
    fusetune wrote, "other" for anything else; None without a value or if unknown.
    """

    knob: Knob
    value: int | None
    set_by: str | None
    absent: str | None


def values_now(host: Host, mount: Mount | None) -> dict[str, int]:
    """Return the knobs of the mount (of the host, for None) that can be read, by name."""
    now = {}
    for knob in knobs_of(host, mount):
        with suppress(Absent, FusetuneError):
            now[knob.name] = knob.read(host, mount)
    return now


class ValuesWhenAsked(Mapping[str, int]):
    """Like `values_now` for a mount, but each value is read on first use."""

    def __init__(self, host: Host, mount: Mount) -> None:
        self._host, self._mount = host, mount
        self._read: dict[str, int | None] = {}

    def __getitem__(self, name: str) -> int:
        """Return a value. Raises KeyError if it cannot be read."""
        if name not in self._read:
            self._read[name] = None
            with suppress(Absent, FusetuneError):
                self._read[name] = LIVE_BY_NAME[name].read(self._host, self._mount)
        value = self._read[name]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in LIVE_BY_NAME if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def not_stock(knobs: Sequence[Knob], values: Mapping[str, int]) -> dict[str, int]:
    """Return those among ``values`` that differ from the kernel's default.

    ``knobs``: those of the mount, since a mount may have defaults of its own.
    """
    return {
        knob.name: values[knob.name]
        for knob in knobs
        if knob.stock is not None and values.get(knob.name, knob.stock) != knob.stock
    }


def worth_keeping(
    knobs: Sequence[Knob], values: Mapping[str, int], originals: Mapping[str, int]
) -> dict[str, int]:
    """Return those among ``values`` that later mounts would not have by themselves.

    That is, those that differ from the kernel's default, or for which the server asked for another
    value. ``originals``: the values before fusetune's first change.
    """
    found = not_stock(knobs, values) | not_stock(knobs, originals)
    return {name: value for name, value in values.items() if name in found}


def is_tuned(host: Host, mount: Mount, values: Mapping[str, int]) -> bool:
    """Whether any among the mount's ``values`` differs from the kernel's default."""
    return bool(not_stock(knobs_of(host, mount), values))


def knob_states(host: Host, mount: Mount | None, journal: Journal | None) -> list[KnobState]:
    """Return the state of every knob of the mount, or of the host for None.

    ``journal``: what fusetune wrote; None if unknown.
    """
    return [_state(host, mount, journal, knob) for knob in knobs_of(host, mount)]


def _state(host: Host, mount: Mount | None, journal: Journal | None, knob: Knob) -> KnobState:
    try:
        value = knob.read(host, mount)
    except (Absent, FusetuneError) as why:
        return KnobState(knob, None, None, str(why))
    if journal is None:
        return KnobState(knob, value, None, None)
    if journal.wrote(knob.name, value):
        set_by = "fusetune"
    elif value == knob.stock or knob.stock is None:
        set_by = "stock"
    else:
        set_by = "other"
    return KnobState(knob, value, set_by, None)
