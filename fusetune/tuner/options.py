# SPDX-License-Identifier: GPL-2.0-or-later
"""``auto --try-options``: prove on shadow mounts which options of a server are better.

The live mount is not touched. Each set of options has its own shadow mount, and the search measures
them in turn, with the same live knobs on each.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from fusetune.bench.intervals import Interval
from fusetune.bench.latency import Latencies
from fusetune.bench.reading import Reading
from fusetune.bench.spending import NOTHING, Budget
from fusetune.bench.usage import Usages
from fusetune.bench.worker import Interruption
from fusetune.bench.workloads import Workload
from fusetune.changes.lock import Lock
from fusetune.changes.state import values_now
from fusetune.desired.resolve import Resolver
from fusetune.errors import FusetuneError, UsageError
from fusetune.host import Host
from fusetune.intercept.means import means_of
from fusetune.mounts.mount import Mount
from fusetune.recipes.advice import Advice, advice_of, examine
from fusetune.recipes.examined import Examined
from fusetune.recipes.load import Loaded, why_not
from fusetune.recipes.plan import Plan, plan
from fusetune.recipes.served import is_still
from fusetune.shadow.conditions import Conditions, conditions_of
from fusetune.shadow.shadows import Shadows
from fusetune.shadow.words import with_point
from fusetune.text import printable, shell_word
from fusetune.tuner.auto import Progress
from fusetune.tuner.candidates import Candidates, Options
from fusetune.tuner.costs import UNLIMITED, Limits
from fusetune.tuner.ending import Ending
from fusetune.tuner.guards import Guarded, guarding
from fusetune.tuner.noted import note_run
from fusetune.tuner.option_search import OptionSearch, OptionTrial
from fusetune.tuner.search import Choice
from fusetune.tuner.space import largest, searched_on
from fusetune.tuner.trials import Trials, refuse_second


@dataclass(frozen=True)
class OptionsOutcome:
    """The result; ``before`` and ``after``: live knobs by name, in each knob's unit.

    ``gains``: for each option of the advice, the speed with it divided by that without it, all
    else equal; missing if the budget did not suffice. ``start``: the initial dimensions of the
    search; ``latencies``, ``usages``: by setting of these. ``ended_by``: see `Ending`.
    """

    mount: Mount
    workloads: Sequence[Workload]
    before: dict[str, int]
    after: dict[str, int]
    choice: Choice
    advice: Advice
    gains: Mapping[str, Interval]
    trials: Sequence[OptionTrial] = ()
    seconds: float = 0.0
    bytes_written: int = 0
    evaluations: int = 0
    reasons: Sequence[str] = ()
    reading: Reading | None = None
    bytes_read: int = 0
    requests: int = 0
    guarded: Sequence[Guarded] = ()
    start: Mapping[str, int] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)
    usages: Usages = field(default_factory=Usages)
    ended_by: str = NOTHING


def prove_options(
    resolver: Resolver,
    mount: Mount,
    recipes: Sequence[Loaded],
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    allowed_owners: Collection[int] = (),
    unsafe: Mapping[str, str | None],
    unguarded: Collection[str] = (),
    limits: Limits = UNLIMITED,
    size: int | None = None,
    reading: Reading | None = None,
    seed: int = 0,
    progress: Progress = lambda share, words: None,
) -> OptionsOutcome:
    """Prove on shadow mounts which options and live knobs are better than those of ``mount``.

    ``unsafe``: unsafe options to try as well, with a value or None for the recipe's; ``unguarded``:
    the guards to leave out; ``limits``: on the cost of a choice. ``reading``: the files to read,
    None for scratch files. Raises `Unwritable` without it if a second instance of the server must
    be read-only. Afterwards this process is in its own mount namespace. Raises FusetuneError if no
    second instance is possible or measuring fails, `Interrupted` on a signal; no shadow mount
    remains.
    """
    host = resolver.host
    resolver.check_not_left_alone(mount)
    seen, found = _planned(host, mount, recipes, workloads, unsafe)
    refuse_second(seen, reading)
    candidates, reasons = _candidates(seen, found)
    before = values_now(host, mount)
    knobs, refused = searched_on(resolver, mount, before, workloads, allowed_owners)
    if not candidates.changes:
        return _nothing(mount, workloads, before, seen, reasons)
    if reading:
        reading.place, reading.budget = mount.path, budget
        guarded = bool(guarding(workloads, unguarded))
        reading.expect(largest(knobs, "read_ahead_kb"), guarded=guarded)
    with (
        Lock(host, mount),
        Interruption() as interruption,
        _trials(host, seen, workloads, budget, interruption, size, reading) as trials,
    ):
        candidates, reasons = _working(trials, candidates, before, reasons)
        if not candidates.changes:
            return _nothing(mount, workloads, before, seen, reasons)
        how = (unguarded, seed, progress, limits)
        run = OptionSearch(trials, candidates, knobs, before, workloads, *how)
        run.explore()
        gains = run.shares()
    reasons += [*refused, *(reading.why if reading else [])]
    outcome = _proven(seen, workloads, trials, run, gains, reasons, reading)
    note_run(host, mount, "auto --try-options", workloads, outcome.choice, outcome.reasons, {})
    return outcome


def _working(
    trials: Trials, candidates: Candidates, before: Mapping[str, int], reasons: list[str]
) -> tuple[Candidates, list[str]]:
    """Return the candidates that can be mounted alone, and ``reasons`` with those that cannot."""
    trials.measure(candidates, frozenset(), before)  # shows the cost of an evaluation
    failed = trials.try_alone(candidates)
    why = [f"{name}: not tried: {error}" for name, error in failed.items()]
    return candidates.without(failed), [*reasons, *why]


def _candidates(seen: Examined, found: Plan) -> tuple[Candidates, list[str]]:
    """Return the changes that can be tried, and why others cannot."""
    usable = [one for one in found.changes if seen.can_say(one.option)]
    reasons = [
        f"{one.option}: not tried, because the command line cannot set it"
        for one in found.changes
        if one not in usable
    ]
    return Candidates.of(seen.recipe, usable), reasons


def _proven(
    seen: Examined,
    workloads: Sequence[Workload],
    trials: Trials,
    run: OptionSearch,
    gains: Mapping[str, Interval],
    reasons: Sequence[str],
    reading: Reading | None,
) -> OptionsOutcome:
    """Return the outcome of a search that has ended."""
    choice = run.search.choice()
    options, after = run.options(choice.setting), run.knobs(choice.setting)
    words = run.setting_words
    of_budget = Ending(run.ended_by, trials.budget, trials.evaluations).reasons(run.search, words)
    of_costs = [
        f"{run.change_words(one)}: refused, because {why}" for one, why in run.search.refused
    ]
    return OptionsOutcome(
        seen.mount,
        workloads,
        run.before,
        after,
        choice,
        advice_of(seen, run.candidates.plan(options)),
        gains,
        list(run.trials()),
        trials.seconds,
        trials.bytes_written,
        trials.evaluations,
        [
            *reasons,
            *of_budget,
            *of_costs,
            *run.reasons(),
            *run.guards.reasons(words, run.search.seems),
            *_afterwards(seen.mount, run.before, after, options),
        ],
        reading,
        trials.bytes_read,
        trials.requests,
        guarded=[replace(one, setting=run.knobs(one.setting)) for one in run.guards.measured],
        start=run.start,
        latencies=run.latencies,
        ended_by=run.ended_by,
        usages=run.usages,
    )


def _nothing(
    mount: Mount,
    workloads: Sequence[Workload],
    values: dict[str, int],
    seen: Examined,
    reasons: Sequence[str],
) -> OptionsOutcome:
    """Return the outcome if there is no option to try."""
    choice = Choice({}, False, Interval(1.0, 1.0, 1.0), {}, ())
    advice = advice_of(seen, Plan())
    why = reasons or [f"recipe {seen.recipe.name} proposes no option for these workloads"]
    return OptionsOutcome(mount, workloads, values, values, choice, advice, {}, reasons=why)


@contextmanager
def _trials(
    host: Host,
    seen: Examined,
    workloads: Sequence[Workload],
    budget: Budget,
    interruption: Interruption,
    size: int | None,
    reading: Reading | None,
) -> Iterator[Trials]:
    """Yield the means to measure on shadow mounts, which are all unmounted afterwards."""
    process = seen.process
    assert process.pid is not None  # noqa: S101 - as `_planned` says
    # No window may ask for a password instead of a terminal.
    environment = {**process.environment, "SSH_ASKPASS_REQUIRE": "never"}
    with closing(conditions_of(host, process.pid)) as conditions:
        _check_server(host, seen, conditions)
        words = with_point(host, seen.mount, process.words, conditions.directory)
        prepared = seen.with_words(words, environment)
        with (
            Shadows(host, conditions) as shadows,
            Trials(
                *(host, prepared, shadows, workloads, budget, interruption, size, reading)
            ) as trials,
        ):
            yield trials


def _check_server(host: Host, seen: Examined, conditions: Conditions) -> None:
    """Raise FusetuneError unless the server still is what was examined, and its owner's.

    Its words and variables, perhaps a user's, must not be used with the rights of another process.
    """
    mount = seen.mount
    if not is_still(host, seen.process):
        raise FusetuneError(f"the server of {printable(mount.path)} has changed; try again")
    if not mount.owner_known:
        raise FusetuneError(mount.owner_unknown)
    if mount.owner_uid not in (0, conditions.uid):
        raise FusetuneError(
            f"{printable(mount.path)} belongs to uid {mount.owner_uid}, but its server runs as uid "
            f"{conditions.uid}"
        )


def _planned(
    host: Host,
    mount: Mount,
    recipes: Sequence[Loaded],
    workloads: Sequence[Workload],
    unsafe: Mapping[str, str | None],
) -> tuple[Examined, Plan]:
    """Return what is known about the server, and what to change.

    Raises FusetuneError if no second instance may be started, UsageError for an unsafe option that
    cannot be tried.
    """
    path = printable(mount.path)
    # If the mount already has the module's options, a second instance has them as well.
    means = None if mount.is_tuned_type else means_of(host)
    if means and not means.intercepts:
        means = None
    names = [workload.name for workload in workloads]
    seen = examine(host, mount, recipes, names, means=means)
    if isinstance(seen, Advice):
        raise FusetuneError(
            f"{path}: no recipe describes its server; 'fusetune advise {shell_word(mount.path)}' "
            "shows what limits it"
        )
    recipe = seen.recipe
    for name, value in unsafe.items():
        option = recipe.named(name)
        if option is None or option.class_ != "unsafe":
            raise UsageError(f"recipe {recipe.name} has no unsafe option {name!r}")
        if value is not None and (why := why_not(option, value)):
            raise UsageError(f"{name}: {why}")
        if value is None and not option.flag and option.propose is None:
            raise UsageError(f"{name} needs a value: --try-unsafe {name}=VALUE")
    if not seen.process.words or seen.process.pid is None:
        raise FusetuneError(
            f"{path}: the command line of its server cannot be read; run fusetune as root"
        )
    found = plan(recipe, seen.settings, replace(seen.here, unsafe=unsafe))
    for name in unsafe.keys() - {change.option for change in found.changes}:
        why = f"{path} has it already, or its server or library does not have the option"
        conflict = next((one for one in found.named if one.startswith(f"{name} is not")), why)
        raise UsageError(f"--try-unsafe {name}: {conflict}")
    return seen, found


def _afterwards(
    mount: Mount, before: Mapping[str, int], after: Mapping[str, int], options: Options
) -> list[str]:
    """Return what to do about the live knobs that were proven better, with these options."""
    changed = [f"{name}={value}" for name, value in after.items() if value != before.get(name)]
    if not changed:
        return []
    path, values = shell_word(mount.path), " ".join(changed)
    if options:
        said, when = f"proven together with {values}", " after the next mount"
    else:
        said, when = f"proven for {values} alone", ""
    return [f"{said}: run 'fusetune set {path} {values}'{when}, then 'fusetune save {path}'"]
