"""A training with a record whose pass raises: a count has it as wrong, and nothing else shows it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from errors_helper import raises_code
from torch import Tensor, nn
from training_fakes import EXACT, MARK, CountingCharge, MakeSpec, Trained, marked, raw

import trainables.gradients
import trainables.models
import trainables.training
from trainables.data import DatasetRequest, Splits
from trainables.engine import batches, losses
from trainables.engine.objective import Points
from trainables.engine.per_sample import PerSampleGradients
from trainables.engine.step import PrivateStep
from trainables.errors import GateError, InfrastructureError, TrainableError, WalledError
from trainables.rungs import TrainingLoop
from trainables.training import PrivateTraining

# -- a training ------------------------------------------------------------------------------------------------------


def refuse(training: PrivateTraining, refuses: Callable[[Points, Tensor], bool]) -> list[int]:
    """Lets the training's source raise where `refuses` says so; returns the number of rows of each public pass."""
    step: PrivateStep = training._private_step
    source, rows = step._source, list[int]()

    class Refusing:
        def chunks(
            self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
        ) -> Iterator[PerSampleGradients]:
            if refuses(points, inputs):
                raise RuntimeError("CUDA error")
            return source.chunks(points, inputs, targets, copies=copies)

    real = step.rehearse

    def rehearse(theta: Tensor, inputs: Tensor, targets: Tensor) -> None:
        rows.append(len(inputs))
        real(theta, inputs, targets)

    step._source, step.rehearse = Refusing(), rehearse  # type: ignore[method-assign]
    return rows


def test_a_machine_that_fails_on_public_inputs_ends_a_trial_before_it_pays(
    make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits
) -> None:
    training = PrivateTraining(make_spec(score_noise=3.0), charge)
    refuse(training, lambda _points, _inputs: True)
    for fail in (lambda: training.run_to(5), training.evaluate):
        with raises_code(InfrastructureError, "machine-failed"):
            fail()
    assert charge.leases == charge.releases == []


def test_a_model_that_fails_at_its_parameters_has_an_error_of_its_own(
    make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits
) -> None:
    training = PrivateTraining(make_spec(), charge)
    initial = raw(training)
    refuse(training, lambda points, _inputs: not torch.equal(points.centre, initial))
    training.run_to(2)
    with raises_code(TrainableError, "parameters-unusable") as caught:
        training.evaluate()
    assert not isinstance(caught.value, InfrastructureError)
    failures = iter([True])
    passing = PrivateTraining(make_spec(), charge)
    refuse(passing, lambda _points, _inputs: next(failures, False))
    passing.run_to(2)
    assert passing.step == 2, "a failure that has passed ends nothing"


def test_the_health_check_comes_at_the_same_moments_with_and_without_a_record_that_raises(
    make_spec: MakeSpec, fake_data: Splits
) -> None:
    def moments(*, hostile: bool) -> tuple[list[int], int, int]:
        inputs = fake_data.x_train.clone()
        if hostile:
            inputs[5] = MARK
        training = PrivateTraining(
            make_spec(steps=230), charge := CountingCharge(), splits=replace(fake_data, x_train=inputs)
        )
        rows = refuse(training, lambda _points, x: marked(x))
        for rung in (30, 230):
            training.run_to(rung)
            training.evaluate()
        return rows, training.step, charge.leased()

    assert moments(hostile=True) == moments(hostile=False)
    assert moments(hostile=False)[0] == [3] * 4, "at steps 0 and 130, and before the scores at 30 and 230"


def test_a_record_that_raises_gives_the_model_without_it(
    trained: Trained, fake_data: Splits, make_spec: MakeSpec
) -> None:
    def model(splits: Splits) -> Tensor:
        training = PrivateTraining(make_spec(**EXACT), CountingCharge(), splits=splits)
        refuse(training, lambda _points, x: marked(x))
        training.run_to(5)
        return raw(training)

    one, label = torch.full((1, 2), MARK), fake_data.y_train[:1]
    more = replace(
        fake_data, x_train=torch.cat([fake_data.x_train, one]), y_train=torch.cat([fake_data.y_train, label])
    )
    assert torch.equal(model(more), model(fake_data))


# -- scores ----------------------------------------------------------------------------------------------------------


def touchy_model(training: PrivateTraining) -> set[int]:
    """Lets the model raise for a marked input; returns the numbers of rows of its passes."""
    rows: set[int] = set()

    def hook(_module: nn.Module, given: tuple[Tensor]) -> None:
        rows.add(len(given[0]))
        if marked(given[0]):
            raise IndexError("out of range")

    training.model.register_forward_pre_hook(hook)
    return rows


@pytest.mark.parametrize("guilty", [[], [0], [39], [3, 4, 20], list(range(40))])
def test_a_validation_record_that_raises_is_a_wrong_answer(
    guilty: list[int], make_spec: MakeSpec, fake_data: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainables.training, "add_noise", lambda clipped, **_: clipped)
    inputs = fake_data.x_validation.clone()
    inputs[guilty] = MARK
    splits = replace(fake_data, x_validation=inputs)
    training = PrivateTraining(make_spec(score_noise=3.0), charge := CountingCharge(), splits=splits)
    with torch.no_grad():
        right = training.model(fake_data.x_validation).argmax(1) == fake_data.y_validation
    right[guilty] = False
    rows = touchy_model(training)
    assert round(training.evaluate()["validation_accuracy"] * 16) == int(right.sum())
    assert rows == {2048}, "passes of one size, whoever raises"
    assert charge.releases == [1]


def test_an_unprotected_score_with_a_record_that_raises_is_not_a_number(make_spec: MakeSpec, fake_data: Splits) -> None:
    inputs = fake_data.x_validation.clone()
    inputs[7] = MARK
    training = PrivateTraining(make_spec(), CountingCharge(), splits=replace(fake_data, x_validation=inputs))
    touchy_model(training)
    found = training.evaluate()
    assert math.isnan(found["validation_accuracy"])
    assert math.isnan(found["validation_loss"])


def test_a_pass_that_does_not_fit_the_memory_is_the_machines_failure(
    make_spec: MakeSpec, fake_data: Splits, charge: CountingCharge
) -> None:
    training = PrivateTraining(make_spec(score_noise=3.0), charge)

    def hook(_module: nn.Module, given: tuple[Tensor]) -> None:
        if len(given[0]) > 1000:
            raise RuntimeError("out of memory")

    machine = nn.modules.module.register_module_forward_pre_hook(hook)
    try:
        with raises_code(InfrastructureError, "machine-failed"):
            training.evaluate()
    finally:
        machine.remove()
    training.model.register_forward_pre_hook(hook)  # these parameters alone
    with raises_code(TrainableError, "parameters-unusable"):
        training.evaluate()
    assert charge.releases == []


# -- the whole: an embedding without a clamp, 400 records, and one more whose number is out of range ------------------


class Rows(nn.Module):
    def __init__(self, *, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(10, 4)
        self.last = nn.Linear(4 * input_shape[0], classes)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.rows(x.long()).flatten(1))
        return found


GEN = {"schedule": "gen", "learning_rate": 0.1}


def test_under_gen_weights_and_rates_are_those_of_a_training_without_the_record_out_of_range(
    make_spec: MakeSpec, charge: CountingCharge, fake_data: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit over a whole training: the record adds zero to the gradients and to the loss probes."""
    monkeypatch.setattr(trainables.models, "check_domain", lambda *_, **__: None)
    monkeypatch.setattr(trainables.gradients, "refuse_raising", lambda *_: None)
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.integers(0, 10, (61, 2)), dtype=torch.float32)
    y = torch.tensor(rng.integers(0, 3, 61))
    x[60] = 11
    held = {"x_validation": x[:9], "y_validation": y[:9]}

    def after(many: int, **parameters: object) -> tuple[Tensor, float]:
        splits = replace(fake_data, x_train=x[:many], y_train=y[:many], **held)
        spec = make_spec(model=f"{__name__}:Rows", parameters={**GEN, **parameters}, **EXACT)
        training = PrivateTraining(spec, charge, splits=splits)
        training.run_to(20)
        assert training._probes is not None
        return raw(training), training._probes.rate

    weights, rate = after(60)
    assert rate != GEN["learning_rate"], "the probes moved it"
    theirs = after(61)
    assert torch.equal(theirs[0], weights)
    assert theirs[1] == rate
    monkeypatch.setattr(losses, "RAISED", ())
    with pytest.raises(IndexError):  # the control: the probes' own passes are guarded, not the gradients' alone
        after(61)


@pytest.mark.parametrize(
    ("unit", "parameters"), [("record", {}), ("user", {}), ("record", GEN), ("user", GEN)], ids=lambda each: str(each)
)
def test_what_a_trial_shows_is_the_same_with_a_record_out_of_range(
    unit: str, parameters: dict[str, object], tmp_path: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)

    def shown(*, hostile: bool) -> list[tuple[int, set[str], bool]]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        x, y = rng.integers(0, 10, (401, 3)).astype(np.float32), rng.integers(0, 2, 401)
        x[400] = 11 if hostile else 9
        train = {"x_train": x, "y_train": y, "user_train": np.arange(401) // 2}
        np.savez(folder / "own.npz", **train, x_test=x[:20] * 0, y_test=y[:20] * 0 + np.arange(20) % 2)
        request = DatasetRequest(
            name="mine",
            path=str(folder / "own.npz"),
            unit=unit,
            public_size=400 if unit == "record" else None,
            public_users=200 if unit == "user" else None,
            records_per_user=2,
            validation_fraction=0.25,
        )
        spec = make_spec(
            model=f"{__name__}:Rows", dataset=request, score_noise=3.0, sample_rate=0.5, parameters=parameters
        )
        loop = TrainingLoop(
            PrivateTraining, spec, CountingCharge(), folder=folder, trial_id="a", rung_steps=(5, 10, 20)
        )
        rungs = [loop.advance() for _ in range(3)]
        return [(rung.step, set(rung.metrics), all(map(math.isfinite, rung.metrics.values()))) for rung in rungs]

    with raises_code(GateError, "model-raises"):
        shown(hostile=False)
    monkeypatch.setattr(trainables.models, "check_domain", lambda *_, **__: None)
    monkeypatch.setattr(trainables.gradients, "refuse_raising", lambda *_: None)
    assert shown(hostile=True) == shown(hostile=False)
    monkeypatch.setattr(batches, "RAISED", ())
    with raises_code(WalledError, "records-failed"):  # the control: without zero gradients the trial fails
        shown(hostile=True)
