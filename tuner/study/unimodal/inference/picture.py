"""Numbers (in the units of the parameter and the score) and sentences with which a report describes a curve."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np

from search_spaces.spaces import DIVIDES
from tuner.study.unimodal.inference.axis import Array, ParameterAxis, Warp
from tuner.study.unimodal.inference.beliefs import Beliefs
from tuner.study.unimodal.inference.posterior import FAR
from tuner.study.unimodal.inference.records import Record

__all__ = ["NEVER_STARTED", "CurvePicture", "CurvePoint", "picture"]

_LEVEL = 0.01
"""Error probability of the bracket over the whole search, and significance level of the test of unimodality."""

NEVER_STARTED = "never started"
"""State of a trial that was excluded before its first step."""

_BAND = (0.1, 0.9)
"""Lower and upper limit of the band around the curve, as quantiles of the posterior draws."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Trial as a point in the picture of a curve.

    Attributes:
        trial: number of the trial.
        value: value of the parameter.
        score: the trial's last score, or None if it has no score.
        fraction: fraction of the steps that the trial had taken at its last score, or 0 if it has no score.
        state: ``complete``, ``pruned``, ``running`` or `NEVER_STARTED`.
    """

    trial: int
    value: float
    score: float | None
    fraction: float
    state: str


@dataclass(frozen=True, kw_only=True)
class CurvePicture:
    """Estimated curve of the score along one parameter.

    Attributes:
        parameter: name of the parameter.
        low: lower bound of the parameter.
        high: upper bound of the parameter.
        warp: scale of the axis.
        maximize: whether larger scores are better.
        values: values of the parameter at which the curve is computed. Empty before the first score.
        mean: posterior mean of the score at `values`.
        band_low: 10 % quantile of the posterior draws at `values`.
        band_high: 90 % quantile of the posterior draws at `values`.
        height_at: rung whose scores determine the height of the curve, as a fraction of the steps.
        drawn_for: number of the trial from which the curve takes the values of the other searched parameters, or None
            if no other parameter is searched.
        scaled_by: names of other parameters that multiply all values in the picture. Each of these parameters
            is first divided by the middle of its range.
        above: lower limit of the best value, or None if unknown.
        below: upper limit of the best value, or None if unknown.
        level: upper bound on the probability that `above` or `below` is ever wrong during the search, if the curve has
            one maximum.
        unimodal: whether the scores are consistent with one maximum.
        points: the trials.
        best: number of the complete trial that is best according to the curve, or None if no trial is complete.
        near: probability that `best` is within the tolerance of the optimum.
        tolerance: smallest difference between scores that matters.
        noise: estimated standard deviation of final scores with equal parameters, or None before the first score.
        fallback: name of the pruner for scores with several maxima, or empty if unknown.
    """

    parameter: str
    low: float
    high: float
    warp: Warp
    maximize: bool = True
    values: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()
    band_low: tuple[float, ...] = ()
    band_high: tuple[float, ...] = ()
    height_at: float = 0.0
    drawn_for: int | None = None
    scaled_by: tuple[str, ...] = ()
    above: float | None = None
    below: float | None = None
    level: float = _LEVEL
    unimodal: bool = True
    points: tuple[CurvePoint, ...] = ()
    best: int | None = None
    near: float | None = None
    tolerance: float
    noise: float | None = None
    fallback: str = ""

    @property
    def axis(self) -> ParameterAxis:
        """Axis of the picture."""
        return ParameterAxis(self.low, self.high, self.warp)

    def point(self, trial: int | None) -> CurvePoint | None:
        """Return the point of a trial in the picture, or None if the trial has no point."""
        return next((point for point in self.points if point.trial == trial), None)

    @property
    def where(self) -> str:
        """Range of the best value in words, or empty if neither limit is known."""
        if not self.unimodal:
            return ""
        if self.above is not None and self.below is not None:
            return f"between {_number(self.above)} and {_number(self.below)}"
        if self.above is not None:
            return f"above {_number(self.above)}"
        return "" if self.below is None else f"below {_number(self.below)}"

    @property
    def chance(self) -> str:
        """Text for `near`. It never shows 0 or 1, because `near` is estimated from a few hundred curves."""
        return "" if self.near is None else _chance(self.near)

    @property
    def rejected(self) -> str:
        """Explanation why the score is not unimodal, or empty if the scores are consistent with one maximum."""
        if self.unimodal:
            return ""
        instead = f", and the pruner {self.fallback} stops trials" if self.fallback else ""
        return (
            f"Not unimodal in {self.parameter}: if the curve had one maximum, the complete trials would place it both "
            f"above {_number(self.above)} and below {_number(self.below)}, which is impossible "
            f"(significance level {_percent(self.level)} over the whole search). The search continues without this "
            f"assumption{instead}."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences that describe the picture."""
        said = [self.rejected] if self.rejected else [self._bracket_sentence]
        best = self.point(self.best)
        if best is not None and self.near is not None:
            said.append(
                f"According to the curve, trial {best.trial} ({self.parameter} = {_number(best.value)}) is the best "
                f"complete trial. It is within {_number(self.tolerance)} of the optimum with probability {self.chance}."
            )
        elif self.points:
            said.append("No trial is complete yet.")
        if self.values and self.height_at < 1:
            said.append(f"The curve shows the scores after {_percent(self.height_at)} of the steps.")
        if self.drawn_for is not None:
            said.append(
                f"Other parameters are searched too. The curve is drawn for their values in trial {self.drawn_for}, so "
                "other trials may be off the curve."
            )
        if self.scaled_by:
            verbs = (("multiplied by", False), ("divided by", True))
            parts = [
                f"{verb} {' and '.join(names)}"
                for verb, divides in verbs
                if (names := [name for name in self.scaled_by if (name in DIVIDES) is divides])
            ]
            said.append(
                f"Values of {self.parameter} are {' and '.join(parts)}, each relative to the middle of its range."
            )
        return tuple(said)

    @property
    def line(self) -> str:
        """Summary of the picture in one line."""
        if not self.unimodal:
            instead = f"the pruner {self.fallback} stops trials" if self.fallback else "the search does not assume this"
            return f"{self.parameter}: not unimodal (significance level {_percent(self.level)}), so {instead}"
        said = [f"best {self.where}" if self.where else "no value excluded yet"]
        if self.best is not None and self.near is not None:
            said.append(f"trial {self.best} is near the best with probability {self.chance}")
        return f"{self.parameter}: {'; '.join(said)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the picture as a dict that can be written as JSON."""
        return {**asdict(self), "sentences": list(self.sentences), "band": list(_BAND)}

    @property
    def _bracket_sentence(self) -> str:
        if not self.where:
            return (
                f"No value of {self.parameter} is excluded yet (at significance level {_percent(self.level)} over the "
                "whole search)."
            )
        sure = f"with error probability {_percent(self.level)} over the whole search, if the curve has one maximum"
        return f"The best {self.parameter} is {self.where} ({sure})."


def picture(
    beliefs: Beliefs, parameter: str, *, maximize: bool = True, fallback: str = "", scaled_by: tuple[str, ...] = ()
) -> CurvePicture:
    """Create the picture of the estimated curve along one parameter. See `CurvePicture` for the other arguments."""
    axis, sign = beliefs.rules.axis, 1.0 if maximize else -1.0
    best = beliefs.best()
    standing = next((trial for trial in beliefs.seen.trials if trial.trial == best), None)
    limits = beliefs.bracket
    told: dict[str, Any] = {}
    if beliefs.posterior is not None:
        curves, height_at, of = _at_height(beliefs)
        low, high = np.quantile(sign * curves, _BAND, axis=0)
        told = {
            "values": tuple(_tidy(axis.value(each)) for each in axis.grid),
            "mean": _numbers(sign * curves.mean(0)),
            "band_low": _numbers(low),
            "band_high": _numbers(high),
            "height_at": height_at,
            "noise": _tidy(beliefs.posterior.noise),
            "drawn_for": of if len({record.context for record in beliefs.seen.records}) > 1 else None,
        }
    return CurvePicture(
        parameter=parameter,
        low=axis.low,
        high=axis.high,
        warp=axis.warp,
        maximize=maximize,
        **told,
        above=_tidy(axis.value(limits.low)) if isfinite(limits.low) else None,
        below=_tidy(axis.value(limits.high)) if isfinite(limits.high) else None,
        unimodal=beliefs.unimodal,
        points=_points(beliefs, sign),
        best=best,
        near=None if standing is None else beliefs.near_trial(standing),
        tolerance=beliefs.rules.tolerance,
        fallback=fallback,
        scaled_by=scaled_by,
    )


def _points(beliefs: Beliefs, sign: float) -> tuple[CurvePoint, ...]:
    last: dict[int, Record] = {}
    for record in beliefs.seen.records:
        if record.trial not in last or record.fraction > last[record.trial].fraction:
            last[record.trial] = record
    found = []
    for trial in beliefs.seen.trials:
        scored = last.get(trial.trial)
        found.append(
            CurvePoint(
                trial=trial.trial,
                value=_tidy(beliefs.rules.axis.value(trial.place)),
                score=None if scored is None else _tidy(sign * scored.score),
                fraction=0.0 if scored is None else scored.fraction,
                state=NEVER_STARTED if trial.state == "pruned" and scored is None else trial.state,
            )
        )
    return tuple(sorted(found, key=lambda point: point.trial))


def _at_height(beliefs: Beliefs) -> tuple[Array, float, int]:
    """Return posterior draws of the curve, shifted to the height of the observed scores.

    The model determines each curve only up to a constant. Each draw is shifted to the mean of the scores at the latest
    rung. Only scores in the context of the best trial at this rung are used, because the curves belong to this context.

    Returns:
        The shifted curves, the latest rung as a fraction of the steps, and the number of the rung's best trial.
    """
    records = beliefs.last_records or beliefs.seen.records
    reached = max(record.fraction for record in records)
    there = [record for record in records if record.fraction == reached]
    best = min(there, key=lambda record: (-record.score, record.trial))
    # The model raises scores far below the best score, so these scores cannot determine the height.
    least = best.score - FAR * beliefs.rules.tolerance
    like = [record for record in there if record.context == best.context and record.score >= least]
    grid, curves = beliefs.rules.axis.grid, beliefs.curves
    places = np.array([record.place for record in like])
    scores = np.array([record.score for record in like])
    seen = np.array([np.interp(places, grid, curve) for curve in curves])
    return curves + (scores - seen).mean(1)[:, None], reached, best.trial


def _numbers(values: Array) -> tuple[float, ...]:
    return tuple(_tidy(float(value)) for value in values)


def _tidy(value: float) -> float:
    """Round a value to 12 digits, which removes the rounding errors of the conversion to the axis and back."""
    return float(f"{value:.12g}")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _chance(probability: float) -> str:
    return "> 0.99" if probability > 0.99 else "< 0.01" if probability < 0.01 else f"{probability:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
