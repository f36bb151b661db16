"""The gates of privacy.md §2 and §5: each with what it refuses and why, and a control that passes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tuner.errors import ExperimentError
from tuner.experiment import Experiment, loads
from tuner.experiment.gates_priced import LARGEST_MENU
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
PUBLIC = ("privacy.accounting=public", "search.public={name: fashion_mnist}")
USERS = ("dataset.name=state_union", "trainable.batch_size=4", "privacy.delta=1e-2", "privacy.unit=user")
PROTECTED = ("dataset.validation.protected=true",)


@dataclass(frozen=True)
class Gate:
    """What is refused, at which key, for which reason; and what nearly the same passes."""

    bad: tuple[str, ...]
    key: str
    why: str
    good: tuple[str, ...] = ()
    given: tuple[str, ...] = field(default=())


def gate(bad: str, key: str, why: str, good: str = "", given: tuple[str, ...] = ()) -> Gate:
    return Gate((bad,), key, why, (good,) if good else (), given)


GATES = [
    # privacy.md §5: batches
    gate("trainable.sampling=shuffled", "trainable.sampling", "at least ε=3.08", "trainable.sampling=poisson"),
    gate("trainable.sampling=fixed", "trainable.sampling", "do not have the amplification"),
    gate("trainable.drop_last=true", "trainable.drop_last", "batches are Poisson samples"),
    gate("trainable.shuffle=true", "trainable.shuffle", "shuffled or fixed-size batches have another guarantee"),
    # what mixes samples before the clip
    gate("trainable.normalization=batch", "trainable.normalization", "mixes the samples of a batch before the clip",
         "trainable.normalization=group"),
    # the normaliser
    gate("trainable.loss_reduction=mean", "trainable.loss_reduction", "the realised size is private"),
    gate("trainable.batch_size=60000", "trainable.batch_size", "sample_rate cannot pass 1",
         "trainable.batch_size=54000"),
    # the clip
    gate("trainable.clip_batch_mean=1.0", "trainable.clip_batch_mean", "bounds no record"),
    gate("search.space={lr: default, clipping: batch_mean}", "search.space.clipping", "bounds no record",
         "search.space={lr: default, clipping: automatic}"),
    gate("search.space={lr: default, clipping: {choice: [flat, batch_mean]}}", "search.space.clipping",
         "bounds no record", "search.space={lr: default, clipping: {choice: [flat, per_layer]}}"),
    # what is learnt from the records
    gate("dataset.normalization=standard", "dataset.normalization", "a release that nothing charges"),
    gate("dataset.vocabulary=5000", "dataset.vocabulary", "a release that nothing charges"),
    gate("dataset.class_weights=balanced", "dataset.class_weights", "counted from the records"),
    gate("trainable.class_weights=balanced", "trainable.class_weights", "counted from the records"),
    # δ
    gate("privacy.delta=1.9e-5", "privacy.delta", "publishes one whole record", "privacy.delta=1.8e-5"),
    gate("privacy.delta=0.12", "privacy.delta", "for the 9 public users", "privacy.delta=0.1", USERS),
    # accountants
    gate("privacy.accountant=gdp", "privacy.accountant", "0.271 where the true value is 0.347",
         "privacy.accountant=pld"),
    gate("privacy.accountant=rdp", "privacy.accountant", "a looser one"),
    gate("privacy.accountant=prv", "privacy.accountant", "7 GB"),
    gate("privacy.accountant=moments", "privacy.accountant", "must be pld"),
    # the noise
    gate("privacy.noise_seed=3", "privacy.noise_seed", "protects nobody"),
    gate("privacy.noise_multiplier=0", "privacy.noise_multiplier", "no privacy", "privacy.noise_multiplier=0.5"),
    # selection, privacy.md §2
    gate("search.sampler=tpe", "search.sampler", "follows the scores", "search.sampler=random", SELECTION),
    gate("search.sampler=gp", "search.sampler", "follows the scores", "search.sampler=bounded", SELECTION),
    gate("search.sampler=grid", "search.sampler", "walks through a list", "", SELECTION),
    gate("search.pruner=median", "search.pruner", "ends a run by what others scored", "search.pruner=none", SELECTION),
    gate("search.pruner=asha", "search.pruner", "ends a run by what others scored", "", SELECTION),
    gate("search.pruner={name: threshold, lower: 0.1}", "search.pruner", "not in this version", "", SELECTION),
    gate("dataset.validation.protected=true", "dataset.validation.protected", "hides how many runs", "", SELECTION),
    gate("privacy.private=false", "privacy.private", "to be charged less", "privacy.private=true", SELECTION),
    gate("search.trials=11", "privacy.runs", "at most 10", "search.trials=10",
         (*SELECTION, "privacy.runs.law=poisson")),
    gate("search.trials=1", "privacy.runs", "above 1", "search.trials=2", SELECTION),
    gate("privacy.runs.law=uniform", "privacy.runs.law", "must be one of", "privacy.runs.law=logarithmic", SELECTION),
    gate("privacy.runs.law=negative_binomial", "privacy.runs", "shape",
         "privacy.runs={law: negative_binomial, shape: 0.5}", SELECTION),
    gate("privacy.runs={law: geometric, shape: 3}", "privacy.runs", "shape", "", SELECTION),
    gate("privacy.runs.at_most=5", "privacy.runs.at_most", "at least the mean", "privacy.runs.at_most=100", SELECTION),
    gate("search.sampler=bounded", "privacy.runs.law", "not proved for a poisson", "search.sampler=random",
         (*SELECTION, "privacy.runs.law=poisson")),
    gate("search.space.batch_size={log_integer: [64, 256]}", "search.space.batch_size", "finitely many",
         "search.space.batch_size={choice: [64, 256]}", SELECTION),
    gate("search.space.epochs={uniform: [1, 2]}", "search.space.epochs", "finitely many",
         "search.space.epochs={choice: [1, 2]}", SELECTION),
    gate("privacy.noise_multiplier={uniform: [1, 2]}", "privacy.noise_multiplier", "finitely many",
         "privacy.noise_multiplier={choice: [1, 2]}", SELECTION),
    gate("privacy.runs.law=logarithmic", "privacy.runs", "of selection", "privacy.runs.law=geometric"),
    # public
    gate("search.public=null", "search.public", "needs a public data set", "search.public={name: fashion_mnist}",
         ("privacy.accounting=public",)),
    gate("privacy.private=false", "privacy.private", "one charged run", "privacy.private=true", PUBLIC),
    gate("search.public={name: mnist}", "search.public.name", "must be others", "", PUBLIC),
    gate("search.public={name: mnst}", "search.public.name", "unknown data set", "", PUBLIC),
    gate("search.public={name: cifar10}", "search.public.name", "one model trains on both", "", PUBLIC),
    gate("search.public={name: mine, path: x.npz}", "search.public", "a public_size",
         "search.public={name: mine, path: x.npz, public_size: 9000}", PUBLIC),
    gate("search.public={name: mine, path: x.npz, public_size: 200}", "trainable.batch_size", "at most the 180", "",
         PUBLIC),
    gate("search.space.batch_size={choice: [64, 128]}", "search.space.batch_size", "one private run", "", PUBLIC),
    gate("search.public={name: fashion_mnist}", "search.public", "accounting is composition"),
    # protected scores
    gate("search.metric={name: validation_loss, mode: min}", "search.metric.name", "any amount",
         "search.metric={name: validation_accuracy, mode: max}", PROTECTED),
    gate("dataset.validation.epsilon=3.1", "dataset.validation.epsilon", "covers both sets",
         "dataset.validation.epsilon=3", PROTECTED),
    gate("dataset.validation.delta=1.1e-6", "dataset.validation.delta", "covers both sets",
         "dataset.validation.delta=1e-6", PROTECTED),
    gate("dataset.validation.epsilon=1", "dataset.validation.epsilon", "protected is false"),
    gate("dataset.validation.noise=9", "dataset.validation.noise", "protected is false"),
    # the unit
    gate("privacy.unit=user", "privacy.unit", "say whose they are", "privacy.unit=record"),
    gate("dataset.records_per_user=4", "dataset.records_per_user", "the unit is record"),
    gate("dataset.public_users=7", "dataset.public_users", "known and not set"),
    gate("dataset={name: mine, path: x.npz}", "dataset.public_users", "PUBLIC number of users",
         "dataset={name: mine, path: x.npz, public_users: 40}",
         ("privacy.unit=user", "trainable.batch_size=4", "privacy.delta=1e-3")),
    # the cap
    gate("privacy.cap=total_steps", "privacy.cap", "only with ONE", "privacy.cap=coupon_book",
         ("search.space.batch_size={choice: [64, 128]}",)),
    gate("privacy.cap=coupon_book", "privacy.cap", "is a range", "privacy.cap=fixed_order",
         ("search.space.batch_size={log_integer: [64, 128]}",)),
    gate("privacy.cap=total_steps", "privacy.cap", "only with ONE", "privacy.cap=auto",
         ("privacy.noise_multiplier={choice: [1, 2]}",)),
    gate(f"search.space.batch_size={{choice: {list(range(1, LARGEST_MENU + 2))}}}", "privacy.cap", "at most 64",
         f"search.space.batch_size={{choice: {list(range(1, LARGEST_MENU + 1))}}}", ("privacy.cap=coupon_book",)),
    gate("privacy.order=8", "privacy.order", "the cap is auto", "privacy.cap=fixed_order"),
    gate("privacy.cap=coupon_book", "privacy.cap", "the caps are those of composition", "", SELECTION),
    gate("search.space.batch_size=128", "search.space.batch_size", "Write trainable.batch_size: 128"),
    gate("search.space.noise_multiplier=2", "search.space.noise_multiplier", "Write privacy.noise_multiplier: 2"),
    gate("privacy.noise_multiplier=2", "search.space.noise_multiplier", "must stand once", "",
         ("search.space.noise_multiplier={choice: [1, 2]}",)),
    # K that rises within a trial
    gate("search.rungs=2", "search.space.K", "at least as many rungs as levels", "search.rungs=3",
         ("trainable.method=dplis", "search.space.K={promote: [1, 3, 10]}")),
    gate("search.rungs=[0.5, 1.0]", "search.space.smoothing_samples", "at least as many rungs as levels",
         "search.rungs=[0.5, 0.8, 1.0]",
         ("trainable.method=composed", "search.space.smoothing_samples={promote: [1, 3, 10]}")),
    gate("search.space.K={promote: [3, 3]}", "search.space.K", "each greater than the one before",
         "search.space.K={promote: [3, 4]}", ("trainable.method=dplis",)),
    gate("search.space.R={promote: [3, 4]}", "search.space.R", "only smoothing_samples",
         "search.space.R={choice: [3, 4]}", ("trainable.method=dplis",)),
    gate("search.space.K={promote: [3, 4]}", "search.space.K", "dp_sgd has no parameter smoothing_samples"),
    gate("search.space.batch_size={promote: [64, 128]}", "search.space.batch_size", "only smoothing_samples",
         "search.space.batch_size={choice: [64, 128]}"),
    gate("privacy.noise_multiplier={promote: [3, 4]}", "privacy.noise_multiplier", "only smoothing_samples",
         "privacy.noise_multiplier={choice: [3, 4]}"),
    # the bounded sampler
    gate("search.sampler={name: bounded, explore: 1}", "search.sampler", "below 1",
         "search.sampler={name: bounded, explore: 0.5, ratio: 2}"),
    gate("search.sampler={name: bounded, explore: 0.5, ratio: 1.4}", "search.sampler", "two draws"),
    gate("search.sampler={name: bounded, explore: .nan}", "search.sampler.explore", "finite number"),
]  # fmt: skip


@pytest.mark.parametrize("gate", GATES, ids=[" ".join((*each.bad, *each.given)) for each in GATES])
def test_each_gate_refuses_with_its_reason_and_lets_its_control_pass(gate: Gate) -> None:
    with pytest.raises(ExperimentError) as caught:
        loads(BASE, (*gate.given, *gate.bad), source="e.yaml")
    (problem,) = caught.value.problems
    assert problem.key == gate.key, problem
    assert gate.why in str(problem)
    assert problem.where.startswith(("e.yaml:", "--set ")), "it says where"
    assert isinstance(loads(BASE, (*gate.given, *gate.good)), Experiment)


def test_the_limits_that_the_gates_know_are_those_of_the_accountant() -> None:
    assert ORDER_RANGE == _ORDERS
    assert POISSON_MEAN == 10


def test_a_study_may_have_what_a_private_search_may_not() -> None:
    study = loads(BASE, ["privacy.private=false", "privacy.noise_seed=3", "privacy.noise_multiplier=0"])
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
        loads(BASE, [f"{key}={value}"])
    assert any(problem.key == key and problem.value == value for problem in caught.value.problems)


def test_a_delta_above_n_to_the_minus_1_1_is_a_warning_and_counts_users_where_they_are_protected() -> None:
    assert loads(BASE).warnings() == ()
    assert "n^-1.1 = 6.2e-06 for n = 54000:" in loads(BASE, ["privacy.delta=1e-5"]).warnings()[0]
    assert "for n = 9 users:" in loads(BASE, [*USERS, "privacy.delta=0.1"]).warnings()[0]


def test_a_domain_of_the_noise_is_moved_to_the_space_and_stays_there() -> None:
    moved = loads(BASE, ["privacy.noise_multiplier={log_uniform: [1, 4]}"])
    assert moved.privacy.noise_multiplier == "auto"
    assert moved.space.priced == ("noise_multiplier",)
    assert moved.space.free == ("learning_rate",)
    assert loads(moved.to_yaml()) == moved
    assert moved.with_noise(2.0) is moved, "there is no one number to put in"
    beside_nothing = loads(BASE, ["privacy.noise_multiplier={choice: [1, 2]}", "search.space={}"])
    assert set(beside_nothing.space.searched) == {"learning_rate", "noise_multiplier"}, "the default space stays"
