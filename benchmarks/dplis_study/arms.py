"""The comparison of the DPLIS study: its arms at the early and the late point, the choice of rates, paired scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy.stats import t as student

from benchmarks.dplis_study.runs import DELTA, Outcome, Run, Study
from benchmarks.harness import Figure
from tuner.privacy.accountant.pld import epsilon as epsilon_of

Known = Mapping[Run, Outcome]


@dataclass(frozen=True)
class Estimate:
    """Accuracies or differences in percentage points, one for each seed; NaN for a run that diverged."""

    values: tuple[float, ...]

    @property
    def figure(self) -> Figure:
        """The mean with its standard error; NaN if a run diverged."""
        return Figure.mean_of(self.values, "%")

    @property
    def reach(self) -> float:
        """Half of the 95 % interval of the mean (Student's t over the seeds); NaN for one seed."""
        return float(student.ppf(0.975, len(self.values) - 1)) * self.figure.error if len(self.values) > 1 else math.nan

    @property
    def sign(self) -> int:
        """1 or -1 when the 95 % interval is on one side of 0, else 0."""
        mean, reach = self.figure.value, self.reach
        return 1 if mean > reach else -1 if mean < -reach else 0

    def minus(self, other: Estimate) -> Estimate:
        """Return the difference, seed by seed."""
        return Estimate(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))

    def signed(self) -> str:
        """Return text such as `+0.51 ± 0.08`, with a * where the 95 % interval excludes 0."""
        return self.figure.plus_minus(sign="+") + ("*" if self.sign else "")


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
        return ("early", "late")[self.index]

    @property
    def title(self) -> str:
        """The name with the number of steps and their ε."""
        steps = self.study.steps[self.index]
        return f"{self.name}: ε = {epsilon_of(self.study.mechanism, steps, DELTA):.2f}, {steps} steps"

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


def selection_runs(study: Study, _known: Known) -> list[Run]:
    """Return the runs of plain DP-SGD at every rate, on the selection seeds, scored at both points."""
    return [
        study.run(radius=0.0, reduction="mean", learning_rate=rate, seed=seed, scored=study.steps)
        for rate in study.rates
        for seed in study.selection_seeds
    ]


def smoothed_selection(study: Study, known: Known) -> Iterable[Run]:
    """Yield the runs that choose the rates of DPLIS."""
    for index in (0, 1):
        for radius in study.tuned_radii[index]:
            yield from _tuned_selection_runs(study, known, index, radius)


def comparison(study: Study, known: Known) -> list[Run]:
    """Return the runs of all arms: seed by seed, so that an interrupted study has complete seeds, long runs first."""
    runs = [
        _run_of(study, arm, index, seed)
        for index in (0, 1)
        for arm in _arms(study, known, index)
        for seed in study.seeds
    ]
    return sorted(runs, key=lambda run: (run.seed, -run.work, repr(run)))


def points(study: Study, known: Known) -> list[Point]:
    """Return the early and the late point, from complete results."""
    return [
        Point(
            study,
            index,
            {
                arm: Estimate(
                    tuple(_score(known, _run_of(study, arm, index, seed), study.steps[index]) for seed in study.seeds)
                )
                for arm in _arms(study, known, index)
            },
            _tuned_rates(study, known, index),
        )
        for index in (0, 1)
    ]


def best_rate(study: Study, known: Known, index: int, radius: float = 0.0) -> float:
    """Return the rate with the highest mean validation accuracy at a point, on the selection seeds.

    Args:
        study: the settings.
        known: results, with the selection runs.
        index: 0 is early, 1 late.
        radius: R of DPLIS (mean); 0 is plain DP-SGD.
    """
    runs = _tuned_selection_runs(study, known, index, radius) if radius else selection_runs(study, known)
    scores: dict[float, list[float]] = {}
    for run in runs:
        scores.setdefault(run.learning_rate, []).append(_score(known, run, study.steps[index]))
    means = {rate: statistics.fmean(found) for rate, found in scores.items()}
    return max(means, key=lambda rate: means[rate] if math.isfinite(means[rate]) else -math.inf)


def _tuned_selection_runs(study: Study, known: Known, index: int, radius: float) -> list[Run]:
    """Return the runs of DPLIS (mean) at the rates that are tried at a point.

    All selection seeds are used early. Late, where a run costs 25 times as much, only the first is used.
    """
    return [
        _own_run(study, index, radius=radius, learning_rate=rate, seed=seed)
        for rate in _tuned_rates(study, known, index)
        for seed in (study.selection_seeds[:1] if index else study.selection_seeds)
    ]


def _tuned_rates(study: Study, known: Known, index: int) -> tuple[float, ...]:
    """Return the best rate of DP-SGD, one below it, and two above it, because smoothing should tolerate more noise."""
    place = study.rates.index(best_rate(study, known, index))
    return study.rates[max(0, place - 1) : place + 3]


def _arms(study: Study, known: Known, index: int) -> list[Arm]:
    published = [
        Arm(radius=radius, reduction=reduction, learning_rate=study.learning_rate)
        for reduction in study.reductions
        for radius in (0.0, *study.radii)
    ]
    tuned = [
        Arm(radius=radius, reduction="mean", learning_rate=best_rate(study, known, index, radius), tuned=True)
        for radius in (0.0, *study.tuned_radii[index])
    ]
    return [*published, *tuned]


def _run_of(study: Study, arm: Arm, index: int, seed: int) -> Run:
    """Return the run of one arm and seed: one for both points, unless the rate was tuned for this point."""
    if arm.tuned:
        return _own_run(study, index, radius=arm.radius, learning_rate=arm.learning_rate, seed=seed)
    return study.run(
        radius=arm.radius, reduction=arm.reduction, learning_rate=arm.learning_rate, seed=seed, scored=study.steps
    )


def _own_run(study: Study, index: int, *, radius: float, learning_rate: float, seed: int) -> Run:
    scored = study.steps[: index + 1]
    return study.run(radius=radius, reduction="mean", learning_rate=learning_rate, seed=seed, scored=scored)


def _score(known: Known, run: Run, step: int) -> float:
    return known[run].accuracies[run.scored.index(step)]
