"""Picture of a curve: numbers in the units of the parameter and of the score, and sentences about them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.study.unimodal.inference.axis import ParameterAxis, Warp
from tuner.study.unimodal.inference.beliefs import Beliefs
from tuner.study.unimodal.inference.gaussian_process import FAR
from tuner.study.unimodal.inference.records import Record

__all__ = ["NEVER_STARTED", "CurvePicture", "CurvePoint", "picture"]

Array = NDArray[np.float64]

_LEVEL = 0.01
"""Level of the bracket over all looks, and of the test of unimodality."""

NEVER_STARTED = "never started"
"""State of a trial that was excluded before its first step."""

_BAND = (0.1, 0.9)
"""Quantiles of the possible curves that bound the band."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Trial in the picture of a curve.

    Attributes:
        value: value of the parameter.
        score: the last score; None without one.
        fraction: share of the steps before the last score; 0 without one.
        state: ``complete``, ``pruned``, ``running`` or `NEVER_STARTED`.
    """

    trial: int
    value: float
    score: float | None
    fraction: float
    state: str


@dataclass(frozen=True, kw_only=True)
class CurvePicture:
    """Curve of the score along one parameter, by the model of a search.

    Attributes:
        low: least value of the parameter.
        high: largest value of the parameter.
        warp: scale of the axis.
        values: points of the curve; empty before the first score, like the next three.
        mean: the curve.
        band_low: quantile 10 % of the possible curves.
        band_high: quantile 90 % of the possible curves.
        height_at: share of the steps after which the scores at the height of the curve were reported.
        drawn_for: the trial whose other parameters the curve is drawn for; None if nothing else is searched.
        scaled_by: parameters that multiply this one, each from the middle of its range; all values are products.
        above: lower limit of the best value; None if unknown.
        below: upper limit of the best value; None if unknown.
        level: probability, over all looks, that `above` or `below` is wrong for a curve with one top.
        unimodal: whether the assumption of one top holds.
        one_top: probability of one top by the model; 0 if it was rejected.
        best: the best complete trial by the curve; None without one.
        near: probability that `best` is within the tolerance of the optimum.
        tolerance: smallest difference between scores that matters.
        noise: standard deviation of the last scores of equal trials, by the model; None before the first score.
        fallback: pruner for scores with more than one top; empty if unknown.
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
    one_top: float | None = None
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
        """Return the point of a trial."""
        return next((point for point in self.points if point.trial == trial), None)

    @property
    def where(self) -> str:
        """Range of the best value in words; empty if neither end is excluded."""
        if not self.unimodal:
            return ""
        if self.above is not None and self.below is not None:
            return f"between {_number(self.above)} and {_number(self.below)}"
        if self.above is not None:
            return f"above {_number(self.above)}"
        return "" if self.below is None else f"below {_number(self.below)}"

    @property
    def chance(self) -> str:
        """`near` in words, never 1 or 0: it is a share of a few hundred curves."""
        return "" if self.near is None else _chance(self.near)

    @property
    def rejected(self) -> str:
        """Reason why unimodality was rejected; empty while it holds."""
        if self.unimodal:
            return ""
        instead = f", pruning by {self.fallback}" if self.fallback else ""
        return (
            f"Not unimodal in {self.parameter}: if the curve had one top, the complete trials would put it above "
            f"{_number(self.above)} and below {_number(self.below)}, which is impossible (level "
            f"{_percent(self.level)} over all looks). The search continues without the assumption{instead}."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Description of the picture, in sentences."""
        said = [self.rejected] if self.rejected else [self._bracket_sentence]
        if self.unimodal and self.one_top is not None:
            said.append(f"By the model the curve has one top with probability {_chance(self.one_top)}.")
        best = self.point(self.best)
        if best is not None and self.near is not None:
            said.append(
                f"By the curve, trial {best.trial} ({self.parameter} = {_number(best.value)}) is the best "
                f"complete one: it is within {_number(self.tolerance)} of the optimum with probability {self.chance}."
            )
        elif self.points:
            said.append("No trial is complete yet.")
        if self.values and self.height_at < 1:
            said.append(f"The curve has the height of the scores after {_percent(self.height_at)} of the steps.")
        if self.drawn_for is not None:
            said.append(
                f"Other parameters are searched too: the curve is drawn for those of trial {self.drawn_for}, and "
                "other trials may be off the curve."
            )
        if self.scaled_by:
            said.append(
                f"Values of {self.parameter} are its product with {' and '.join(self.scaled_by)}, each relative to the "
                "middle of its range."
            )
        return tuple(said)

    @property
    def line(self) -> str:
        """Summary in one line."""
        if not self.unimodal:
            instead = f"pruning by {self.fallback}" if self.fallback else "searched without the assumption"
            return f"{self.parameter}: not unimodal (level {_percent(self.level)}): {instead}"
        said = [f"best {self.where}" if self.where else "no end excluded yet"]
        if self.best is not None and self.near is not None:
            said.append(f"trial {self.best} near the best with {self.chance}")
        return f"{self.parameter}: {'; '.join(said)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the picture for JSON."""
        return {**asdict(self), "sentences": list(self.sentences), "band": list(_BAND)}

    @property
    def _bracket_sentence(self) -> str:
        if not self.where:
            return f"Neither end of {self.parameter} is excluded yet (level {_percent(self.level)} over all looks)."
        sure = f"level {_percent(self.level)} over all looks, for a curve with one top"
        return f"The best {self.parameter} is {self.where} ({sure})."


def picture(
    beliefs: Beliefs, parameter: str, *, maximize: bool = True, fallback: str = "", scaled_by: tuple[str, ...] = ()
) -> CurvePicture:
    """Create the picture of the beliefs along a parameter. `CurvePicture` explains the other arguments."""
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
        one_top=beliefs.one_top if beliefs.posterior is not None else None,
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
    """Return the curves at the height of the scores, the rung (share of the steps) of these scores, and its best trial.

    The model knows each curve up to a constant. Each curve is shifted to the mean of the scores at the latest rung, in
    the context of the best score: the curves are of this context.
    """
    records = beliefs.last_records or beliefs.seen.records
    reached = max(record.fraction for record in records)
    there = [record for record in records if record.fraction == reached]
    best = min(there, key=lambda record: (-record.score, record.trial))
    # The model limits scores far below the best, so they give no height.
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
    """Round away the digits that the conversion to the axis and back adds."""
    return float(f"{value:.12g}")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _chance(probability: float) -> str:
    return "> 0.99" if probability > 0.99 else "< 0.01" if probability < 0.01 else f"{probability:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
