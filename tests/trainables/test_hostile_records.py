"""A record whose pass raises: the step is the one without it, a count has it as wrong, and nothing else shows it."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from covering import pairs
from errors_helper import raises_code
from torch import Tensor, nn
from training_fakes import EXACT, CountingCharge, MakeSpec, Trained, raw, step_over

import trainables.models
import trainables.training
from trainables.data import DatasetRequest, Splits
from trainables.engine import batches
from trainables.engine.augmentation import RandomViews
from trainables.engine.clip import CLIPPINGS
from trainables.engine.layout import Layout
from trainables.engine.objective import Plain, Points, Smoothed
from trainables.engine.per_sample import ROWS, PerSampleGradients, PerSampleSource, TorchFuncSource
from trainables.engine.sources import per_sample_source
from trainables.engine.step import PrivateStep, Stages
from trainables.engine.sums import SMALL
from trainables.errors import GateError, InfrastructureError, TrainableError, WalledError
from trainables.rungs import TrainingLoop
from trainables.training import PrivateTraining

MARK = 12345.0
KINDS = ("stack", "hooks", "torch.func")
ERRORS: tuple[Callable[[], BaseException], ...] = (IndexError, SystemExit, MemoryError, asyncio.CancelledError)


def marked(x: Tensor) -> bool:
    return bool((x.flatten(1) == MARK).any())


@dataclass(frozen=True)
class Touchy:
    """A source that raises for a marked input: before the gradients, or after some of them were given."""

    source: PerSampleSource
    error: Callable[[], BaseException] = IndexError
    late: bool = False
    refuses: Callable[[Tensor], bool] = marked

    def chunks(
        self, points: Points, inputs: Tensor, targets: Tensor, *, copies: int = 1
    ) -> Iterator[PerSampleGradients]:
        guilty = self.refuses(inputs)
        if guilty and not self.late:
            raise self.error()
        yield from self.source.chunks(points, inputs, targets, copies=copies)
        if guilty:
            raise self.error()


def make_model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "stack":
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


def source_of(model: nn.Module, kind: str) -> PerSampleSource:
    layout = Layout.of(model)
    return TorchFuncSource(model, layout) if kind == "torch.func" else per_sample_source(model, layout)


def records(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, 1, 4, 4, generator=generator), torch.randint(0, 3, (count,), generator=generator)


class SameViews(RandomViews):
    """The same view of every record, so that two batches can be compared."""

    def __call__(self, inputs: Tensor, generator: Any) -> Tensor:  # noqa: ANN401
        generator.uniform(3)
        return torch.stack([inputs, inputs.flip(3)], 1).flatten(0, 1)


CASES = pairs(KINDS, CLIPPINGS, (1, 3), ERRORS, (False, True), (False, True), (0.0, 0.3))


@pytest.mark.parametrize(("kind", "clipping", "points", "error", "late", "views", "decay"), CASES)
def test_a_batch_with_records_that_raise_is_the_batch_without_them(
    kind: str,
    clipping: str,
    points: int,
    error: Callable[[], BaseException],
    decay: float,
    *,
    late: bool,
    views: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit for bit. The first record is one of them, with which passes are filled."""
    model = make_model(kind)
    theta = Layout.of(model).flatten(model)
    objective = Plain() if points == 1 else Smoothed(radius=3.0, samples=points)
    stages = Stages(
        objectives=((0, objective),),
        augmentation=SameViews(crop=False, flip=True, copies=2) if views else None,
        weight_decay_before_clipping=decay,
    )
    inputs, targets = records(22)
    inputs[[0, 7, 21], 0, 0, 0] = MARK
    kept = [index for index in range(22) if index not in (0, 7, 21)]

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        source = Touchy(source_of(model, kind), error, late)
        step = step_over(source, theta, stages=stages, clipping=clipping, clip=0.7, noise=0.5)
        return step.private_gradient(theta, x, y, learning_rate=0.1)

    assert torch.equal(gradient(inputs, targets), gradient(inputs[kept], targets[kept]))
    monkeypatch.setattr(batches, "RAISED", ())
    with pytest.raises(type(error())):  # the control
        gradient(inputs, targets)


@pytest.mark.parametrize(("kind", "clipping"), pairs(KINDS, CLIPPINGS))
def test_a_user_with_a_record_that_raises_is_left_out(kind: str, clipping: str) -> None:
    model = make_model(kind)
    theta = Layout.of(model).flatten(model)
    inputs, targets = records(9)
    inputs[3, 0, 0, 0] = MARK
    whole, others = torch.tensor([[0, 1], [2, 3], [4, -1], [5, 6]]), torch.tensor([[0, 1], [4, -1], [5, 6]])

    def after(users: Tensor) -> Tensor:
        step = step_over(Touchy(source_of(model, kind)), theta, clipping=clipping, clip=0.7)
        return step.take(theta, inputs, targets, learning_rate=0.1, users=users)

    assert torch.equal(after(whole), after(others))
    assert not torch.equal(after(whole), after(torch.tensor([[0, 1], [4, -1], [5, 6], [7, 8]]))), "the control"


def test_an_interruption_by_the_user_still_ends_a_step() -> None:
    model = make_model("stack")
    theta = Layout.of(model).flatten(model)
    step = step_over(Touchy(source_of(model, "stack"), KeyboardInterrupt, refuses=lambda _: True), theta)
    with pytest.raises(KeyboardInterrupt):
        step.private_gradient(theta, *records(3), learning_rate=0.1)


@pytest.mark.parametrize("all_raise", [False, True])
def test_where_only_single_passes_succeed_they_are_added_up(*, all_raise: bool) -> None:
    """Such as where the memory is too small for the joint pass; and where none succeeds, the step is noise."""
    model = make_model("hooks").double()
    theta = Layout.of(model).flatten(model)
    x, y = records(40)

    def gradient(source: PerSampleSource) -> Tensor:
        return step_over(source, theta, clip=0.7).private_gradient(theta, x.double(), y, learning_rate=0.1)

    whole = gradient(source_of(model, "hooks"))
    single = gradient(Touchy(source_of(model, "hooks"), refuses=lambda x: all_raise or len(x) > ROWS))
    torch.testing.assert_close(single, torch.zeros_like(whole) if all_raise else whole, rtol=1e-12, atol=1e-13)


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_PART_BYTES", 1)


@pytest.mark.parametrize("users", [False, True])
def test_a_large_batch_is_taken_in_parts_of_bounded_size(*, users: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("hooks").double()
    theta = Layout.of(model).flatten(model)
    x, y = records(100)
    copies = 2 if users else 1
    table = torch.arange(100).view(50, 2) if users else None
    rows: list[int] = []

    def gradient() -> Tensor:
        rows.clear()
        noting = Touchy(source_of(model, "hooks"), refuses=lambda x: rows.append(len(x)) or False)  # type: ignore[func-returns-value]
        return theta - step_over(noting, theta, clip=0.7).take(theta, x.double(), y, learning_rate=1.0, users=table)

    whole = gradient()
    assert len(rows) == 1
    assert max(rows) >= 100, "the control: as it comes, the batch is one part"
    small_parts(monkeypatch)
    torch.testing.assert_close(gradient(), whole, rtol=1e-12, atol=1e-13)
    assert set(rows) == {ROWS * copies}
    assert sum(rows) >= 100


@pytest.mark.parametrize("hostile", [False, True])
def test_one_record_more_that_needs_another_part_moves_the_sum_by_the_clip_at_most(
    *, hostile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One part is summed in float32, several are summed in float64: what rounding adds is within the slack."""
    small_parts(monkeypatch)
    model = make_model("stack")
    theta = Layout.of(model).flatten(model)
    x, y = records(ROWS + 1)
    if hostile:
        x[3, 0, 0, 0] = MARK

    def gradient(count: int) -> Tensor:
        step = step_over(Touchy(source_of(model, "stack")), theta, clip=0.01)
        return step.private_gradient(theta, x[:count], y[:count], learning_rate=0.1).double()

    moved = float((gradient(ROWS + 1) - gradient(ROWS)).norm())
    assert 0.009 < moved <= 0.01 * (1 + SMALL.slack)


def test_the_size_of_a_part_is_public_and_bounds_its_memory() -> None:
    for shape, copies in (((16,), 1), ((3, 32, 32), 8), ((3, 512, 512), 100)):
        sizes = {batches.part_samples(torch.empty(0, *shape).expand(n, *shape), copies=copies) for n in (0,)}
        (most,) = sizes
        assert most % ROWS == 0
        assert most == ROWS or most * copies * 4 * math.prod(shape) <= 2**28
    assert batches.part_samples(torch.empty(0, 3, 32, 32), copies=1) > 10_000, "an ordinary batch is one part"


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


@pytest.mark.parametrize("unit", ["record", "user"])
def test_what_a_trial_shows_is_the_same_with_a_record_out_of_range(
    unit: str, tmp_path: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
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
        spec = make_spec(model=f"{__name__}:Rows", dataset=request, score_noise=3.0, sample_rate=0.5)
        loop = TrainingLoop(
            PrivateTraining, spec, CountingCharge(), folder=folder, trial_id="a", rung_steps=(5, 10, 20)
        )
        rungs = [loop.advance() for _ in range(3)]
        return [(rung.step, set(rung.metrics), all(map(math.isfinite, rung.metrics.values()))) for rung in rungs]

    with raises_code(GateError, "model-raises"):
        shown(hostile=False)
    monkeypatch.setattr(trainables.models, "check_domain", lambda *_, **__: None)
    monkeypatch.setattr(trainables.training, "refuse_raising", lambda *_: None)
    assert shown(hostile=True) == shown(hostile=False)
    monkeypatch.setattr(batches, "RAISED", ())
    with raises_code(WalledError, "records-failed"):  # the control: without zero gradients the trial fails
        shown(hostile=True)
