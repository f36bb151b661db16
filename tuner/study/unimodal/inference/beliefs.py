"""Decisions of a unimodal search: which value to try, which trial to stop, and when to end the search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf, isfinite
from typing import Final

import numpy as np

from tuner.study.unimodal.inference.axis import GRID, Array, ParameterAxis
from tuner.study.unimodal.inference.bracket import LOOKS, ModeBracket, bracket, deviation_of_neighbours, threshold
from tuner.study.unimodal.inference.gaussian_process import Posterior
from tuner.study.unimodal.inference.possible_curves import drawn, eligible_points, fitted
from tuner.study.unimodal.inference.records import ALONE, Context, Record, Seen, Standing

__all__ = ["Beliefs", "Rules", "believe"]

_FINE: Final = 4
"""Before a search may end, the number of drawn curves is multiplied by this factor.

With fewer curves, a search could end by chance.
"""

_ROUGH: Final = 0.1
"""Assumed maximum error of a probability that is computed from few curves. It is several standard errors."""

_CONTEXTS: Final = 3
"""Maximum number of contexts (values of the other parameters) with which a trial is compared.

These are the contexts of the best complete trials.
"""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules by which `Beliefs` chooses values, stops trials and ends a search.

    Attributes:
        axis: axis of the parameter.
        tolerance: smallest difference between scores that matters, in the unit of the score. A value is near the
            optimum if its score on the curve is within the tolerance of the maximum.
        risk: a trial is stopped if the probability that its value is near the optimum is below this limit.
        sure: the search may end if the best complete trial is near the optimum with at least this probability.
        starts: values of the first trials, which are never stopped.
        at_once: maximum number of running trials. The value of a new trial cannot depend on scores that
            running trials have not reported yet.
        stagger: the next trial starts after all running trials have taken this fraction of their steps.
        early: fraction of the steps before which a trial is stopped only if its value is too small, because the best
            value increases during training. This rule ends when `enough` trials are complete.
        enough: number of complete trials after which `early` has no effect.
        apart: minimum distance of a new trial from running trials, as a fraction of the axis.
        spread_until: number of complete trials after which `apart` has no effect.
        full_from: fraction of the steps up to which trials use fewer smoothing samples than at their end. Up to this
            fraction, a trial is stopped only if its value is too small, because the best value increases with the
            number of samples.
        audits: number n. Every n-th trial is a diagnostic trial far from all other trials, to find a second maximum.
            With 0, there are no diagnostic trials.
        audit_from: number of the first trial that may be a diagnostic trial.
        draws: number of curves drawn from the posterior.
        share: prior probability that the curve is unimodal.
        final_only: whether to ignore scores from before the end of training.
        strict: whether to stop only trials outside the bracket of the mode.
        runs: a trial is also stopped if the probability that its final score exceeds the best final score so far is
            below this limit. Use a positive limit to find the best model, and 0 to find the best configuration.
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
        if not 0 < self.tolerance < inf:
            raise ValueError(f"`tolerance` must be positive and finite (got {self.tolerance!r}).")
        shares = {"risk": self.risk, "sure": self.sure, "share": self.share, "runs": self.runs}
        for name, value in shares.items():
            if not 0 <= value < 1:
                raise ValueError(f"`{name}` must be a probability of at least 0 and below 1 (got {value!r}).")
        for name, count in (("at_once", self.at_once), ("draws", self.draws)):
            if count < 1:
                raise ValueError(f"`{name}` must be at least 1 (got {count!r}).")
        if not self.starts or not all(isfinite(value) for value in self.starts):
            raise ValueError(f"`starts` must contain one or more finite values (got {self.starts!r}).")


class Beliefs:
    """Conclusions about one parameter from the scores of a study, and decisions that follow from the `Rules`.

    A context is the set of values of the other searched parameters. The order of the records does not matter.
    """

    def __init__(self, seen: Seen, rules: Rules) -> None:
        self.seen, self.rules = seen, rules

    @cached_property
    def posterior(self) -> Posterior | None:
        """Posterior of the curve, or None without records."""
        seen = self.seen
        if self.rules.final_only:
            seen = Seen(tuple(record for record in seen.records if record.fraction == 1), seen.trials)
        return fitted(seen.records, self.rules.tolerance, self._runs) if seen.records else None

    @cached_property
    def bracket(self) -> ModeBracket:
        """Interval that contains the mode (position of the maximum) of a unimodal curve, with error probability 1 %.

        The interval is computed from complete trials alone.
        """
        return self._bracket_at(1.0)

    @property
    def unimodal(self) -> bool:
        """Whether the scores are consistent with a single maximum. Otherwise, the bracket of the mode is empty."""
        return not self.bracket.empty

    @property
    def one_top(self) -> float:
        """Probability that the curve has one maximum.

        Without records, it is the prior probability `Rules.share`. It is 0 if the bracket of the mode is empty.
        """
        if not self.unimodal:
            return 0.0
        return self.rules.share if self.posterior is None else self._drawn(self._best_context)[1]

    @property
    def curves(self) -> Array:
        """Posterior draws of the curve at the end of training, shape (draws, points).

        The other parameters have the values of the best complete trial.
        """
        return self._curves(self._best_context)[:, 0]

    @property
    def first(self) -> frozenset[int]:
        """Numbers of the first trials, which use the values `Rules.starts` and are never stopped."""
        return frozenset(sorted(trial.trial for trial in self.seen.trials)[: len(self.rules.starts)])

    def near(self, place: float, context: Context = ALONE) -> float:
        """Return the probability that the curve at this position is within the tolerance of its maximum.

        The maximum is taken over all positions and all compared contexts.
        """
        values, grid = self._curves(context), self.rules.axis.grid
        tops = [
            values[:, number, eligible_points(grid, each)].max(1) for number, each in enumerate(self._around(context))
        ]
        return float(np.mean(self._at(values[:, 0], place) >= np.max(tops, axis=0) - self.rules.tolerance))

    def left_of_best(self, place: float, context: Context = ALONE) -> float:
        """Return the probability that the best position for this context is to the right of this position."""
        grid = self.rules.axis.grid
        eligible = grid[eligible_points(grid, context)]
        curves = self._curves(context)[:, 0][:, eligible_points(grid, context)]
        return float(np.mean(eligible[curves.argmax(1)] > place))

    def excluded(self, place: float, fraction: float = 0.0, context: Context = ALONE) -> bool:
        """Return whether to stop a trial at this position on the axis. The trial has taken `fraction` of its steps."""
        if self.posterior is None or self._scores_best_here(place, context):
            return False
        if self.rules.strict:
            return not self.strict_bracket.holds(place) and self.unimodal
        if self.near(place, context) >= self.rules.risk:
            return False
        if self._early(fraction) or 0 < fraction <= self.rules.full_from:
            return self.left_of_best(place, context) >= 1 - self.rules.risk
        return True

    def ahead(self, trial: int, place: float, context: Context = ALONE) -> float:
        """Return the probability that a trial's final score will exceed all earlier ones, or 1 without records."""
        return 1.0 if self.posterior is None else self.posterior.ahead(trial, place, context)

    def beaten(self, trial: int, place: float, fraction: float, context: Context = ALONE) -> bool:
        """Return whether to stop a trial because of its own scores. The trial has taken `fraction` of its steps.

        `Rules.runs` defines the limit.
        """
        if not self.rules.runs or self._early(fraction) or fraction <= self.rules.full_from:
            return False
        return self.ahead(trial, place, context) < self.rules.runs

    def _early(self, fraction: float) -> bool:
        return fraction < self.rules.early and len(self.seen.standing("complete")) < self.rules.enough

    @property
    def _runs(self) -> frozenset[int]:
        """Numbers of the running trials and of the trial with the best final score. Their records must not be merged.

        The set is empty if `Rules.runs` is 0, because single trials are then not compared.
        """
        if not self.rules.runs:
            return frozenset()
        ends = [(record.score, -record.trial) for record in self.seen.records if record.fraction == 1]
        best = {-max(ends)[1]} if ends else set()
        return frozenset(best.union(trial.trial for trial in self.seen.standing("running")))

    def _scores_best_here(self, place: float, context: Context) -> bool:
        """Return whether a complete trial at this position has the best score of its context.

        Such a position is never excluded. Near a steep fall of the score, the model may wrongly show a higher maximum
        elsewhere.
        """
        last = [record for record in self.last_records if record.context == context]
        best = max((record.score for record in last), default=0.0)
        return any(abs(record.place - place) < 0.5 / GRID for record in last if record.score == best)

    @cached_property
    def strict_bracket(self) -> ModeBracket:
        """Bracket of the mode from the scores of all rungs.

        The error probability is 1 % at each rung, and therefore at most 5 % with up to five rungs. Rungs before
        the end of training can only raise the lower end of the bracket.
        """
        early = {record.fraction for record in self.seen.records if record.fraction < 1}
        lows = [self._bracket_at(fraction).low for fraction in early]
        return replace(self.bracket, low=max([self.bracket.low, *lows]))

    def best(self) -> int | None:
        """Return the number of the best complete trial according to the mean curve, or None if no trial is complete."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def ranked(self) -> tuple[int, ...]:
        """Return the numbers of the complete trials, best first, ordered by the mean curve at their positions."""
        if self.posterior is None:
            return ()
        done = self.seen.standing("complete")
        believed = self._means(tuple(dict.fromkeys(trial.context for trial in done)))
        grid = self.rules.axis.grid
        by_mean = {trial.trial: float(np.interp(trial.place, grid, believed[trial.context])) for trial in done}
        # Trials with the same configuration have the same mean. They are ordered by score.
        scores = {record.trial: record.score for record in self.seen.records if record.fraction == 1}
        return tuple(sorted(by_mean, key=lambda trial: (-by_mean[trial], -scores.get(trial, -np.inf), trial)))

    def surely_found(self) -> bool:
        """Return whether the best complete trial is near the optimum with at least the probability `Rules.sure`."""
        done = {trial.trial: trial for trial in self.seen.standing("complete")}
        best = self.best()
        return len(done) >= 2 and best is not None and self.near_trial(done[best]) >= self.rules.sure

    def near_trial(self, trial: Standing) -> float:
        """Return the probability that a trial is near the optimum.

        If this probability is nearly high enough to end the search, it is computed again with more curves.
        """
        found = self.near(trial.place, trial.context)
        return self._finer.near(trial.place, trial.context) if found >= self.rules.sure - _ROUGH else found

    @cached_property
    def _finer(self) -> Beliefs:
        return Beliefs(self.seen, replace(self.rules, draws=_FINE * self.rules.draws))

    def waits(self) -> bool:
        """Return whether the next trial must wait for further reports of running trials."""
        running = {trial.trial for trial in self.seen.standing("running")}
        full = len(running) >= self.rules.at_once
        if full or not self.rules.stagger or len(self.seen.trials) < len(self.rules.starts):
            return full
        told = {record.trial for record in self.seen.records if record.fraction >= self.rules.stagger}
        return not running <= told

    def audits(self) -> bool:
        """Return whether the next trial is a diagnostic trial, far from all other trials."""
        rules, started = self.rules, self._started
        return rules.audits > 0 and started >= rules.audit_from and (started - rules.audit_from) % rules.audits == 0

    def propose(self, random: np.random.Generator, context: Context = ALONE, *, audit: bool = True) -> float:
        """Return the position of the next trial, which is most probably near the best position for its context.

        If `audit` is True, the trial may be a diagnostic trial. `random` breaks ties and chooses the
        position of a diagnostic trial.
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
            # Count only curves on which neither a running trial nor the best complete trial is near the maximum.
            served = np.any([near[:, int(np.abs(grid - at).argmin())] for at in self._covered_places(context)], axis=0)
            chance = (near if np.all(served) else near & ~np.reshape(served, (-1, 1))).mean(0)
            chance[near.mean(0) < min(rules.risk, near.mean(0).max())] = -1.0  # a trial here would be stopped at once
        place = float(grid[random.choice(np.flatnonzero(chance >= chance.max() - 1e-9))])
        return min(max(place, context.low), context.high)

    def _covered_places(self, context: Context) -> list[float]:
        """Return the positions of the running trials and of the best complete trial of this context.

        The best complete trial is included because a search with one trial at a time would otherwise always propose
        the same position.
        """
        own = {trial.trial: trial.place for trial in self.seen.standing("complete") if trial.context == context}
        best = next((own[number] for number in self.ranked() if number in own), None) if own else None
        return [trial.place for trial in self.seen.standing("running")] + ([] if best is None else [best])

    def _start(self, context: Context) -> float:
        """Return the position of the first value in `Rules.starts` that has no trial. Failed trials are ignored."""
        axis, known = self.rules.axis, [trial.place for trial in self.seen.trials]
        values = [min(max(value, axis.low), axis.high) for value in self.rules.starts]
        places = [min(max(axis.place(value), context.low), context.high) for value in values]
        free = (place for place in places if all(abs(place - other) > 1 / GRID for other in known))
        return next(free, places[len(known)])

    def _audit(self, random: np.random.Generator, context: Context) -> float:
        """Draw eight random positions and return the one whose nearest trial is farthest away."""
        known = np.array([trial.place for trial in self.seen.trials])
        drawn = random.uniform(context.low, context.high, 8)
        return float(drawn[np.abs(drawn[:, None] - known[None, :]).min(1).argmax()])

    def _bracket_at(self, fraction: float) -> ModeBracket:
        """Return the bracket of the mode from scores at one rung.

        Only the scores that belong to the most frequent context at this rung are used.
        """
        rows = self.last_records
        if fraction < 1:
            rows = [record for record in self.seen.records if record.fraction == fraction]
        if not rows:
            return ModeBracket()
        # Trials at the same position are ordered by number. Sorting by score would make neighbours too similar.
        rows = sorted(rows, key=lambda row: (row.place, row.trial))
        every = [row.context for row in rows]
        often = max(sorted(set(every)), key=every.count)
        places, scores = zip(*((row.place, row.score) for row in rows if row.context == often), strict=True)
        factor = threshold(0.01, max(LOOKS, len(places)), values=len(places))
        return bracket(places, scores, step=factor * deviation_of_neighbours(places, scores))

    @cached_property
    def _started(self) -> int:
        """Number of started trials, without those that were excluded before their first step."""
        scored = {record.trial for record in self.seen.records}
        return sum(trial.state != "pruned" or trial.trial in scored for trial in self.seen.trials)

    @cached_property
    def last_records(self) -> list[Record]:
        """Records of the final scores of the complete trials."""
        done = {trial.trial for trial in self.seen.standing("complete")}
        return [record for record in self.seen.records if record.fraction == 1 and record.trial in done]

    @cached_property
    def _contexts(self) -> tuple[Context, ...]:
        """Contexts of the complete trials with the best scores, best first."""
        ranked = sorted(self.last_records, key=lambda record: (-record.score, record.trial))
        return tuple(dict.fromkeys(record.context for record in ranked))[:_CONTEXTS]

    @property
    def _best_context(self) -> Context:
        return self._contexts[0] if self._contexts else ALONE

    @property
    def _known(self) -> Posterior:
        if self.posterior is None:
            raise ValueError("A curve needs at least one record.")
        return self.posterior

    def _around(self, context: Context) -> tuple[Context, ...]:
        return (context, *(other for other in self._contexts if other != context))

    def _curves(self, context: Context) -> Array:
        """Return posterior draws of the curve, shape (draws, contexts, points).

        The first context is `context`. The others are the contexts of the best trials.
        """
        return self._drawn(context)[0]

    def _drawn(self, context: Context) -> tuple[Array, float]:
        rules, grid = self.rules, self.rules.axis.grid.tobytes()
        share = rules.share if self.unimodal else 0.0
        return drawn(self._known, grid, self._around(context), rules.draws, share, rules.tolerance)

    def _means(self, contexts: tuple[Context, ...]) -> dict[Context, Array]:
        """Return the posterior mean of the curve of each context."""
        if len(contexts) == 1:
            return {contexts[0]: self._curves(contexts[0])[:, 0].mean(0)}
        found = self._known.mean(self.rules.axis.grid, contexts)
        return dict(zip(contexts, found, strict=True))

    def _at(self, curves: Array, place: float) -> Array:
        grid = self.rules.axis.grid
        right = int(np.clip(np.searchsorted(grid, place), 1, grid.size - 1))
        share = float(np.clip((place - grid[right - 1]) / (grid[right] - grid[right - 1]), 0.0, 1.0))
        return (1 - share) * curves[:, right - 1] + share * curves[:, right]


@lru_cache(maxsize=8)
def believe(seen: Seen, rules: Rules) -> Beliefs:
    """Return the conclusions from these records and trials. The result is cached for the sampler and the pruner."""
    return Beliefs(seen, rules)
