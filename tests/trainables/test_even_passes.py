"""A record more must not change how the others are rounded: passes have even numbers of rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from gradient_checks import Net
from torch import Tensor, nn
from training_fakes import CountingCharge, MakeSpec, step_over

from trainables.data import Splits
from trainables.engine.layout import Layout
from trainables.engine.linear import LinearStackSource
from trainables.engine.losses import LossPasses
from trainables.engine.objective import Points
from trainables.engine.per_sample import ROWS, PerSampleSource, TorchFuncSource, even_chunk
from trainables.engine.rows import EvenLinear
from trainables.engine.sources import per_sample_source
from trainables.engine.step import Stages
from trainables.models import build
from trainables.scoring import answers
from trainables.training import PrivateTraining

C = 1.0


class Seen(nn.Module):
    """A layer that notes how many rows it is given, and what it gives for the first of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        return x


@pytest.mark.parametrize("chunk_bytes", [2**12, 2**15, 2**27])
def test_every_pass_has_as_many_rows_as_it_would_have_with_a_record_more(chunk_bytes: int) -> None:
    seen = Seen()
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), seen, nn.Linear(8, 3))
    layout = Layout.of(module)
    source = per_sample_source(module, layout, example=torch.rand(4, 6))
    assert not isinstance(source, LinearStackSource), "the layer that notes is none that it knows"
    object.__setattr__(source, "chunk_bytes", chunk_bytes)
    theta = layout.flatten(module)
    step_over(source, theta, clip=C).private_gradient(theta, torch.rand(1, 6), torch.tensor([0]), learning_rate=0.1)
    for count in (1, 2, 3, 4, 15, 16, 17, 33, 100):
        seen.rows.clear()  # a source may look once at the sizes of one sample
        inputs, targets = torch.rand(count, 6), torch.randint(0, 3, (count,))
        step_over(source, theta, clip=C).private_gradient(theta, inputs, targets, learning_rate=0.1)
        assert sum(seen.rows) == -(-count // ROWS) * ROWS
        whole = {rows for rows in seen.rows if rows % ROWS}
        assert len(whole) <= 1, "below ROWS all passes are alike"


def test_no_chunk_leaves_a_short_one_over() -> None:
    for size in range(1, 200):
        chunk = even_chunk(size)
        assert chunk <= size < 2 * chunk + ROWS
        assert all(rows % min(chunk, ROWS) == 0 for rows in (ROWS % chunk, 7 * ROWS % chunk))


@pytest.mark.parametrize(("decay", "fallback"), [(0.0, False), (0.3, False), (0.3, True)])
def test_what_fills_a_pass_adds_nothing(decay: float, *, fallback: bool) -> None:
    """With weight decay, and with a first record that no model could take, too."""
    module = nn.Sequential(nn.Linear(6, 3)).double()
    layout = Layout.of(module)
    example = torch.rand(4, 6, dtype=torch.float64)
    source: PerSampleSource = (
        TorchFuncSource(module, layout) if fallback else per_sample_source(module, layout, example=example)
    )
    theta = layout.flatten(module)
    inputs, targets = torch.rand(5, 6, dtype=torch.float64), torch.randint(0, 3, (5,))

    def of(rows: slice) -> Tensor:
        step = step_over(source, theta, stages=Stages(weight_decay_before_clipping=decay), clip=C)
        return step.private_gradient(theta, inputs[rows], targets[rows], learning_rate=0.1)

    alone = sum(of(slice(i, i + 1)) for i in range(5))
    torch.testing.assert_close(of(slice(0, 5)), alone, rtol=1e-12, atol=1e-12)
    assert float(of(slice(0, 1)).norm()) <= C * (1 + 1e-12)
    broken = of(slice(1, 5))
    inputs[0] = torch.nan
    torch.testing.assert_close(of(slice(0, 5)), broken, rtol=1e-12, atol=1e-12)


def test_a_protected_score_passes_as_many_rows_whatever_the_records(
    make_spec: MakeSpec, fake_data: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    assert len(fake_data.x_validation) < 2048
    training = PrivateTraining(make_spec(score_noise=3.0), CountingCharge())
    forward = type(training.model).forward

    def noting(module: nn.Module, x: Tensor) -> Tensor:
        rows.append(len(x))
        return forward(module, x)

    monkeypatch.setattr(type(training.model), "forward", noting)
    training.evaluate()
    assert set(rows) == {2048}
    rows.clear()
    PrivateTraining(make_spec(), CountingCharge()).evaluate()
    assert set(rows) != {2048}, "the others are not filled, which shows that this looks at something"


# -- the place of a row in a pass: a record more moves all later ones by one row -------------------------------------


def stack(width: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def normed(width: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def bare(width: int, hidden: int, outputs: int) -> nn.Module:
    """A layer of a user's own, without a rule for its gradients."""

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        hidden = torch.tanh(nn.functional.linear(input=x, weight=net.one))
        return nn.functional.linear(hidden, net.two, bias=net.three)

    shapes = {"one": (hidden, width), "two": (outputs, hidden), "three": (outputs,)}
    return Net(run, **{name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()})


SHAPES = [(6, 5, 3), (9, 6, 10), (30, 10, 2), (105, 105, 2), (122, 30, 1)]


@pytest.mark.parametrize("make", [stack, normed, bare])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_value_of_a_record_depends_on_its_place_in_a_pass(
    make: Callable[[int, int, int], nn.Module], shape: tuple[int, int, int]
) -> None:
    torch.manual_seed(0)
    model = make(*shape)
    layout, outputs = Layout.of(model), shape[-1]
    theta = layout.flatten(model)
    x, y = torch.randn(128, shape[0]), torch.randint(0, max(outputs, 2), (128,)) % outputs
    sources = (per_sample_source(model, layout, example=x[:4]), TorchFuncSource(model, layout))
    assert not isinstance(sources[0], TorchFuncSource)
    losses = LossPasses(module=model, layout=layout, expected_batch_size=400)
    several = Points(centre=theta, scale=1 / 3, seeds=(1, 2, 3), spread=0.01)
    for points in (Points(centre=theta), several):
        for source in sources:
            norms = moved(lambda *rows, s=source, p=points: norms_of(s, p, *rows), x, y)  # type: ignore[misc]
            torch.testing.assert_close(*norms, rtol=1e-13, atol=0.0)  # norms themselves are rounded in float64
    assert torch.equal(*moved(lambda *rows: losses.of([theta], *rows)[0], x, y))
    assert torch.equal(*moved(lambda x, y: next(answers(model, x, y, outputs=outputs, even=True))[0], x, y))


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("logistic_regression", (105,), 2),
        ("mlp_input", (57,), 2),
        ("mlp_64", (30,), 10),
        ("tutorial_cnn", (1, 28, 28), 10),
        ("four_conv_cnn", (3, 32, 32), 10),
        ("next_word_lstm", (8,), 50),
    ],
)
def test_no_answer_of_a_shipped_model_depends_on_the_place_of_a_record(
    name: str, shape: tuple[int, ...], classes: int
) -> None:
    model = build(name, input_shape=shape, classes=classes, seed=0)
    x, y = 5 * torch.randn(48, *shape), torch.zeros(48, dtype=torch.int64)
    layout = Layout.of(model)
    source = per_sample_source(model, layout, example=x[:4])
    norms = moved(lambda *rows: norms_of(source, Points(centre=layout.flatten(model)), *rows), x, y)
    torch.testing.assert_close(*norms, rtol=1e-13, atol=0.0)
    assert torch.equal(*moved(lambda x, y: next(answers(model, x, y, outputs=classes, even=True))[0], x, y))


def test_a_linear_layer_keeps_its_values_and_its_gradients() -> None:
    x, bias = torch.randn(4, 5, dtype=torch.float64, requires_grad=True), torch.randn(3, dtype=torch.float64)
    for weight, own in ((torch.randn(3, 5, dtype=torch.float64), bias), (torch.randn(5, dtype=torch.float64), None)):
        found = []
        for mode in (nullcontext(), EvenLinear()):
            with mode:
                out = nn.functional.linear(x, weight=weight, bias=own)
            found.append((out, *torch.autograd.grad(out.square().sum(), x)))
        for plain, even in zip(*found, strict=True):
            torch.testing.assert_close(even, plain, rtol=1e-13, atol=1e-13)


def norms_of(source: PerSampleSource, points: Points, x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([each.group_norms() for each in source.chunks(points, x, y)], 1).T


def moved(of: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """What `of` finds for records, as they are and after the last ones were put in front of them, in one order."""
    here, there = [], []
    found = of(x, y)
    for places in (1, 2, 3, 7):
        here.append(found[:-places])
        there.append(of(x.roll(places, 0), y.roll(places, 0))[places:])
    return torch.cat(here), torch.cat(there)
