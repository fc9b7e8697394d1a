# SPDX-License-Identifier: GPL-2.0-or-later
"""What an earlier run of ``auto`` saved for the same source, server and kernel."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fusetune.bench.workloads import Workload
from fusetune.desired.results import Conditions, Run, Saved, saved_under
from fusetune.desired.volume import kernel_series
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.recipes.load import load_recipes
from fusetune.recipes.match import recipe_of
from fusetune.recipes.served import Served, served, version_of
from fusetune.tuner.costs import Limits
from fusetune.tuner.curves import curves
from fusetune.tuner.grid import Setting
from fusetune.tuner.search import Search
from fusetune.tuner.space import Dimension
from fusetune.tuner.warm import Earlier


@dataclass(frozen=True)
class WarmStart:
    """The searched knobs that an earlier run chose and this one began at, and when it ended.

    ``time``: seconds since the epoch; ``holds``: whether what it measured is still so.
    """

    setting: dict[str, int]
    time: float
    holds: bool


class TunedBefore:
    """The conditions of a run, and what an earlier one saved under them, None if nothing.

    ``cold``: look for none.
    """

    def __init__(
        self, host: Host, mount: Mount, workloads: Sequence[Workload], *, cold: bool
    ) -> None:
        self._workloads = workloads
        self._conditions = conditions = _conditions(host, mount, workloads)
        self._saved: Saved | None = None
        self._setting: dict[str, int] = {}
        self._start: dict[str, int] = {}
        if conditions and not cold:
            self._saved = saved_under(host, mount, conditions)

    def search(
        self, dimensions: Sequence[Dimension], start: Setting, seed: int, limits: Limits
    ) -> Search:
        """Return a search from ``start`` on, which begins with the earlier run if there is one."""
        names, weights = zip(*((one.name, one.weight) for one in self._workloads), strict=True)
        self._start = dict(start)
        earlier = None
        if self._saved and self._saved.run:
            values = self._saved.values
            self._setting = {one.name: values.get(one.name, one.stock) for one in dimensions}
            earlier = Earlier(self._setting, self._saved.run.blocks)
        return Search(dimensions, start, names, seed, weights, limits, earlier)

    def begun(self, search: Search) -> WarmStart | None:
        """Return how ``search`` began, None if it found no setting of an earlier run."""
        if not self._saved or search.warm is None:
            return None
        return WarmStart(self._setting, self._saved.time, search.warm)

    def run(self, search: Search) -> Run | None:
        """Return what ``search`` measured, None if the server is not known."""
        if not self._conditions:
            return None
        weights = {one.name: float(one.weight) for one in self._workloads}
        chosen = search.choice().setting
        run = Run(self._conditions, search.blocks, self._start, chosen, weights)
        return replace(run, curves=curves(run))


def _conditions(host: Host, mount: Mount, workloads: Sequence[Workload]) -> Conditions | None:
    """Return what must be alike for one run to begin where another ended; None: not known."""
    process = served(host, mount)
    if not process.program:
        return None
    return Conditions(
        process.program,
        _version(host, mount, process.program, process),
        kernel_series(host),
        mount.owner_uid,
        {one.name: one.unit for one in workloads},
    )


def _version(host: Host, mount: Mount, program: str, process: Served) -> str | None:
    """Return the version of the server's package, as far as a recipe or its name says which."""
    packages = [program.rpartition("/")[2]]
    with suppress(FusetuneError):  # a wrong recipe is `advise`'s to report
        if found := recipe_of(load_recipes(host), mount, program, process.library).found:
            facts = found.recipe.server
            packages = [*([facts.package] if facts.package else []), *facts.program, *packages]
    return version_of(host, program, packages)
