"""The models: names, shapes, public initialisation, and the gate."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trainables import model_names, models
from trainables.errors import GateError, HyperparameterError
from trainables.models import build, check_private

# Counted by hand from the layers; 26 010 is also what the TF-privacy tutorial prints.
PARAMETERS = {
    "logistic_regression": 784 * 10 + 10,
    "mlp_64": 784 * 64 + 64 + 64 * 10 + 10,
    "mlp_256": 784 * 256 + 256 + 256 * 10 + 10,
    "mlp_512_128": 784 * 512 + 512 + 512 * 128 + 128 + 128 * 10 + 10,
    "mlp_1536_128": 784 * 1536 + 1536 + 1536 * 128 + 128 + 128 * 10 + 10,
    "tutorial_cnn": 26_010,
    "four_conv_cnn": (9 + 1) * 32 + (32 * 9 + 1) * 64 + (64 * 9 + 1) * 64 + (64 * 9 + 1) * 128 + 128 * 10 + 10,
}


@pytest.mark.parametrize("name", model_names.MODELS)
def test_models_by_name(name: str) -> None:
    state = torch.get_rng_state()
    model, twin, other = (build(name, input_shape=(1, 28, 28), classes=10, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]
    inputs = torch.rand(2, 1, 28, 28)
    assert model(inputs).shape == (2, 10)
    assert torch.equal(model(inputs), twin(inputs))
    assert not torch.equal(model(inputs), other(inputs))


@pytest.mark.parametrize("name", [name for name in model_names.MODELS if name != "logistic_regression"])
def test_options(name: str) -> None:
    layers = list(build(name, input_shape=(3, 32, 32), classes=7, activation="tanh", normalization="group", seed=0))
    assert any(isinstance(layer, nn.GroupNorm) for layer in layers)
    assert any(isinstance(layer, nn.Tanh) for layer in layers)
    assert not any(isinstance(layer, nn.ReLU) for layer in layers)


def test_every_name_has_a_builder() -> None:
    assert set(models._BUILDERS) == set(model_names.MODELS) == set(PARAMETERS)


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("mlp_265", (4,), {}, "did you mean 'mlp_256'"),
        ("mlp_64", (4,), {"activation": "gelu"}, "activation must be one of relu, tanh"),
        ("mlp_64", (4,), {"normalization": "layer"}, "normalization must be one of"),
        ("logistic_regression", (4,), {"normalization": "group"}, "no hidden layer"),
        ("tutorial_cnn", (4,), {}, "takes images"),
        ("tutorial_cnn", (1, 8, 8), {}, "cannot take inputs of shape"),
        ("no.such:thing", (4,), {}, "cannot be imported"),
    ],
)
def test_bad_models(name: str, shape: tuple[int, ...], options: dict[str, str], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        build(name, input_shape=shape, classes=2, seed=0, **options)


class Centred(nn.Module):
    """Mixes samples with no layer that anyone could know by name."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(inputs - inputs.mean(0))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "layer '1' is BatchNorm1d"),
        (nn.Sequential(nn.SyncBatchNorm(4)), "layer '0' is SyncBatchNorm"),
        (nn.Sequential(nn.InstanceNorm1d(4, affine=True, track_running_stats=True)), "running statistics"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), "layer '1' is Dropout"),
        (Centred(), "Centred gives a sample another output"),
        (nn.Flatten(), "no trainable parameter"),
    ],
)
def test_the_gate(module: nn.Module, message: str) -> None:
    with pytest.raises(GateError, match=message):
        check_private(module, input_shape=(4,))


def test_batch_normalisation_is_refused_by_its_option() -> None:
    with pytest.raises(GateError, match="got 'batch'"):
        build("mlp_64", input_shape=(4,), classes=2, normalization="batch", seed=0)


def test_a_users_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_models.py").write_text(
        "from torch import nn\n"
        "def good(*, input_shape, classes):\n    return nn.Linear(input_shape[0], classes)\n"
        "def bad(*, input_shape, classes):\n    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, classes))\n"
        "def none(*, input_shape, classes):\n    return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert build("their_models:good", input_shape=(4,), classes=2, seed=0)(torch.ones(1, 4)).shape == (1, 2)
    with pytest.raises(GateError, match="layer '0'"):
        build("their_models:bad", input_shape=(4,), classes=2, seed=0)
    with pytest.raises(HyperparameterError, match="must return"):
        build("their_models:none", input_shape=(4,), classes=2, seed=0)
