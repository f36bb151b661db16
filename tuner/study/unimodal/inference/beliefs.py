"""Decisions of a unimodal search: which value to try, which trial to stop, and when to end the search.

The curves are those of the Gaussian process in `posterior`, which have any shape. Unimodality is used on each of them:
if a curve has one maximum, it is next to the best point at which there is a trial, and what is further away is not
higher than what is between. See `one_top`, which also says how much of this assumption the scores support.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import inf, isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.inference.axis import GRID, Array, ParameterAxis
from tuner.study.unimodal.inference.bracket import ModeBracket, bracket_of
from tuner.study.unimodal.inference.one_top import draw_curves, fitted
from tuner.study.unimodal.inference.posterior import FAR, Posterior
from tuner.study.unimodal.inference.records import ALONE, Context, Record, Seen, Standing

__all__ = ["Beliefs", "Rules", "believe"]

_CONTEXTS: Final = 3
"""Number of contexts (values of the other parameters) of the best trials, with which a trial is compared."""

_LEARNT: Final = 0.25
"""A trial has learnt nothing if it gained less than this share of what another trial gained (`Beliefs.at_chance`)."""

_END: Final = 0.3
"""Least chance of an end of the axis to be near the best, as a share of the chance of the best place.

An end that has no trial is tried from this chance on. Beyond the last trial, the curve is known least. R = 0 is such an
end.
"""


_SETTLED: Final = 0.9
"""If the best complete trial is near the optimum with this probability, the next trial is in the widest gap."""

_COARSE: Final = 13
"""Number of positions of a curve in each context that no trial had (see `Beliefs.near_trial`)."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules by which `Beliefs` chooses values, stops trials and ends a search.

    Attributes:
        axis: axis of the parameter.
        tolerance: smallest difference between scores that matters, in the unit of the score. A value is near the
            optimum if its score on the curve is within the tolerance of the maximum.
        risk: a trial is stopped if the probability that its value is near the optimum is below this limit.
        sure: the search may end if the best complete trial is near the optimum with at least this probability.
        starts: values of the first trials. None means one third and two thirds of the axis.
        at_once: maximum number of running trials. The value of a new trial cannot depend on scores that
            running trials have not reported yet.
        early: fraction of the steps before which a trial is stopped only if its value is too small, because the best
            value increases during training. This rule ends when `enough` trials are complete.
        enough: number of complete trials after which `early` has no effect. Before, no trial starts while another one
            runs, except for the first ones.
        full_from: fraction of the steps up to which trials use fewer smoothing samples than at their end. Up to this
            fraction, a trial is stopped only if its value is too small, because the best value increases with the
            number of samples.
        draws: number of curves drawn from the posterior.
        doubt: prior probability that the curve has more than one maximum. Scores increase or decrease it.
        searching_doubt: the same probability where the next value is chosen. It is small, because a search that follows
            one maximum finds it sooner. `doubt` decides which trials stop and when the search may end.
        widest: the search does not end while an interval of the axis that is wider than this has no ended trial. Where
            the best trial seems to be found, the next trial is in the middle of the widest interval.
        strict: whether to stop only trials outside the bracket of the mode.
    """

    axis: ParameterAxis
    tolerance: float
    risk: float = 0.02
    sure: float = 0.98
    starts: tuple[float, ...] | None = None
    at_once: int = 2
    early: float = 2 / 3
    enough: int = 3
    full_from: float = 0.0
    draws: int = 400
    doubt: float = 0.3
    searching_doubt: float = 0.05
    widest: float = 0.17
    strict: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < inf:
            raise ValueError(f"`tolerance` must be positive and finite (got {self.tolerance!r}).")
        for name, value in {"risk": self.risk, "sure": self.sure}.items():
            if not 0 <= value < 1:
                raise ValueError(f"`{name}` must be a probability of at least 0 and below 1 (got {value!r}).")
        for name, count in (("at_once", self.at_once), ("draws", self.draws)):
            if count < 1:
                raise ValueError(f"`{name}` must be at least 1 (got {count!r}).")
        if self.starts is not None and not (self.starts and all(isfinite(value) for value in self.starts)):
            raise ValueError(f"`starts` must contain one or more finite values (got {self.starts!r}).")

    @property
    def first(self) -> tuple[float, ...]:
        """Positions of the first trials on the axis."""
        if self.starts is None:
            return 1 / 3, 2 / 3
        return tuple(self.axis.place(min(max(value, self.axis.low), self.axis.high)) for value in self.starts)


class Beliefs:
    """Conclusions about one parameter from the scores of a study, and decisions that follow from the `Rules`.

    A context is the set of values of the other searched parameters. The order of the records does not matter.
    """

    def __init__(self, seen: Seen, rules: Rules) -> None:
        self.seen, self.rules = seen, rules
        self._near: dict[tuple[Context, float], NDArray[np.bool_]] = {}
        self._near_anywhere: dict[Standing, float] = {}

    @cached_property
    def posterior(self) -> Posterior | None:
        """Posterior of the curve, or None without records."""
        return fitted(self.seen.records, self.rules.tolerance) if self.seen.records else None

    @cached_property
    def bracket(self) -> ModeBracket:
        """Interval that contains the mode (position of the maximum) of a unimodal curve, with error probability 1 %.

        The interval is computed from complete trials alone.
        """
        return bracket_of(self.last_records)

    @property
    def unimodal(self) -> bool:
        """Whether the scores are consistent with a single maximum. Otherwise, the bracket of the mode is empty."""
        return not self.bracket.empty

    @property
    def curves(self) -> Array:
        """Posterior draws of the curve at the end of training, shape (draws, points).

        The other parameters have the values of the best complete trial.
        """
        return self._curves(self._contexts[0] if self._contexts else ALONE, self.rules.doubt)[:, 0]

    def near(self, place: float, context: Context = ALONE) -> float:
        """Return the probability that the curve at this position is within the tolerance of its maximum.

        The maximum is taken over all positions and all compared contexts.
        """
        return float(self._nearly_best(context, self.rules.doubt)[:, _point(place)].mean())

    def left_of_best(self, place: float, context: Context = ALONE) -> float:
        """Return the probability that the best position for this context is to the right of this position."""
        points = self._eligible(context)
        best = self.rules.axis.grid[points][self._curves(context, self.rules.doubt)[:, 0][:, points].argmax(1)]
        return float(np.mean(best > place))

    def excluded(self, place: float, fraction: float = 0.0, context: Context = ALONE) -> bool:
        """Return whether to stop a trial at this position on the axis. The trial has taken `fraction` of its steps."""
        if self.posterior is None or self._leads(place, fraction, context):
            return False
        if self.rules.strict:
            return not self.strict_bracket.holds(place) and self.unimodal
        if self.near(place, context) >= self.rules.risk:
            return False
        gap = None if fraction else self._gap(context, running=True, ignored=place)
        if gap is not None and abs(gap - place) < 0.5 / GRID:
            return False  # only a score can tell what is there
        early = fraction < self.rules.early and len(self.seen.standing("complete")) < self.rules.enough
        if early or 0 < fraction <= self.rules.full_from:
            return self.left_of_best(place, context) >= 1 - self.rules.risk
        return True

    def at_chance(self, number: int) -> bool:
        """Return whether a trial has learnt nothing while another trial of its context has, at the same two rungs.

        Its score is far below the other's, and has risen by less than a quarter of the other's gain.
        """
        scores: dict[int, dict[float, float]] = {}
        contexts = {record.trial: record.context for record in self.seen.records}
        for record in self.seen.records:
            if record.context == contexts.get(number):
                scores.setdefault(record.trial, {})[record.fraction] = record.score
        own = scores.pop(number, {})
        if len(own) < 2:
            return False
        first, last = min(own), max(own)
        return any(
            other[last] - own[last] > FAR * self.rules.tolerance
            and own[last] - own[first] < _LEARNT * (other[last] - other[first])
            for other in scores.values()
            if first in other and last in other
        )

    def _leads(self, place: float, fraction: float, context: Context) -> bool:
        """Return whether a trial at this position has the best score of its context at its rung or among complete ones.

        Such a position is never excluded. Near a steep fall of the score, the model may wrongly show a higher maximum
        elsewhere.
        """
        groups = (self.last_records, [record for record in self.seen.records if record.fraction == fraction])
        for group in groups:
            rows = [record for record in group if record.context == context]
            best = max((record.score for record in rows), default=0.0)
            if any(abs(record.place - place) < 0.5 / GRID for record in rows if record.score == best):
                return True
        return False

    @cached_property
    def strict_bracket(self) -> ModeBracket:
        """Bracket of the mode from the scores of all rungs.

        The error probability is 1 % at each rung, and therefore at most 5 % with up to five rungs. Rungs before
        the end of training can only raise the lower end of the bracket.
        """
        early: dict[float, list[Record]] = defaultdict(list)
        for record in self.seen.records:
            if record.fraction < 1:
                early[record.fraction].append(record)
        return replace(self.bracket, low=max([self.bracket.low, *(bracket_of(rows).low for rows in early.values())]))

    def best(self) -> int | None:
        """Return the number of the best complete trial according to the mean curve, or None if no trial is complete."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def ranked(self) -> tuple[int, ...]:
        """Return the numbers of the complete trials, best first, ordered by the mean curve at their positions."""
        if self.posterior is None:
            return ()
        done = self.seen.standing("complete")
        contexts, grid = tuple(dict.fromkeys(trial.context for trial in done)), self.rules.axis.grid
        believed = dict(zip(contexts, self.posterior.mean(grid, contexts), strict=True)) if contexts else {}
        by_mean = {trial.trial: float(np.interp(trial.place, grid, believed[trial.context])) for trial in done}
        # Trials with the same configuration have the same mean. They are ordered by score.
        scores = {record.trial: record.score for record in self.seen.records if record.fraction == 1}
        return tuple(sorted(by_mean, key=lambda trial: (-by_mean[trial], -scores.get(trial, -np.inf), trial)))

    def surely_found(self) -> bool:
        """Return whether the best complete trial is near the optimum with at least the probability `Rules.sure`."""
        best = self._best_of_several()
        return best is not None and self._gap(best.context) is None and self.near_trial(best) >= self.rules.sure

    def _best_of_several(self) -> Standing | None:
        """Return the best complete trial, or None if fewer than two trials are complete."""
        done = {trial.trial: trial for trial in self.seen.standing("complete")}
        best = self.best()
        return None if best is None or len(done) < 2 else done[best]

    def _gap(self, context: Context, *, running: bool = False, ignored: float | None = None) -> float | None:
        """Return the middle of the widest interval without a trial, or None if it is not wider than `Rules.widest`.

        A trial counts when it has ended and has a score. A running trial counts only with `running`, because its first
        scores may say too little of a second maximum. Trials at `ignored` do not count.
        """
        scored = {record.trial for record in self.seen.records}
        known = [
            min(max(trial.place, context.low), context.high)
            for trial in self.seen.trials
            if trial.place != ignored and (running if trial.state == "running" else trial.trial in scored)
        ]
        edges = sorted({context.low, *known, context.high})
        left, right = max(pairwise(edges), key=lambda pair: pair[1] - pair[0], default=(0.0, 0.0))
        return (left + right) / 2 if right - left > self.rules.widest else None

    def near_trial(self, trial: Standing) -> float:
        """Return the probability that a trial is near the optimum over all searched parameters.

        The maximum is taken over all contexts that are compared and over `Seen.unexplored`, where nothing may be known.
        """
        found = self.near(trial.place, trial.context)
        if self.posterior is None or not self.seen.unexplored or found < min(self.rules.sure, _SETTLED):
            return found
        if trial in self._near_anywhere:
            return self._near_anywhere[trial]
        contexts = (*self._around(trial.context), *self.seen.unexplored)
        grid = np.append(np.linspace(0.0, 1.0, _COARSE), trial.place)
        values = self.posterior.draws(grid, contexts, self.rules.draws)
        tops = np.max([values[:, n, _possible(grid, each)].max(1) for n, each in enumerate(contexts)], axis=0)
        everywhere = float(np.mean(values[:, 0, -1] >= tops - self.rules.tolerance))
        return self._near_anywhere.setdefault(trial, min(found, everywhere))

    def waits(self) -> bool:
        """Return whether the next trial must wait for further reports of running trials."""
        running = len(self.seen.standing("running"))
        if len(self.seen.trials) < len(self.rules.first) or len(self.seen.standing("complete")) >= self.rules.enough:
            return running >= self.rules.at_once
        return running > 0  # so little is known that each whole trial changes where the next one should be

    def propose(self, random: np.random.Generator, context: Context = ALONE) -> float:
        """Return the position of the next trial, which is most probably near the best position for its context.

        `random` breaks ties.
        """
        start = self._start(context)
        if start is not None:
            return start
        if self.posterior is None:
            return float(random.uniform(context.low, context.high))
        best, gap = self._best_of_several(), self._gap(context, running=True)
        if best is not None and gap is not None and self.near_trial(best) >= min(self.rules.sure, _SETTLED):
            return gap
        points = self._eligible(context)
        grid, near = self.rules.axis.grid[points], self._nearly_best(context, self.rules.searching_doubt)[:, points]
        likely = near.mean(0)
        # Count only curves on which no running trial and not the best complete trial is near the maximum.
        covered = [int(np.abs(grid - at).argmin()) for at in self._covered_places(context)]
        missed = ~near[:, covered].any(1)
        chance = near[missed].mean(0) if missed.any() else likely.copy()
        chance[likely < min(self.rules.risk, likely.max())] = -1.0  # a trial here would be stopped at once
        untried = [
            end
            for end in (0, grid.size - 1)
            if all(abs(trial.place - grid[end]) > 1 / GRID for trial in self.seen.trials)
        ]
        end = max(untried, key=lambda at: float(chance[at]), default=None)
        if end is not None and chance[end] >= _END * chance.max():
            return float(grid[end])
        place = float(grid[random.choice(np.flatnonzero(chance >= chance.max() - 1e-9))])
        return min(max(place, context.low), context.high)

    def _covered_places(self, context: Context) -> list[float]:
        """Return the positions of the running and paused trials and of the best complete trial of this context.

        The best complete trial is included from the third on, because a search with one trial at a time would otherwise
        always propose the same position.
        """
        own = {trial.trial: trial.place for trial in self.seen.standing("complete") if trial.context == context}
        best = next((own[number] for number in self.ranked() if number in own), None) if len(own) >= 3 else None
        alive = (*self.seen.standing("running"), *self.seen.standing("paused"))
        return [trial.place for trial in alive] + ([] if best is None else [best])

    def _start(self, context: Context) -> float | None:
        """Return the position of the first start that has no trial, or None. Failed trials are ignored."""
        first, trials = self.rules.first, self.seen.trials
        if len(trials) >= len(first):
            return None
        places = [min(max(place, context.low), context.high) for place in first]
        free = (place for place in places if all(abs(place - trial.place) > 1 / GRID for trial in trials))
        return next(free, places[len(trials)])

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

    def _around(self, context: Context) -> tuple[Context, ...]:
        return (context, *(other for other in self._contexts if other != context))

    def _curves(self, context: Context, doubt: float) -> Array:
        """Return posterior draws of the curve, shape (draws, contexts, points).

        The first context is `context`. The others are the contexts of the best trials.
        """
        if self.posterior is None:
            raise ValueError("A curve needs at least one record.")
        scored = {record.trial for record in self.seen.records if record.context == context}
        at = sorted({_point(trial.place) for trial in self.seen.trials if trial.trial in scored})
        doubt = doubt if self.unimodal else 1.0
        around = self._around(context)
        return draw_curves(self.posterior, around, self.rules.draws, tuple(at), doubt, self.rules.tolerance)

    def _nearly_best(self, context: Context, doubt: float) -> NDArray[np.bool_]:
        """Return, draw by draw, the positions within the tolerance of the maximum."""
        if (context, doubt) not in self._near:
            values, grid = self._curves(context, doubt), self.rules.axis.grid
            around = enumerate(self._around(context))
            tops = np.max([values[:, number, _possible(grid, each)].max(1) for number, each in around], axis=0)
            self._near[context, doubt] = values[:, 0] >= tops[:, None] - self.rules.tolerance
        return self._near[context, doubt]

    def _eligible(self, context: Context) -> NDArray[np.bool_]:
        return _possible(self.rules.axis.grid, context)


def _possible(grid: Array, context: Context) -> NDArray[np.bool_]:
    """Return a mask of the grid positions that a trial of this context can have. At least one entry is True."""
    found: NDArray[np.bool_] = (grid >= context.low - 1e-9) & (grid <= context.high + 1e-9)
    if not found.any():
        found[np.abs(grid - (context.low + context.high) / 2).argmin()] = True
    return found


def _point(place: float) -> int:
    """Return the point of the grid that is nearest to a position."""
    return min(max(round(place * (GRID - 1)), 0), GRID - 1)


@lru_cache(maxsize=8)
def believe(seen: Seen, rules: Rules) -> Beliefs:
    """Return the conclusions from these records and trials. The result is cached for the sampler and the pruner."""
    return Beliefs(seen, rules)
