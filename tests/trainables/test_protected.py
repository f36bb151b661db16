"""Protected validation: a score is charged before it is computed, one record or user moves it by 1 at most, and it is
noised by what the charge says.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from errors_helper import raises_code
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn
from training_fakes import CountingCharge, MakeSpec, Trained, raw

import trainables.training
from trainables.data import DatasetRequest, Splits
from trainables.errors import DatasetError, GateError
from trainables.rungs import TrainingLoop
from trainables.scoring import protected_count
from trainables.training import PrivateTraining

pytestmark = pytest.mark.usefixtures("fake_data")

NOISE = 3.0
PUBLIC = 16  # a tenth of the public 160; the split really holds 40
STUDY: dict[str, Any] = {"private": False, "noise_seed": 5, "score_noise": NOISE}


def right_answers(training: PrivateTraining, splits: Splits) -> int:
    with torch.no_grad():
        return int((training.model(splits.x_validation).argmax(1) == splits.y_validation).sum())


def without_noise(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Lets scores through as they are; what comes is the list of the deviations that were asked for."""
    asked: list[float] = []

    def nothing_added(clipped: Tensor, *, standard_deviation: float, **_: object) -> Tensor:
        asked.append(standard_deviation)
        return clipped

    monkeypatch.setattr(trainables.training, "add_noise", nothing_added)
    return asked


def on_records(training: PrivateTraining, splits: Splits, note: Callable[[], None]) -> None:
    """Calls `note` before each pass that sees a validation record, as the health check on public inputs does not."""

    def hook(_module: nn.Module, given_: tuple[Tensor]) -> None:
        if bool((given_[0] == splits.x_validation[0]).flatten(1).all(1).any()):
            note()

    training.model.register_forward_pre_hook(hook)


def key_of(training: PrivateTraining) -> Tensor:
    key: Tensor = training.state_dict()["secret"]["key"]
    return key


# -- the law ---------------------------------------------------------------------------------------------------------


def is_normal(draws: np.ndarray, deviation: float) -> bool:
    """Whether mean, variance and shape are those of N(0, deviation²), each within four of its standard errors."""
    scaled, count = draws / deviation, len(draws)
    mean, variance = scaled.mean() * count**0.5, (np.mean(scaled**2) - 1) / (2 / count) ** 0.5
    return bool(abs(mean) < 4 and abs(variance) < 4 and stats.kstest(scaled, "norm").pvalue > 1e-4)


@pytest.mark.slow
def test_a_released_score_has_its_law(trained: Trained, fake_data: Splits) -> None:
    training = trained(5, **STUDY)
    exact = right_answers(training, fake_data)
    scores = [training.evaluate() for _ in range(4000)]
    assert all(set(score) == {"validation_accuracy"} for score in scores), "the loss has no bounded sensitivity"
    draws = np.array([PUBLIC * score["validation_accuracy"] - exact for score in scores])
    assert is_normal(draws, NOISE)
    # Controls: other noise, another centre, another shape of the same variance.
    assert not is_normal(draws, 1.1 * NOISE)
    assert not is_normal(draws + 0.1 * NOISE, NOISE)
    assert not is_normal(np.random.default_rng(0).uniform(-(3**0.5), 3**0.5, 4000) * NOISE, NOISE)
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4 / 4000**0.5, "each draw is its own"


def test_unprotected_scores_and_the_test_split_cost_nothing(trained: Trained, charge: CountingCharge) -> None:
    assert set(trained(0).evaluate()) == {"validation_accuracy", "validation_loss"}
    protected = trained(0, score_noise=NOISE)
    assert set(protected.evaluate("test")) == {"test_accuracy", "test_loss"}
    assert charge.releases == []


# -- paying ----------------------------------------------------------------------------------------------------------


def test_every_score_is_charged_once_and_before_it_is_computed(
    trained: Trained, charge: CountingCharge, fake_data: Splits
) -> None:
    training = trained(0, score_noise=NOISE)
    charged_when_computed: list[int] = []
    on_records(training, fake_data, lambda: charged_when_computed.append(charge.released()))
    for _ in range(3):
        training.evaluate()  # the same model again is another release: nothing is kept
    assert charge.releases == [1, 1, 1]
    assert charged_when_computed == [1, 2, 3]
    assert charge.leases == []


def test_a_refused_score_is_not_computed_and_nothing_is_drawn(
    trained: Trained, charge: CountingCharge, fake_data: Splits
) -> None:
    charge.most_scores = 1
    training = trained(0, score_noise=NOISE)
    computed: list[object] = []
    on_records(training, fake_data, lambda: computed.append(1))
    training.evaluate()
    key = key_of(training)
    assert computed == [1], "the control: a score that is paid for is computed"
    with pytest.raises(PermissionError):
        training.evaluate()
    assert computed == [1]
    assert torch.equal(key_of(training), key)


# -- sensitivity -----------------------------------------------------------------------------------------------------


def logits(answers: list[float]) -> Tensor:
    """Of two classes; the second is right where the answer is above 0."""
    return torch.stack([torch.zeros(len(answers)), torch.tensor(answers)], 1).double()


ANSWERS = st.lists(st.sampled_from([1.0, -1.0, math.nan, math.inf]), max_size=20)


@given(ANSWERS, st.sampled_from([1.0, -1.0, math.nan, math.inf]), st.integers(1, 7))
def test_one_answer_more_adds_none_or_one(answers: list[float], another: float, batch: int) -> None:
    def count(given_: list[float]) -> float:
        values, labels = logits(given_), torch.ones(len(given_), dtype=torch.int64)
        parts = zip(torch.split(values, batch), torch.split(labels, batch), strict=True)
        return protected_count(parts if given_ else (), None)

    assert count(answers) == sum(answer == 1.0 for answer in answers), "what is not finite is wrong"
    assert count([*answers, another]) - count(answers) == (another == 1.0)


@given(st.lists(ANSWERS.filter(len), max_size=6), ANSWERS.filter(len))
def test_one_user_more_adds_at_most_one_however_many_records(users: list[list[float]], another: list[float]) -> None:
    def count(given_: list[list[float]]) -> float:
        answers = [answer for user in given_ for answer in user]
        whose = torch.tensor([number for number, user in enumerate(given_) for _ in user], dtype=torch.int64)
        labels = torch.ones(len(answers), dtype=torch.int64)
        return protected_count([(logits(answers), labels)] if given_ else (), whose)

    share = sum(answer == 1.0 for answer in another) / len(another)
    added = count([*users, another]) - count(users)
    assert 0 <= added <= 1
    assert 0 <= share - added < 2**-20, "a share is rounded down, and their sum is exact"


def test_a_model_that_is_not_finite_scores_noise_and_looks_at_no_record(
    trained: Trained, charge: CountingCharge, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {"learning_rate": 1e38, "max_grad_norm": 1e6}
    training = trained(5, score_noise=NOISE, parameters=parameters)
    assert not bool(raw(training).isfinite().all())
    computed: list[object] = []
    training.model.register_forward_pre_hook(lambda *_: computed.append(1))
    assert math.isfinite(training.evaluate()["validation_accuracy"])
    asked = without_noise(monkeypatch)
    assert training.evaluate() == {"validation_accuracy": 0.0}
    assert asked == [NOISE], "noise is added all the same"
    assert charge.releases == [1, 1]
    assert computed == []


def test_a_split_that_is_empty_by_chance_scores_noise(
    make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is empty is private: an error would tell."""
    none = {name: getattr(fake_data, name)[:0] for name in ("x_validation", "y_validation")}
    training = PrivateTraining(make_spec(score_noise=NOISE), charge, splits=replace(fake_data, **none))
    assert math.isfinite(training.evaluate()["validation_accuracy"])
    without_noise(monkeypatch)
    assert training.evaluate() == {"validation_accuracy": 0.0}


# -- gates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, math.inf])
def test_noise_that_is_none_is_refused(noise: float, trained: Trained) -> None:
    for private in (True, False):
        with raises_code(GateError, "score-noise-invalid"):
            trained(0, score_noise=noise, private=private)


def test_a_public_size_of_none_is_refused(trained: Trained) -> None:
    nothing = DatasetRequest(name="fake", validation_fraction=0.0)
    with raises_code(DatasetError, "split-empty"):
        trained(0, score_noise=NOISE, dataset=nothing)
    assert trained(0, dataset=nothing).step == 0, "the control: unprotected it is no matter"


# -- checkpoints -----------------------------------------------------------------------------------------------------


def test_a_score_after_a_restore_has_noise_of_its_own(trained: Trained, charge: CountingCharge) -> None:
    first = trained(4, score_noise=NOISE)
    state = first.state_dict()
    seen = first.evaluate()
    restored = trained(0, score_noise=NOISE)
    restored.load_state_dict(state)
    assert not torch.equal(key_of(restored), state["secret"]["key"])
    assert restored.evaluate() != seen
    assert charge.releases == [1, 1]
    # The control: with the stored count taken for true, the very noise would come again.
    repeated = trained(0, score_noise=NOISE)
    repeated.load_state_dict({**state, "released": 2})
    assert repeated.evaluate() == seen


def test_a_stream_goes_on_where_nothing_was_released_since(trained: Trained, charge: CountingCharge) -> None:
    first = trained(0, score_noise=NOISE)
    first.evaluate()
    first.run_to(4)
    restored = PrivateTraining(first.spec, copy.deepcopy(charge))
    restored.load_state_dict(first.state_dict())
    assert torch.equal(key_of(restored), key_of(first))
    for training in (first, restored):
        training.run_to(8)
    assert torch.equal(raw(first), raw(restored))


def test_the_loop_pays_again_for_the_score_of_a_restored_checkpoint(
    make_spec: MakeSpec, charge: CountingCharge, tmp_path: Path
) -> None:
    def loop() -> TrainingLoop:
        spec = make_spec(score_noise=NOISE)
        return TrainingLoop(PrivateTraining, spec, charge, folder=tmp_path, trial_id="a", rung_steps=(5, 10))

    reported = loop().advance()
    assert charge.releases == [1]
    resumed = loop()
    again = resumed.advance()
    assert (again.step, charge.releases, charge.leases) == (5, [1, 1], [5])
    assert again.metrics["validation_accuracy"] != reported.metrics["validation_accuracy"]
    assert resumed.advance().step == 10
    assert charge.releases == [1, 1, 1]
