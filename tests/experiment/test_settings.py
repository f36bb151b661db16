"""The hash of a sweep's settings, what it holds fast and what it leaves out; and the seeds of its trials."""

from __future__ import annotations

from dataclasses import fields

import pytest
from errors_helper import raises_code

from trainables.training import TrainingSpec
from tuner.errors import InputError
from tuner.experiment import Experiment, parse_experiment
from tuner.plan.plan import make_plan
from tuner.sweep.registration import device_of
from tuner.sweep.settings import check_same, settings_hash, stated_use
from tuner.sweep.trial_spec import training_spec

FILE = """\
name: a-search
dataset: {name: mnist}
trainable: {method: dp_sgd}
privacy: {epsilon: 4.0}
search:
  space: {learning_rate: default}
"""
OPTIONS = [
    "search.space={lr: default, clipping: automatic}",
    "search.space={lr: default, augmentation: flip}",
    "search.space={lr: default, augmentation: flip, M: 2}",
    "search.space={lr: default, ema_decay: 0.9}",
    "trainable.precision=bfloat16",
    "search.space={lr: default, batch_size: {choice: [128, 256]}}",
    "search.space={lr: default, epochs: {uniform: [1, 2]}}",
    "privacy.noise_multiplier={choice: [1, 2]}",
    "privacy.cap=coupon_book",
    "privacy.cap=fixed_order",
    "dataset.validation.protected=true",
    "search.space={lr: {log_uniform: [0.01, 2.0], unimodal: true}}",
    "search.full_runs=5",
    "search.full_runs=auto",
]
TOGETHER = [
    ["privacy.accounting=selection", "search.sampler=random"],
    ["privacy.accounting=selection", "search.sampler=random", "privacy.runs.law=logarithmic"],
    ["privacy.accounting=selection", "search.sampler=random", "privacy.runs.at_most=200"],
    ["privacy.cap=fixed_order", "privacy.order=4"],
    ["privacy.accounting=public", "search.public={name: fashion_mnist}"],
    ["dataset.validation.protected=true", "dataset.validation.epsilon=1"],
    ["dataset.validation.protected=true", "dataset.validation.delta=1e-6"],
    ["dataset.validation.protected=true", "dataset.validation.noise=50"],
    ["dataset.name=state_union", "privacy.unit=user", "trainable.batch_size=4"],
    ["dataset.name=state_union", "privacy.unit=user", "trainable.batch_size=4", "dataset.records_per_user=4"],
]


def with_options(*options: str) -> Experiment:
    return parse_experiment(FILE, options)


def test_the_ledger_gets_what_the_file_states_on_one_line_and_nothing_else() -> None:
    assert stated_use(with_options()) == {}
    assert stated_use(with_options("privacy.purpose=triage of letters")) == {"purpose": "triage of letters"}
    both = stated_use(with_options("privacy.purpose=triage", "privacy.contact=ann@example.org"))
    assert both == {"purpose": "triage", "contact": "ann@example.org"}
    with raises_code(InputError, "value-not-allowed"):
        with_options('privacy.purpose="two\\nlines"')


def test_every_option_that_is_on_is_in_the_hash() -> None:
    hashes = [
        settings_hash(with_options(*options), "id") for options in [(), *((option,) for option in OPTIONS), *TOGETHER]
    ]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    "option",
    [
        "search.space={lr: {log_uniform: [0.1, 1]}, clipping: flat, augmentation: none, M: 1, ema_decay: 0.9999}",
        "trainable.precision=float32",
        "privacy.runs={law: geometric}",
        "dataset.validation.noise=auto",
        "privacy.unit=record",
        "search.trials=3",
        "storage=elsewhere",
    ],
)
def test_what_changes_no_trial_changes_no_hash(option: str) -> None:
    # A `default` learning rate depends on the noise, and therefore on the number of trials.
    fixed = "search.space={lr: {log_uniform: [0.1, 1]}}"
    assert settings_hash(with_options(fixed, option), "id") == settings_hash(with_options(fixed), "id")


def test_what_a_sure_search_does_may_change_while_it_goes_on() -> None:
    unimodal = ("search.sampler=unimodal", "search.space={lr: {log_uniform: [0.01, 2.0], unimodal: true}}")
    on, stopping = with_options(*unimodal), with_options(*unimodal, "search.when_sure=stop")
    assert settings_hash(on, "id") == settings_hash(stopping, "id")
    check_same(on, stopping)
    with raises_code(InputError, "resume-changes-setting"):
        check_same(on, with_options(*unimodal, "search.sampler={name: unimodal, sure: 0.9}"))


def test_a_search_stays_on_the_device_that_its_card_names() -> None:
    on_cpu, on_gpu = with_options(), with_options("resources.gpus_per_trial=1")
    check_same(on_gpu, with_options("resources.gpus_per_trial=0.5"))
    for before, after in ((on_cpu, on_gpu), (on_gpu, on_cpu)):
        with raises_code(InputError, "resume-changes-setting"):
            check_same(before, after)
    assert (device_of(on_cpu), device_of(on_gpu)) == ({}, {"device": "cuda"})


def test_the_defaults_of_a_training_are_those_of_the_file() -> None:
    trainable = with_options().trainable
    shared = {each.name: each.default for each in fields(TrainingSpec)} | {"device": None}
    names = set(type(trainable).model_fields) & set(shared) - {"method", "batch_size"}
    assert "precision" in names
    assert {name: getattr(trainable, name) for name in names} == {name: shared[name] for name in names}


@pytest.mark.parametrize(("seed", "number", "wanted"), [(2**32 - 1, 0, 2**32 - 1), (2**32 - 1, 3, 2), (7, 3, 10)])
def test_the_seed_of_every_trial_can_be_written_into_a_file(seed: int, number: int, wanted: int) -> None:
    experiment = with_options(f"seed={seed}", "privacy.private=false", f"privacy.noise_seed={seed}")
    request = experiment.dataset_request("nowhere")
    plan = make_plan(experiment, request)
    spec = training_spec(experiment, request, plan, parameters={"learning_rate": 0.5}, number=number)
    assert (spec.seed, spec.noise_seed) == (wanted, wanted)
    assert with_options(f"seed={spec.seed}").seed == wanted
