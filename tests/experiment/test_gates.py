"""The gates: each with what it refuses, by key and code, and a control that passes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from trainables.methods import METHODS, STEP_METHODS
from tuner.errors import ExperimentError
from tuner.experiment import Experiment, parse_experiment
from tuner.experiment.gates.caps import LARGEST_MENU
from tuner.experiment.values import _ORDERS
from tuner.privacy.accountant.rdp import ORDER_RANGE
from tuner.privacy.accountant.run_laws import POISSON_MEAN

BASE = """\
name: gated
dataset: {name: mnist}
trainable: {method: dp_sgd, batch_size: 256, epochs: 2}
privacy: {epsilon: 3.0, delta: 1e-6}
search: {trials: 8, sampler: random, space: {learning_rate: default}}
"""
SELECTION = ("privacy.accounting=selection",)
NEGATIVE_BINOMIAL = (*SELECTION, "privacy.runs.law=negative_binomial", "privacy.runs.shape=2")
PUBLIC = ("privacy.accounting=public", "search.public={name: fashion_mnist}")
USERS = ("dataset.name=state_union", "trainable.batch_size=4", "privacy.delta=1e-2", "privacy.unit=user")
PROTECTED = ("dataset.validation.protected=true",)
LOSS = "search.metric={name: validation_loss, mode: min}"
FEW = ("dataset.name=iris", "trainable.batch_size=32", "privacy.delta=1e-4")
ELSEWHERE = ""
"""The code of another package, whose own tests assert it."""


@dataclass(frozen=True)
class Gate:
    """A refused override with the key and code of its problem, and one that passes."""

    bad: tuple[str, ...]
    key: str
    code: str
    good: tuple[str, ...] = ()
    given: tuple[str, ...] = field(default=())


def gate(bad: str, key: str, code: str, good: str = "", given: tuple[str, ...] = ()) -> Gate:
    return Gate((bad,), key, code, (good,) if good else (), given)


GATES = [
    # batches
    gate("trainable.sampling=shuffled", "trainable.sampling", "batches-not-poisson", "trainable.sampling=poisson"),
    gate("trainable.drop_last=true", "trainable.drop_last", "batches-not-poisson"),
    # what mixes samples before the clip
    gate("trainable.normalization=batch", "trainable.normalization", "batch-norm-refused",
         "trainable.normalization=group"),
    # the normaliser
    gate("trainable.loss_reduction=mean", "trainable.loss_reduction", "batch-size-realised"),
    gate("trainable.batch_size=60000", "trainable.batch_size", "batch-size-too-large",
         "trainable.batch_size=54000"),
    # the clip
    gate("trainable.clip_batch_mean=1.0", "trainable.clip_batch_mean", "clip-not-per-record"),
    gate("search.space={lr: default, clipping: batch_mean}", "search.space.clipping", ELSEWHERE,
         "search.space={lr: default, clipping: automatic}"),
    # what is learnt from the records
    gate("dataset.normalization=standard", "dataset.normalization", "statistics-not-charged"),
    gate("dataset.class_weights=balanced", "dataset.class_weights", "statistics-not-charged"),
    gate("trainable.class_weights=balanced", "trainable.class_weights", "statistics-not-charged"),
    # δ
    gate("privacy.delta=1.9e-5", "privacy.delta", "delta-too-large", "privacy.delta=1.8e-5"),
    gate("privacy.delta=0.12", "privacy.delta", "delta-too-large", "privacy.delta=0.1", USERS),
    # accountants
    gate("privacy.accountant=gdp", "privacy.accountant", "accountant-unsupported",
         "privacy.accountant=pld"),
    gate("privacy.accountant=rdp", "privacy.accountant", "accountant-unsupported"),
    # the ranges of the accountants
    gate("privacy.epsilon=9e-7", "privacy.epsilon", "value-out-of-range", "privacy.epsilon=1e-6"),
    gate("privacy.epsilon=1.1e6", "privacy.epsilon", "value-out-of-range", "privacy.epsilon=1e6"),
    gate("dataset.validation.epsilon=9e-7", "dataset.validation.epsilon", "value-out-of-range",
         "dataset.validation.epsilon=1e-6", PROTECTED),
    gate("privacy.noise_multiplier=9e-4", "privacy.noise_multiplier", "value-not-allowed",
         "privacy.noise_multiplier=1e-3"),
    gate("privacy.noise_multiplier=1.1e6", "privacy.noise_multiplier", "value-not-allowed",
         "privacy.noise_multiplier=1e6"),
    gate("privacy.noise_multiplier={choice: [1, 9e-4]}", "privacy.noise_multiplier", "value-out-of-range",
         "privacy.noise_multiplier={choice: [1, 1e-3]}"),
    gate("search.space.noise_multiplier={log_uniform: [0.5, 1.1e6]}", "search.space.noise_multiplier",
         "value-out-of-range", "search.space.noise_multiplier={log_uniform: [0.5, 1e6]}"),
    gate("dataset.validation.noise=9e-4", "dataset.validation.noise", "value-not-allowed",
         "dataset.validation.noise=1e-3", PROTECTED),
    gate("dataset.validation.noise=1.1e6", "dataset.validation.noise", "value-not-allowed",
         "dataset.validation.noise=1e6", PROTECTED),
    # the noise
    gate("privacy.noise_seed=3", "privacy.noise_seed", "noise-seed-private"),
    gate("privacy.noise_multiplier=0", "privacy.noise_multiplier", "noise-zero", "privacy.noise_multiplier=0.5"),
    # selection
    gate("search.sampler=tpe", "search.sampler", "sealed-follows-scores", "search.sampler=random", SELECTION),
    gate("search.sampler=gp", "search.sampler", "sealed-follows-scores", "search.sampler=bounded", SELECTION),
    gate("resources.concurrent_trials=2", "resources.concurrent_trials", "sealed-follows-scores",
         "search.sampler=random", (*SELECTION, "search.sampler=bounded")),
    gate("search.pruner=median", "search.pruner", "sealed-follows-scores", "search.pruner=none", SELECTION),
    gate("search.pruner={name: threshold, lower: 0.1}", "search.pruner", "sealed-follows-scores", "", SELECTION),
    gate("dataset.validation.protected=true", "dataset.validation.protected", "sealed-scores-protected", "", SELECTION),
    gate("privacy.private=false", "privacy.private", "mode-needs-private", "privacy.private=true", SELECTION),
    gate("search.trials=11", "privacy.runs", ELSEWHERE, "search.trials=10",
         (*SELECTION, "privacy.runs.law=poisson")),
    gate("privacy.runs.law=uniform", "privacy.runs.law", "value-not-allowed", "privacy.runs.law=logarithmic",
         SELECTION),
    gate("privacy.runs.shape=1e16", "privacy.runs", ELSEWHERE, "privacy.runs.shape=1e6", NEGATIVE_BINOMIAL),
    gate("privacy.runs.shape=1e-99", "privacy.runs", ELSEWHERE, "privacy.runs.shape=0.5", NEGATIVE_BINOMIAL),
    gate("privacy.runs.at_most=5", "privacy.runs.at_most", "value-out-of-range", "privacy.runs.at_most=100", SELECTION),
    gate("search.sampler=bounded", "privacy.runs.law", "run-law-unproved", "search.sampler=random",
         (*SELECTION, "privacy.runs.law=poisson")),
    gate("search.space.batch_size={log_integer: [64, 256]}", "search.space.batch_size", "priced-range-sealed",
         "search.space.batch_size={choice: [64, 256]}", SELECTION),
    gate("search.space.epochs={uniform: [1, 2]}", "search.space.epochs", "priced-range-sealed",
         "search.space.epochs={choice: [1, 2]}", SELECTION),
    gate("privacy.noise_multiplier={uniform: [1, 2]}", "privacy.noise_multiplier", "priced-range-sealed",
         "privacy.noise_multiplier={choice: [1, 2]}", SELECTION),
    gate("privacy.runs.law=logarithmic", "privacy.runs", "runs-without-selection", "privacy.runs.law=geometric"),
    # whole runs
    gate("search.full_runs=9", "search.full_runs", "full-runs-above-trials", "search.full_runs=8"),
    gate("search.full_runs=0.9", "search.full_runs", "value-not-allowed", "search.full_runs=auto"),
    gate("search.full_runs=3", "search.full_runs", "full-runs-needs-composition", "search.full_runs=null", SELECTION),
    gate("search.full_runs=3", "search.full_runs", "full-runs-needs-composition", "search.full_runs=null", PUBLIC),
    gate("search.full_runs=3", "search.full_runs", "full-runs-needs-composition", "search.full_runs=null",
         ("privacy.private=false",)),
    # public
    gate("search.public=null", "search.public", "public-data-missing", "search.public={name: fashion_mnist}",
         ("privacy.accounting=public",)),
    gate("privacy.private=false", "privacy.private", "mode-needs-private", "privacy.private=true", PUBLIC),
    gate("search.public={name: mnist}", "search.public.name", "public-data-private", "", PUBLIC),
    gate("search.public={name: mnst}", "search.public.name", "dataset-unknown", "", PUBLIC),
    gate("search.public={name: cifar10}", "search.public.name", "public-data-shape", "", PUBLIC),
    gate("search.public={name: mine, path: x.npz}", "search.public", "public-data-incomplete",
         "search.public={name: mine, path: x.npz, public_size: 9000}", PUBLIC),
    gate("search.public={name: mine, path: x.npz, public_size: 200}", "trainable.batch_size", "batch-size-too-large",
         "", PUBLIC),
    gate("search.space.batch_size={choice: [64, 128]}", "search.space.batch_size", "priced-with-public", "", PUBLIC),
    gate("privacy.unit=user", "privacy.unit", "public-with-users", "privacy.unit=record",
         ("dataset.name=state_union", "trainable.batch_size=4", "privacy.accounting=public",
          "search.public={name: mine, path: x.npz, public_size: 9000}")),
    gate("search.public={name: fashion_mnist}", "search.public", "public-data-unused"),
    # protected scores
    gate("search.metric={name: validation_loss, mode: min}", "search.metric.name", "metric-not-protectable",
         "search.metric={name: validation_accuracy, mode: max}", PROTECTED),
    gate("dataset.validation.epsilon=3.1", "dataset.validation.epsilon", "validation-budget-too-large",
         "dataset.validation.epsilon=3", PROTECTED),
    gate("dataset.validation.delta=1.1e-6", "dataset.validation.delta", "validation-budget-too-large",
         "dataset.validation.delta=1e-6", PROTECTED),
    gate("dataset.validation.epsilon=1", "dataset.validation.epsilon", "scores-not-protected"),
    gate("dataset.validation.noise=9", "dataset.validation.noise", "scores-not-protected"),
    gate("dataset.validation.fraction=1e-6", "dataset.validation.fraction", "validation-empty",
         "dataset.validation.fraction=0.1", PROTECTED),
    # the unit
    gate("privacy.unit=user", "privacy.unit", "dataset-without-users", "privacy.unit=record"),
    gate("dataset.records_per_user=4", "dataset.records_per_user", "records-per-user-unused"),
    gate("dataset.public_users=7", "dataset.public_users", "public-size-known"),
    gate("dataset.user_key=patient number", "dataset.user_key", "user-key-unused"),
    gate("dataset.user_key=patient number", "dataset.user_key", "user-key-unused", "dataset.user_key=null", USERS),
    gate("dataset={name: mine, path: x.npz}", "dataset.public_users", "public-size-missing",
         "dataset={name: mine, path: x.npz, public_users: 40}",
         ("privacy.unit=user", "trainable.batch_size=4", "privacy.delta=1e-3")),
    # the cap
    gate("privacy.cap=total_steps", "privacy.cap", "cap-needs-one-mechanism", "privacy.cap=coupon_book",
         ("search.space.batch_size={choice: [64, 128]}",)),
    gate("privacy.cap=coupon_book", "privacy.cap", "cap-needs-menu", "privacy.cap=fixed_order",
         ("search.space.batch_size={log_integer: [64, 128]}",)),
    gate("privacy.cap=total_steps", "privacy.cap", "cap-needs-one-mechanism", "privacy.cap=auto",
         ("privacy.noise_multiplier={choice: [1, 2]}",)),
    gate(f"search.space.batch_size={{choice: {list(range(1, LARGEST_MENU + 2))}}}", "privacy.cap", "cap-menu-too-large",
         f"search.space.batch_size={{choice: {list(range(1, LARGEST_MENU + 1))}}}", ("privacy.cap=coupon_book",)),
    gate("privacy.order=8", "privacy.order", "order-without-cap", "privacy.cap=fixed_order"),
    gate("privacy.cap=coupon_book", "privacy.cap", "cap-without-composition", "", SELECTION),
    gate("search.space.batch_size=128", "search.space.batch_size", "priced-value-fixed"),
    gate("search.space.noise_multiplier=2", "search.space.noise_multiplier", "priced-value-fixed"),
    gate("privacy.noise_multiplier=2", "search.space.noise_multiplier", "noise-given-twice", "",
         ("search.space.noise_multiplier={choice: [1, 2]}",)),
    # K that rises within a trial
    gate("search.rungs=2", "search.space.K", "promotion-needs-rungs", "search.rungs=3",
         ("trainable.method=dplis", "search.space.K={promote: [1, 3, 10]}")),
    gate("search.rungs=[0.5, 1.0]", "search.space.smoothing_samples", "promotion-needs-rungs",
         "search.rungs=[0.5, 0.8, 1.0]",
         ("trainable.method=composed", "search.space.smoothing_samples={promote: [1, 3, 10]}")),
    gate("search.space.K={promote: [3, 3]}", "search.space.K", ELSEWHERE,
         "search.space.K={promote: [3, 4]}", ("trainable.method=dplis",)),
    gate("search.space.batch_size={promote: [64, 128]}", "search.space.batch_size", ELSEWHERE,
         "search.space.batch_size={choice: [64, 128]}"),
    gate("privacy.noise_multiplier={promote: [3, 4]}", "privacy.noise_multiplier", ELSEWHERE,
         "privacy.noise_multiplier={choice: [3, 4]}"),
    # what is learnt, and by which score
    gate("trainable.task=regression", "trainable.task", "task-mismatch", "trainable.task=classification", (LOSS,)),
    gate("trainable.task=binary", "trainable.task", "task-mismatch", "dataset.name=breast_cancer", FEW),
    gate("trainable.task=classification", "trainable.task", "task-mismatch", "trainable.task=regression",
         (*FEW, LOSS, "dataset.name=regression_1d")),
    gate("search.metric={name: validation_accuracy, mode: max}", "search.metric.name", "metric-of-task", LOSS,
         (*FEW, "dataset.name=regression_1d", "trainable.task=regression")),
    gate("search.metric={name: validation_auc, mode: max}", "search.metric.name", "metric-of-task",
         "dataset.name=breast_cancer", FEW),
    gate("search.metric={name: validation_perplexity, mode: max}", "search.metric.mode", "metric-direction",
         "search.metric={name: validation_perplexity, mode: min}"),
    gate("dataset.validation.protected=true", "search.metric.name", "metric-not-protectable",
         "dataset.validation.protected=false",
         (*FEW, LOSS, "dataset.name=regression_1d", "trainable.task=regression")),
    gate("search.metric={name: validation_balanced_accuracy, mode: max}", "search.metric.name",
         "metric-not-protectable", "search.metric.name=validation_accuracy", PROTECTED),
    gate("trainable.task=regression", "trainable.task", "task-of-users", "privacy.unit=record",
         (LOSS, "dataset={name: mine, path: x.npz, public_users: 40, public_size: 4000}", "privacy.unit=user",
          "trainable.batch_size=4", "privacy.delta=1e-4")),
    # copies of records
    gate("search.space={lr: default, augmentation: {choice: [none, crop]}}", "search.space.augmentation",
         "augmentation-needs-images", "search.space={lr: default, augmentation: none}",
         ("dataset.name=iris", "trainable.batch_size=32", "privacy.delta=1e-4")),
    # the average of the weights
    gate("search.space={lr: default, ema_decay: 0, extrapolation: {choice: [0, 1]}}", "search.space.extrapolation",
         "extrapolation-unused", "search.space={lr: default, ema_decay: {choice: [0, 0.9]}, extrapolation: 1}"),
    # options
    gate("search.pruner=percentile", "search.pruner", "option-missing",
         "search.pruner={name: percentile, percentile: 50}"),
    gate("search.sampler={name: bounded, explore: 1}", "search.sampler", ELSEWHERE,
         "search.sampler={name: bounded, explore: 0.5, ratio: 2}"),
    gate("search.sampler={name: bounded, explore: .nan}", "search.sampler.explore", "value-not-finite"),
]  # fmt: skip


@pytest.mark.parametrize("gate", GATES, ids=[" ".join((*each.bad, *each.given)) for each in GATES])
def test_each_gate_refuses_by_key_and_code_and_lets_its_control_pass(gate: Gate) -> None:
    with pytest.raises(ExperimentError) as caught:
        parse_experiment(BASE, (*gate.given, *gate.bad), source="e.yaml")
    (problem,) = caught.value.problems
    assert (problem.key, problem.code) == (gate.key, gate.code or problem.code), problem
    assert problem.where.startswith(("e.yaml:", "--set ")), "it says where"
    assert isinstance(parse_experiment(BASE, (*gate.given, *gate.good)), Experiment)


def test_the_limits_that_the_gates_know_are_those_of_the_accountant() -> None:
    assert ORDER_RANGE == _ORDERS
    assert POISSON_MEAN == 10


def test_a_study_may_have_what_a_private_search_may_not() -> None:
    study = parse_experiment(BASE, ["privacy.private=false", "privacy.noise_seed=3", "privacy.noise_multiplier=0"])
    assert study.privacy.noise_seed == 3


@pytest.mark.parametrize(
    "key",
    [
        "privacy.epsilon",
        "privacy.delta",
        "privacy.order",
        "privacy.noise_multiplier",
        "privacy.runs.shape",
        "privacy.runs.at_most",
        "dataset.validation.fraction",
        "dataset.validation.epsilon",
        "dataset.validation.delta",
        "dataset.validation.noise",
        "dataset.public_users",
        "dataset.records_per_user",
        "trainable.batch_size",
        "trainable.epochs",
        "trainable.momentum",
        "search.trials",
        "search.rungs",
        "search.space.learning_rate",
        "search.space.batch_size",
        "search.public.public_size",
        "resources.cpus_per_trial",
    ],
)
@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_no_number_may_be_nan_or_infinite(key: str, value: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        parse_experiment(BASE, [f"{key}={value}"])
    assert any(problem.key == key and problem.value == value for problem in caught.value.problems)


def test_a_delta_above_n_to_the_minus_1_1_is_a_warning_and_counts_users_where_they_are_protected() -> None:
    assert parse_experiment(BASE).warnings() == ()
    assert "n^-1.1 = 6.2e-06 for n = 54000 records:" in parse_experiment(BASE, ["privacy.delta=1e-5"]).warnings()[0]
    assert "for n = 9 users:" in parse_experiment(BASE, [*USERS, "privacy.delta=0.1"]).warnings()[0]


def test_a_domain_of_the_noise_is_moved_to_the_space_and_stays_there() -> None:
    moved = parse_experiment(BASE, ["privacy.noise_multiplier={log_uniform: [1, 4]}"])
    assert moved.privacy.noise_multiplier == "auto"
    assert moved.space.priced == ("noise_multiplier",)
    assert moved.space.free == ("learning_rate",)
    assert parse_experiment(moved.to_yaml()) == moved
    assert moved.with_noise(2.0) is moved, "there is no one number to put in"
    beside_nothing = parse_experiment(BASE, ["privacy.noise_multiplier={choice: [1, 2]}", "search.space={}"])
    assert set(beside_nothing.space.searched) == {"learning_rate", "noise_multiplier"}, "the default space stays"


@pytest.mark.parametrize("method", METHODS)
def test_several_workers_are_refused_for_each_method_without_batches(method: str) -> None:
    def codes(*overrides: str) -> set[str]:
        try:
            parse_experiment(BASE, [f"trainable.method={method}", "search.space={}", *overrides])
        except ExperimentError as error:
            return {problem.code for problem in error.problems}
        return set()

    assert ("workers-unsupported" in codes("resources.workers_per_trial=2")) == (method not in STEP_METHODS)
    assert "workers-unsupported" not in codes("resources.workers_per_trial=1")


def test_a_part_of_a_gpu_is_for_one_worker() -> None:
    assert parse_experiment(BASE, ["resources.gpus_per_trial=0.25"]).resources.gpus_per_trial == 0.25
    assert parse_experiment(BASE, ["resources.gpus_per_trial=2", "resources.workers_per_trial=2"])
    with pytest.raises(ExperimentError) as caught:
        parse_experiment(BASE, ["resources.gpus_per_trial=1", "resources.workers_per_trial=2"])
    assert [problem.code for problem in caught.value.problems] == ["gpus-not-whole"]
