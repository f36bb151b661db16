"""What is shown of a curve: its numbers against a direct computation, and its words in every state of a search."""

from __future__ import annotations

import json

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.study.unimodal.curves import curves_of
from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.inference.picture import NEVER_STARTED, CurvePicture, picture
from tuner.study.unimodal.inference.records import Record, Seen, Standing
from tuner.study.unimodal.options import Along
from tuner.study.unimodal.pruner import UnimodalPruner, UnimodalPruners
from tuner.study.unimodal.sampler import UnimodalSampler, UnimodalSamplers

RUNGS = (3, 9, 18, 27)
RADIUS = FloatDistribution(0.0, 100.0)


def score(radius: float, step: int) -> float:
    return 0.8 + 0.05 * (step / 27) ** 0.5 * (1.0 - (np.log1p(radius) - np.log1p(30.0)) ** 2)


def made(number: int, radius: float, upto: int, state: TrialState | None = None, sign: float = 1.0) -> FrozenTrial:
    noise = np.random.default_rng(number).normal(0, 0.001, len(RUNGS))
    seen = {step: sign * (score(radius, step) + float(noise[i])) for i, step in enumerate(RUNGS[:upto])}
    if state is None:
        state = TrialState.COMPLETE if upto == len(RUNGS) else TrialState.PRUNED
    return create_trial(
        state=state,
        value=seen[27] if state is TrialState.COMPLETE else None,
        params={"R": radius},
        distributions={"R": RADIUS},
        intermediate_values=seen,
    )


TRIALS = [(10.0, 4), (30.0, 4), (0.0, 1), (60.0, 4), (1.0, 0), (25.0, 4), (90.0, 2)]


def study(sign: float = 1.0, trials: list[tuple[float, int]] = TRIALS, running: float | None = 33.0) -> Study:
    direction = "maximize" if sign > 0 else "minimize"
    found = optuna.create_study(direction=direction, sampler=sampler(), pruner=optuna.pruners.NopPruner())
    for number, (radius, upto) in enumerate(trials):
        found.add_trial(made(number, radius, upto, sign=sign))
    if running is not None:
        found.add_trial(made(len(trials), running, 1, TrialState.RUNNING, sign))
    return found


def sampler(parameter: str = "R") -> UnimodalSampler:
    return UnimodalSampler(parameter, tolerance=0.004, last_step=27, base=RandomSampler(seed=1))


def test_the_numbers_are_those_of_a_direct_computation() -> None:
    believed = sampler().beliefs(study())
    assert believed is not None
    shown = picture(believed, "R")
    grid, curves = believed.rules.axis.grid, believed.curves
    assert shown.values == pytest.approx(np.expm1(grid * np.log1p(100.0)), rel=1e-9)
    whole = [(record.place, record.score) for record in believed.seen.records if record.fraction == 1]
    assert len(whole) == 4
    lifted = []
    for curve in curves:  # every curve is put through the scores of the complete trials
        apart = [score - np.interp(place, grid, curve) for place, score in whole]
        lifted.append(curve + sum(apart) / len(apart))
    assert shown.mean == pytest.approx(np.mean(lifted, axis=0), abs=1e-9)
    assert shown.band_low == pytest.approx(np.quantile(lifted, 0.1, axis=0), abs=1e-9)
    assert shown.band_high == pytest.approx(np.quantile(lifted, 0.9, axis=0), abs=1e-9)
    assert shown.best == believed.best()
    best = shown.point(shown.best)
    assert best is not None
    place = believed.rules.axis.place(best.value)
    assert shown.near == believed.near_trial(Standing(place, best.trial, "complete"))
    assert shown.near == pytest.approx(believed.near(place), abs=0.05)
    assert (shown.low, shown.high, shown.warp, shown.height_at, shown.tolerance) == (0.0, 100.0, "log1p", 1.0, 0.004)


def test_points_have_their_value_last_score_fraction_and_state() -> None:
    (shown,) = curves_of(study())
    assert [(point.trial, point.value, point.state) for point in shown.points] == [
        (0, 10.0, "complete"),
        (1, 30.0, "complete"),
        (2, 0.0, "pruned"),
        (3, 60.0, "complete"),
        (4, 1.0, NEVER_STARTED),
        (5, 25.0, "complete"),
        (6, 90.0, "pruned"),
        (7, 33.0, "running"),
    ]
    assert [point.fraction for point in shown.points] == pytest.approx([1, 1, 1 / 9, 1, 0, 1, 1 / 3, 1 / 9])
    for point, trial in zip(shown.points, study().get_trials(), strict=True):
        scores = trial.intermediate_values
        assert point.score == (pytest.approx(scores[max(scores)], rel=1e-11) if scores else None)


def test_where_less_is_better_the_picture_is_upside_down_and_in_the_scores_own_sign() -> None:
    (up,), (down,) = curves_of(study()), curves_of(study(sign=-1.0))
    assert not down.maximize
    assert down.mean == pytest.approx([-value for value in up.mean], abs=1e-9)
    assert down.band_low == pytest.approx([-value for value in up.band_high], abs=1e-9)
    assert [point.score for point in down.points if point.score is not None] == pytest.approx(
        [-point.score for point in up.points if point.score is not None]
    )
    assert (down.best, down.near, down.line) == (up.best, up.near, up.line)


@pytest.mark.parametrize(
    ("trials", "running"), [([], None), ([], 10.0), ([(10.0, 2)], None), ([(10.0, 4)], None), (TRIALS, 5.0)]
)
def test_every_state_of_a_search_has_words_and_is_json(trials: list[tuple[float, int]], running: float | None) -> None:
    curves = curves_of(study(trials=trials, running=running), fallback="median")
    assert len(curves) == bool(trials or running is not None)
    for shown in curves:
        told = json.loads(json.dumps(shown.as_dict(), allow_nan=False))
        assert told["sentences"] == list(shown.sentences)
        assert all(shown.sentences)
        assert shown.line.startswith("R: ")
        assert len(shown.values) == len(shown.mean) == len(shown.band_low) == len(shown.band_high) > 0
        complete = any(upto == 4 for _, upto in trials)
        assert (shown.best is None) is not complete
        assert (shown.height_at < 1) is not complete


def test_a_trial_that_has_no_score_yet_makes_no_curve() -> None:
    found = study(trials=[], running=None)
    found.add_trial(made(0, 10.0, 0, TrialState.RUNNING))
    (shown,) = curves_of(found)
    assert (shown.values, shown.mean, shown.near) == ((), (), None)
    assert shown.points[0].score is None


def shape(*, two: bool = False) -> CurvePicture:
    """From many complete trials, with one top or with two."""
    axis = ParameterAxis(0.0, 100.0)
    places = np.linspace(0.05, 0.95, 30)
    tops = (0.25, 0.75) if two else (0.6,)
    scores = np.max([1 - 4 * np.abs(places - top) for top in tops], axis=0)
    records = [Record(float(x), 1.0, float(y), n) for n, (x, y) in enumerate(zip(places, scores, strict=True))]
    standings = [Standing(record.place, record.trial, "complete") for record in records]
    return picture(
        Beliefs(Seen.of(records, standings), Rules(axis=axis, tolerance=0.05)), "smoothing_radius", fallback="median"
    )


def test_the_bracket_is_told_in_the_parameters_own_unit() -> None:
    shown = shape()
    assert shown.unimodal
    assert shown.above is not None
    assert shown.below is not None
    assert 0 < shown.above < np.expm1(0.6 * np.log1p(100.0)) < shown.below < 100
    for end in (shown.above, shown.below):
        assert f"{end:.3g}" in shown.sentences[0]
        assert f"{end:.3g}" in shown.line
    assert shown.rejected == ""


def test_a_second_top_is_said_with_what_follows() -> None:
    shown = shape(two=True)
    assert not shown.unimodal
    assert shown.where == ""
    assert shown.sentences[0] == shown.rejected
    assert "median" in shown.rejected
    assert "median" in shown.line


def test_certainty_is_not_claimed_by_some_hundred_curves() -> None:
    words = {
        near: CurvePicture(parameter="R", low=0.0, high=1.0, warp="log1p", tolerance=0.1, best=1, near=near).chance
        for near in (0.0, 0.004, 0.5, 0.934, 1.0)
    }
    assert list(words.values()) == ["< 0.01", "< 0.01", "0.50", "0.93", "> 0.99"]


def test_several_parameters_have_a_picture_each_and_other_values_are_said() -> None:
    found = optuna.create_study(direction="maximize")
    found.sampler = UnimodalSamplers(
        (Along("R"), Along("S", ("R",))), RandomSampler(seed=0), lambda along, _base: sampler(along.name)
    )
    domains: dict[str, BaseDistribution] = {"R": RADIUS, "S": FloatDistribution(1.0, 10.0)}
    for number, (radius, other) in enumerate([(10.0, 2.0), (30.0, 5.0)]):
        value = score(radius, 27) - 0.01 * number
        found.add_trial(
            create_trial(
                value=value, params={"R": radius, "S": other}, distributions=domains, intermediate_values={27: value}
            )
        )
    assert [shown.parameter for shown in curves_of(found)] == ["R", "S"]
    shown = curves_of(found)[0]
    best = max(found.get_trials(), key=lambda trial: trial.value or 0.0)
    assert shown.drawn_for == best.number
    assert np.interp(shown.axis.place(best.params["R"]), shown.axis.grid, shown.mean) == pytest.approx(best.value)


def test_the_pruner_is_asked_where_the_sampler_is_another() -> None:
    found = study()
    (ours,) = curves_of(found)
    found.sampler = RandomSampler(seed=0)
    assert curves_of(found) == ()
    rule = UnimodalPruner("R", tolerance=0.004, last_step=27)
    for pruner in (rule, UnimodalPruners([rule], optuna.pruners.NopPruner(), called="none")):
        found.pruner = pruner
        (theirs,) = curves_of(found)
        assert theirs.mean == ours.mean
