"""What to try, what to stop and when to end, from what was seen: the rules, without Optuna."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.axis import GRID, Axis
from tuner.study.unimodal.bracket import LOOKS, Bracket, bracket, deviation_of_neighbours, threshold
from tuner.study.unimodal.gaussian_process import Posterior, fit
from tuner.study.unimodal.records import ALONE, Context, Record, Seen, Standing
from tuner.study.unimodal.regression import project
from tuner.study.unimodal.shape import unimodal_mass
from tuner.study.unimodal.thinning import thinned

__all__ = ["Beliefs", "Rules", "believe"]

Array = NDArray[np.float64]

_TRIES: Final = 10
"""Curves that are drawn for each that is wanted, when nearly unimodal ones are looked for."""

_FINE: Final = 4
"""Times as many curves are drawn to end a search as to place a trial: asked after every report, chance would end it."""

_ROUGH: Final = 0.1
"""Probability by which the fewer curves may be wrong, several times their standard error."""

_CONTEXTS: Final = 3
"""Contexts besides a trial's own in which the best is looked for: those of the best complete trials."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What decides.

    Attributes:
        axis: of the parameter.
        tolerance: how much better a score must be to matter, in its own unit.
        risk: a trial is stopped when it is near the best with less than this probability.
        sure: the search is over when the best complete trial is near the best with at least this probability.
        starts: values of the first trials, which are never stopped.
        at_once: trials that run at a time, at most: what a trial teaches is lost on those that already run.
        stagger: a trial starts when those that run have taken this fraction of their steps: it is placed by what they
            said on the way.
        early: before this fraction of the steps, and until `enough` trials are complete, evidence may only exclude
            what lies to the left of the best: the optimum moves right while training goes on.
        enough: complete trials after which both sides may be excluded.
        apart: least distance from a running trial, in lengths of the axis, until `spread_until` trials are complete;
            from then on a new trial goes where the best is if neither one that runs nor the best complete one is near.
        spread_until: complete trials.
        full_from: scores up to this fraction were made with fewer smoothing samples; they only exclude what lies to the
            left of the best, which moves right with their number.
        audits: every so manieth trial goes where nothing is known, so that a second peak can be seen at all; 0 for
            none.
        audit_from: number of the first trial that may be one.
        draws: curves from the posterior.
        share: prior probability that the curve is unimodal.
        final_only: whether scores before the end of training are left out.
        strict: whether only what the simultaneous bracket excludes is stopped.
        runs: a run is stopped, too, when it will end above the best complete one with less than this probability, by
            its own scores: for who keeps the best run and its luck with it. 0 for who asks for a configuration.

    Raises:
        ValueError: a probability, a count or a start that is none.
    """

    axis: Axis
    tolerance: float
    risk: float = 0.05
    sure: float = 0.87
    starts: tuple[float, ...] = (10.0, 30.0)
    at_once: int = 2
    stagger: float = 0.6
    early: float = 2 / 3
    enough: int = 3
    apart: float = 0.05
    spread_until: int = 4
    full_from: float = 0.0
    audits: int = 4
    audit_from: int = 7
    draws: int = 400
    share: float = 0.95
    final_only: bool = False
    strict: bool = False
    runs: float = 0.0

    def __post_init__(self) -> None:
        shares = {"risk": self.risk, "sure": self.sure, "share": self.share, "runs": self.runs}
        for name, value in shares.items():
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be a probability of at least 0 and below 1, got {value!r}")
        for name, count in (("at_once", self.at_once), ("draws", self.draws)):
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count!r}")
        if not self.starts or not all(isfinite(value) for value in self.starts):
            raise ValueError(f"starts must be at least one finite value, got {self.starts!r}")


class Beliefs:
    """What follows from what was seen, by some rules. The same for the same records, in whatever order they came."""

    def __init__(self, seen: Seen, rules: Rules) -> None:
        self.seen, self.rules = seen, rules

    @cached_property
    def posterior(self) -> Posterior | None:
        """Of the curve; None before anything was seen."""
        seen = self.seen
        if self.rules.final_only:
            seen = Seen(tuple(record for record in seen.records if record.fraction == 1), seen.trials)
        return _fitted(seen.records, self.rules.tolerance, self._runs) if seen.records else None

    @cached_property
    def bracket(self) -> Bracket:
        """Where the mode of any unimodal curve must be, from the complete trials alone, at level 1 %."""
        return self._bracket_at(1.0)

    @property
    def unimodal(self) -> bool:
        """Whether the assumption stands: no place is left for a mode only where it is false."""
        return not self.bracket.empty

    @property
    def one_top(self) -> float:
        """Probability that the curve has one top; `Rules.share` before anything is seen, 0 where that was rejected."""
        if self.posterior is None or not self.unimodal:
            return self.rules.share if self.unimodal else 0.0
        every = self._around(self._contexts[0] if self._contexts else ALONE)
        grid = self.rules.axis.grid.tobytes()
        return _drawn(self._known, grid, every, self.rules.draws, self.rules.share, self.rules.tolerance)[1]

    @property
    def curves(self) -> Array:
        """Possible curves at the end of training, of the best complete trial's context, shape (draws, points)."""
        return self._curves(self._contexts[0] if self._contexts else ALONE)[:, 0]

    @property
    def first(self) -> frozenset[int]:
        """The trials that were started first, as many as there are starts: they are never stopped."""
        return frozenset(sorted(trial.trial for trial in self.seen.trials)[: len(self.rules.starts)])

    def near(self, place: float, context: Context = ALONE) -> float:
        """Probability that a trial at this place is within the tolerance of the best in any context."""
        values, grid = self._curves(context), self.rules.axis.grid
        tops = [values[:, number, _eligible(grid, each)].max(1) for number, each in enumerate(self._around(context))]
        return float(np.mean(self._at(values[:, 0], place) >= np.max(tops, axis=0) - self.rules.tolerance))

    def left_of_best(self, place: float, context: Context = ALONE) -> float:
        """Probability that the best of this context lies to the right of this place."""
        grid = self.rules.axis.grid
        eligible = grid[_eligible(grid, context)]
        curves = self._curves(context)[:, 0][:, _eligible(grid, context)]
        return float(np.mean(eligible[curves.argmax(1)] > place))

    def excluded(self, place: float, fraction: float = 0.0, context: Context = ALONE) -> bool:
        """Whether a trial at this place, after this fraction of its steps, need not go on."""
        if self.posterior is None:
            return False
        if self._stands_with_the_best(place, context):
            return False
        if self.rules.strict:
            return not self.strict_bracket.holds(place) and self.unimodal
        if self.near(place, context) >= self.rules.risk:
            return False
        early = fraction < self.rules.early and len(self.seen.standing("complete")) < self.rules.enough
        if early or 0 < fraction <= self.rules.full_from:
            return self.left_of_best(place, context) >= 1 - self.rules.risk
        return True

    def ahead(self, trial: int, place: float, context: Context = ALONE) -> float:
        """Probability that a run that goes on ends above the best complete one; 1 before anything is known."""
        return 1.0 if self.posterior is None else self.posterior.ahead(trial, place, context)

    def beaten(self, trial: int, place: float, fraction: float, context: Context = ALONE) -> bool:
        """Whether a run, after this fraction of its steps, need not go on for what its own scores say."""
        early = fraction < self.rules.early and len(self.seen.standing("complete")) < self.rules.enough
        if not self.rules.runs or early or fraction <= self.rules.full_from:
            return False
        return self.ahead(trial, place, context) < self.rules.runs

    @property
    def _runs(self) -> frozenset[int]:
        """Trials whose own luck is asked for where runs are judged: those that run, and the best that ended."""
        if not self.rules.runs:
            return frozenset()
        ends = [(record.score, -record.trial) for record in self.seen.records if record.fraction == 1]
        best = {-max(ends)[1]} if ends else set()
        return frozenset(best.union(trial.trial for trial in self.seen.standing("running")))

    def _stands_with_the_best(self, place: float, context: Context) -> bool:
        """Whether a complete trial here has the best score of its context: beside a cliff the model overshoots it."""
        done = {trial.trial for trial in self.seen.standing("complete")}
        last = [r for r in self.seen.records if r.fraction == 1 and r.trial in done and r.context == context]
        best = max((record.score for record in last), default=0.0)
        return any(abs(record.place - place) < 0.5 / GRID for record in last if record.score == best)

    @cached_property
    def strict_bracket(self) -> Bracket:
        """At level 5 % over all rungs and looks (1 % at each of five rungs); early rungs move its left end alone."""
        found = self.bracket
        for fraction in sorted({record.fraction for record in self.seen.records if record.fraction < 1}):
            found = found.and_also(Bracket(low=self._bracket_at(fraction).low))
        return found

    def best(self) -> int | None:
        """Number of the complete trial that is believed to be the best."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def ranked(self) -> tuple[int, ...]:
        """Numbers of the complete trials, the one that is believed to be the best first."""
        if self.posterior is None:
            return ()
        done = self.seen.standing("complete")
        believed = self._means(tuple(dict.fromkeys(trial.context for trial in done)))
        grid = self.rules.axis.grid
        by_mean = {trial.trial: float(np.interp(trial.place, grid, believed[trial.context])) for trial in done}
        # Of repetitions, which the curve believes alike, the one that scored best: none that collapsed.
        scores = {record.trial: record.score for record in self.seen.records if record.fraction == 1}
        return tuple(sorted(by_mean, key=lambda trial: (-by_mean[trial], -scores.get(trial, -np.inf), trial)))

    def surely_found(self) -> bool:
        """Whether the best complete trial is near the best with the probability that ends a search."""
        done = {trial.trial: trial for trial in self.seen.standing("complete")}
        best = self.best()
        return len(done) >= 2 and best is not None and self.near_trial(done[best]) >= self.rules.sure

    def near_trial(self, trial: Standing) -> float:
        """Probability that a trial is within the tolerance of the best; of many curves where it may end a search."""
        found = self.near(trial.place, trial.context)
        return self._finer.near(trial.place, trial.context) if found >= self.rules.sure - _ROUGH else found

    @cached_property
    def _finer(self) -> Beliefs:
        return Beliefs(self.seen, replace(self.rules, draws=_FINE * self.rules.draws))

    def waits(self) -> bool:
        """Whether no trial should start before a running one has said more."""
        running = {trial.trial for trial in self.seen.standing("running")}
        full = len(running) >= self.rules.at_once
        if full or not self.rules.stagger or len(self.seen.trials) < len(self.rules.starts):
            return full
        told = {record.trial for record in self.seen.records if record.fraction >= self.rules.stagger}
        return not running <= told

    def audits(self) -> bool:
        """Whether the next trial goes where nothing is known."""
        rules, started = self.rules, self._started
        return rules.audits > 0 and started >= rules.audit_from and (started - rules.audit_from) % rules.audits == 0

    def propose(self, random: np.random.Generator, context: Context = ALONE, *, audit: bool = True) -> float:
        """A place for the next trial: where it is most likely near the best of its context if no trial is yet.

        Args:
            random: breaks ties, and draws audits.
            context: what else the trial trains with.
            audit: whether it may go where nothing is known.
        """
        rules, started = self.rules, len(self.seen.trials)
        if started < len(rules.starts):
            return self._start(context)
        if self.posterior is None:
            return float(random.uniform(context.low, context.high))
        if audit and self.audits():
            return self._audit(random, context)
        eligible = _eligible(rules.axis.grid, context)
        grid, curves = rules.axis.grid[eligible], self._curves(context)[:, 0][:, eligible]
        near = curves >= curves.max(1, keepdims=True) - rules.tolerance
        if len(self.seen.standing("complete")) < rules.spread_until:
            chance = near.mean(0)
            for trial in self.seen.standing("running"):
                chance[np.abs(grid - trial.place) < rules.apart] = -1.0
        else:
            # The curves under which no trial is near the best yet: those that nobody looks after.
            served = np.any([near[:, int(np.abs(grid - at).argmin())] for at in self._looked_after(context)], axis=0)
            chance = (near if np.all(served) else near & ~np.reshape(served, (-1, 1))).mean(0)
            chance[near.mean(0) < min(rules.risk, near.mean(0).max())] = -1.0  # it would be stopped at once
        place = float(grid[random.choice(np.flatnonzero(chance >= chance.max() - 1e-9))])
        return min(max(place, context.low), context.high)

    def _looked_after(self, context: Context) -> list[float]:
        """Places of the trials that run, and of the one that is believed to be the best of this context.

        Without the latter a search with one trial at a time asks for the same place again and again.
        """
        own = {trial.trial: trial.place for trial in self.seen.standing("complete") if trial.context == context}
        best = next((own[number] for number in self.ranked() if number in own), None) if own else None
        return [trial.place for trial in self.seen.standing("running")] + ([] if best is None else [best])

    def _start(self, context: Context) -> float:
        """The first start at which no trial is; one that failed is made up for."""
        axis, known = self.rules.axis, [trial.place for trial in self.seen.trials]
        values = [min(max(value, axis.low), axis.high) for value in self.rules.starts]
        places = [min(max(axis.place(value), context.low), context.high) for value in values]
        free = (place for place in places if all(abs(place - other) > 1 / GRID for other in known))
        return next(free, places[len(known)])

    def _audit(self, random: np.random.Generator, context: Context) -> float:
        """Of eight places, the one that is farthest from every trial."""
        known = np.array([trial.place for trial in self.seen.trials])
        drawn = random.uniform(context.low, context.high, 8)
        return float(drawn[np.abs(drawn[:, None] - known[None, :]).min(1).argmax()])

    def _bracket_at(self, fraction: float) -> Bracket:
        """Of one rung, among trials that differ in nothing else; at the last one from complete trials alone."""
        done = {trial.trial for trial in self.seen.standing("complete")}
        rows = [r for r in self.seen.records if r.fraction == fraction and (fraction < 1 or r.trial in done)]
        if not rows:
            return Bracket()
        # Of one place in the order of their numbers: by their scores they would rise there, and lie closer than chance.
        rows.sort(key=lambda row: (row.place, row.trial))
        every = [row.context for row in rows]
        often = max(sorted(set(every)), key=every.count)
        places, scores = zip(*((row.place, row.score) for row in rows if row.context == often), strict=True)
        factor = threshold(0.01, max(LOOKS, len(places)), values=len(places))
        return bracket(places, scores, step=factor * deviation_of_neighbours(places, scores))

    @cached_property
    def _started(self) -> int:
        """Trials that took a step, or may yet: what was excluded before its first step is none."""
        scored = {record.trial for record in self.seen.records}
        return sum(trial.state != "pruned" or trial.trial in scored for trial in self.seen.trials)

    @cached_property
    def _contexts(self) -> tuple[Context, ...]:
        """Those of the complete trials with the best scores."""
        done = {trial.trial for trial in self.seen.standing("complete")}
        last = [record for record in self.seen.records if record.fraction == 1 and record.trial in done]
        ranked = sorted(last, key=lambda record: (-record.score, record.trial))
        return tuple(dict.fromkeys(record.context for record in ranked))[:_CONTEXTS]

    @property
    def _known(self) -> Posterior:
        if self.posterior is None:
            raise ValueError("a curve needs at least one record")
        return self.posterior

    def _around(self, context: Context) -> tuple[Context, ...]:
        return (context, *(other for other in self._contexts if other != context))

    def _curves(self, context: Context) -> Array:
        """Of this context first and those of the best trials after it, shape (draws, contexts, points)."""
        every = self._around(context)
        share = self.rules.share if self.unimodal else 0.0
        grid = self.rules.axis.grid.tobytes()
        return _drawn(self._known, grid, every, self.rules.draws, share, self.rules.tolerance)[0]

    def _means(self, contexts: tuple[Context, ...]) -> dict[Context, Array]:
        """The believed curve of each context."""
        if len(contexts) == 1:
            return {contexts[0]: self._curves(contexts[0])[:, 0].mean(0)}
        found = self._known.mean(self.rules.axis.grid, contexts)
        return dict(zip(contexts, found, strict=True))

    def _at(self, curves: Array, place: float) -> Array:
        grid = self.rules.axis.grid
        right = int(np.clip(np.searchsorted(grid, place), 1, grid.size - 1))
        share = float(np.clip((place - grid[right - 1]) / (grid[right] - grid[right - 1]), 0.0, 1.0))
        found: Array = (1 - share) * curves[:, right - 1] + share * curves[:, right]
        return found


# A trial that starts or stops changes no score: what is dear is made once for the same records.
@lru_cache(maxsize=8)
def _fitted(records: tuple[Record, ...], tolerance: float, runs: frozenset[int]) -> Posterior:
    return fit(Seen(thinned(records, keep=runs), ()), tolerance=tolerance)


@lru_cache(maxsize=32)
def _drawn(
    posterior: Posterior, places: bytes, contexts: tuple[Context, ...], draws: int, share: float, tolerance: float
) -> tuple[Array, float]:
    """Curves of which a share is conditioned on being unimodal, and the rest is not, shape (draws, contexts, points).

    Conditioned by weight: of many curves those are kept that are nearly unimodal in the first context, to within half
    the tolerance, and then projected. To project all of them instead would keep the wiggles' height and learn nothing
    from the shape. The share, which is returned too, is the posterior probability of the shape: a second peak
    that is seen lowers it.
    """
    grid = np.frombuffer(places)
    every = posterior.draws(grid, contexts, _TRIES * draws if share else draws, np.random.default_rng(0))
    keep, believed = 0, 0.0
    if share:
        wrong = np.abs(every.values[:, 0] - project(every.values[:, 0])).max(1)
        weights = np.exp(-0.5 * (wrong / (0.5 * tolerance)) ** 2)
        # P(data | unimodal) / P(data) is P(unimodal | data) / P(unimodal), for every hyper-parameter.
        weights /= unimodal_mass(every.amplitudes, every.lengths, grid)
        odds = share * float(weights.mean())
        believed = odds / (odds + 1 - share)
        keep = round(draws * believed)
    # Draws lie one hyper-parameter after the other: an even share of each.
    free = every.values[((np.arange(draws - keep) + 0.5) * len(every.values) / max(draws - keep, 1)).astype(int)]
    if not keep:
        return free, believed
    edges = np.cumsum(weights) / weights.sum()
    kept = every.values[np.minimum(np.searchsorted(edges, (np.arange(keep) + 0.5) / keep), len(edges) - 1)]
    return np.concatenate([free, project(kept.reshape(-1, grid.size)).reshape(kept.shape)]), believed


def _eligible(grid: Array, context: Context) -> NDArray[np.bool_]:
    """Points that a trial of this context can take; at least one."""
    found: NDArray[np.bool_] = (grid >= context.low - 1e-9) & (grid <= context.high + 1e-9)
    if not found.any():
        found[np.abs(grid - (context.low + context.high) / 2).argmin()] = True
    return found


@lru_cache(maxsize=8)
def believe(seen: Seen, rules: Rules) -> Beliefs:
    """Beliefs, made once for the same records: a sampler and a pruner of one study share them."""
    return Beliefs(seen, rules)
