"""The page of the DPLIS study: tables and a picture that follow from its results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.dplis_study.arms import Point
from benchmarks.dplis_study.runs import DELTA, Study
from benchmarks.harness import Table
from benchmarks.harness.report import table_lines

PREAMBLE = """# How much of DPLIS' gain is smoothing?

Written by `python -m benchmarks.dplis_study --write`, text and numbers; change it there. Its docstring explains the
comparison and the choice of the setting. All accuracies are on validation records, in percent, mean ± one standard
error over the seeds; differences are paired by seed, and a * marks a 95 % interval (Student's t) that excludes 0.

`sum`, the reduction of DPLIS' published code, equals `mean` at the clip C/K with K times the learning rate, for every
R; without smoothing it is DP-SGD there. The best R of a table is picked on the seeds that are reported, which favours
smoothing. The rate of tuned DP-SGD was chosen at the published C only. The tuned rate of DPLIS is the best of that of
DP-SGD, its half, its double and its fourfold (as far as the rates of DP-SGD reach); late it was chosen on one seed. All
rates were chosen on the same validation records as the scores, on other seeds. A rate at the end of those tried is
marked with >: a better one may be beyond it.
"""


def section(study: Study, found: Sequence[Point]) -> str:
    """Return the tables of one study in Markdown."""
    early, late = study.steps
    lines = [
        f"{study.records} training records, batch {study.batch_size}, noise multiplier {study.noise_multiplier:g}, "
        f"C = {study.max_grad_norm:g}, K = {study.smoothing_samples}, δ = {DELTA:g}, constant rate, SGD; "
        f"{early} steps early and {late} late; seeds {_listed(study.seeds)}, rates chosen on seeds "
        f"{_listed(study.selection_seeds)}.",
        "",
    ]
    for point in found:
        lines += [f"### {point.name.capitalize()}: ε = {point.epsilon:.2f}, {point.steps} steps", ""]
        lines += [*table_lines(scores_table(point)), ""]
    return "\n".join([*lines, _tally(found), ""])


def scores_table(point: Point) -> Table:
    """Return the score of every arm, and its differences from DP-SGD and from the same clip and rate at R = 0."""
    rows = []
    for arm, score in point.scores.items():
        rate = arm.learning_rate * (point.study.smoothing_samples if (arm.radius, arm.reduction) == (0, "sum") else 1)
        tried = point.smoothed_rates if arm.radius else point.study.rates
        at_end = arm.tuned and arm.learning_rate in (tried[0], tried[-1])
        unsmoothed = "–" if arm.tuned else score.minus(point.at(0.0, arm.reduction)).signed()
        rows.append(
            (
                arm.label,
                f"{'> ' if at_end else ''}{rate:g}",
                score.plain(),
                score.minus(point.untuned).signed(),
                score.minus(point.tuned).signed(),
                unsmoothed,
            )
        )
    columns = ("", "learning rate", "accuracy, %", "minus untuned DP-SGD", "minus tuned DP-SGD", "minus R = 0")
    return Table(columns, tuple(rows))


def draw(path: Path, found: Sequence[Point]) -> None:
    """Draw accuracy over R, early and late; whiskers and bands are one standard error."""
    picture = Figure(figsize=(5.5 * len(found), 4), layout="constrained")
    for axes, point in zip(picture.subplots(1, len(found)), found, strict=True):
        radii = (0.0, *point.study.radii)
        for reduction in point.study.reductions:
            scores = [point.at(radius, reduction) for radius in radii]
            means, errors = [score.mean for score in scores], [score.error for score in scores]
            axes.errorbar(range(len(radii)), means, yerr=errors, fmt="o-", label=f"DPLIS, {reduction}")
        for colour, (label, score) in zip(
            ("C2", "C3"), {"untuned DP-SGD": point.untuned, "tuned DP-SGD": point.tuned}.items(), strict=True
        ):
            axes.axhline(score.mean, color=colour, linestyle="--", label=label)
            axes.axhspan(score.mean - score.error, score.mean + score.error, color=colour, alpha=0.2)
        axes.set_xticks(range(len(radii)), [f"{radius:g}" for radius in radii])
        axes.set(
            title=f"{point.name}: ε = {point.epsilon:.2f}, {point.steps} steps",
            xlabel="smoothing radius R (not to scale)",
            ylabel="validation accuracy, %",
        )
        axes.legend()
    picture.savefig(path)


def _tally(found: Sequence[Point]) -> str:
    """Count the smoothed settings that beat each yardstick; one seed has no interval, and so no answer."""
    if any(len(point.study.seeds) < 2 for point in found):
        return "One seed has no intervals: these numbers are a first look, not a result."
    smoothed = [
        (point, reduction, point.at(radius, reduction))
        for point in found
        for reduction in point.study.reductions
        for radius in point.study.radii
    ]
    untuned = sum(score.minus(point.untuned).sign > 0 for point, _, score in smoothed)
    unsmoothed = sum(score.minus(point.at(0.0, reduction)).sign > 0 for point, reduction, score in smoothed)
    tuned = sum(score.minus(point.tuned).sign > 0 for point, _, score in smoothed)
    return (
        f"Of {len(smoothed)} smoothed settings at the published rate (each R > 0, each reduction, both points), "
        f"{untuned} are better than untuned DP-SGD, {unsmoothed} better than the same clip and rate at R = 0, "
        f"and {tuned} better than DP-SGD at its own best rate (95 % intervals, one at a time)."
    )


def _listed(values: Sequence[float]) -> str:
    *head, last = (f"{value:g}" for value in values)
    return f"{', '.join(head)} and {last}" if head else last
