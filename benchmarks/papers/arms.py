"""Arms of a table: a setting, the candidates among which validation records choose, and its test scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from statistics import fmean, stdev

from benchmarks.dplis_study.arms import Estimate
from benchmarks.papers.trainings import Known, Outcome, Run

__all__ = ["Arm", "Scores", "interval", "seconds", "with_spread"]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Test results of an arm by seed, and the candidate that was chosen for it."""

    chosen: Run
    by_seed: dict[int, Outcome]

    @property
    def values(self) -> Estimate:
        """The scores."""
        return Estimate(tuple(each.score for each in self.by_seed.values()))

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds; NaN for one seed."""
        return stdev(self.values.values) if len(self.by_seed) > 1 else nan

    def minus(self, other: Scores) -> Estimate:
        """Return the differences on the seeds that both have."""
        common = [seed for seed in self.by_seed if seed in other.by_seed]
        return Estimate(tuple(self.by_seed[seed].score - other.by_seed[seed].score for seed in common))


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A setting of a table. The highest mean validation accuracy on the selection seeds chooses its candidate.

    Attributes:
        candidates: runs that differ in what is chosen; a single one needs no selection runs.
        selection_seeds: seeds that are used for nothing but the choice.
    """

    candidates: tuple[Run, ...]
    selection_seeds: tuple[int, ...]

    def selection(self) -> Iterator[Run]:
        """Yield the runs that choose."""
        if len(self.candidates) > 1:
            for seed in self.selection_seeds:
                yield from (replace(each, seed=seed, split="validation", sharp=False) for each in self.candidates)

    def choice(self, known: Known) -> Run | None:
        """Return the best candidate; None as long as a selection run is missing."""
        if len(self.candidates) == 1:
            return self.candidates[0]
        means = []
        for candidate in self.candidates:
            runs = [replace(candidate, seed=seed, split="validation", sharp=False) for seed in self.selection_seeds]
            if any(run not in known for run in runs):
                return None
            mean = fmean(known[run].score for run in runs)
            means.append(mean if isfinite(mean) else float("-inf"))
        return self.candidates[means.index(max(means))]

    def finals(self, known: Known, seeds: Sequence[int]) -> list[Run]:
        """Return the runs that score the test records; none as long as nothing is chosen."""
        chosen = self.choice(known)
        return [] if chosen is None else [replace(chosen, seed=seed, split="test") for seed in seeds]

    def scores(self, known: Known, seeds: Sequence[int]) -> Scores | None:
        """Return what was scored so far; None without a score."""
        runs = [run for run in self.finals(known, seeds) if run in known]
        return Scores(chosen=runs[0], by_seed={run.seed: known[run] for run in runs}) if runs else None

    def at_end(self, chosen: Run, name: str) -> bool:
        """Return whether the chosen value is the lowest or highest of several: a better one may lie beyond."""
        tried = sorted({getattr(each, name) for each in self.candidates})
        return len(tried) > 1 and getattr(chosen, name) in (tried[0], tried[-1])


def with_spread(values: Estimate) -> str:
    """Return mean ± standard deviation, as the papers print it."""
    mean = f"{fmean(values.values):.2f}"
    return f"{mean} ± {stdev(values.values):.2f}" if len(values.values) > 1 else mean


def interval(difference: Estimate) -> str:
    """Return a mean difference with its 95 % interval (Student's t over seeds), or the mean alone for one seed."""
    figure = difference.figure
    reach = difference.reach
    return f"{figure.value:+.2f}" + (
        f" ({figure.value - reach:+.2f} to {figure.value + reach:+.2f})" if isfinite(reach) else ""
    )


def seconds(scores: Scores) -> str:
    """Return the mean processor and wall seconds of a run."""
    cpu, wall = (fmean(getattr(each, name) for each in scores.by_seed.values()) for name in ("cpu", "seconds"))
    return f"{cpu:.0f} ({wall:.0f})"
