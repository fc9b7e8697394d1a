# SPDX-License-Identifier: GPL-2.0-or-later
"""Sets what each mount should have."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fusetune.changes.apply import Change, drop_if_undone, make, plan
from fusetune.changes.journal import KEEPING, Journal
from fusetune.changes.lock import Lock, clear_after_crash
from fusetune.changes.overrides import note_overrides, overrides
from fusetune.changes.policy import (
    dirty_share,
    excluded_reason,
    more_dirty_memory,
    owners_named,
    refusal,
)
from fusetune.changes.state import values_now
from fusetune.desired.config import load
from fusetune.desired.host_limits import Needs, of_mount
from fusetune.desired.resolve import Expected
from fusetune.desired.results import saved_for, saved_path
from fusetune.desired.sections import Config, Layer, Origin, Section, ranked
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.knobs import LIVE, LIVE_BY_NAME, Knob, out_of_range
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.text import printable


@dataclass(frozen=True)
class Kept:
    """What setting the expected values came to.

    ``changes`` as made; ``left``: values now that are somebody else's, by knob, told for the first
    time; ``refused``: why policy forbids some; ``expected``: what they should be, by knob.
    """

    changes: list[Change] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    expected: Mapping[str, Expected] = field(default_factory=dict, compare=False)


class Keeper:
    """Knows what every mount should have under one configuration, and sets it."""

    def __init__(self, host: Host, config: Config) -> None:
        self.host, self.config = host, config
        self.owners = owners_named(config.settings.allow_users)
        self._servers = Daemons(host)
        self._seen = False
        self._shares: dict[tuple[str, int | None], int] = {}

    def left_alone_reason(self, mount: Mount) -> str | None:
        """Return why nothing is to be set on ``mount``, None if it is not left alone."""
        return self._left_alone_reason(mount, list(self.config.matching(mount, self._servers)))

    def _left_alone_reason(self, mount: Mount, sections: list[Section]) -> str | None:
        if why := excluded_reason(mount, self.config.settings.exclude):
            return why
        for section in ranked(sections):
            if section.leave_alone is not None:
                origin = section.origins["leave_alone"]
                return f"{origin} says leave_alone" if section.leave_alone else None
        return None

    def look(self, mount: Mount) -> tuple[str | None, dict[str, Expected]]:
        """Return why ``mount`` is left alone, or None and what it should have, by knob.

        Raises FusetuneError where the saved result cannot be used.
        """
        sections = list(self.config.matching(mount, self._servers))
        if why := self._left_alone_reason(mount, sections):
            return why, {}
        if saved := saved_for(self.host, mount):
            origin = Origin(saved_path(self.host, mount))
            origins = dict.fromkeys(saved.values, origin)
            sections.append(Section(Layer.SAVED, origin, {}, saved.values, origins))
        found: dict[str, Expected] = {}
        for section in ranked(sections):
            for name in section.values.keys() - found.keys():
                value = section.values[name]
                refused = self.refusal(mount, name, value)
                found[name] = Expected(value, section.origins[name], refused)
        return None, {knob.name: found[knob.name] for knob in LIVE if knob.name in found}

    def expected(self, mount: Mount) -> dict[str, Expected]:
        """Return the second of what `look` does."""
        return self.look(mount)[1]

    def refusal(
        self, mount: Mount, name: str, value: int, allowed_owners: Collection[int] = ()
    ) -> str | None:
        """Return why ``mount`` must not get ``value`` under this configuration, None if it may.

        ``allowed_owners``: uids whose mounts may get more dirty memory, besides the configured.
        """
        knob = LIVE_BY_NAME[name]
        if why := out_of_range(self.host, mount, knob, value):
            return why
        room = self.room(mount) if more_dirty_memory(knob, value) else None
        return refusal(mount, knob, value, {*self.owners, *allowed_owners}, room)

    def caveats(self, mount: Mount, values: Mapping[str, int]) -> Iterator[str]:
        """Yield why later mounts would not get some of ``values`` although they are saved."""
        why, wanted = self.look(mount)
        if why:
            yield f"{printable(mount.path)} is left alone: {why}"
        for name, expected in wanted.items():
            if name in values and expected.value != values[name]:
                yield f"{expected.origin} sets {name}={expected.value}, which counts more"
            elif name in values and expected.refused:
                yield expected.refused

    def needs(self, mount: Mount) -> Needs:
        """Return what ``mount`` needs of the host's limits when it is mounted again."""
        return of_mount(self.host, self.config, mount, self._servers)

    def room(self, mount: Mount) -> int:
        """Return how many percent of the host's dirty limit are left for ``mount``.

        Each mount is looked at once, and after it was set here; `forget_sum` forgets.
        """
        if not self._seen:
            self._seen = True
            for other in discover(self.host):
                self._note(other)
        others = sum(self._shares.values()) - self._shares.get(_identity(mount), 0)
        return self.config.settings.max_dirty_percent - others

    def _note(self, mount: Mount) -> None:
        self._shares[_identity(mount)] = dirty_share(values_now(self.host, mount))

    def gone(self, mount: Mount) -> None:
        """Take ``mount`` out of the sum."""
        self._shares.pop(_identity(mount), None)

    def forget_sum(self) -> None:
        """Forget what other mounts may keep dirty, for values may have been set elsewhere."""
        self._shares.clear()
        self._seen = False

    def forget_servers(self) -> None:
        """Forget which programs serve which mounts, for there are new ones."""
        self._servers.look_again()

    def keep(
        self,
        mount: Mount,
        *,
        respect: bool = True,
        since_init: bool = False,
        dry_run: bool = False,
    ) -> Kept:
        """Set what ``mount`` should have and has not.

        ``respect``: leave values that somebody else set since they were ours. ``since_init``: it
        was set before its server answered INIT, so what differs now was overwritten by the answer,
        but for values known to be somebody else's. Raises `Busy` while another fusetune is at work
        on it, FusetuneError where journal or kernel prevents it; nothing is then half-changed.
        """
        expected = self.expected(mount)
        refused = [one.refused for one in expected.values() if one.refused]
        wanted = {name: one.value for name, one in expected.items() if not one.refused}
        if dry_run:
            return Kept(self._plan(mount, wanted), {}, refused, expected)
        if not self._plan(mount, wanted):
            clear_after_crash(self.host, mount)
            return Kept([], {}, refused, expected)
        with Lock(self.host, mount) as lock:
            journal = Journal.to_change(self.host, mount)
            known = overrides(self.host, mount)
            theirs: dict[str, int] = {}
            if respect and not lock.left_behind:
                theirs = self._theirs(mount, journal, wanted, known)
            if since_init:
                theirs = {name: value for name, value in theirs.items() if name in known}
            changes = self._plan(mount, {n: v for n, v in wanted.items() if n not in theirs})
            make(self.host, journal, changes, KEEPING)
            drop_if_undone(self.host, journal, mount)
            if theirs != known:
                note_overrides(self.host, mount, theirs)
        self._note(mount)
        new = {name: v for name, v in theirs.items() if known.get(name) != v}
        return Kept(changes, new, refused, expected)

    def _plan(self, mount: Mount, values: Mapping[str, int]) -> list[Change]:
        """Return what differs; a knob that this kernel or mount lacks cannot."""
        changes = []
        for name, value in values.items():
            with suppress(FusetuneError):
                changes += plan(self.host, mount, {LIVE_BY_NAME[name]: value})
        return changes

    def _theirs(
        self,
        mount: Mount,
        journal: Journal,
        wanted: Mapping[str, int],
        known: Mapping[str, int],
    ) -> dict[str, int]:
        """Return the values that are not ours any more: set by hand, or on explicit request.

        ``known``: those that were noted as such before.
        """
        theirs = {}
        for change in self._plan(mount, wanted):
            name, value = change.knob.name, change.old
            last = journal.last(name)
            if not (last.why == KEEPING and last.new == value if last else name not in known):
                theirs[name] = value
        return theirs


def bounds_of_set(
    host: Host, mount: Mount, values: Mapping[Knob, int], *, force: bool
) -> tuple[frozenset[int], int | None]:
    """Return whose mounts may get ``values`` by `set`, and how much dirty memory this one may have.

    That is in percent of the host's limit, at least what it has now; None: as much as it likes, by
    ``force`` or because the values give it no more. Raises `ConfigError` where that matters.
    """
    more = any(more_dirty_memory(knob, value) for knob, value in values.items())
    if not more or (force and not mount.owner_uid):
        return frozenset(), None
    keeper = Keeper(host, load(host))
    if force:
        return keeper.owners, None
    return keeper.owners, max(keeper.room(mount), dirty_share(values_now(host, mount)))


def _identity(mount: Mount) -> tuple[str, int | None]:
    return mount.device, mount.instance


def keep_all(
    keeper: Keeper,
    mounts: Sequence[Mount],
    *,
    respect: bool = False,
    dry_run: bool = False,
    tell: Callable[[Mount, Kept], None] = lambda mount, kept: None,
) -> list[Change]:
    """Set what each mount should have; raise FusetuneError for the first failure, after all."""
    changes: list[Change] = []
    failure: FusetuneError | None = None
    for mount in mounts:
        try:
            kept = keeper.keep(mount, respect=respect, dry_run=dry_run)
        except FusetuneError as error:
            failure = failure or error
            continue
        changes += kept.changes
        tell(mount, kept)
    if failure:
        raise failure
    return changes
