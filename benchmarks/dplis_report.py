"""What the DPLIS study found, in words and tables that follow from its results alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.dplis_arms import Estimate, Point, points
from benchmarks.dplis_runs import DELTA, Results, Study

__all__ = ["section"]


def section(study: Study, results: Results) -> str:
    """The tables and sentences of one study, in Markdown."""
    found = points(study, results)
    early, late = study.steps
    lines = [
        f"{study.records} training records, batch {study.batch_size}, noise multiplier {study.noise_multiplier:g}, "
        f"C = {study.max_grad_norm:g}, K = {study.smoothing_samples}, δ = {DELTA:g}, constant rate, SGD; "
        f"{early} steps early and {late} late; seeds {_listed(study.seeds)}, rates chosen on seeds "
        f"{_listed(study.selection_seeds)}.",
        "",
    ]
    for point in found:
        lines += [*_table(point), "", *(f"- {sentence}" for sentence in _sentences(point)), ""]
    return "\n".join([*lines, _tally(found), ""])


def _table(point: Point) -> list[str]:
    rows = [
        f"### {point.name.capitalize()}: ε = {point.epsilon:.2f}, {point.steps} steps",
        "",
        "| | learning rate | accuracy, % | minus untuned DP-SGD | minus tuned DP-SGD |",
        "|---|---|---|---|---|",
    ]
    for arm, score in point.scores.items():
        rate = arm.learning_rate * (point.study.smoothing_samples if (arm.radius, arm.reduction) == (0, "sum") else 1)
        rows.append(
            f"| {arm.label} | {rate:g} | {score.plain()} | {score.minus(point.untuned).signed()} | "
            f"{score.minus(point.tuned).signed()} |"
        )
    return rows


def _sentences(point: Point) -> Iterator[str]:
    study, own = point.study, point.tuned.minus(point.untuned)
    rate = next(arm.learning_rate for arm in point.scores if arm.tuned and arm.radius == 0)
    yield (
        f"DP-SGD at its own best rate, {rate:g} instead of {study.learning_rate:g}, {_verdict(own)} the untuned "
        f"baseline ({own.signed()})." + _at_edge(study.rates, rate)
    )
    for reduction in study.reductions:
        yield _gain(point, reduction, own)
    for arm, score in point.scores.items():
        if arm.tuned and arm.radius:
            ahead = score.minus(point.tuned)
            name = f"R = {arm.radius:g} (rate {arm.learning_rate:g})"
            edge = _at_edge(point.smoothed_rates, arm.learning_rate)
            yield f"With both tuned, {name} {_verdict(ahead)} DP-SGD ({ahead.signed()}).{edge}"


def _gain(point: Point, reduction: str, own: Estimate) -> str:
    """What the best R brings over the untuned baseline, and how much of it is there without smoothing."""
    radius = point.best_radius(reduction)
    best = point.at(radius, reduction)
    gain, ahead = best.minus(point.untuned), best.minus(point.tuned)
    text = (
        f"`{reduction}`: the best of R = {_listed(point.study.radii)} is {radius:g}; it {_verdict(gain)} the untuned "
        f"baseline ({gain.signed()}) and {_verdict(ahead)} tuned DP-SGD ({ahead.signed()})."
    )
    unsmoothed = point.at(0.0, reduction)
    if reduction == "sum":
        smoothing = best.minus(unsmoothed)
        text += (
            f" Smoothing itself, against the same clip C/K and K times the rate at R = 0, brings {smoothing.signed()}."
        )
    if gain.sign <= 0:
        return f"{text} So there is no gain here to be shared out."
    parts = [f"the learning rate alone gives {_share(own, gain)} of it"]
    if reduction == "sum":
        parts.insert(0, f"clipping at C/K with K times the rate gives {_share(unsmoothed.minus(point.untuned), gain)}")
    return f"{text} Of this gain without any smoothing: {', and '.join(parts)}."


def _tally(found: Sequence[Point]) -> str:
    """How many smoothed settings beat each yardstick; one seed has no interval, and so no answer."""
    if any(len(point.study.seeds) < 2 for point in found):
        return "One seed, no intervals: read these as a look, not as a result."
    smoothed = [
        (point, reduction, point.at(radius, reduction))
        for point in found
        for reduction in point.study.reductions
        for radius in point.study.radii
    ]
    counts = [
        sum(score.minus(yardstick(point, reduction)).sign > 0 for point, reduction, score in smoothed)
        for yardstick in (
            lambda point, _: point.untuned,
            lambda point, reduction: point.at(0.0, reduction),
            lambda point, _: point.tuned,
        )
    ]
    return (
        f"Of {len(smoothed)} smoothed settings at the published rate (each R > 0, each reduction, both points), "
        f"{counts[0]} are better than untuned DP-SGD, {counts[1]} better than the same clip and rate at R = 0, "
        f"and {counts[2]} better than DP-SGD at its own best rate (95 % intervals, one at a time)."
    )


def _verdict(difference: Estimate) -> str:
    if len(difference.values) < 2:
        return "(one seed: no verdict) stands beside"
    return {1: "is better than", -1: "is worse than", 0: "cannot be told apart from"}[difference.sign]


def _share(part: Estimate, gain: Estimate) -> str:
    share = part.mean / gain.mean
    return f"{part.mean:+.2f} points ({'more than all' if share > 1 else f'{100 * share:.0f} %'})"


def _at_edge(rates: Sequence[float], rate: float) -> str:
    if rate in (rates[0], rates[-1]):
        return " The rate is the end of those tried: a better one may lie beyond."
    return ""


def _listed(values: Sequence[float]) -> str:
    *head, last = (f"{value:g}" for value in values)
    return f"{', '.join(head)} and {last}" if head else last
