"""The sensitivity probe: no inserted sample moves a clipped sum further than C, and what mixes samples is found."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from covering import pairs
from errors_helper import raises_code
from torch import Tensor, nn

from trainables.audit.sensitivity import Moved, SensitivityProbe, check_sensitivity
from trainables.engine.bookkeeping import BookkeepingSource, layers_of
from trainables.engine.clip import CLIPPINGS
from trainables.engine.layout import Layout
from trainables.engine.per_sample import TorchFuncSource
from trainables.errors import GateError
from trainables.gradients import gradient_source
from trainables.methods import STEP_METHODS, from_parameters
from trainables.models import build

SHAPE, CLASSES = (1, 8, 8), 4
OWN: dict[str, dict[str, Any]] = {
    "dp_sgd": {},
    "dp_lssgd": {"laplacian_sigma": 1.0},
    "dplis": {"smoothing_samples": 2},
    "dp_weight_decay": {"weight_decay": 0.1},
    "composed": {"laplacian_sigma": 1.0, "smoothing_radius": 5.0, "smoothing_samples": 2, "weight_decay": 0.1},
}
VIEWS: tuple[dict[str, Any], ...] = (
    {},
    {"augmentation": "flip"},
    {"augmentation": "crop_flip", "augmentation_multiplicity": 3},
)


class Attention(nn.Module):
    """Rows of an image as words."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1).view(-1, 8, 8).clamp(-9, 9)
        return self.last(self.attention(rows, rows, rows, need_weights=False)[0].mean(1))


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, CLASSES)
    )


def model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "attention":
        return Attention()
    if kind in ("convolution", "fallback"):
        return convolution()
    return build(kind, input_shape=SHAPE, classes=CLASSES, seed=0)


def probed(kind: str, method: str, clipping: str, views: dict[str, Any], users: int, *, records: int) -> list[Moved]:
    module = model(kind)
    layout = Layout.of(module)
    source = (
        TorchFuncSource(module, layout)
        if kind == "fallback"
        else gradient_source(module, layout, SHAPE, precision="float32")
    )
    settings = from_parameters(
        method, {**OWN[method], **views, "clipping": clipping, "max_grad_norm": 0.7},
        batch_size=5, steps=1, noise_multiplier=1.0,
    )  # fmt: skip
    probe = SensitivityProbe(module, source, settings)
    generator = torch.Generator().manual_seed(1)
    return list(probe.probe(SHAPE, CLASSES, records=records, records_per_user=users, generator=generator))


def test_every_method_is_probed() -> None:
    assert OWN.keys() == STEP_METHODS.keys()


@pytest.mark.parametrize(
    ("kind", "method", "clipping", "views", "users"),
    pairs(
        ("logistic_regression", "mlp_64", "convolution", "attention", "fallback"), tuple(OWN), CLIPPINGS, VIEWS, (0, 3)
    ),
)
def test_no_hostile_sample_moves_the_sum_further_than_c(
    kind: str, method: str, clipping: str, views: dict[str, Any], users: int
) -> None:
    found = probed(kind, method, clipping, views, users, records=10)
    assert [moved for moved in found if not moved.within] == []
    assert max(moved.length for moved in found) > 0.2 * found[0].bound, "the control: a sample does move the sum"


class Mixing(nn.Module):
    """A model in which one sample changes the output of all others, if it fulfils a condition."""

    def __init__(self, rule: str) -> None:
        super().__init__()
        self.rule = rule
        self.last = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1).nan_to_num(0.0, 0.0, 0.0).clamp(-100, 100)
        if self.rule == "a value":
            return self.last(x + 1000 * (x[:, :1] == 3.25).sum(0))
        if self.rule == "duplicates":
            return self.last(x * (x[:, None] == x[None]).all(2).sum(1, keepdim=True))
        if self.rule == "mean":
            return self.last(x - x.mean(0, keepdim=True))
        return self.last(x)


@pytest.mark.parametrize("rule", ["a value", "duplicates", "mean"])
def test_a_model_that_mixes_samples_is_refused(rule: str) -> None:
    for each, refused in ((rule, True), ("none", False)):
        torch.manual_seed(0)
        module = Mixing(each)
        layout = Layout.of(module)
        source = BookkeepingSource(module, layout, layers_of(module, layout))
        with raises_code(GateError, "sensitivity-exceeded") if refused else nullcontext():
            check_sensitivity(module, source, input_shape=SHAPE, classes=CLASSES)
