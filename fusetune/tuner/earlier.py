# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of an earlier run of ``auto`` for the same source, server and kernel."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fusetune.bench.workloads import Workload
from fusetune.desired.curve import BeforeAfter
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
    """The values that an earlier run chose, from which this one started, and when it ended.

    ``time``: seconds since the epoch; ``holds``: whether its measurements still hold.
    """

    setting: dict[str, int]
    time: float
    holds: bool


class TunedBefore:
    """The conditions of a run, and the earlier run saved under them, None if there is none.

    ``cold``: do not look for one.
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
        """Return a search from ``start``, which uses the earlier run if there is one."""
        names, weights = zip(*((one.name, one.weight) for one in self._workloads), strict=True)
        self._start = dict(start)
        earlier = None
        if self._saved and self._saved.run:
            values = self._saved.values
            self._setting = {one.name: values.get(one.name, one.stock) for one in dimensions}
            earlier = Earlier(self._setting, self._saved.run.blocks)
        return Search(dimensions, start, names, seed, weights, limits, earlier)

    def begun(self, search: Search) -> WarmStart | None:
        """Return how ``search`` started, None without an earlier run's setting."""
        if not self._saved or search.warm is None:
            return None
        return WarmStart(self._setting, self._saved.time, search.warm)

    def run(self, search: Search) -> Run | None:
        """Return the measurements of ``search``, None if the server is unknown."""
        if not self._conditions:
            return None
        weights = {one.name: float(one.weight) for one in self._workloads}
        choice = search.choice()
        run = Run(self._conditions, search.blocks, self._start, choice.setting, weights)
        proof = [BeforeAfter(name, *figures) for name, figures in choice.per_workload.items()]
        return replace(run, curves=curves(run), proof=proof)


def _conditions(host: Host, mount: Mount, workloads: Sequence[Workload]) -> Conditions | None:
    """Return what two runs must have in common for a warm start; None if unknown."""
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
    """Return the version of the server's package, if the recipe or the name tells the package."""
    packages = [program.rpartition("/")[2]]
    with suppress(FusetuneError):  # `advise` reports invalid recipes
        if found := recipe_of(load_recipes(host), mount, program, process.library).found:
            facts = found.recipe.server
            packages = [*([facts.package] if facts.package else []), *facts.program, *packages]
    return version_of(host, program, packages)
