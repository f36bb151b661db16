"""Extrapolation of the averaged weights: the choice against its definition, and when nothing is chosen."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_fakes import CountingCharge, MakeSpec, Trained

from trainables import extrapolation as choice
from trainables.data import Splits
from trainables.extrapolation import FACTORS, choose_factor
from trainables.scoring import Answered
from trainables.training import PrivateTraining

pytestmark = pytest.mark.usefixtures("fake_data")

AVERAGED: dict[str, Any] = {"ema_decay": 0.9, "extrapolation": "chosen", "learning_rate": 0.5}


def answered(right: list[int] | np.ndarray, losses: list[float] | np.ndarray | None = None) -> Answered:
    """Return answers with made-up losses. The labels are 0 and 1 in turn, and the margins are the losses."""
    told = torch.as_tensor(np.asarray(right)).bool()
    each = torch.zeros(len(told)) if losses is None else torch.as_tensor(np.asarray(losses))
    return Answered(losses=each.double(), right=told, labels=torch.arange(len(told)) % 2, margins=each.double())


def test_a_clear_gain_is_taken_and_one_within_its_error_is_not() -> None:
    """Of the answers, `more` turn right and `fewer` turn wrong: the error of the gain is about √(more + fewer)."""

    def chosen(more: int, fewer: int) -> float:
        before, after = np.zeros(400, int), np.zeros(400, int)
        before[:100] = 1
        after[fewer : 100 + more] = 1
        order = np.random.default_rng(0).permutation(400)
        return choose_factor({0.0: answered(before[order]), 1.0: answered(after[order])}, metric="validation_accuracy")

    assert chosen(30, 5) == 1.0
    assert chosen(7, 6) == 0.0, "1 is less than √13"
    assert chosen(5, 30) == 0.0
    assert chosen(0, 0) == 0.0


def test_the_error_of_a_mean_is_the_textbooks() -> None:
    """With as many groups as records, the jackknife's error of a mean is s/√n."""
    generator = np.random.default_rng(1)
    plain, other = generator.normal(size=20), generator.normal(size=20)
    found = choice._sure_gain(
        *(choice._scores(answered(np.ones(20), losses), "validation_loss") for losses in (other, plain))
    )
    gains = plain - other  # a smaller loss is better
    assert found == pytest.approx(gains.mean() - gains.std(ddof=1) / np.sqrt(20), rel=1e-9)


@pytest.mark.parametrize("metric", ["validation_loss", "validation_perplexity", "validation_auc"])
def test_the_metric_of_the_search_decides(metric: str) -> None:
    labels = np.arange(200) % 2
    good, bad = labels + 0.1 * np.sin(np.arange(200)), 1 - labels + 0.1 * np.sin(np.arange(200))
    at = {0.0: answered(np.ones(200), bad + 2), 0.5: answered(np.zeros(200), good)}
    assert choose_factor(at, metric=metric) == 0.5
    assert choose_factor(at, metric="validation_accuracy") == 0.0


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_model_without_a_score_is_never_chosen(broken: float) -> None:
    losses = np.zeros(50)
    losses[7] = broken
    at = {0.0: answered(np.zeros(50)), 1.0: answered(np.ones(50), losses)}
    assert choose_factor(at, metric="validation_accuracy") == 0.0
    assert choose_factor({each: answered([1]) for each in FACTORS}, metric="validation_accuracy") == 0.0


def test_the_end_of_a_training_takes_the_best_factor(trained: Trained, fake_data: Splits) -> None:
    training = trained(0, parameters=AVERAGED, private=False, noise_seed=5)
    training.run_to(19)
    assert training.extrapolation == 0.0
    training.run_to(20)
    average = training._average
    assert average is not None
    told = {}
    for factor in FACTORS:
        training._layout.write(average.value(factor), training._model)
        with torch.no_grad():
            outputs = training._model(fake_data.x_validation).double()
        told[factor] = Answered.of([(outputs, fake_data.y_validation)], "classification")
    assert training.extrapolation == choose_factor(told, metric="validation_accuracy")
    assert torch.equal(training._layout.flatten(training.model), average.value(training.extrapolation))


def test_a_number_is_used_at_the_end_only_and_survives_a_checkpoint(
    make_spec: MakeSpec, charge: CountingCharge, tmp_path: Path
) -> None:
    spec = make_spec(parameters={**AVERAGED, "extrapolation": 0.5})
    training = PrivateTraining(spec, charge)
    training.run_to(12)
    average = training._average
    assert average is not None
    assert torch.equal(training._layout.flatten(training.model), average.value())
    training.save(tmp_path / "trial" / "state.pt")
    resumed = PrivateTraining(spec, copy.deepcopy(charge))
    resumed.load(tmp_path / "trial" / "state.pt")
    for each in (training, resumed):
        each.run_to(20)
    assert torch.equal(training._layout.flatten(training.model), average.value(0.5))
    assert torch.equal(training._layout.flatten(resumed.model), training._layout.flatten(training.model))


def test_a_chosen_factor_is_in_the_checkpoint(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainables.training.choose_factor", lambda _answered, **_how: 2.0)
    training = trained(20, parameters=AVERAGED)
    again = trained(0, parameters=AVERAGED)
    again.load_state_dict(training.state_dict())
    assert again.extrapolation == 2.0
    fixed = trained(0, parameters={**AVERAGED, "extrapolation": 0.5})
    fixed.load_state_dict(training.state_without_key())
    assert fixed.extrapolation == 0.5, "a copy of another configuration keeps its own number"
    assert torch.equal(again._layout.flatten(again.model), training._layout.flatten(training.model))


def test_protected_records_choose_nothing(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, charge: CountingCharge
) -> None:
    def refuse(*_args: object, **_how: object) -> float:
        raise AssertionError("the validation records are protected")

    monkeypatch.setattr("trainables.training.choose_factor", refuse)
    training = trained(20, parameters=AVERAGED, score_noise=3.0)
    assert (training.extrapolation, charge.released()) == (0.0, 0)
    with pytest.raises(AssertionError, match="protected"):
        trained(20, parameters=AVERAGED)  # the control


def test_without_validation_records_nothing_is_chosen(
    trained: Trained, fake_data: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = replace(fake_data, x_validation=fake_data.x_validation[:0], y_validation=fake_data.y_validation[:0])
    monkeypatch.setattr("trainables.data.load_records", lambda _request: none)
    assert trained(20, parameters=AVERAGED).extrapolation == 0.0
