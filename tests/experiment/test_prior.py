"""The shipped prior in an experiment file: default domains, one run, and what it may not depend on."""

from __future__ import annotations

import pytest

from search_spaces import Fixed, LogUniform
from tuner.experiment import Experiment, parse_experiment
from tuner.experiment.prior import estimated_noise, recommended
from tuner.privacy.accountant.pld import calibrate_noise


def of(*overrides: str, dataset: str = "{name: mnist}") -> Experiment:
    text = f"name: x\ndataset: {dataset}\ntrainable: {{method: dp_sgd, batch_size: 1024}}\nprivacy: {{epsilon: 1.0}}\n"
    return parse_experiment(text, overrides)


def rate(experiment: Experiment) -> LogUniform:
    domain = dict(experiment.space.parameters)["learning_rate"]
    assert isinstance(domain, LogUniform)
    return domain


def test_a_default_domain_is_centred_on_the_prior_and_the_resolved_file_reproduces_it() -> None:
    experiment = of("search.space={lr: default, C: default}")
    found = recommended({"learning_rate": "default", "max_grad_norm": "default"}, experiment)
    for name, domain in list(experiment.space.parameters)[:2]:
        assert isinstance(domain, LogUniform)
        assert (domain.low * domain.high) ** 0.5 == pytest.approx(found[name].value, rel=0.01)
    again = parse_experiment(experiment.to_yaml())
    assert again == experiment
    assert again.space == experiment.space


def test_less_epsilon_more_trials_and_a_larger_clip_lower_the_domain() -> None:
    base = rate(of("search.space={lr: default}")).high
    assert rate(of("search.space={lr: default}", "privacy.epsilon=0.1")).high < base
    assert rate(of("search.space={lr: default}", "search.trials=200")).high < base
    assert rate(of("search.space={lr: default, C: 3.0}")).high < base
    assert rate(of("search.space={lr: default}", "search.full_runs=2")).high > base
    assert (
        rate(of("search.space={lr: default}", "privacy.accounting=public", "search.public={name: fashion_mnist}")).high
        > base
    )


def test_one_trial_with_the_word_default_is_the_recommended_value() -> None:
    experiment = of("search.space={lr: default, C: 0.5}", "search.trials=1")
    named = dict(experiment.space.parameters)
    found = recommended({"learning_rate": "default", "max_grad_norm": 0.5}, experiment)
    assert isinstance(named["learning_rate"], Fixed)
    assert named["learning_rate"].value == pytest.approx(found["learning_rate"].value, rel=0.01)
    assert named["max_grad_norm"] == Fixed(0.5)


def test_a_rate_that_sets_itself_starts_at_the_recommended_one() -> None:
    def start(*overrides: str, space: str) -> float:
        domain = dict(of(f"search.space={space}", "search.trials=1", *overrides).space.parameters)["learning_rate"]
        assert isinstance(domain, Fixed)
        return float(domain.value)

    experiment = of("search.trials=1")
    pair = recommended({"learning_rate": "default", "max_grad_norm": "default"}, experiment)
    found = recommended({"max_grad_norm": 0.5}, experiment)["learning_rate"].value
    assert start(space="{schedule: gen, C: 0.5}") == pytest.approx(found, rel=0.01)
    # Automatic clipping makes every gradient as long as C, so rate times C is that of the recommended pair.
    product = pair["learning_rate"].value * pair["max_grad_norm"].value
    for clip in (0.5, 2.0):
        asked = f"{{schedule: gen, clipping: automatic, C: {clip}}}"
        assert start(space=asked) * clip == pytest.approx(product, rel=0.01)
    assert start(space="{schedule: {gen: {probe_share: 0.1}}, lr: default, C: 0.5}") == pytest.approx(found, rel=0.01)
    assert start(space="{schedule: gen, lr: 0.3}") == 0.3


@pytest.mark.parametrize(("optimizer", "published"), [("adam", 0.001), ("sgd", 0.15)])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("batch", [256, 4096])
def test_the_published_rates_of_the_network_are_inside(
    optimizer: str, published: float, epsilon: float, batch: int
) -> None:
    """DP-LSSGD paper: 0.15 with SGD and 0.001 with Adam, for the MNIST network."""
    network = ("trainable.model=tutorial_cnn", f"trainable.optimizer={optimizer}", f"trainable.batch_size={batch}")
    domain = rate(of("search.space={lr: default}", f"privacy.epsilon={epsilon}", *network))
    assert domain.contains(published)
    assert domain.high > 2 * published, "it is not the upper edge"


def test_a_model_of_ones_own_may_be_a_network_too() -> None:
    space = {"learning_rate": "default", "max_grad_norm": 1.0}
    facts = ("privacy.epsilon=8.0", "trainable.batch_size=4096", "search.space={lr: default, C: 1.0}")

    def value(model: str) -> float:
        return recommended(space, of(*facts, f"trainable.model={model}"))["learning_rate"].value

    assert rate(of(*facts, "trainable.model=mine:build")).contains(0.15)
    networks = {value(model) for model in ("mine:build", "tutorial_cnn", "mlp_64")}
    assert len(networks) == 1
    assert networks.pop() < value("logistic_regression"), "no longer steps than the measured networks bear"


def test_a_perceptron_counts_as_no_wider_than_the_measured_ones() -> None:
    def step(model: str) -> float:
        found = recommended({}, of("privacy.epsilon=0.5", "search.space={lr: default}", f"trainable.model={model}"))
        return found["learning_rate"].value

    assert step("mlp_256") == step("mlp_256_256") == step("mlp_64") < step("logistic_regression")


def test_a_written_domain_is_never_changed() -> None:
    written = of("search.space={lr: {log_uniform: [0.01, 2.0]}}")
    assert rate(written) == LogUniform(0.01, 2.0)


def test_a_file_of_the_user_that_is_elsewhere_gets_the_domain_of_a_median_model() -> None:
    own = "{name: mine, path: not-here.npz, public_size: 5000}"
    domain = rate(of("search.space={lr: default}", dataset=own))
    assert domain.low < domain.high
    assert domain != LogUniform(0.01, 2.0)


@pytest.mark.parametrize(
    "overrides",
    [
        ["privacy.epsilon=1e-6"],
        ["privacy.epsilon=1e6", "privacy.delta=1e-12"],
        ["privacy.noise_multiplier=1e6", "trainable.epochs=1e5"],
        ["search.space={lr: default, b: default, epochs: default}"],
        [
            "search.sampler=random",
            "search.space={lr: default, b: {choice: [1, 54000]}}",
            "privacy.noise_multiplier={log_uniform: [0.5, 9]}",
        ],
    ],
)
def test_extreme_files_have_a_finite_domain(overrides: list[str]) -> None:
    experiment = of("search.space={lr: default}", *overrides)
    assert 0 < rate(experiment).low < rate(experiment).high < 1e6


@pytest.mark.parametrize(("epsilon", "sample_rate", "steps"), [(3.0, 0.1, 100), (0.3, 1.0, 30)])
def test_the_estimated_noise_is_near_the_calibrated_noise(epsilon: float, sample_rate: float, steps: int) -> None:
    exact = calibrate_noise(sample_rate=sample_rate, steps=steps, epsilon=epsilon, delta=1e-5)
    near = estimated_noise(epsilon=epsilon, delta=1e-5, sample_rate=sample_rate, steps=steps)
    assert near == pytest.approx(exact, rel=0.12)
