"""Per-sample gradients by autograd, one sample at a time; models of a function and its layers; drawn layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.per_sample import IGNORED, PerSampleGradients, PerSampleSource

CLASSES = 3


class Net(nn.Module):
    """The named layers and parameters, and a function of the model and its input."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = run

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401 - whatever the function gives
        return self.run(self, x)


def by_autograd(model: nn.Module, layout: Layout, points: Points, x: Tensor, y: Tensor, copies: int) -> Tensor:
    """g_i of each sample, shape (B, d): the definition, one backward pass a sample and point."""
    rows = []
    for mine, labels in zip(torch.split(x, copies), torch.split(y, copies), strict=True):
        counted = labels != IGNORED
        total = points.decay * points.centre
        for place in range(len(points)):
            theta = points.theta(place).clone().requires_grad_()
            outputs = functional_call(model, layout.views(theta), (mine,))
            loss = nn.functional.cross_entropy(outputs[counted], labels[counted], reduction="sum") / copies
            total = total + points.scale * torch.autograd.grad(loss, theta)[0]
        rows.append(total)
    return torch.stack(rows)


def collected(chunks: list[PerSampleGradients], layout: Layout, factors: Tensor) -> tuple[Tensor, Tensor]:
    """(norms of all chunks, sum with these factors)."""
    total, start, norms = torch.zeros(layout.dimension, dtype=torch.float64), 0, []
    for gradients in chunks:
        norms.append(gradients.group_norms())
        stop = start + norms[-1].shape[1]
        gradients.add_weighted_sum(total, factors[:, start:stop], finite=norms[-1].isfinite().all(0), block=None)
        start = stop
    return torch.cat(norms, dim=1), total


def expected_norms(rows: Tensor, layout: Layout) -> Tensor:
    """‖g_i‖ within each group, shape (G, B)."""
    squares: dict[str, Tensor] = {}
    for group, part in zip(layout.groups, torch.split(rows, list(layout.sizes), dim=1), strict=True):
        squares[group] = squares.get(group, torch.zeros(len(rows), dtype=rows.dtype)) + part.square().sum(1)
    return torch.stack(list(squares.values())).sqrt()


def check(model: nn.Module, source: PerSampleSource, points: Points, x: Tensor, y: Tensor, copies: int) -> None:
    layout = Layout.of(model)
    rows = by_autograd(model, layout, points, x, y, copies)
    factors = torch.rand(len(set(layout.groups)), len(rows), dtype=torch.float64) + 0.1
    norms, total = collected(list(source.chunks(points, x, y, copies=copies)), layout, factors)
    expected = expected_norms(rows, layout)
    torch.testing.assert_close(norms, expected, rtol=1e-9, atol=1e-13)  # where terms cancel, a bound is added
    assert bool((norms >= expected * (1 - 1e-12) - 1e-15).all())
    spread = dict(zip(dict.fromkeys(layout.groups), factors, strict=True))
    weights = torch.cat(
        [spread[group][:, None].expand(-1, size) for group, size in zip(layout.groups, layout.sizes, strict=True)], 1
    )
    reference = (weights * rows).sum(0)
    assert float((total - reference).norm()) <= 1e-12 * float((weights * rows).norm(dim=1).sum())


def small_images() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(5, 1, 4, 4, dtype=torch.float64), torch.randint(0, CLASSES, (5,))


def square() -> nn.Linear:
    return nn.Linear(16, 16)


def last(width: int = 16) -> nn.Linear:
    return nn.Linear(width, CLASSES)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


def redrawn(module: nn.Module) -> nn.Module:
    """The module in float64 with every parameter drawn anew: torch starts some at zero, and zeros hide mistakes."""
    module = module.double()
    for number, parameter in enumerate(module.parameters()):
        parameter.data = randn(*parameter.shape, seed=100 + number) * 0.7
    return module


@st.composite
def recurrent_layers(draw: st.DrawFn) -> nn.RNNBase:
    kind = draw(st.sampled_from(("LSTM", "GRU", "tanh", "relu")))
    hidden = draw(st.integers(2, 4))
    options: dict[str, Any] = {
        "num_layers": draw(st.integers(1, 3)),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
    }
    if kind == "LSTM":
        options["proj_size"] = draw(st.integers(0, hidden - 1))
    if kind in ("tanh", "relu"):
        options["nonlinearity"] = kind
    layer = getattr(nn, kind if kind in ("LSTM", "GRU") else "RNN")(draw(st.integers(1, 4)), hidden, **options)
    return redrawn(layer)  # type: ignore[return-value]


@st.composite
def attentions(draw: st.DrawFn) -> nn.MultiheadAttention:
    heads = draw(st.integers(1, 3))
    width = heads * draw(st.integers(1, 3))
    kdim, vdim = draw(st.sampled_from([(None, None), (2, 3), (width, 2)]))
    layer = nn.MultiheadAttention(
        width,
        heads,
        bias=draw(st.booleans()),
        add_bias_kv=draw(st.booleans()),
        add_zero_attn=draw(st.booleans()),
        kdim=kdim,
        vdim=vdim,
        batch_first=draw(st.booleans()),
    )
    return redrawn(layer)  # type: ignore[return-value]
