"""The hash of a sweep's settings: what it holds fast, and that sweeps from before an option was there keep theirs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

import pytest

from trainables.hyperparameters import DPSGD, PRICED
from trainables.training import TrainingSpec
from tuner.experiment import Experiment, loads
from tuner.settings import flat_values, settings_hash

FILE = """\
name: a-search
dataset: {name: mnist}
trainable: {method: dp_sgd}
privacy: {epsilon: 4.0}
search:
  space: {learning_rate: default}
"""
SINCE_THE_FIRST = {"max_grad_norm", "learning_rate", "schedule", "optimizer", "momentum"}
LATER = [
    "search.space={lr: default, clipping: automatic}",
    "search.space={lr: default, clipping: {choice: [flat, automatic]}}",
    "search.space={lr: default, augmentation: flip}",
    "search.space={lr: default, augmentation: flip, M: 2}",
    "search.space={lr: default, ema_decay: 0.9}",
    "search.space={lr: default, ema_decay: {uniform: [0.0, 0.9]}}",
    "trainable.precision=bfloat16",
]


def with_options(*options: str) -> Experiment:
    return loads(FILE, options)


def first_hash(experiment: Experiment, later: set[str]) -> str:
    """The hash as it was when there was none of the `later` settings."""
    skipped = ("search.trials", "resources.", "tracking.", "storage", "dataset.path", "ledger")
    values = {name: value for name, value in flat_values(experiment).items() if not name.startswith(skipped)}
    kept = {name: value for name, value in values.items() if name not in later}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def test_a_search_from_before_the_options_has_the_hash_that_it_was_entered_with() -> None:
    later = {f"search.space.{each.name}" for each in fields(DPSGD) if each.name not in {*PRICED, *SINCE_THE_FIRST}}
    later.add("trainable.precision")
    experiment = with_options()
    assert later <= set(flat_values(experiment)), "and yet every one is written out"
    assert settings_hash(experiment) == first_hash(experiment, later)


def test_every_option_that_is_on_is_in_the_hash() -> None:
    hashes = [settings_hash(with_options(*options)) for options in [(), *((option,) for option in LATER)]]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    "option",
    [
        "search.space={lr: default, clipping: flat, augmentation: none, M: 1, ema_decay: 0.0}",
        "search.space={lr: default, ema_decay: 0}",
        "trainable.precision=float32",
        "search.trials=3",
        "storage=elsewhere",
    ],
)
def test_what_changes_no_trial_changes_no_hash(option: str) -> None:
    assert settings_hash(with_options(option)) == settings_hash(with_options())


def test_the_defaults_of_a_training_are_those_of_the_file() -> None:
    trainable = with_options().trainable
    shared = {each.name: each.default for each in fields(TrainingSpec)} | {"device": None}
    names = set(type(trainable).model_fields) & set(shared) - {"method", "batch_size"}
    assert "precision" in names
    assert {name: getattr(trainable, name) for name in names} == {name: shared[name] for name in names}
