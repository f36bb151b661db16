"""The level of what is said holds with ties, with many looks and along several parameters at once."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from critical_values import critical_value
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler
from optuna.trial import create_trial
from radius_studies import beliefs_of

from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Rules
from tuner.study.unimodal.inference.bracket import bracket, threshold
from tuner.study.unimodal.sampler import UnimodalSampler, UnimodalSamplers
from tuner.study.unimodal.view import View

WHOLE = ParameterAxis(1.0, 4.0, "linear")
UNIT = FloatDistribution(0.0, 1.0)


def test_many_scores_at_few_places_do_not_reject_a_constant_curve() -> None:
    """Sorted by their scores they rise at every place, closer than chance: 15 % were rejected."""
    rejected, sorted_by_score = 0, 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        places, scores = random.integers(0, 4, 40) / 3, 0.6 + 0.002 * random.standard_normal(40)
        rejected += not beliefs_of(places, scores, Rules(axis=WHOLE, tolerance=0.002)).unimodal
        order = np.lexsort((scores, places))
        steps = np.diff(scores[order])
        step = threshold(0.01, 40, values=40) * float(np.sqrt(0.5 * np.mean(steps**2)))
        sorted_by_score += bracket(places[order], scores[order], step=step).empty
    assert rejected == 0
    assert sorted_by_score > 2  # the control


def test_more_looks_than_were_simulated_have_a_larger_value() -> None:
    values = [threshold(0.01, looks, values=looks, known=True) for looks in (80, 81, 200, 1_000)]
    assert values == sorted(set(values))
    assert values[-1] < 7


@pytest.mark.parametrize("looks", [8, 9, 16])
def test_the_bound_is_above_what_is_simulated(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.study.unimodal.inference.bracket._MADE", {})
    assert threshold(0.05, looks, values=looks, known=True) >= critical_value(0.05, looks)


def layered(points: list[tuple[float, float]], scores: list[float]) -> tuple[UnimodalSamplers, optuna.Study]:
    x_sampler = UnimodalSampler("x", tolerance=0.02, last_step=1, base=RandomSampler(seed=0), starts=(0.3, 0.6))
    y_sampler = UnimodalSampler("y", tolerance=0.02, last_step=1, base=x_sampler, starts=(0.3, 0.6))
    sampler = UnimodalSamplers([x_sampler, y_sampler])
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for (x, y), score in zip(points, scores, strict=True):
        study.add_trial(create_trial(params={"x": x, "y": y}, distributions={"x": UNIT, "y": UNIT}, value=score))
    return sampler, study


def test_several_parameters_are_sure_together_and_of_one_trial() -> None:
    """Trials on a grid show the top along both. Trials on a line show it along one, however many there are."""
    grid = np.linspace(0.0, 1.0, 9).tolist()
    for points, over in (([(x, y) for x in grid for y in grid], True), ([(x, 0.1) for x in grid * 3], False)):
        luck = 0.002 * np.random.default_rng(0).standard_normal(len(points))
        scores = [-((x - 0.5) ** 2) - (y - 0.4) ** 2 + own for (x, y), own in zip(points, luck.tolist(), strict=True)]
        sampler, study = layered(points, scores)
        best = sampler.best(study)
        assert best is not None
        assert sampler.is_over(study) is over
        assert (best[1] >= Rules.sure) is over


@pytest.mark.parametrize("low", [-2.0, 0.0, 1.0])
def test_the_axis_of_a_product_holds_every_product(low: float) -> None:
    distributions = {"x": FloatDistribution(low, 3.0), "rate": FloatDistribution(0.1, 10.0)}
    view = View.of("x", distributions["x"], distributions, ("rate", "none that is searched"))
    assert view is not None
    assert list(view.scales) == ["rate"]
    for x in (low, 3.0):
        for rate in (0.1, 10.0):
            trial = create_trial(params={"x": x, "rate": rate}, distributions=distributions, value=0.0)
            assert -1e-9 <= view.place(trial) <= 1 + 1e-9


def test_the_end_is_not_declared_along_one_parameter_while_another_is_unexplored() -> None:
    """All trials have one learning rate. What the curve is at others nobody knows."""
    places = np.linspace(0.0, 1.0, 9)
    for alone in (True, False):
        space = {"x": UNIT} if alone else {"x": UNIT, "rate": FloatDistribution(0.01, 1.0, log=True)}
        sampler = UnimodalSampler("x", tolerance=0.02, last_step=1, base=RandomSampler(seed=0))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for number, x in enumerate(places.tolist()):
            score = -((x - 0.5) ** 2) + 0.001 * (-1) ** number
            values = {"x": x} if alone else {"x": x, "rate": 0.1}
            study.add_trial(create_trial(params=values, distributions=space, value=score))
        assert sampler.is_over(study) is alone
