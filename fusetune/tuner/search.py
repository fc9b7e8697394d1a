# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the next setting to measure, and in the end the setting that is proven better.

Pure: no I/O, no clock, no global random numbers; the same seed and figures give the same run.

The host drifts, so settings are measured in short blocks in random order, and only differences of
log figures within a block count. A run has two stages:

1. Exploration. A few far points of each dimension, alone and together with the dimensions they
   interact with, then blocks of the incumbent and the candidates that promise most by the mixed
   model of `estimate.BlockModel`. What is clearly worse or does not matter promises nothing and is
   not measured again. It ends when nothing promises more, or when the rest of the budget is needed.
2. Confirmation. Start, incumbent and stock in fresh blocks. Only these samples decide, by Student
   intervals whose error is shared out over every look ever taken at them: 1/2, 1/6, 1/12, ... of
   it, which sums to the whole however many looks there are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from fusetune.bench.intervals import NORMAL, Interval, ratio_interval, t_quantile
from fusetune.tuner.model import BlockModel, Point, expected_gain, identity_kernel, smooth_kernel
from fusetune.tuner.space import Dimension

__all__ = ["Choice", "Figures", "Interval", "Search", "Setting", "Trial"]
Setting = Mapping[str, int]  # dimension name -> value, every dimension named
Figures = Mapping[str, float]  # workload name -> figure; higher is better; > 0
ERROR = 0.03  # of all looks at a proof together: the intervals are 95 % ones and better
LEAST_GAIN = math.log(1.01)  # a smaller gain is not worth a change
INDIFFERENCE = 0.007  # log ratio below which two settings count as equal while exploring
PROMISE = 0.004  # expected log gain below which a candidate is not worth a sample
AHEAD = 8  # samples a candidate is imagined to get when its promise is weighed
CAUTION = 1.0  # standard deviations that are held against a setting's mean
DOUBT = 0.5  # standard deviations by which a change must beat the start's value
SWITCH_DOUBT = 2.0  # the same for a category: a switch that turns a protection off
EVIDENCE = 0.85  # probability of being better that a setting needs to be put to the proof
NO_EFFECT = 0.03  # a dimension whose values all lie within this of each other has no effect
BLOCK = 6  # settings in a block, the incumbent included
WALK_BLOCKS = 3  # in which safer values are held against the incumbent
WALKABLE = 0.03  # standard deviation beyond which those blocks would not tell equal from worse
MOST_EXPLORED = 160  # evaluations; the model's cost grows with their cube
FEWEST_PAIRS = 4  # before the first look at the proof
MOST_PAIRS = 100
SPARE_PAIRS = 3  # kept back for hiccups of the host
LOOK_GROWTH = 1.5  # pairs at a look over pairs at the look before
POWER = 2.0  # standard errors to spare when the pairs for a proof are reckoned
MOST_RESERVED = 0.4  # part of the whole budget that exploration leaves for the proof
_Steps = Generator[Point, dict[str, float], None]
_Blocks = list[dict[Point, dict[str, float]]]


@dataclass(frozen=True)
class Trial:
    """One setting and all its samples so far, in order."""

    setting: dict[str, int]
    samples: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Choice:
    """The best proven setting.

    `gain` is chosen/start, the geometric mean over the workloads, and `per_workload` holds before,
    after (geometric means) and their ratio, all from the confirming blocks only; 1 (1 to 1) and
    nothing where unchanged. `reasons` has one sentence a dimension, from the exploration.
    """

    setting: dict[str, int]
    changed: bool
    gain: Interval
    per_workload: dict[str, tuple[float, float, Interval]]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class _Proof:
    point: Point
    gain: Interval
    per_workload: dict[str, tuple[float, float, Interval]]


class Search:
    """Ask for a setting, measure every workload under it once, tell the figures, repeat.

    ValueError where a dimension, start value, workload or figure is missing or impossible.
    """

    def __init__(
        self,
        dimensions: Sequence[Dimension],
        start: Setting,
        workloads: Sequence[str],
        seed: int = 0,
    ) -> None:
        _check(dimensions, start, workloads)
        self._dimensions = tuple(dimensions)
        self._workloads = tuple(workloads)
        self._random = random.Random(seed)  # noqa: S311 (an order of measurement, not a secret)
        self._grids = [_grid(d, start[d.name]) for d in dimensions]
        self._start = tuple(g.index(start[d.name]) for d, g in self._dimension_grids())
        self._stock = tuple(g.index(d.stock) for d, g in self._dimension_grids())
        self._pairs = _interacting(dimensions)
        kernels = [_kernel(d, len(g)) for d, g in self._dimension_grids()]
        self._model = BlockModel(kernels, self._pairs, len(workloads))
        self._samples: dict[Point, list[dict[str, float]]] = {}
        self._blocks = 0
        self._evaluations = 0
        self._remaining = 0
        self._looks = 0
        self._incumbent = self._start
        self._rejected: set[Point] = set()
        self._proof: _Proof | None = None
        self._steps = self._run()
        self._pending: Point | None = None
        self._asked = False
        self._begun = False

    def _dimension_grids(self) -> Iterable[tuple[Dimension, tuple[int, ...]]]:
        return zip(self._dimensions, self._grids, strict=True)

    # The caller's side

    def ask(self, remaining: int) -> dict[str, int] | None:
        """Return the next setting to evaluate, or None where the search has finished.

        `remaining` is how many evaluations are still affordable, this one included; it may shrink
        or grow between calls. At 0 or less the answer is None, and a later call with more goes on.
        """
        if remaining <= 0:
            return None
        self._remaining = remaining
        if not self._begun:
            self._begun = True
            self._pending = next(self._steps, None)
        if self._pending is None:
            return None
        self._asked = True
        return self._setting(self._pending)

    def tell(self, figures: Figures) -> None:
        """Take the figures of the setting asked for last.

        ValueError without such a setting, or unless each workload has a finite figure above 0.
        """
        if not self._asked or self._pending is None:
            raise ValueError("tell() needs an ask() before it")
        if set(figures) != set(self._workloads):
            raise ValueError(f"figures wanted for {sorted(self._workloads)}, not {sorted(figures)}")
        for name, figure in figures.items():
            if not (math.isfinite(figure) and figure > 0):
                raise ValueError(f"figure of {name} must be a number above 0, not {figure}")
        self._asked = False
        self._evaluations += 1
        self._remaining -= 1
        kept = {name: float(figures[name]) for name in self._workloads}
        self._samples.setdefault(self._pending, []).append(kept)
        try:
            self._pending = self._steps.send(kept)
        except StopIteration:
            self._pending = None

    @property
    def trials(self) -> list[Trial]:
        """Every setting measured so far, in order of its first measurement."""
        return [Trial(self._setting(p), tuple(s)) for p, s in self._samples.items()]

    @property
    def evaluations(self) -> int:
        """How many evaluations have been told."""
        return self._evaluations

    def choice(self) -> Choice:
        """Return the best setting proven by now: at any time, the start where none is."""
        point = self._proof.point if self._proof else self._start
        return Choice(
            setting=self._setting(point),
            changed=self._proof is not None,
            gain=self._proof.gain if self._proof else Interval(1.0, 1.0, 1.0),
            per_workload=dict(self._proof.per_workload) if self._proof else {},
            reasons=self._reasons(point),
        )

    def _setting(self, point: Point) -> dict[str, int]:
        return {d.name: g[i] for (d, g), i in zip(self._dimension_grids(), point, strict=True)}

    # Measuring

    def _run(self) -> _Steps:
        while self._affordable(2):
            yield from self._explore()
            yield from self._walk_back()
            if not self._promising(self._incumbent):
                return
            yield from self._confirm(self._incumbent)
            if self._proof:
                return
            self._rejected.add(self._incumbent)

    def _block(self, points: Sequence[Point]) -> Generator[Point, dict[str, float], None]:
        """Measure each point once, in random order, for the model."""
        order = list(dict.fromkeys(points))
        self._random.shuffle(order)
        self._blocks += 1
        for point in order:
            figures = yield point
            self._learn(point, figures)

    def _learn(self, point: Point, figures: dict[str, float]) -> None:
        self._model.add(self._blocks, point, [math.log(figures[w]) for w in self._workloads])

    # Exploration

    def _explore(self) -> _Steps:
        """Measure what promises most until nothing does or the proof needs the rest."""
        if self._model.samples == 0:
            yield from self._screen()
        while self._model.samples:
            self._model.fit()
            self._incumbent = self._propose()
            candidates = self._candidates(self._affordable(BLOCK))
            if not candidates or self._model.samples > MOST_EXPLORED:
                return
            yield from self._block([self._incumbent, *candidates])

    def _affordable(self, wanted: int) -> int:
        """Return how many of the wanted evaluations exploration can have: 0 or at least 2."""
        total = self._evaluations + self._remaining
        contestants = len({self._start, self._incumbent, self._stock})
        fewest = FEWEST_PAIRS * max(2, contestants)
        reserve = fewest
        if self._model.samples and self._promising(self._incumbent):
            pairs = math.ceil(LOOK_GROWTH * self._pairs_needed()) + SPARE_PAIRS
            reserve = max(fewest, min(contestants * pairs, round(MOST_RESERVED * total)))
        spare = min(wanted, self._remaining - reserve)
        return spare if spare >= 2 else 0

    def _pairs_needed(self) -> int:
        """Return after how many pairs the incumbent's gain is as good as sure to be proven."""
        if not self._model.samples or self._incumbent == self._start:
            return FEWEST_PAIRS
        gain, _ = self._contrast(self._incumbent, self._start)
        return self._pairs_for(gain, POWER)

    def _pairs_for(self, gain: float, spare: float) -> int:
        """Return how many pairs prove a log gain, `spare` standard errors of luck left over."""
        signal = max(gain, LEAST_GAIN) / (math.sqrt(2) * self._model.noise)
        share = ERROR * self._share(self._looks + 1)
        for pairs in range(FEWEST_PAIRS, MOST_PAIRS):
            if t_quantile(share, pairs - 1) + spare <= signal * math.sqrt(pairs):
                return pairs
        return MOST_PAIRS

    @staticmethod
    def _share(look: int) -> float:
        """Return the part of the error that a look may use, 1 for the first; their sum is 1."""
        return 1 / (look * (look + 1))

    def _screen(self) -> _Steps:
        """Measure a few far points, the likeliest first, in blocks with the start."""
        points = self._screening_points()
        while points and (size := self._affordable(BLOCK)):
            yield from self._block([self._start, *points[: size - 1]])
            points = points[size - 1 :]

    def _screening_points(self) -> list[Point]:
        """Return stock, then middle and far values of all, each and interacting dimensions.

        Last come the remaining categories and, for what could also be too large at the start, a
        value half way down.
        """
        everything = range(len(self._dimensions))
        middle, far = self._away(0.4), self._away(0.8)
        moves = [(middle, set(everything))] if len(self._dimensions) > 1 else []
        for target in (middle, far):
            moves += [(target, {i}) for i in everything]
            moves += [(target, set(pair)) for pair in self._pairs]
        points = [self._stock]
        for target, moved in moves:
            points.append(tuple(target[i] if i in moved else self._start[i] for i in everything))
        for i, (dimension, grid) in enumerate(self._dimension_grids()):
            others = range(len(grid)) if not dimension.ordered else [self._start[i] // 2]
            points += [self._moved(self._start, i, v) for v in others]
        return [p for p in dict.fromkeys(points) if p != self._start]

    def _away(self, part: float) -> Point:
        """Return for each dimension the grid index that part of the way from start to the end."""
        target = []
        for start, grid in zip(self._start, self._grids, strict=True):
            last = len(grid) - 1
            if start < last:
                target.append(start + max(1, round(part * (last - start))))
            else:
                target.append(round((1 - part) * last))
        return tuple(target)

    @staticmethod
    def _moved(point: Point, dimension: int, index: int) -> Point:
        return (*point[:dimension], index, *point[dimension + 1 :])

    def _contrast(self, point: Point, reference: Point) -> tuple[float, float]:
        return self._model.posterior([reference, point]).contrasts()[1]

    def _neighbourhood(self, centre: Point) -> list[Point]:
        """Return what may be measured next: lines and joint moves through the centre."""
        points = [centre, self._start, self._stock, *self._model.points()]
        for i, grid in enumerate(self._grids):
            points += [self._moved(centre, i, v) for v in range(len(grid))]
        for i, j in self._pairs:
            near = product(*(self._coarse(k, centre[k]) for k in (i, j)))
            points += [self._moved(self._moved(centre, i, v), j, w) for v, w in near]
        return [p for p in dict.fromkeys(points) if p not in self._rejected]

    def _coarse(self, dimension: int, index: int) -> list[int]:
        last = len(self._grids[dimension]) - 1
        steps = {index - 1, index + 1, 0, last, round(last / 3), round(2 * last / 3)}
        return sorted(s for s in steps if 0 <= s <= last)

    def _propose(self) -> Point:
        """Return the setting to hold the others against: the surest good one, made safer."""
        centre = self._climb(self._incumbent)
        posterior = self._model.posterior([self._start, *self._neighbourhood(centre)])
        scores = [mean - CAUTION * deviation for mean, deviation in posterior.contrasts()]
        for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
            point = posterior.points[i]
            if point != self._start and self._bearable(point):
                return self._safer(point)
            if point == self._start:
                break
        return self._start

    def _climb(self, point: Point) -> Point:
        """Return the model's best setting within reach of moves in one dimension or a pair."""
        groups: list[tuple[int, ...]] = [(i,) for i in range(len(self._dimensions))]
        groups += self._pairs
        for _ in range(4):
            before = point
            for group in groups:
                free = [
                    range(len(grid)) if i in group else (point[i],)
                    for i, grid in enumerate(self._grids)
                ]
                point = max(product(*free), key=self._model.mean)
            if point == before:
                break
        return point

    def _bearable(self, point: Point) -> bool:
        """Tell whether no workload is expected to suffer under a setting."""
        if len(self._workloads) == 1:
            return True
        _, deviation = self._contrast(point, self._start)
        after, before = self._model.means([point, self._start])
        leeway = deviation * math.sqrt(len(self._workloads))
        return all(a - b > -leeway for a, b in zip(after, before, strict=True))

    def _safer(self, best: Point) -> Point:
        """Leave each dimension at the start's value unless a change shows, else as safe as can be.

        A change must beat the start's value by INDIFFERENCE and the samples' doubt; among changes
        the smallest values win that together cost no more than INDIFFERENCE.
        """
        point = self._unswitched(best)
        for i in range(len(point)) if best != self._stock else ():
            kept = self._moved(point, i, self._start[i])
            mean, deviation = self._contrast(point, kept)
            doubt = DOUBT if self._dimensions[i].ordered else SWITCH_DOUBT
            if mean <= INDIFFERENCE + doubt * deviation and kept not in self._rejected:
                point = kept
                continue
            moves = [self._moved(point, i, v) for v in range(point[i])]
            losses = [self._model.mean(best) - self._model.mean(move) for move in moves]
            equals = [
                move
                for move, loss in zip(moves, losses, strict=True)
                if loss <= INDIFFERENCE and move not in self._rejected
            ]
            point = equals[0] if equals else point
        return point

    def _unswitched(self, point: Point) -> Point:
        """Put a changed category back where a value of what it interacts with does as well."""
        for move in self._limits_instead(point):
            mean, deviation = self._contrast(point, move)
            if mean <= INDIFFERENCE + SWITCH_DOUBT * deviation:
                return move
        return point

    def _limits_instead(self, point: Point) -> list[Point]:
        """Return for each changed category the best setting without it, by what it interacts with.

        A switch is riskier than any value of a limit.
        """
        instead = []
        for category, other in (*self._pairs, *((j, i) for i, j in self._pairs)):
            if not self._dimensions[category].ordered and point[category] != self._start[category]:
                back = self._moved(point, category, self._start[category])
                moves = [self._moved(back, other, v) for v in range(len(self._grids[other]))]
                allowed = [move for move in moves if move not in self._rejected]
                instead += [max(allowed, key=self._model.mean)] if allowed else []
        return instead

    def _walk_back(self) -> _Steps:
        """Measure safer values against the incumbent's a few times, and take what is as good."""
        best = self._incumbent
        for walked in range(WALK_BLOCKS + 1):
            self._model.fit()
            point = self._safer(best)
            if not self._promising(point):
                return
            self._incumbent = point
            rivals = self._safer_rivals()
            size = self._affordable(1 + len(rivals))
            if walked == WALK_BLOCKS or size < 2 or not rivals:
                return
            yield from self._block([point, *rivals[: size - 1]])

    def _safer_rivals(self) -> list[Point]:
        """Return for each changed dimension the smallest value that may well be as good."""
        rivals = []
        for move in self._limits_instead(self._incumbent):
            mean, deviation = self._contrast(move, self._incumbent)
            rivals += [move] if mean + 2 * deviation >= -INDIFFERENCE else []
        for i, index in enumerate(self._incumbent):
            if index == self._start[i]:
                continue
            moves = [self._moved(self._incumbent, i, v) for v in range(index)]
            contrasts = self._model.posterior([self._incumbent, *moves]).contrasts()[1:]
            rivals += [
                move
                for move, (mean, deviation) in zip(moves, contrasts, strict=True)
                if mean + deviation >= -INDIFFERENCE
                and deviation <= WALKABLE
                and move not in self._rejected
            ][:1]
        return rivals

    def _candidates(self, size: int) -> list[Point]:
        """Return up to size - 1 settings that promise most over the incumbent; none: settled."""
        if size < 2:
            return []
        peak = self._climb(self._incumbent)
        near = dict.fromkeys([*self._neighbourhood(self._incumbent), peak])
        points = [p for p in near if p != self._incumbent and p not in self._rejected]
        posterior = self._model.posterior([self._incumbent, *points])
        chosen: list[int] = []
        if self._incumbent != self._start and self._model.count(self._incumbent) < 2:
            chosen.append(1 + points.index(self._start))
        while len(chosen) < size - 1:
            promise, best = max(
                (self._promise(*contrast), i)
                for i, contrast in enumerate(posterior.contrasts())
                if i not in chosen
            )
            if promise < PROMISE:
                break
            chosen.append(best)
            posterior.suppose(best)
        return [posterior.points[i] for i in chosen]

    def _promise(self, mean: float, deviation: float) -> float:
        """Return the log gain to be expected from a few more samples of a candidate.

        `mean` and `deviation` are of its log ratio to the incumbent; the samples would move the
        mean by less than the deviation, as they are noisy themselves (the knowledge gradient).
        """
        noise = math.sqrt(2 / AHEAD) * self._model.noise
        return expected_gain(mean - INDIFFERENCE, deviation**2 / math.hypot(deviation, noise))

    def _promising(self, point: Point) -> bool:
        """Tell whether a setting looks better than the start clearly enough for the proof."""
        if point == self._start:
            return False
        mean, deviation = self._contrast(point, self._start)
        return mean >= LEAST_GAIN and NORMAL.cdf(mean / max(deviation, 1e-9)) >= EVIDENCE

    # Confirmation

    def _confirm(self, point: Point) -> _Steps:
        """Measure start, point and stock in fresh blocks until the gain is proven or hopeless."""
        contestants = list(dict.fromkeys([self._start, point, self._stock]))
        self._random.shuffle(contestants)
        blocks: _Blocks = []
        look = max(FEWEST_PAIRS, self._pairs_needed())
        while self._remaining >= len(contestants):
            figures: dict[Point, dict[str, float]] = {}
            self._blocks += 1
            for contestant in contestants:
                figures[contestant] = yield contestant
                self._learn(contestant, figures[contestant])
            blocks.append(figures)
            contestants.reverse()  # so that a steady drift cancels over two blocks
            last = self._remaining < len(contestants)
            if len(blocks) >= look or (last and len(blocks) >= FEWEST_PAIRS):
                if self._settled(blocks, point):
                    return
                look = math.ceil(LOOK_GROWTH * len(blocks))
            if len(blocks) >= FEWEST_PAIRS and self._futile(blocks, point):
                return

    def _settled(self, blocks: _Blocks, point: Point) -> bool:
        """Look at the confirming blocks; tell whether a setting is proven or the point hopeless."""
        self._looks += 1
        rivals = [p for p in dict.fromkeys([point, self._stock]) if p != self._start]
        error = ERROR * self._share(self._looks) / len(rivals)
        proofs = {p: self._look(blocks, p, error) for p in rivals}
        proven = [p for p in rivals if _is_proof(proofs[p])]
        as_good = max(p.gain.ratio for p in proofs.values()) * math.exp(-INDIFFERENCE)
        if proven:
            good = [p for p in proven if proofs[p].gain.ratio >= as_good]
            self._proof = proofs[(good or proven)[-1]]  # stock comes last: it wins where as good
            if good:
                return True
        leading = proofs[point]
        return any(r.high < 1 for _, _, r in leading.per_workload.values())

    def _futile(self, blocks: _Blocks, point: Point) -> bool:
        """Tell whether even a lucky view of the blocks so far leaves no way to a proof."""
        differences = [
            fmean(math.log(b[point][w] / b[self._start][w]) for w in self._workloads)
            for b in blocks
        ]
        noise = math.sqrt(2) * self._model.noise
        hope = math.log(ratio_interval(differences, 0.3, noise).high)
        affordable = len(blocks) + self._remaining // len(blocks[0])
        return hope < LEAST_GAIN or self._pairs_for(hope, 0.0) > affordable

    def _look(self, blocks: _Blocks, point: Point, error: float) -> _Proof:
        differences: list[list[float]] = []
        per_workload = {}
        for k, workload in enumerate(self._workloads):
            before = [math.log(b[self._start][workload]) for b in blocks]
            after = [math.log(b[point][workload]) for b in blocks]
            differences.append([a - b for a, b in zip(after, before, strict=True)])
            noise = math.sqrt(2) * self._model.output_noise(k)
            interval = ratio_interval(differences[-1], error, noise)
            per_workload[workload] = (math.exp(fmean(before)), math.exp(fmean(after)), interval)
        means = [fmean(d) for d in zip(*differences, strict=True)]
        gain = ratio_interval(means, error, math.sqrt(2) * self._model.noise)
        return _Proof(point, gain, per_workload)

    # Reasons

    def _reasons(self, chosen: Point) -> tuple[str, ...]:
        return tuple(self._reason(chosen, i) for i in range(len(self._dimensions)))

    def _reason(self, chosen: Point, i: int) -> str:
        name, grid = self._dimensions[i].name, self._grids[i]
        before, after = grid[self._start[i]], grid[chosen[i]]
        if not self._model.samples:
            return f"{name}: left at {before}, nothing was measured"
        if before != after:
            ratio = self._estimate(chosen, self._moved(chosen, i, self._start[i]))
            return f"{name}: {before} -> {after}, {_text(ratio)} times the figure with {before}"
        others = [v for v in range(len(grid)) if v != chosen[i]]
        if not others:
            return f"{name}: left at {before}, it has no other value"
        ratios = {v: self._estimate(self._moved(chosen, i, v), chosen) for v in others}
        best = max(ratios, key=lambda v: ratios[v].ratio)
        if ratios[best].high < 1:
            verdict = "other values are worse"
        elif ratios[best].high >= 1 + NO_EFFECT:
            verdict = "not settled within the budget"
        elif min(r.ratio for r in ratios.values()) < 1 - NO_EFFECT:
            verdict = "no better value found"
        else:
            verdict = "no effect found"
        return f"{name}: left at {before}, {verdict} ({grid[best]}: {_text(ratios[best])})"

    def _estimate(self, point: Point, reference: Point) -> Interval:
        self._model.fit()
        mean, deviation = self._contrast(point, reference)
        half = NORMAL.inv_cdf(0.975) * deviation
        return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def _is_proof(proof: _Proof) -> bool:
    """Tell whether the gain is proven and worth it, and no workload is proven worse."""
    worse = any(ratio.high < 1 for _, _, ratio in proof.per_workload.values())
    return proof.gain.low > 1 and proof.gain.ratio >= math.exp(LEAST_GAIN) and not worse


def _text(interval: Interval) -> str:
    return f"{interval.ratio:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _check(dimensions: Sequence[Dimension], start: Setting, workloads: Sequence[str]) -> None:
    names = [d.name for d in dimensions]
    if len(set(names)) != len(names):
        raise ValueError(f"dimension named twice in {names}")
    if set(start) != set(names):
        raise ValueError(f"start must name {sorted(names)}, not {sorted(start)}")
    if not workloads or len(set(workloads)) != len(workloads):
        raise ValueError("workloads must be one or more different names")
    for d in dimensions:
        if not d.values or len(set(d.values)) != len(d.values):
            raise ValueError(f"values of {d.name} must be one or more different numbers")
        if d.name in d.interacts:
            raise ValueError(f"{d.name} cannot interact with itself")


def _grid(dimension: Dimension, start: int) -> tuple[int, ...]:
    """Return the values with stock and start put in where missing."""
    values = list(dimension.values)
    sign = 1 if values == sorted(values) else -1
    for extra in (dimension.stock, start):
        if extra in values:
            continue
        smaller = sum(1 for v in values if sign * v < sign * extra)
        values.insert(smaller if dimension.ordered else 0, extra)
    return tuple(values)


def _kernel(dimension: Dimension, size: int) -> list[list[float]]:
    """Return how alike two values do: within a third of the grid much, categories not at all."""
    return smooth_kernel(size, max(2.0, size / 3)) if dimension.ordered else identity_kernel(size)


def _interacting(dimensions: Sequence[Dimension]) -> list[tuple[int, int]]:
    place = {d.name: i for i, d in enumerate(dimensions)}
    named = [(place[d.name], place[o]) for d in dimensions for o in d.interacts if o in place]
    return sorted({(min(pair), max(pair)) for pair in named})
