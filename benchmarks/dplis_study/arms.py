"""The comparison of the DPLIS study: its arms at the early and the late point, the choice of rates, paired scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.dplis_study.runs import DELTA, Outcome, Run, Study
from tuner.privacy.accountant.pld import epsilon as epsilon_of

# Two-sided 95 % points of Student's t by degrees of freedom; above nine the last is used, which is the wider interval.
_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NAMES = ("early", "late")

Results = Mapping[Run, Outcome]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, in percentage points.

    Attributes:
        values: one for each seed; NaN where a run diverged, which makes the mean and the error NaN.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean."""
        return statistics.fmean(self.values)

    @property
    def error(self) -> float:
        """The standard error of the mean; NaN for a single seed."""
        if len(self.values) < 2 or not math.isfinite(self.mean):
            return math.nan
        return statistics.stdev(self.values) / math.sqrt(len(self.values))

    @property
    def sign(self) -> int:
        """1 or -1 when the 95 % interval (Student's t) is on one side of 0, else 0."""
        if not math.isfinite(self.error):
            return 0
        reach = _STUDENT[min(len(self.values) - 1, len(_STUDENT)) - 1] * self.error
        return 1 if self.mean > reach else -1 if self.mean < -reach else 0

    def minus(self, other: Estimate) -> Estimate:
        """Return the difference, seed by seed."""
        return Estimate(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))

    def plain(self) -> str:
        """Return text such as `91.23 ± 0.04`."""
        return _with_error(f"{self.mean:.2f}", self)

    def signed(self) -> str:
        """Return text such as `+0.51 ± 0.08`, with a * where the 95 % interval excludes 0."""
        return _with_error(f"{self.mean:+.2f}", self) + ("*" if self.sign else "")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One setting, compared over all seeds.

    Attributes:
        radius: R; 0 is no smoothing.
        reduction: 'mean', or 'sum', which is clipping at C/K with K times the rate.
        learning_rate: without that factor.
        tuned: whether the rate was chosen for this arm.
    """

    radius: float
    reduction: str
    learning_rate: float
    tuned: bool = False

    @property
    def label(self) -> str:
        """The name of the arm in a table."""
        if self.radius == 0:
            name = "DP-SGD" if self.reduction == "mean" else "DP-SGD, C/K and K times the rate"
        else:
            name = f"DPLIS, {self.reduction}, R = {self.radius:g}"
        return f"{name}, rate of its own" if self.tuned else name


@dataclass(frozen=True)
class Point:
    """The early or the late point of a study, with all its arms.

    Attributes:
        study: the settings.
        index: 0 is early, 1 late.
        scores: the accuracy of every arm, in the order of the table.
        smoothed_rates: the rates that were tried for DPLIS.
    """

    study: Study
    index: int
    scores: dict[Arm, Estimate]
    smoothed_rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Early or late."""
        return _NAMES[self.index]

    @property
    def steps(self) -> int:
        """Number of steps until this point."""
        return self.study.steps[self.index]

    @property
    def epsilon(self) -> float:
        """The ε of these steps."""
        return epsilon_of(self.study.mechanism, self.steps, DELTA)

    @property
    def untuned(self) -> Estimate:
        """DP-SGD at the published rate."""
        return self.at(0.0, "mean")

    @property
    def tuned(self) -> Estimate:
        """DP-SGD at its own best rate."""
        return next(score for arm, score in self.scores.items() if arm.tuned and arm.radius == 0)

    def at(self, radius: float, reduction: str) -> Estimate:
        """Return the score at the published rate."""
        return next(
            score
            for arm, score in self.scores.items()
            if not arm.tuned and (arm.radius, arm.reduction) == (radius, reduction)
        )


def selection_runs(study: Study) -> list[Run]:
    """Return the runs of plain DP-SGD at every rate, on the selection seeds, scored at both points."""
    return [
        study.run(radius=0.0, reduction="mean", learning_rate=rate, seed=seed, scored=study.steps)
        for rate in study.rates
        for seed in study.selection_seeds
    ]


def tuned_selection_runs(study: Study, results: Results, index: int, radius: float) -> list[Run]:
    """Return the runs of DPLIS (mean) at the best rate of DP-SGD at this point and at the rates around it.

    Two rates above and one below, because smoothing should tolerate more noise. All selection seeds are used early;
    late, where a run costs 25 times as much, only the first.
    """
    return [
        _own_run(study, index, radius=radius, learning_rate=rate, seed=seed)
        for rate in tuned_rates(study, results, index)
        for seed in (study.selection_seeds[:1] if index else study.selection_seeds)
    ]


def tuned_rates(study: Study, results: Results, index: int) -> tuple[float, ...]:
    """Return the rates that are tried for DPLIS at this point."""
    place = study.rates.index(best_rate(study, results, index))
    return study.rates[max(0, place - 1) : place + 3]


def best_rate(study: Study, results: Results, index: int, radius: float = 0.0) -> float:
    """Return the rate with the highest mean validation accuracy at a point, on the selection seeds.

    Args:
        study: the settings.
        results: with the selection runs.
        index: 0 is early, 1 late.
        radius: R of DPLIS (mean); 0 is plain DP-SGD.
    """
    runs = tuned_selection_runs(study, results, index, radius) if radius else selection_runs(study)
    scores: dict[float, list[float]] = {}
    for run in runs:
        scores.setdefault(run.learning_rate, []).append(_score(results, run, study.steps[index]))
    return max(scores, key=lambda rate: _or_lowest(statistics.fmean(scores[rate])))


def arms(study: Study, results: Results, index: int) -> list[Arm]:
    """Return all arms of a point; the tuned rates follow from the selection runs in `results`."""
    published = [
        Arm(radius=radius, reduction=reduction, learning_rate=study.learning_rate)
        for reduction in study.reductions
        for radius in (0.0, *study.radii)
    ]
    tuned = [
        Arm(radius=radius, reduction="mean", learning_rate=best_rate(study, results, index, radius), tuned=True)
        for radius in (0.0, *study.tuned_radii[index])
    ]
    return [*published, *tuned]


def arm_run(study: Study, arm: Arm, index: int, seed: int) -> Run:
    """Return the run of one arm and seed: one for both points, unless the rate was tuned for this point."""
    if arm.tuned:
        return _own_run(study, index, radius=arm.radius, learning_rate=arm.learning_rate, seed=seed)
    return study.run(
        radius=arm.radius, reduction=arm.reduction, learning_rate=arm.learning_rate, seed=seed, scored=study.steps
    )


def points(study: Study, results: Results) -> tuple[Point, Point]:
    """Return both points, from complete results.

    Raises:
        KeyError: a run is missing.
    """
    early, late = (
        Point(
            study,
            index,
            {
                arm: Estimate(
                    tuple(_score(results, arm_run(study, arm, index, seed), study.steps[index]) for seed in study.seeds)
                )
                for arm in arms(study, results, index)
            },
            tuned_rates(study, results, index),
        )
        for index in (0, 1)
    )
    return early, late


def _own_run(study: Study, index: int, *, radius: float, learning_rate: float, seed: int) -> Run:
    steps = study.steps[: index + 1] if index else study.steps[:1]
    return study.run(radius=radius, reduction="mean", learning_rate=learning_rate, seed=seed, scored=steps)


def _score(results: Results, run: Run, step: int) -> float:
    return results[run].accuracies[run.scored.index(step)]


def _or_lowest(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _with_error(text: str, estimate: Estimate) -> str:
    if not math.isfinite(estimate.mean):
        return "diverged"
    return f"{text} ± {estimate.error:.2f}" if math.isfinite(estimate.error) else text
