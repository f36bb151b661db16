"""What to try, what to stop and when to end, from what was seen: the rules, without Optuna."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tuner.search.unimodal.axis import Axis
from tuner.search.unimodal.bracket import LOOKS, Bracket, bracket, deviation_of_neighbours, threshold
from tuner.search.unimodal.model import Posterior, fit
from tuner.search.unimodal.records import Record, Seen
from tuner.search.unimodal.regression import project

__all__ = ["Beliefs", "Rules", "believe"]

Array = NDArray[np.float64]

_TRIES = 10
"""Curves that are drawn for each that is wanted, when nearly unimodal ones are looked for."""


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
        early: before this fraction of the steps, and until `enough` trials are complete, evidence may only exclude
            what lies to the left of the best: the optimum moves right while training goes on.
        enough: complete trials after which both sides may be excluded.
        apart: least distance from a running trial, in lengths of the axis.
        audits: every so manieth trial goes where nothing is known, so that a second peak can be seen at all; 0 for
            none.
        audit_from: number of the first trial that may be one.
        draws: curves from the posterior.
        share: of them that are conditioned on being unimodal: the prior probability of the assumption.
        final_only: whether scores before the end of training are left out.
    """

    axis: Axis
    tolerance: float
    risk: float = 0.05
    sure: float = 0.85
    starts: tuple[float, ...] = (10.0, 30.0)
    at_once: int = 2
    early: float = 2 / 3
    enough: int = 3
    apart: float = 0.07
    audits: int = 4
    audit_from: int = 9
    draws: int = 200
    share: float = 0.75
    final_only: bool = False


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
        if not seen.records:
            return None
        return _fitted(seen.records, self.rules.axis, self.rules.tolerance)

    @cached_property
    def bracket(self) -> Bracket:
        """Where the mode of any unimodal curve must be, from the complete trials alone, at level 1 %."""
        done = {trial.trial for trial in self.seen.standing("complete")}
        last = [record for record in self.seen.records if record.fraction == 1 and record.trial in done]
        places, scores = [record.place for record in last], [record.score for record in last]
        factor = threshold(0.01, max(LOOKS, len(last)), values=len(last))
        return bracket(places, scores, step=factor * deviation_of_neighbours(places, scores)) if last else Bracket()

    @property
    def unimodal(self) -> bool:
        """Whether the assumption stands: no place is left for a mode only where it is false."""
        return not self.bracket.empty

    @cached_property
    def curves(self) -> Array:
        """Possible curves at the end of training, shape (draws, points)."""
        if self.posterior is None:
            raise ValueError("a curve needs at least one record")
        return _drawn(
            self.posterior, self.rules.draws, self.rules.share if self.unimodal else 0.0, self.rules.tolerance
        )

    @property
    def first(self) -> frozenset[int]:
        """The trials that were started first, as many as there are starts: they are never stopped."""
        return frozenset(sorted(trial.trial for trial in self.seen.trials)[: len(self.rules.starts)])

    def near(self, place: float) -> float:
        """Probability that a trial at this place is within the tolerance of the best."""
        return float(np.mean(self._at(place) >= self.curves.max(1) - self.rules.tolerance))

    def left_of_best(self, place: float) -> float:
        """Probability that the best lies to the right of this place."""
        return float(np.mean(self.rules.axis.grid[self.curves.argmax(1)] > place))

    def excluded(self, place: float, fraction: float = 0.0) -> bool:
        """Whether a trial at this place, after this fraction of its steps, need not go on."""
        if self.posterior is None or self.near(place) >= self.rules.risk:
            return False
        if fraction < self.rules.early and len(self.seen.standing("complete")) < self.rules.enough:
            return self.left_of_best(place) >= 1 - self.rules.risk
        return True

    def best(self) -> int | None:
        """Number of the complete trial that is believed to be the best."""
        done = self.seen.standing("complete")
        if not done or self.posterior is None:
            return None
        mean = self.curves.mean(0)
        return max(done, key=lambda trial: (np.interp(trial.place, self.rules.axis.grid, mean), -trial.trial)).trial

    def surely_found(self) -> bool:
        """Whether the best complete trial is near the best with the probability that ends a search."""
        done = {trial.trial: trial for trial in self.seen.standing("complete")}
        best = self.best()
        return len(done) >= 2 and best is not None and self.near(done[best].place) >= self.rules.sure

    def waits(self) -> bool:
        """Whether no trial should start before a running one has said more."""
        return len(self.seen.standing("running")) >= self.rules.at_once

    def propose(self, random: np.random.Generator) -> float:
        """A place for the next trial: where it is most likely near the best, away from trials that run."""
        rules, started = self.rules, len(self.seen.trials)
        if started < len(rules.starts):
            return rules.axis.place(min(max(rules.starts[started], rules.axis.low), rules.axis.high))
        if self.posterior is None:
            return float(random.random())
        if rules.audits and started >= rules.audit_from and (started - rules.audit_from) % rules.audits == 0:
            return self._audit(random)
        grid = rules.axis.grid
        chance = (self.curves >= self.curves.max(1, keepdims=True) - rules.tolerance).mean(0)
        for trial in self.seen.standing("running"):
            chance[np.abs(grid - trial.place) < rules.apart] = -1.0
        return float(grid[random.choice(np.flatnonzero(chance >= chance.max() - 1e-9))])

    def _audit(self, random: np.random.Generator) -> float:
        """Of eight places, the one that is farthest from every trial."""
        known = np.array([trial.place for trial in self.seen.trials])
        drawn = random.random(8)
        return float(drawn[np.abs(drawn[:, None] - known[None, :]).min(1).argmax()])

    def _at(self, place: float) -> Array:
        grid = self.rules.axis.grid
        right = int(np.clip(np.searchsorted(grid, place), 1, grid.size - 1))
        share = float(np.clip((place - grid[right - 1]) / (grid[right] - grid[right - 1]), 0.0, 1.0))
        found: Array = (1 - share) * self.curves[:, right - 1] + share * self.curves[:, right]
        return found


# A trial that starts or stops changes no score: what is dear is made once for the same records.
@lru_cache(maxsize=8)
def _fitted(records: tuple[Record, ...], axis: Axis, tolerance: float) -> Posterior:
    return fit(Seen(records, ()), axis.grid, tolerance=tolerance)


@lru_cache(maxsize=8)
def _drawn(posterior: Posterior, draws: int, share: float, tolerance: float) -> Array:
    """Curves of which a share is conditioned on being unimodal, and the rest is not.

    Conditioned by weight: of many curves those are kept that are nearly unimodal, to within half the tolerance, and
    then projected. To project all of them instead would keep the wiggles' height and learn nothing from the shape.
    """
    keep = round(share * draws)
    every = posterior.draws(_TRIES * draws if keep else draws, np.random.default_rng(0))
    free = every[:: len(every) // draws][: draws - keep]
    if not keep:
        return free
    wrong = np.abs(every - project(every)).max(1)
    weights = np.exp(-0.5 * ((wrong - wrong.min()) / (0.5 * tolerance)) ** 2)
    edges = np.cumsum(weights) / weights.sum()
    kept = every[np.searchsorted(edges, (np.arange(keep) + 0.5) / keep)]
    return np.concatenate([free, project(kept)])


@lru_cache(maxsize=8)
def believe(seen: Seen, rules: Rules) -> Beliefs:
    """Beliefs, made once for the same records: a sampler and a pruner of one study share them."""
    return Beliefs(seen, rules)
