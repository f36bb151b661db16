"""The shipped prior: its provenance, what physics says of it, and what it says of settings that nobody measured."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces import DomainError
from search_spaces.errors import EXPLANATIONS
from search_spaces.prior import FAMILIES, Setting, largest_step, leaving_out, provenance, recommend

NAMES = {
    "learning_rate",
    "max_grad_norm",
    "batch_size",
    "epochs",
    "smoothing_radius",
    "smoothing_samples",
    "laplacian_sigma",
    "weight_decay",
}
MNIST = Setting(
    noise_multiplier=3.46, batch_size=4096, steps=132, train_size=54_000, dimension=7850, classes=10, family="linear"
)


def positive(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


SETTINGS = st.builds(
    Setting,
    noise_multiplier=st.just(0.0) | positive(1e-3, 1e6),
    batch_size=positive(1, 1e6),
    steps=positive(1, 1e7),
    train_size=positive(10, 1e9),
    dimension=st.none() | positive(2, 1e11),
    classes=positive(2, 1e5),
    family=st.sampled_from(FAMILIES),
    optimizer=st.sampled_from(["sgd", "adam", "adam_corrected"]),
)


@given(setting=SETTINGS)
@settings(max_examples=150, deadline=None)
def test_every_setting_has_finite_values_and_positive_spreads(setting: Setting) -> None:
    found = recommend(setting)
    assert set(found) == NAMES
    for name, each in found.items():
        assert math.isfinite(each.value), name
        assert each.value > 0, name
        assert 0 < each.spread < 10, name
    assert 1 <= found["batch_size"].value <= setting.train_size


@given(setting=SETTINGS, factor=positive(1.01, 1e3), clip=positive(0.01, 100))
@settings(max_examples=150, deadline=None)
def test_more_noise_never_raises_the_rate_nor_do_more_steps_of_a_linear_model(
    setting: Setting, factor: float, clip: float
) -> None:
    fixed = {"max_grad_norm": clip}  # a lower clip would need a higher rate for the same step
    before = recommend(setting, given=fixed)["learning_rate"].value * (1 + 1e-9)
    louder = replace(setting, noise_multiplier=setting.noise_multiplier * factor + 1e-6)
    assert recommend(louder, given=fixed)["learning_rate"].value <= before
    if setting.family == "linear":  # the limit of a network rises with the number of steps
        longer = replace(setting, steps=setting.steps * factor)
        assert recommend(longer, given=fixed)["learning_rate"].value <= before


def test_the_rate_follows_the_clip_and_the_momentum_only_with_sgd() -> None:
    rates = [recommend(MNIST, given={"max_grad_norm": clip})["learning_rate"].value for clip in (0.1, 0.2)]
    assert rates[0] > rates[1]
    heavy = recommend(MNIST, given={"max_grad_norm": 0.1, "momentum": 0.9})["learning_rate"].value
    assert heavy == pytest.approx(rates[0] / 10)
    adam = replace(MNIST, optimizer="adam")
    own = {recommend(adam, given={"max_grad_norm": clip})["learning_rate"].value for clip in (0.1, 0.2)}
    assert len(own) == 1, "Adam's steps do not depend on the scale of a gradient"


def test_what_is_not_known_makes_the_spread_wider() -> None:
    known = recommend(MNIST)["learning_rate"].spread
    assert recommend(replace(MNIST, dimension=None))["learning_rate"].spread > known
    assert recommend(replace(MNIST, family="attention"))["learning_rate"].spread > known


def test_last_weights_need_a_lower_rate_than_averaged_ones() -> None:
    averaged, last = (recommend(MNIST, given={"ema_decay": decay}) for decay in (0.9999, 0.0))
    assert recommend(MNIST) == averaged
    assert last["learning_rate"].value < averaged["learning_rate"].value
    assert last["max_grad_norm"] == averaged["max_grad_norm"]


@pytest.mark.parametrize("network", ["convolutional", "other", "recurrent", "attention"])
def test_networks_take_no_longer_steps_than_the_measured_ones_bear(network: str) -> None:
    def step(family: str, noise: float, steps: float = MNIST.steps) -> float:
        found = recommend(replace(MNIST, family=family, noise_multiplier=noise, steps=steps))
        return found["learning_rate"].value * found["max_grad_norm"].value

    assert step(network, 0.3) < 0.8 * step("linear", 0.3)
    assert step(network, 0.0, 40) == pytest.approx(step(network, 0.0, 10) * 2)
    assert step(network, 50.0) == pytest.approx(step("linear", 50.0), rel=0.2), "with much noise there is no limit"


def test_more_than_ten_classes_get_longer_steps_up_to_what_was_measured() -> None:
    def step(classes: int, family: str = "linear", noise: float = 3.0) -> float:
        found = recommend(replace(MNIST, family=family, noise_multiplier=noise, classes=classes))
        return found["learning_rate"].value * found["max_grad_norm"].value

    factor = step(100) / step(10)
    assert 1.5 < factor < 10**0.5
    assert step(32) / step(10) == pytest.approx(3.2 ** math.log10(factor))
    assert step(10_000) == step(100)
    limits = [largest_step("other", steps=9, classes=classes) for classes in (2, 10, 100)]
    assert limits[0] == limits[1] == pytest.approx(limits[2] / 10**0.5)
    assert step(100, "other", noise=0.3) == pytest.approx(largest_step("other", steps=MNIST.steps, classes=100))
    for family in ("recurrent", "attention"):  # whose classes are words
        assert largest_step(family, steps=9, classes=100) == largest_step(family, steps=9, classes=10)


def test_a_data_set_can_be_left_out() -> None:
    whole = recommend(MNIST)
    with leaving_out("mnist"):
        assert recommend(MNIST) != whole
    with leaving_out("unknown"):
        assert recommend(MNIST) == whole


def test_the_provenance_is_complete() -> None:
    found = provenance()
    assert found["command"].startswith("python -m benchmarks.prior")
    assert len(found["data_sets"]) >= 5
    assert len(found["set_aside"]) == 2
    assert not set(found["data_sets"]) & set(found["set_aside"])
    for digest in (*found["data_sets"].values(), *found["set_aside"].values()):
        assert len(digest) == 64
    assert found["trainings"] > found["situations"] > 100
    assert {"python", "torch", "numpy"} <= set(found["versions"])
    assert {"smoothing_samples", "families"} <= set(found["not_measured"])
    assert len(found["seeds"]) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"steps": math.nan},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.inf},
        {"dimension": -3},
        {"family": "tree"},
        {"optimizer": "lion"},
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DomainError) as refused:
        replace(MNIST, **wrong)
    assert refused.value.code == "prior-setting-invalid"
    assert refused.value.code in EXPLANATIONS
