"""A record whose pass raises: the step is the one without it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from covering import pairs
from torch import Tensor, nn
from training_fakes import MARK, marked, step_over

from trainables.engine import batches
from trainables.engine.augmentation import RandomViews
from trainables.engine.clip import CLIPPINGS
from trainables.engine.layout import Layout
from trainables.engine.objective import Plain, Points, Smoothed
from trainables.engine.per_sample import ROWS, PerSampleGradients, PerSampleSource, TorchFuncSource
from trainables.engine.sources import per_sample_source
from trainables.engine.step import Stages
from trainables.engine.sums import SMALL

KINDS = ("stack", "hooks", "torch.func")
ERRORS: tuple[Callable[[], BaseException], ...] = (IndexError, SystemExit, MemoryError, asyncio.CancelledError)


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
