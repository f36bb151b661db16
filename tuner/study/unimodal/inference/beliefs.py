"""Decisions from the records: which value to try, which trial to stop, when to end the search. No Optuna."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.inference.axis import GRID, ParameterAxis
from tuner.study.unimodal.inference.bracket import LOOKS, ModeBracket, bracket, deviation_of_neighbours, threshold
from tuner.study.unimodal.inference.gaussian_process import Posterior
from tuner.study.unimodal.inference.possible_curves import drawn, eligible_points, fitted
from tuner.study.unimodal.inference.records import ALONE, Context, Seen, Standing

__all__ = ["Beliefs", "Rules", "believe"]

Array = NDArray[np.float64]

_FINE: Final = 4
"""Factor on the number of curves when a search may end: with few, repeated checks would end it by chance."""

_ROUGH: Final = 0.1
"""Largest error of a probability from few curves; several times its standard error."""

_CONTEXTS: Final = 3
"""Contexts, besides a trial's own, in which the best is looked for: those of the best complete trials."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of the decisions.

    Attributes:
        axis: axis of the parameter.
        tolerance: how much better a score must be to matter, in its own unit.
        risk: a trial is stopped when it is near the best with a smaller probability than this.
        sure: the search is over when the best complete trial is near the best with at least this probability.
        starts: values of the first trials, which are never stopped.
        at_once: maximum number of trials that run at a time: a running trial cannot use what another one shows.
        stagger: a trial starts when the running ones have taken this fraction of their steps, so that it is placed by
            their reports.
        early: before this fraction of the steps, and until `enough` trials are complete, evidence may only exclude
            values to the left of the best, because the optimum moves right during training.
        enough: complete trials after which both sides may be excluded.
        apart: least distance from a running trial, in lengths of the axis, until `spread_until` trials are complete;
            from then on a new trial goes where the best is if neither one that runs nor the best complete one is near.
        spread_until: number of complete trials.
        full_from: scores up to this fraction come from fewer smoothing samples. They only exclude values to the left of
            the best, which moves right with the number of samples.
        audits: every n-th trial is an audit: it is placed where nothing is known, so that a second peak can be seen.
            0 for none.
        audit_from: number of the first trial that may be an audit.
        draws: number of curves from the posterior.
        share: prior probability that the curve is unimodal.
        final_only: whether scores before the end of training are ignored.
        strict: whether only values outside the simultaneous bracket are stopped.
        runs: a run is also stopped when its own scores give it a smaller probability than this of ending above the best
            complete run. For users who keep the best run, with its luck; 0 for users who want a configuration.

    Raises:
        ValueError: a probability, a count or a start is out of range.
    """

    axis: ParameterAxis
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
                raise ValueError(f"`{name}` must be a probability of at least 0 and below 1 (got {value!r}).")
        for name, count in (("at_once", self.at_once), ("draws", self.draws)):
            if count < 1:
                raise ValueError(f"`{name}` must be at least 1 (got {count!r}).")
        if not self.starts or not all(isfinite(value) for value in self.starts):
            raise ValueError(f"`starts` must hold one or more finite values (got {self.starts!r}).")


class Beliefs:
    """Conclusions from the records, by the rules. They do not depend on the order of the records."""

    def __init__(self, seen: Seen, rules: Rules) -> None:
        self.seen, self.rules = seen, rules

    @cached_property
    def posterior(self) -> Posterior | None:
        """Posterior of the curve; None before the first record."""
        seen = self.seen
        if self.rules.final_only:
            seen = Seen(tuple(record for record in seen.records if record.fraction == 1), seen.trials)
        return fitted(seen.records, self.rules.tolerance, self._runs) if seen.records else None

    @cached_property
    def bracket(self) -> ModeBracket:
        """Bracket of the mode of any unimodal curve, from the complete trials alone, at level 1 %."""
        return self._bracket_at(1.0)

    @property
    def unimodal(self) -> bool:
        """Whether the assumption of one top holds: an empty bracket contradicts it."""
        return not self.bracket.empty

    @property
    def one_top(self) -> float:
        """Probability that the curve has one top; `Rules.share` before the first record, 0 where it is contradicted."""
        if self.posterior is None or not self.unimodal:
            return self.rules.share if self.unimodal else 0.0
        every = self._around(self._contexts[0] if self._contexts else ALONE)
        grid = self.rules.axis.grid.tobytes()
        return drawn(self._known, grid, every, self.rules.draws, self.rules.share, self.rules.tolerance)[1]

    @property
    def curves(self) -> Array:
        """Possible curves at the end of training, in the context of the best complete trial, shape (draws, points)."""
        return self._curves(self._contexts[0] if self._contexts else ALONE)[:, 0]

    @property
    def first(self) -> frozenset[int]:
        """Numbers of the first trials, as many as there are starts: they are never stopped."""
        return frozenset(sorted(trial.trial for trial in self.seen.trials)[: len(self.rules.starts)])

    def near(self, place: float, context: Context = ALONE) -> float:
        """Return the probability that a trial at this place is within the tolerance of the best in any context."""
        values, grid = self._curves(context), self.rules.axis.grid
        tops = [
            values[:, number, eligible_points(grid, each)].max(1) for number, each in enumerate(self._around(context))
        ]
        return float(np.mean(self._at(values[:, 0], place) >= np.max(tops, axis=0) - self.rules.tolerance))

    def left_of_best(self, place: float, context: Context = ALONE) -> float:
        """Return the probability that the best of this context is to the right of this place."""
        grid = self.rules.axis.grid
        eligible = grid[eligible_points(grid, context)]
        curves = self._curves(context)[:, 0][:, eligible_points(grid, context)]
        return float(np.mean(eligible[curves.argmax(1)] > place))

    def excluded(self, place: float, fraction: float = 0.0, context: Context = ALONE) -> bool:
        """Return whether to stop a trial at this place, after this fraction of its steps."""
        if self.posterior is None:
            return False
        if self._scores_best_here(place, context):
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
        """Return the probability that a run ends above the best complete one; 1 before the first record."""
        return 1.0 if self.posterior is None else self.posterior.ahead(trial, place, context)

    def beaten(self, trial: int, place: float, fraction: float, context: Context = ALONE) -> bool:
        """Return whether to stop a run, after this fraction of its steps, because of its own scores."""
        early = fraction < self.rules.early and len(self.seen.standing("complete")) < self.rules.enough
        if not self.rules.runs or early or fraction <= self.rules.full_from:
            return False
        return self.ahead(trial, place, context) < self.rules.runs

    @property
    def _runs(self) -> frozenset[int]:
        """Trials whose records are not merged when runs are compared: the running ones and the best finished one."""
        if not self.rules.runs:
            return frozenset()
        ends = [(record.score, -record.trial) for record in self.seen.records if record.fraction == 1]
        best = {-max(ends)[1]} if ends else set()
        return frozenset(best.union(trial.trial for trial in self.seen.standing("running")))

    def _scores_best_here(self, place: float, context: Context) -> bool:
        """Return whether a complete trial here has the best score of its context: the model overshoots at cliffs."""
        done = {trial.trial for trial in self.seen.standing("complete")}
        last = [r for r in self.seen.records if r.fraction == 1 and r.trial in done and r.context == context]
        best = max((record.score for record in last), default=0.0)
        return any(abs(record.place - place) < 0.5 / GRID for record in last if record.score == best)

    @cached_property
    def strict_bracket(self) -> ModeBracket:
        """Bracket at level 5 % over all rungs and looks (1 % at each of five rungs); early rungs move its low end."""
        found = self.bracket
        for fraction in sorted({record.fraction for record in self.seen.records if record.fraction < 1}):
            found = found.and_also(ModeBracket(low=self._bracket_at(fraction).low))
        return found

    def best(self) -> int | None:
        """Return the number of the complete trial believed to be the best."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def ranked(self) -> tuple[int, ...]:
        """Return the numbers of the complete trials, the one believed to be the best first."""
        if self.posterior is None:
            return ()
        done = self.seen.standing("complete")
        believed = self._means(tuple(dict.fromkeys(trial.context for trial in done)))
        grid = self.rules.axis.grid
        by_mean = {trial.trial: float(np.interp(trial.place, grid, believed[trial.context])) for trial in done}
        # The curve is the same for repetitions: order them by score, so that none that collapsed comes first.
        scores = {record.trial: record.score for record in self.seen.records if record.fraction == 1}
        return tuple(sorted(by_mean, key=lambda trial: (-by_mean[trial], -scores.get(trial, -np.inf), trial)))

    def surely_found(self) -> bool:
        """Return whether the best complete trial is near the best with the probability that ends a search."""
        done = {trial.trial: trial for trial in self.seen.standing("complete")}
        best = self.best()
        return len(done) >= 2 and best is not None and self.near_trial(done[best]) >= self.rules.sure

    def near_trial(self, trial: Standing) -> float:
        """Return the probability that a trial is near the best; from more curves where it may end a search."""
        found = self.near(trial.place, trial.context)
        return self._finer.near(trial.place, trial.context) if found >= self.rules.sure - _ROUGH else found

    @cached_property
    def _finer(self) -> Beliefs:
        return Beliefs(self.seen, replace(self.rules, draws=_FINE * self.rules.draws))

    def waits(self) -> bool:
        """Return whether no trial should start before a running one has reported more."""
        running = {trial.trial for trial in self.seen.standing("running")}
        full = len(running) >= self.rules.at_once
        if full or not self.rules.stagger or len(self.seen.trials) < len(self.rules.starts):
            return full
        told = {record.trial for record in self.seen.records if record.fraction >= self.rules.stagger}
        return not running <= told

    def audits(self) -> bool:
        """Return whether the next trial is an audit, placed where nothing is known."""
        rules, started = self.rules, self._started
        return rules.audits > 0 and started >= rules.audit_from and (started - rules.audit_from) % rules.audits == 0

    def propose(self, random: np.random.Generator, context: Context = ALONE, *, audit: bool = True) -> float:
        """Return a place for the next trial: where it is most likely near the best of its context, if no trial is yet.

        Args:
            random: breaks ties and draws audits.
            context: other parameters of the trial.
            audit: whether it may be an audit.
        """
        rules, started = self.rules, len(self.seen.trials)
        if started < len(rules.starts):
            return self._start(context)
        if self.posterior is None:
            return float(random.uniform(context.low, context.high))
        if audit and self.audits():
            return self._audit(random, context)
        eligible = eligible_points(rules.axis.grid, context)
        grid, curves = rules.axis.grid[eligible], self._curves(context)[:, 0][:, eligible]
        near = curves >= curves.max(1, keepdims=True) - rules.tolerance
        if len(self.seen.standing("complete")) < rules.spread_until:
            chance = near.mean(0)
            for trial in self.seen.standing("running"):
                chance[np.abs(grid - trial.place) < rules.apart] = -1.0
        else:
            # The curves under which no trial is near the best yet.
            served = np.any([near[:, int(np.abs(grid - at).argmin())] for at in self._covered_places(context)], axis=0)
            chance = (near if np.all(served) else near & ~np.reshape(served, (-1, 1))).mean(0)
            chance[near.mean(0) < min(rules.risk, near.mean(0).max())] = -1.0  # it would be stopped at once
        place = float(grid[random.choice(np.flatnonzero(chance >= chance.max() - 1e-9))])
        return min(max(place, context.low), context.high)

    def _covered_places(self, context: Context) -> list[float]:
        """Return the places of the running trials and of the one believed to be the best of this context.

        Without the latter a search with one trial at a time would propose the same place again and again.
        """
        own = {trial.trial: trial.place for trial in self.seen.standing("complete") if trial.context == context}
        best = next((own[number] for number in self.ranked() if number in own), None) if own else None
        return [trial.place for trial in self.seen.standing("running")] + ([] if best is None else [best])

    def _start(self, context: Context) -> float:
        """Return the first start without a trial; a failed trial is replaced."""
        axis, known = self.rules.axis, [trial.place for trial in self.seen.trials]
        values = [min(max(value, axis.low), axis.high) for value in self.rules.starts]
        places = [min(max(axis.place(value), context.low), context.high) for value in values]
        free = (place for place in places if all(abs(place - other) > 1 / GRID for other in known))
        return next(free, places[len(known)])

    def _audit(self, random: np.random.Generator, context: Context) -> float:
        """Return the one of eight random places that is farthest from every trial."""
        known = np.array([trial.place for trial in self.seen.trials])
        drawn = random.uniform(context.low, context.high, 8)
        return float(drawn[np.abs(drawn[:, None] - known[None, :]).min(1).argmax()])

    def _bracket_at(self, fraction: float) -> ModeBracket:
        """Return the bracket from one rung, among trials equal in all else; at the last rung only complete ones."""
        done = {trial.trial for trial in self.seen.standing("complete")}
        rows = [r for r in self.seen.records if r.fraction == fraction and (fraction < 1 or r.trial in done)]
        if not rows:
            return ModeBracket()
        # Trials of one place are ordered by number: ordered by score they would rise, and be closer than by chance.
        rows.sort(key=lambda row: (row.place, row.trial))
        every = [row.context for row in rows]
        often = max(sorted(set(every)), key=every.count)
        places, scores = zip(*((row.place, row.score) for row in rows if row.context == often), strict=True)
        factor = threshold(0.01, max(LOOKS, len(places)), values=len(places))
        return bracket(places, scores, step=factor * deviation_of_neighbours(places, scores))

    @cached_property
    def _started(self) -> int:
        """Number of trials that took a step or still may; one excluded before its first step does not count."""
        scored = {record.trial for record in self.seen.records}
        return sum(trial.state != "pruned" or trial.trial in scored for trial in self.seen.trials)

    @cached_property
    def _contexts(self) -> tuple[Context, ...]:
        """Contexts of the complete trials with the best scores."""
        done = {trial.trial for trial in self.seen.standing("complete")}
        last = [record for record in self.seen.records if record.fraction == 1 and record.trial in done]
        ranked = sorted(last, key=lambda record: (-record.score, record.trial))
        return tuple(dict.fromkeys(record.context for record in ranked))[:_CONTEXTS]

    @property
    def _known(self) -> Posterior:
        if self.posterior is None:
            raise ValueError("A curve needs at least one record.")
        return self.posterior

    def _around(self, context: Context) -> tuple[Context, ...]:
        return (context, *(other for other in self._contexts if other != context))

    def _curves(self, context: Context) -> Array:
        """Return curves of this context, then of the contexts of the best trials, shape (draws, contexts, points)."""
        every = self._around(context)
        share = self.rules.share if self.unimodal else 0.0
        grid = self.rules.axis.grid.tobytes()
        return drawn(self._known, grid, every, self.rules.draws, share, self.rules.tolerance)[0]

    def _means(self, contexts: tuple[Context, ...]) -> dict[Context, Array]:
        """Return the mean curve of each context."""
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


# A trial that starts or stops changes no score, so beliefs are shared by the sampler and the pruner of a study.
@lru_cache(maxsize=8)
def believe(seen: Seen, rules: Rules) -> Beliefs:
    """Return the beliefs from these records; the same ones for the sampler and the pruner of a study."""
    return Beliefs(seen, rules)
