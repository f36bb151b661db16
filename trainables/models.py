"""The models by name, built from a public seed, and the gate that refuses a model in which samples meet."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from math import isfinite, nan, prod
from typing import Final

import torch
from torch import nn

from trainables.errors import GateError, HyperparameterError
from trainables.model_names import ACTIVATIONS, MODELS, NORMALIZATIONS

__all__ = ["MODELS", "build", "check_private"]

_GROUPS: Final = 16
_OUTLIERS: Final = (0.0, 3.0, 1e3, -1e3, 1e30, nan)


@dataclass(frozen=True, kw_only=True)
class _Style:
    """What a builder needs to know of the data and of the options."""

    input_shape: tuple[int, ...]
    classes: int
    activation: str
    normalization: str

    def after(self, channels: int) -> list[nn.Module]:
        """What follows a hidden layer: normalisation within the sample, then the activation."""
        normalization = [nn.GroupNorm(_GROUPS, channels)] if self.normalization == "group" else []
        return [*normalization, nn.Tanh() if self.activation == "tanh" else nn.ReLU()]


def build(
    name: str,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    activation: str = "relu",
    normalization: str = "none",
    seed: int,
) -> nn.Module:
    """A freshly initialised model that passed the gate.

    Args:
        name: a key of MODELS, or `package.module:function` for a user's own; that function is called with
            `input_shape` and `classes` by keyword and returns an nn.Module that gives logits.
        input_shape: shape of one input, without the batch.
        classes: number of logits.
        activation: 'relu' or 'tanh'.
        normalization: 'none' or 'group' (within one sample).
        seed: public; the same seed gives the same parameters, and torch's own generator is left as it was.

    Raises:
        HyperparameterError: unknown name or option, or a shape that the model cannot take.
        GateError: a model in which samples meet, such as BatchNorm.
    """
    if normalization == "batch":
        raise GateError(
            "normalization must work within one sample; got 'batch', where every output depends on all samples of the "
            "batch, so that no clip bounds what one record changes: take 'group' or 'none'"
        )
    _check_choice("activation", activation, ACTIVATIONS)
    _check_choice("normalization", normalization, NORMALIZATIONS)
    style = _Style(input_shape=input_shape, classes=classes, activation=activation, normalization=normalization)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _user_model(name, style) if ":" in name else _named_model(name, style)
    check_private(module, input_shape=input_shape)
    return module


def check_private(module: nn.Module, *, input_shape: tuple[int, ...] | None = None) -> None:
    """Refuses a model whose output for one sample depends on another, or on a hidden random stream.

    Known layers are named. For the others, when `input_shape` is given, random public inputs are put through the
    model alone and in company: the output must be the same. Nothing private is touched.

    Args:
        module: the model.
        input_shape: shape of one input, without the batch.

    Raises:
        GateError: naming the layer, or saying that the outputs differed.
    """
    problems = [problem for name, layer in module.named_modules() if (problem := _problem_of_layer(name, layer))]
    if not any(parameter.requires_grad for parameter in module.parameters()):
        problems.append("the model has no trainable parameter")
    if problems:
        raise GateError("\n".join(problems))
    if input_shape is not None and _samples_meet(module, input_shape):
        raise GateError(
            f"{type(module).__name__} gives a sample another output in company than alone (or changes from call to "
            "call): per-sample clipping cannot bound such a model; make it treat every sample by itself"
        )


def _problem_of_layer(name: str, layer: nn.Module) -> str | None:
    where = f"layer {name!r} is {type(layer).__name__}"
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return f"{where}, which mixes the samples of a batch before the clip: use nn.GroupNorm, or normalization: group"
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        return f"{where} with running statistics of the records, which no noise covers: set track_running_stats=False"
    own_dropout = isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0
    if own_dropout or (isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0):
        return f"{where}, which draws from a generator that no checkpoint holds: leave it out"
    return None


def _samples_meet(module: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Whether a random public sample gives another output in company than alone, or a call changes a buffer.

    The company is of its own kind, and then out of the ordinary: a model that divides by the largest value of a batch,
    should that pass some threshold, is found by no ordinary one.
    """
    inputs = torch.rand((3, *input_shape), generator=torch.Generator().manual_seed(0))
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.no_grad():
        together = module(inputs)
        alone = torch.cat([module(one[None]) for one in inputs])
        disturbed = any(_disturbs(module, inputs, alone, odd) for odd in _OUTLIERS)
    stateful = any(not torch.equal(buffer, buffers[name]) for name, buffer in module.named_buffers())
    return stateful or disturbed or not torch.allclose(together, alone, rtol=1e-4, atol=1e-5)


def _disturbs(module: nn.Module, inputs: torch.Tensor, alone: torch.Tensor, odd: float) -> bool:
    """Whether a sample full of `odd` numbers changes what the others give."""
    mixed = inputs.clone()
    mixed[1] = odd * mixed[1] if isfinite(odd) else odd
    try:
        outputs = module(mixed)
    except (RuntimeError, IndexError, ValueError):
        return False  # a model may refuse what is out of its range, a number of a row that is not there
    others = [0, 2]
    return not torch.allclose(outputs[others], alone[others], rtol=1e-4, atol=1e-5)


def _user_model(name: str, style: _Style) -> nn.Module:
    """The model of `package.module:function`."""
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise HyperparameterError(
            f"model must be package.module:function; {name!r} cannot be imported: {error}"
        ) from error
    module = function(input_shape=style.input_shape, classes=style.classes)
    if not isinstance(module, nn.Module):
        raise HyperparameterError(f"{name} must return an nn.Module; got {type(module).__name__}")
    return module


def _named_model(name: str, style: _Style) -> nn.Module:
    _check_choice("model", name, tuple(MODELS))
    try:
        module = _BUILDERS[name](style)
        with torch.no_grad():
            module(torch.zeros(1, *style.input_shape))
    except RuntimeError as error:  # torch's own words for shapes that do not fit
        raise HyperparameterError(f"{name} cannot take inputs of shape {style.input_shape}: {error}") from error
    return module


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        near = difflib.get_close_matches(value, choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise HyperparameterError(f"{name} must be one of {', '.join(choices)}; got {value!r}{hint}")


def _perceptron(*widths: int) -> Callable[[_Style], nn.Module]:
    """A builder of linear layers with these hidden widths."""

    def builder(style: _Style) -> nn.Module:
        if not widths and style.normalization != "none":
            raise HyperparameterError(
                f"logistic_regression has no hidden layer to normalise; got {style.normalization!r}: take 'none'"
            )
        layers: list[nn.Module] = [nn.Flatten()]
        size = prod(style.input_shape)
        for width in widths:
            layers += [nn.Linear(size, width), *style.after(width)]
            size = width
        return nn.Sequential(*layers, nn.Linear(size, style.classes))

    return builder


def _channels(name: str, style: _Style) -> int:
    if len(style.input_shape) != 3:
        raise HyperparameterError(f"{name} takes images of shape (channels, height, width); got {style.input_shape}")
    return style.input_shape[0]


def _tutorial_cnn(style: _Style) -> nn.Module:
    """DPLIS, section 5: conv 16 8x8 s2 p2, maxpool 2 s1, conv 32 4x4 s2, maxpool 2 s1, fc 32, fc."""
    features = nn.Sequential(
        nn.Conv2d(_channels("tutorial_cnn", style), 16, 8, stride=2, padding=2),
        *style.after(16),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        *style.after(32),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
    )
    with torch.no_grad():
        size = features(torch.zeros(1, *style.input_shape)).shape[1]
    return nn.Sequential(*features, nn.Linear(size, 32), *style.after(32), nn.Linear(32, style.classes))


def _four_conv_cnn(style: _Style) -> nn.Module:
    """The convolutional network of Opacus' CIFAR-10 example: 32, 64, 64 and 128 channels, average pooling."""
    layers: list[nn.Module] = []
    channels = _channels("four_conv_cnn", style)
    for width, pool in (
        (32, nn.AvgPool2d(2)),
        (64, nn.AvgPool2d(2)),
        (64, nn.AvgPool2d(2)),
        (128, nn.AdaptiveAvgPool2d(1)),
    ):
        layers += [nn.Conv2d(channels, width, 3, padding=1), *style.after(width), pool]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, style.classes))


_BUILDERS: Final[Mapping[str, Callable[[_Style], nn.Module]]] = {
    "logistic_regression": _perceptron(),
    "mlp_64": _perceptron(64),
    "mlp_256": _perceptron(256),
    "mlp_512_128": _perceptron(512, 128),
    "mlp_1536_128": _perceptron(1536, 128),
    "tutorial_cnn": _tutorial_cnn,
    "four_conv_cnn": _four_conv_cnn,
}
