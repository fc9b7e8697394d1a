# SPDX-License-Identifier: GPL-2.0-or-later
"""``auto --live``: choose values from a mount's own traffic, then set and save them."""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fusetune.bench.spending import NOTHING
from fusetune.bench.worker import Interrupted, Interruption
from fusetune.changes.journal import LIVE_TRIAL
from fusetune.changes.lock import Lock
from fusetune.changes.state import values_now
from fusetune.desired.resolve import Resolver
from fusetune.mounts.mount import Mount
from fusetune.profile.waits import Waits
from fusetune.tuner.auto import Outcome, Progress, unchanged, words_of
from fusetune.tuner.live import WAITS, Found, Live
from fusetune.tuner.noted import changed, note_run
from fusetune.tuner.space import searched_on, with_followers
from fusetune.tuner.values import Values, journal_of_run


def auto_live(
    resolver: Resolver,
    mount: Mount,
    seconds: float,
    *,
    allowed_owners: Collection[int] = (),
    seed: int = 0,
    progress: Progress = lambda share, words: None,
) -> Outcome:
    """Search on the traffic of ``mount`` for up to ``seconds``; set and save proven values.

    Only the knobs of the mount are written. Raises FusetuneError if it cannot be observed,
    `Interrupted` on a signal; all values are then restored.
    """
    host = resolver.host
    resolver.check_not_left_alone(mount)
    with ExitStack() as contexts:
        contexts.enter_context(Lock(host, mount))
        interruption = contexts.enter_context(Interruption())
        journal = journal_of_run(host, mount)
        before = values_now(host, mount)
        waits = [*WAITS.values()]
        dimensions, reasons = searched_on(resolver, mount, before, waits, allowed_owners)
        if not dimensions:
            reasons.append("the mount has no live knob to change")
            outcome = Outcome(mount, waits, before, before, unchanged())
            return replace(outcome, reasons=reasons, source="live")
        start = {dimension.name: before[dimension.name] for dimension in dimensions}
        source = contexts.enter_context(Waits(host, mount, interruption.check))
        values = Values(host, mount, before, journal)

        def try_setting(setting: Mapping[str, int]) -> None:
            values.set(with_followers(setting, before), LIVE_TRIAL)

        how: Mapping[str, Any] = {"seed": seed, "check": interruption.check, "progress": progress}
        live = Live(dimensions, start, source, try_setting, seconds, **how)
        try:
            live.run()
        except Interrupted as error:
            raise Interrupted(f"{error}; {_so_far(live.found)}") from error
        finally:
            values.put_back()
        outcome = _outcome(values, live, reasons)
        if outcome.choice.changed:
            values.keep(outcome.after, outcome.choice.gain)
            outcome.reasons.extend(resolver.caveats(mount, outcome.after))
        done = changed(before, outcome.after)
        found = (outcome.workloads, outcome.choice, outcome.reasons)
        note_run(host, mount, "auto --live", *found, done)
        return outcome


def _outcome(values: Values, live: Live, reasons: list[str]) -> Outcome:
    """Return the outcome; ``reasons``: why knobs were left out."""
    found, choice, before = live.found, live.found.choice, values.before
    shares = found.shares.items()
    return Outcome(
        values.mount,
        [replace(WAITS[name], weight=share) for name, share in shares] or [*WAITS.values()],
        before,
        before | with_followers(choice.setting, before),
        choice,
        found.trials,
        live.seconds,
        evaluations=found.evaluations,
        reasons=[*reasons, *_reasons(found)],
        start=live.start,
        latencies=found.latencies,
        ended_by="seconds" if found.short else NOTHING,
        source="live",
    )


def _so_far(found: Found) -> str:
    if not found.proven:
        return "nothing was proven to be better so far"
    return f"the search found {words_of(found.proven)} to be better, but the proof was not complete"


def _reasons(found: Found) -> list[str]:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items())
    said = [f"programs waited for {shares}"] if shares else ["programs did not wait for this mount"]
    if found.idle:
        said.append(f"{found.idle} blocks had too little traffic and were ignored")
    return [*said, *found.reasons, *found.of_round]
