"""The surrogate: what it learns of the best rate's course over noise, and what it says at a setting nobody tried."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import numpy as np
import pytest
from response_surfaces import SPACE, Surface

from search_spaces import SearchSpace
from search_spaces.domains import Categorical, Integer, LogUniform, Uniform
from tuner.study.surrogate import Observation, Prior, Surrogate
from tuner.study.surrogate.axes import Axes

FINAL = 0.3  # noise of the final run; the search's trials have more


def searched(
    surface: Surface, seed: int, noises: tuple[float, ...], trials: int = 12, luck: float = 0.5
) -> list[Observation]:
    """Return the scores of cheap trials: a quarter of the training, three rungs, the noises in turn."""
    random, found = np.random.default_rng(seed), []
    places = Axes.of(SPACE).fill(trials, seed)
    for number, place in enumerate(random.permutation(trials)):  # neighbours of a Sobol sequence are not alike
        at = places[place]
        noise, effect = noises[number % len(noises)], random.normal(0.0, luck)
        for fraction in (0.0625, 0.125, 0.25):
            score = surface.score(at, noise, fraction) + effect + random.normal(0.0, 0.3)
            found.append(Observation(at, noise, fraction, "private", score, 0.3, f"{number}"))
    return found


def by_rule(surface: Surface, seen: list[Observation], power: float) -> float:
    """Return the regret of the best trial's configuration with its rate times the noise ratio to `power`."""
    best = max(seen, key=lambda each: (each.fraction, each.score))
    at = dict(best.parameters)
    rate = float(str(at["learning_rate"])) * (best.noise / FINAL) ** power
    return surface.regret({**at, "learning_rate": min(max(rate, 0.1), 10.0)}, FINAL)


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_the_slope_is_learnt_where_several_noises_were_tried_and_hedged_where_one_was(slope: float) -> None:
    """The fixed rules are the control: each is right on one kind of surface, and loses points on another."""
    rules: dict[float, list[float]] = {0.0: [], 0.5: [], 1.0: []}
    one, several = [], []
    for seed in range(12):
        surface = Surface.drawn(np.random.default_rng(seed), slope)
        seen, both = searched(surface, seed, (1.0,)), searched(surface, seed, (0.5, 2.0))
        prior = Prior(noise=FINAL)
        one.append(surface.regret(Surrogate.fit(SPACE, seen, prior).best(FINAL).parameters, FINAL))
        several.append(surface.regret(Surrogate.fit(SPACE, both, prior).best(FINAL).parameters, FINAL))
        for power, losses in rules.items():
            losses.append(by_rule(surface, seen, power))
    worst = max(float(np.mean(losses)) for losses in rules.values())
    assert np.mean(one) < worst
    assert np.mean(several) < 0.8 * worst


def test_several_noises_determine_the_slope() -> None:
    """One noise leaves it where the prior has it: the control."""
    for slope in (0.0, 1.0):
        surface = Surface.drawn(np.random.default_rng(5), slope)
        several = Surrogate.fit(SPACE, searched(surface, 5, (0.25, 1.0, 4.0), trials=18)).slope
        one = Surrogate.fit(SPACE, searched(surface, 5, (1.0,), trials=18)).slope
        assert abs(several[0] - slope) < 2.5 * several[1]
        assert several[1] < 0.8 * one[1]


def test_an_uncertain_slope_makes_the_prediction_of_the_final_setting_uncertain() -> None:
    surface = Surface.drawn(np.random.default_rng(3), 0.5)
    seen = searched(surface, 3, (1.0,))
    narrow = Surrogate.fit(SPACE, seen, Prior(slope=(0.5, 0.01)))
    wide = Surrogate.fit(SPACE, seen, Prior(slope=(0.5, 1.5)))
    at = wide.best(FINAL).parameters
    assert wide.predict(at, FINAL)[1] > narrow.predict(at, FINAL)[1] > 0
    assert wide.predict(at, FINAL / 10)[1] > wide.predict(at, FINAL)[1] > wide.predict(at, 1.0, 0.25)[1]


def test_without_a_trial_the_best_is_the_priors_median_moved_along_its_slope() -> None:
    class Rate:
        value, spread = 2.0, 0.5

    prior = Prior(noise=1.0, recommended={"learning_rate": Rate()}, slope=(1.0, 0.05))
    empty = Surrogate.fit(SPACE, [], prior)
    assert empty.median() == pytest.approx({"learning_rate": 2.0, "max_grad_norm": 1.0})
    products = [
        float(str(found["learning_rate"])) * float(str(found["max_grad_norm"])) ** 0.85
        for found in (empty.best(noise).parameters for noise in (1.0, 2.0))
    ]
    assert products[0] == pytest.approx(2.0, rel=0.4)
    assert products[1] == pytest.approx(products[0] / 2, rel=0.3)


def test_first_trials_spread_the_clip_and_keep_the_product_that_the_prior_knows() -> None:
    class Known:
        value, spread = 1.0, 0.3

    class Vague:
        value, spread = 1.0, 0.8

    prior = Prior(noise=1.0, recommended={"learning_rate": Known(), "max_grad_norm": Vague()})
    found = Surrogate.fit(SPACE, [], prior).starts(32)
    rate, clip = (np.log([float(str(at[name])) for at in found]) for name in ("learning_rate", "max_grad_norm"))
    assert clip.std() > 0.7
    assert (rate + clip).std() < 0.7 * rate.std()


def test_the_prior_of_a_perturbation_is_its_lower_bound() -> None:
    space = SearchSpace.of({"laplacian_sigma": Uniform(0.0, 3.0), "batch_share": Uniform(0.0, 3.0)})
    assert Surrogate.fit(space, []).median() == {"laplacian_sigma": 0.0, "batch_share": 1.5}


def test_choices_conditions_and_whole_numbers_have_axes_and_the_best_is_in_the_space() -> None:
    space = SearchSpace.of(
        {
            "learning_rate": LogUniform(0.01, 1.0),
            "schedule": Categorical(("constant", "inverse_time", "cosine")),
            "schedule.inverse_time.decay": LogUniform(0.5, 3.0),
            "schedule.cosine.final": Uniform(0.0, 0.2),
            "smoothing_samples": Integer(1, 20, log=True),
        }
    )
    axes = Axes.of(space)
    assert axes.names == (
        "learning_rate", "schedule.cosine.final", "schedule.inverse_time.decay", "smoothing_samples", "schedule",
    )  # fmt: skip
    places = axes.fill(24, 0)
    assert {str(at["schedule"]) for at in places} == {"constant", "inverse_time", "cosine"}
    seen = [Observation(at, 1.0, 1.0, "private", float(at["schedule"] == "cosine"), 0.05) for at in places]
    surrogate = Surrogate.fit(space, seen)
    best = surrogate.best(1.0).parameters
    assert best["schedule"] == "cosine"
    assert set(best) == {"learning_rate", "schedule", "schedule.cosine.final", "smoothing_samples"}
    assert isinstance(best["smoothing_samples"], int)
    assert surrogate.best(1.0) == Surrogate.fit(space, seen).best(1.0)  # the same data, the same answer


@pytest.mark.parametrize(
    "wrong", [{"noise": 0.0}, {"fraction": -1.0}, {"score": inf}, {"error": -0.1}, {"source": "x"}]
)
def test_an_observation_without_sense_is_refused(wrong: dict[str, object]) -> None:
    values: dict[str, object] = {"noise": 1.0, "fraction": 1.0, "source": "private", "score": 0.5, "error": 0.1}
    with pytest.raises(ValueError, match="must be"):
        Surrogate.fit(SPACE, [Observation({"learning_rate": 1.0}, **{**values, **wrong})])  # type: ignore[arg-type]


def on_proxy(surface: Surface, seed: int, off: float, trials: int = 12) -> list[Observation]:
    """Return the scores of whole trials on a public proxy at the final run's noise. They cost nothing.

    The proxy has a level and a shape of its own, and its best log rate is `off` above the private one.
    """
    random, found = np.random.default_rng(seed + 99), []
    other = Surface.drawn(np.random.default_rng(seed + 1000), surface.slope)
    proxy = replace(other, q=surface.q, coupling=surface.coupling, best=surface.best + off)
    for number, at in enumerate(Axes.of(SPACE).fill(trials, seed + 7)):
        for fraction in (0.4, 1.0):
            score = proxy.score(at, FINAL, fraction) - 8.0 + random.normal(0.0, 0.3)
            found.append(Observation(at, FINAL, fraction, "public", score, 0.3, f"{number}"))
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_good_proxy_helps_and_one_a_decade_off_on_either_side_costs_at_most_half_a_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Controls: the proxy's best itself, and a surrogate that is sure that the proxy is near."""
    decade, prior = log(10.0), Prior(noise=FINAL)
    lost: dict[tuple[str, float], list[float]] = {}
    for seed in range(24):
        surface = Surface.drawn(np.random.default_rng(seed), (0.0, 0.5, 1.0)[seed % 3])
        charged = searched(surface, seed, (1.0,), trials=8, luck=1.5)
        alone = Surrogate.fit(SPACE, charged, prior).best(FINAL).parameters
        for off in (0.0, decade, -decade):
            proxy = on_proxy(surface, seed, off)
            ends = [each for each in proxy if each.fraction == 1.0]
            found = {
                "with": Surrogate.fit(SPACE, [*proxy, *charged], prior).best(FINAL).parameters,
                "without": alone,
                "copied": max(ends, key=lambda each: each.score).parameters,
            }
            if off:
                with monkeypatch.context() as patch:
                    patch.setattr("tuner.study.surrogate.model._NEAR", 1.0)
                    found["sure"] = Surrogate.fit(SPACE, [*proxy, *charged], prior).best(FINAL).parameters
            for name, parameters in found.items():
                lost.setdefault((name, off), []).append(surface.regret(parameters, FINAL))
    mean = {key: float(np.mean(each)) for key, each in lost.items()}
    assert mean["with", 0.0] < mean["without", 0.0]
    for off in (decade, -decade):
        assert mean["with", off] < mean["without", off] + 0.5
        assert mean["copied", off] > mean["with", off] + 3.0
    assert max(mean["sure", off] - mean["without", off] for off in (decade, -decade)) > 0.5


def test_a_proxy_that_is_right_helps_before_a_charged_trial_and_only_its_first_trial_trusts_it() -> None:
    surface = Surface.drawn(np.random.default_rng(4), 0.5)
    prior, empty = Prior(noise=FINAL), Surrogate.fit(SPACE, [], Prior(noise=FINAL))
    told = Surrogate.fit(SPACE, on_proxy(surface, 4, 0.0), prior)
    assert surface.regret(told.best(FINAL).parameters, FINAL) < surface.regret(told.median(), FINAL)
    assert told.starts(4)[0] == told.first() != empty.starts(4)[0]
    assert told.starts(4)[1:] == empty.starts(4)[1:]
