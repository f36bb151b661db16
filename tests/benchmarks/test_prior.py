"""The measurement of the prior: its steps are those of a naive loop, and a fit finds a known top."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from benchmarks.prior import many_classes
from benchmarks.prior.distil import Rows, fit_sgd, regret
from benchmarks.prior.networks import DATASETS, FACTORS, NetCase, NetGrid, family_fits
from benchmarks.prior.records import FITTED, SET_ASIDE
from benchmarks.prior.situations import CLIPS, PRODUCTS, situations
from benchmarks.prior.training import Extras, Network, Problem, smoothed, train
from search_spaces.prior.features import FEATURES

CLIPPED = torch.tensor([0.05, 0.4, 100.0])


def problem(hidden: int) -> Problem:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(24, 5, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return Problem(x=x, y=y, x_held=x, y_held=y, classes=3, hidden=hidden)


@pytest.mark.parametrize(("hidden", "decays"), [(0, False), (0, True), (4, False)])
def test_clipped_sums_are_those_of_a_loop_over_samples(hidden: int, decays: bool) -> None:
    own = problem(hidden)
    network = Network(own, len(CLIPPED), torch.Generator().manual_seed(0))
    network.weights = [each + 0.3 * torch.randn(each.shape) for each in network.weights]  # copies that differ
    decay = torch.tensor([0.0, 0.1, 2.0]) if decays else None
    x = torch.cat([own.x, torch.ones(24, 1)], dim=1)
    inside, logits = network.forward(x)
    residuals = logits.softmax(2)
    residuals[:, torch.arange(24), own.y] -= 1
    sums = network.clipped_sums(x, residuals, inside, Extras(weight_decay=decay), CLIPPED)
    for copy, clip in enumerate(CLIPPED):
        weights = [each[copy].clone().requires_grad_() for each in network.weights]
        total = [torch.zeros_like(each) for each in weights]
        for row in range(24):
            out = x[row] @ weights[0]
            if hidden:
                out = torch.cat([out.relu(), torch.ones(1)]) @ weights[1]
            loss = torch.nn.functional.cross_entropy(out, own.y[row])
            gradient = list(torch.autograd.grad(loss, weights))
            if decay is not None:
                gradient = [g + decay[copy] * w.detach() for g, w in zip(gradient, weights, strict=True)]
            length = math.sqrt(sum(float(g.square().sum()) for g in gradient))
            total = [t + g * min(1.0, float(clip) / length) for t, g in zip(total, gradient, strict=True)]
        for found, wanted in zip(sums, total, strict=True):
            torch.testing.assert_close(found[copy], wanted, rtol=1e-4, atol=1e-5)


def test_smoothing_solves_the_circulant_system_of_each_tensor() -> None:
    gradient = torch.randn(2, 5, 3)  # four inputs and a bias, three classes
    sigma = torch.tensor([0.0, 1.5])
    found = smoothed(gradient, sigma)
    torch.testing.assert_close(found[0], gradient[0])
    flat = found[1, :-1].T.reshape(-1)
    back = (1 + 3.0) * flat - 1.5 * (flat.roll(1) + flat.roll(-1))
    torch.testing.assert_close(back, gradient[1, :-1].T.reshape(-1), rtol=1e-4, atol=1e-5)


def test_noise_spoils_what_training_learns_and_a_rate_of_zero_learns_nothing() -> None:
    own, rates = problem(0), torch.tensor([0.0, 5.0])
    common = {"clips": torch.ones(2), "batch_size": 24, "steps": 40}
    quiet = train(own, rates=rates, noise_multiplier=0.0, **common)  # type: ignore[arg-type]
    loud = train(own, rates=rates, noise_multiplier=1000.0, **common)  # type: ignore[arg-type]
    assert quiet[1] > 75
    assert quiet[1] > quiet[0]
    assert loud[1] < quiet[1] - 10
    assert loud[0] == quiet[0]


def test_a_fit_finds_the_top_of_made_up_curves() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, len(FEATURES), generator=generator, dtype=torch.float64)
    top = 0.5 - 0.6 * features[:, 0] - 0.4 * features[:, 1]
    grid = torch.tensor(PRODUCTS, dtype=torch.float64).log().expand(40, -1)
    clips = torch.tensor(CLIPS, dtype=torch.float64).log()
    table = 90 - 5 * (grid - top[:, None])[:, :, None] ** 2 - (clips - math.log(0.4)) ** 2
    rows = Rows(features, grid, table, table, ("linear",) * 40, ("a", "b") * 20)
    product, _ = fit_sgd(rows, rounds=80)
    slopes = torch.tensor([product["coefficients"][name] for name in FEATURES], dtype=torch.float64)
    found = product["intercept"] + features @ slopes
    assert float((found - top).abs().mean()) < 0.3
    clip = torch.full((40,), math.log(0.4), dtype=torch.float64)
    assert float(regret(rows, found, clip).mean()) < 1
    assert float(regret(rows, found + 2, clip).mean()) > 5, "a control: a rate seven times too high loses"


def test_the_data_sets_set_aside_are_never_fitted() -> None:
    assert not set(FITTED) & set(SET_ASIDE)
    assert {each.dataset for each in situations(1000)} == set(FITTED)


def _grids(best: Callable[[float], float]) -> dict[NetCase, NetGrid]:
    """Return made-up grids, whose accuracy falls with the distance from a best product of rate and clip."""
    found = {}
    for seed, product in enumerate((0.1, 0.5, 2.0, 8.0)):
        away = [abs(math.log(product * factor / best(product))) for factor in FACTORS]
        found[NetCase(dataset=DATASETS["convolutional"][seed % 2], seed=seed)] = NetGrid(
            model="tutorial_cnn",
            setting={"steps": 100.0},
            clip=0.5,
            rate=product / 0.5,
            accuracies=tuple(90 - 9 * each for each in away),
        )
    return found


def test_a_family_gets_the_length_that_its_steps_bear() -> None:
    assert 0.07 < family_fits(_grids(lambda product: min(product, 1.0)))["most"] < 0.14
    unlimited = family_fits(_grids(lambda product: product))["most"]
    assert unlimited > 0.8, "the control: models that are as linear ones"


@pytest.mark.parametrize("true", [0.0, 0.5])
def test_the_exponent_of_many_classes_is_that_of_made_up_grids_whatever_is_best_with_ten(true: float) -> None:
    facts = {"batch_size": 100.0, "steps": 50.0, "train_size": 1000.0, "dimension": 100.0}
    grids = {}
    for case in many_classes.cases():
        if case.model != "logistic_regression":
            continue
        top = {0.6: 1.4, 2.0: 0.7, 6.0: 0.4}[case.noise] * (case.classes / 10) ** true
        grids[case] = NetGrid(
            model=case.model,
            setting={**facts, "noise_multiplier": case.noise, "classes": float(case.classes)},
            clip=0.5,
            rate=10.0,
            accuracies=tuple(90 - 6 * math.log(factor / top) ** 2 for factor in FACTORS),
        )
    assert many_classes.exponent(grids) == pytest.approx(true, abs=0.05)
