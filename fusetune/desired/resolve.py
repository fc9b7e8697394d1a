# SPDX-License-Identifier: GPL-2.0-or-later
"""The desired values of each mount: configuration and saved results, by precedence and policy."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fusetune.changes.policy import (
    dirty_share,
    excluded_reason,
    more_dirty_memory,
    owners_named,
    refusal,
)
from fusetune.changes.state import values_now
from fusetune.desired.config import load
from fusetune.desired.drivers import left_to_driver
from fusetune.desired.host_limits import Needs, of_mount
from fusetune.desired.results import Saved, saved_for, saved_path
from fusetune.desired.sections import Config, Layer, Section, path_matches, ranked
from fusetune.desired.sharing import Shared, SharedResults
from fusetune.desired.volume import server_version, volume_of
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.knobs import LIVE, LIVE_BY_NAME, Knob, out_of_range
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.text import printable
from fusetune.toml.file import Origin


@dataclass(frozen=True)
class Expected:
    """A desired value: ``value`` in the knob's unit, and ``origin``, the file that has it.

    ``refused``: why policy forbids it, None if it does not. ``shared``: the result of a similar
    volume that it comes from, None if it is this mount's own.
    """

    value: int
    origin: Origin
    refused: str | None = None
    shared: Shared | None = None

    @property
    def said_by(self) -> str:
        """The origin as text: a line of a file, or a result that another mount shares."""
        if self.shared is None:
            return str(self.origin)
        return f"shared by {printable(self.shared.saved.path)}: {self.origin}"


class Resolver:
    """Resolves the desired values of mounts under one configuration; writes nothing."""

    def __init__(self, host: Host, config: Config) -> None:
        self.host, self.config = host, config
        self._daemons = Daemons(host)
        self._results = SharedResults(host)
        self._summed = False
        self._shares: dict[tuple[str, int | None], int] = {}

    @property
    def owners(self) -> frozenset[int]:
        """The uids whose mounts may get more dirty memory; a name may become known only later."""
        return owners_named(self.config.settings.allow_users)

    def left_alone_reason(self, mount: Mount) -> str | None:
        """Return why nothing is to be set on ``mount``, None if it is not left alone."""
        return self._left_alone_reason(
            mount, list(self.config.matching(self.host, mount, self._daemons))
        )

    def check_not_left_alone(self, mount: Mount) -> None:
        """Raise FusetuneError if nothing is to be set on ``mount``."""
        if why := self.left_alone_reason(mount):
            raise FusetuneError(f"{printable(mount.path)} is left alone: {why}")

    def _left_alone_reason(self, mount: Mount, sections: list[Section]) -> str | None:
        if why := excluded_reason(mount, self.config.settings.exclude):
            return why
        for section in ranked(sections):
            if section.leave_alone is not None:
                origin = section.origins["leave_alone"]
                return f"{origin} sets leave_alone" if section.leave_alone else None
        return None

    def accepted(self, mount: Mount) -> tuple[str, ...]:
        """Return the server's options whose condition holds according to the configuration."""
        sections = ranked(list(self.config.matching(self.host, mount, self._daemons)))
        return next((one.accept for one in sections if one.accept is not None), ())

    def resolve(self, mount: Mount) -> tuple[str | None, dict[str, Expected]]:
        """Return why ``mount`` is left alone (None if it is not), and its desired values, by knob.

        Raises FusetuneError if the saved result cannot be used.
        """
        sections = list(self.config.matching(self.host, mount, self._daemons))
        if why := self._left_alone_reason(mount, sections):
            return why, {}
        shared = None
        if saved := saved_for(self.host, mount):
            sections.append(_saved_section(Layer.SAVED, saved_path(self.host, mount), saved))
        elif shared := self._shared(mount, sections):
            sections.append(_saved_section(Layer.SHARED, shared.file, shared.saved))
        found: dict[str, Expected] = {}
        for section in ranked(sections):
            whose = shared if section.layer == Layer.SHARED else None
            for name in section.values.keys() - found.keys():
                value = section.values[name]
                refused = self.refusal(mount, name, value)
                found[name] = Expected(value, section.origins[name], refused, whose)
        return None, {knob.name: found[knob.name] for knob in LIVE if knob.name in found}

    def _shared(self, mount: Mount, sections: list[Section]) -> Shared | None:
        """Return the result of a similar volume, if ``mount`` may use one.

        Values that an administrator chose for a mount are not mixed with those of another mount.
        """
        patterns = self.config.settings.share_results
        if not any(path_matches(pattern, mount.path) for pattern in patterns):
            return None
        if any(section.layer == Layer.ADMIN and section.values for section in sections):
            return None
        volume = volume_of(self.host, mount, sections, self._daemons)
        if not volume:
            return None
        return self._results.best(volume, partial(server_version, self.host, mount, self._daemons))

    def expected(self, mount: Mount) -> dict[str, Expected]:
        """Return the desired values of ``mount``, by knob; empty if left alone. See `resolve`."""
        return self.resolve(mount)[1]

    def refusal(
        self, mount: Mount, name: str, value: int, allowed_owners: Collection[int] = ()
    ) -> str | None:
        """Return why ``mount`` must not get ``value`` under this configuration, None if it may.

        ``allowed_owners``: further uids whose mounts may get more dirty memory.
        """
        knob = LIVE_BY_NAME[name]
        if why := left_to_driver(self.host, mount).get(name):
            return why
        if why := out_of_range(self.host, mount, knob, value):
            return why
        if not more_dirty_memory(knob, value):
            return None
        owners = {*self.owners, *allowed_owners} if mount.owner_uid else ()
        return refusal(mount, knob, value, owners, self.room(mount))

    def nothing_kept(self, mount: Mount) -> str | None:
        """Return why nothing is kept for ``mount``, None if something is."""
        why, expected = self.resolve(mount)
        if expected:
            return None
        why = why or "keep values with 'fusetune auto' or 'fusetune save'"
        return f"nothing is kept for {printable(mount.path)}: {why}"

    def caveats(self, mount: Mount, values: Mapping[str, int]) -> Iterator[str]:
        """Yield why later mounts would not get some of ``values`` even though they are saved."""
        why, wanted = self.resolve(mount)
        if why:
            yield f"{printable(mount.path)} is left alone: {why}"
        for name, expected in wanted.items():
            if name in values and expected.value != values[name]:
                yield f"{expected.origin} sets {name}={expected.value}, which takes precedence"
            elif name in values and expected.refused:
                yield expected.refused

    def needs(self, mount: Mount) -> Needs:
        """Return the host's limits that ``mount`` needs at its next mount."""
        return of_mount(self.host, self.config, mount, self._daemons)

    def room(self, mount: Mount) -> int:
        """Return the percentage of the host's dirty limit that other mounts leave to ``mount``.

        Every mount is read once; later changes need `recount` or `forget_sum`.
        """
        if not self._summed:
            self._summed = True
            for other in discover(self.host):
                self.recount(other)
        others = sum(self._shares.values()) - self._shares.get(_identity(mount), 0)
        return self.config.settings.max_dirty_percent - others

    def recount(self, mount: Mount) -> None:
        """Read again what ``mount`` may keep dirty after a change."""
        self._shares[_identity(mount)] = dirty_share(values_now(self.host, mount))

    def gone(self, mount: Mount) -> None:
        """Take ``mount`` out of the sum."""
        self._shares.pop(_identity(mount), None)

    def forget_sum(self) -> None:
        """Read all mounts again at the next `room`: others may have set values."""
        self._shares.clear()
        self._summed = False

    def forget_daemons(self) -> None:
        """Search again which programs serve which mounts: there are new ones."""
        self._daemons.forget()


def bounds_of_set(
    host: Host, mount: Mount, values: Mapping[Knob, int], *, force: bool
) -> tuple[frozenset[int], int | None]:
    """Return the uids whose mounts may get ``values`` by `set`, and the room for this mount.

    The room is how much it may keep dirty, in percent of the host's limit: at least the present
    amount. None: any amount, because of ``force`` or because ``values`` raise nothing. Raises
    `ConfigError` if the configuration matters and is invalid.
    """
    more = any(more_dirty_memory(knob, value) for knob, value in values.items())
    if not more or (force and not mount.owner_uid):
        return frozenset(), None
    resolver = Resolver(host, load(host))
    if force:
        return resolver.owners, None
    return resolver.owners, max(resolver.room(mount), dirty_share(values_now(host, mount)))


def _saved_section(layer: Layer, file: Path, saved: Saved) -> Section:
    origin = Origin(file)
    return Section(layer, origin, {}, saved.values, dict.fromkeys(saved.values, origin))


def _identity(mount: Mount) -> tuple[str, int | None]:
    return mount.device, mount.instance
