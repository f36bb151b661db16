"""What is shown of a curve: its numbers against a direct computation, and its words in every state of a search."""

from __future__ import annotations

import json

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import TrialState, create_trial
from radius_studies import DOMAIN, RUNGS, TOLERANCE, beliefs_of, made, pruner, sampler, study_of

from tuner.study.unimodal.curves import curves_of
from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Rules
from tuner.study.unimodal.inference.picture import NEVER_STARTED, CurvePicture, picture
from tuner.study.unimodal.inference.records import Standing
from tuner.study.unimodal.pruner import UnimodalPruners
from tuner.study.unimodal.sampler import UnimodalSampler, UnimodalSamplers

TRIALS = [(15.0, 4), (30.0, 4), (0.0, 1), (60.0, 4), (1.0, 0), (25.0, 4), (90.0, 2)]


def study(sign: float = 1.0, trials: list[tuple[float, int]] = TRIALS, running: float | None = 33.0) -> Study:
    all_ = [made(number, radius, upto, sign=sign) for number, (radius, upto) in enumerate(trials)]
    if running is not None:
        all_.append(made(len(trials), running, 1, TrialState.RUNNING, sign))
    return study_of(all_, "maximize" if sign > 0 else "minimize")


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
    assert (shown.axis, shown.height_at, shown.tolerance) == (ParameterAxis(0.0, 100.0), 1.0, TOLERANCE)


def test_points_have_their_value_last_score_fraction_and_state() -> None:
    (shown,) = curves_of(study())
    values, uptos = (list(each) for each in zip(*TRIALS, (33.0, 1), strict=True))
    states = ["complete", "complete", "pruned", "complete", NEVER_STARTED, "complete", "pruned", "running"]
    assert [(point.value, point.state) for point in shown.points] == list(zip(values, states, strict=True))
    assert [point.fraction for point in shown.points] == pytest.approx([([0, *RUNGS])[upto] / 27 for upto in uptos])
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
def test_every_state_of_a_search_is_json(trials: list[tuple[float, int]], running: float | None) -> None:
    curves = curves_of(study(trials=trials, running=running), fallback="median")
    assert len(curves) == bool(trials or running is not None)
    complete = any(upto == 4 for _, upto in trials)
    for shown in curves:
        assert json.loads(json.dumps(shown.as_dict(), allow_nan=False))["sentences"] == list(shown.sentences)
        assert len(shown.values) == len(shown.mean) == len(shown.band_low) == len(shown.band_high) > 0
        assert (shown.best is not None) is (shown.height_at == 1) is complete
        assert shown.line.startswith("R: ")


def shape(*tops: float) -> CurvePicture:
    """From many complete trials."""
    places = np.linspace(0.05, 0.95, 30)
    scores = np.max([1 - 4 * np.abs(places - top) for top in tops], axis=0)
    rules = Rules(axis=ParameterAxis(0.0, 100.0), tolerance=0.05)
    return picture(beliefs_of(places, scores, rules), "smoothing_radius", fallback="median")


def test_the_bracket_is_in_the_parameters_own_unit_and_a_second_top_has_none() -> None:
    shown = shape(0.6)
    assert shown.unimodal
    assert shown.above is not None
    assert shown.below is not None
    assert 0 < shown.above < np.expm1(0.6 * np.log1p(100.0)) < shown.below < 100
    assert shown.rejected == ""
    assert f"{shown.above:.3g} and {shown.below:.3g}" in shown.sentences[0]
    two = shape(0.25, 0.75)
    assert not two.unimodal
    assert (two.where, two.sentences[0]) == ("", two.rejected)
    assert "median" in two.rejected
    assert "median" in two.line


def test_several_parameters_have_a_picture_each_drawn_for_the_best_trial() -> None:
    several = optuna.create_study(direction="maximize")
    several.sampler = UnimodalSamplers(
        [UnimodalSampler(name, tolerance=TOLERANCE, last_step=27, base=RandomSampler(seed=1)) for name in "RS"]
    )
    domains = {"R": DOMAIN, "S": FloatDistribution(1.0, 10.0)}
    for value, params in ((1.5, {"R": 10.0, "S": 2.0}), (2.0, {"R": 30.0, "S": 5.0})):
        scored = {"value": value, "intermediate_values": {27: value}}
        several.add_trial(create_trial(params=params, distributions=domains, **scored))
    shown, other = curves_of(several)
    assert (shown.parameter, other.parameter, shown.drawn_for) == ("R", "S", 1)
    assert np.interp(shown.axis.place(30.0), shown.axis.grid, shown.mean) == pytest.approx(2.0)


def test_the_pruner_is_asked_where_the_sampler_is_another() -> None:
    both, (ours,) = study(), curves_of(study())
    both.sampler = RandomSampler(seed=0)
    assert curves_of(both) == ()
    for asked in (pruner(), UnimodalPruners([pruner()], optuna.pruners.NopPruner(), called="none")):
        both.pruner = asked
        assert curves_of(both)[0].mean == ours.mean
