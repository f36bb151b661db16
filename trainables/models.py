"""Models by name, initialised from a public seed and checked by `model_gate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from trainables.checks import near_name_hint
from trainables.errors import GateError, HyperparameterError
from trainables.model_gate import check_domain, check_logits, check_private
from trainables.model_names import ACTIVATIONS, MODELS, NORMALIZATIONS
from trainables.model_sizes import LSTM_WIDTH, WORD_HIDDEN, WORD_WIDTH
from trainables.own_code import own_function
from trainables.start import freeze_layers, put_weights

__all__ = ["build"]

_GROUPS: Final = 16


@dataclass(frozen=True, kw_only=True)
class _Style:
    """Input shape, number of classes, and options of a model."""

    input_shape: tuple[int, ...]
    classes: int
    activation: str
    normalization: str

    def after(self, channels: int) -> list[nn.Module]:
        """Return the layers after a hidden layer: normalisation within a sample, then the activation."""
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
    weights: Mapping[str, torch.Tensor] | None = None,
    freeze: Sequence[str] = (),
) -> nn.Module:
    """Return a model that passed all checks, with its initial parameters.

    Args:
        name: key of MODELS, or `package.module:function` of a custom model. The function gets the keywords
            `input_shape` and `classes`, and returns an nn.Module that maps floats to logits.
        input_shape: shape of one input, without the batch.
        classes: number of logits.
        activation: 'relu' or 'tanh'.
        normalization: 'none' or 'group' (within one sample).
        seed: public seed of the parameters. torch's global generator is not changed.
        weights: PUBLIC weights by name that replace those of the seed. Names that are missing keep those of the seed.
        freeze: names of layers, or of parameters, that are not trained.

    Raises:
        HyperparameterError: a name or option is unknown, the shape of inputs or outputs is wrong, `weights` or
            `freeze` does not fit the model, or a custom model differs each time that it is built, has a lazy layer
            that it does not use, or a buffer that is not a fixed, dense tensor.
        GateError: the model mixes samples, as BatchNorm does, or raises for a public input of its domain.
        Exception: the function of a custom model raised it.
    """
    if normalization == "batch":
        raise GateError(
            "samples-mixed",
            "`normalization` must not be 'batch', which mixes the samples of a batch. Use 'group' or 'none'.",
        )
    _check_choice("activation", activation, ACTIVATIONS)
    _check_choice("normalization", normalization, NORMALIZATIONS)
    style = _Style(input_shape=input_shape, classes=classes, activation=activation, normalization=normalization)
    own = ":" in name
    make = partial(_user_model if own else _named_model, name, style)
    module = _seeded(make, seed)
    if own:
        _require_same(name, module, _seeded(make, seed))
    if weights is not None:
        put_weights(module, weights)
    freeze_layers(module, freeze)
    if own:
        _require_fixed_buffers(name, module)
    check_private(module)  # first, because its message names the layer
    check_logits(module, input_shape=input_shape, classes=classes)
    check_domain(module, input_shape=input_shape, classes=classes)
    check_private(module, input_shape=input_shape, own=own)
    return module


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def _require_same(name: str, first: nn.Module, second: nn.Module) -> None:
    """Raise a HyperparameterError if a model of the user's own is another one when it is built again.

    Differences as small as those of rounding are allowed.
    """
    one, other = ({**dict(each.named_parameters()), **dict(each.named_buffers())} for each in (first, second))
    for part in one.keys() | other.keys():
        if part not in one or part not in other or not _alike(one[part].detach(), other[part].detach()):
            raise HyperparameterError(
                "model-not-repeatable",
                f"{part!r} of the model {name} differs each time that the model is built. Draw random numbers with "
                "torch, which has the experiment's seed.",
            )


def _require_fixed_buffers(name: str, module: nn.Module) -> None:
    """Raise a HyperparameterError if a buffer of a user's own model is not dense or changes with a trained parameter.

    A trial writes the initial values of all buffers back before it scores and exports its model.
    """
    trained = {part: each for part, each in module.named_parameters() if each.requires_grad}
    for part, buffer in module.named_buffers():
        source = next((source for source, each in trained.items() if _overlap(buffer, each)), None)
        if buffer.layout != torch.strided:
            why = "is not dense. Register it as a dense tensor."
        elif source is not None:
            why = f"shares its memory with {source!r}, which is trained. Compute it in `forward`."
        elif buffer.requires_grad:
            why = "requires gradients. Make it a parameter, or register it without them (`detach`)."
        else:
            continue
        raise HyperparameterError("model-buffer-not-fixed", f"The buffer {part!r} of the model {name} {why}")


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether the memory of two dense tensors overlaps, from the first to the last element of each."""
    spans = []
    for tensor in (first, second):
        if tensor.layout != torch.strided or not tensor.numel():
            return False
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        spans.append((tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()))
    return max(start for start, _ in spans) < min(end for _, end in spans)


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors are equal, up to rounding if they have floats."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.layout != torch.strided:
        return first.layout == second.layout and _alike(first.to_dense(), second.to_dense())
    if first.is_complex():
        return _alike(torch.view_as_real(first), torch.view_as_real(second))
    if not first.is_floating_point():
        return torch.equal(first, second)
    a, b = first.double(), second.double()
    scale = float(a.nan_to_num(0.0, 0.0, 0.0).abs().max()) if a.numel() else 0.0
    return torch.allclose(a, b, rtol=1e-3, atol=1e-6 * scale, equal_nan=True)


def _user_model(name: str, style: _Style) -> nn.Module:
    """Return the model of `package.module:function`."""
    function = own_function(name, what="model", code="model-not-importable")
    module = function(input_shape=style.input_shape, classes=style.classes)
    if not isinstance(module, nn.Module):
        raise HyperparameterError("model-not-module", f"{name} must return an nn.Module (got {type(module).__name__}).")
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        with torch.no_grad():
            module(torch.zeros(2, *style.input_shape))  # draws the parameters of lazy layers, from the seed
        unused = [part for part, each in (*module.named_parameters(), *module.named_buffers()) if is_lazy(each)]
        if unused:
            raise HyperparameterError(
                "model-lazy-unused",
                f"{name} does not use its lazy layer of {unused[0]!r}, so its size is unknown. Remove the layer.",
            )
    return module


def _named_model(name: str, style: _Style) -> nn.Module:
    _check_choice("model", name, tuple(MODELS), code="model-unknown")
    try:
        module = _BUILDERS[name](style)
        with torch.no_grad():
            module(torch.zeros(1, *style.input_shape))
    except RuntimeError as error:  # torch's error for shapes that do not fit
        raise HyperparameterError(
            "model-shape-mismatch", f"{name} cannot take inputs of shape {style.input_shape} ({error})."
        ) from error
    return module


def _check_choice(name: str, value: str, choices: tuple[str, ...], *, code: str = "model-option-unknown") -> None:
    if value not in choices:
        hint = near_name_hint(value, choices)
        raise HyperparameterError(code, f"`{name}` must be one of {', '.join(choices)} (got {value!r}).{hint}")


def _perceptron(*widths: int) -> Callable[[_Style], nn.Module]:
    """Return a function that builds a perceptron with these widths of the hidden layers; 0 is the size of an input."""

    def builder(style: _Style) -> nn.Module:
        if not widths and style.normalization != "none":
            raise HyperparameterError(
                "model-option-unknown",
                f"`normalization` must be 'none' for logistic_regression (got {style.normalization!r}).",
            )
        layers: list[nn.Module] = [nn.Flatten()]
        size = prod(style.input_shape)
        for given in widths:
            width = given or size
            layers += [nn.Linear(size, width), *style.after(width)]
            size = width
        return nn.Sequential(*layers, nn.Linear(size, style.classes))

    return builder


def _channels(name: str, style: _Style) -> int:
    if len(style.input_shape) != 3:
        raise HyperparameterError(
            "model-shape-mismatch",
            f"{name} needs inputs of shape (channels, height, width) (got {style.input_shape}). Use another model.",
        )
    return style.input_shape[0]


def _tutorial_cnn(style: _Style) -> nn.Module:
    """Return the network of DPLIS, section 5."""
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
    """Return the network of Opacus' CIFAR-10 example: convolutions of 32, 64, 64, 128 channels, average pooling."""
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


class _WordNumbers(nn.Module):
    """Layer that converts word numbers from floats to valid integers."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self._words = words

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the nearest valid word numbers, int64, in the same shape."""
        return torch.nan_to_num(x, nan=0.0).clamp(0, self._words - 1).long()


class _LastOutput(nn.Module):
    """LSTM that returns its last output alone, for inputs of shape (N, words, size)."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, hidden, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output after the last word, shape (N, hidden)."""
        outputs: torch.Tensor = self.lstm(x)[0]
        return outputs[:, -1]


def _embedded(name: str, style: _Style) -> list[nn.Module]:
    """Return the layers that turn the numbers of words into vectors. Each class is a word."""
    if len(style.input_shape) != 1:
        raise HyperparameterError(
            "model-shape-mismatch",
            f"{name} needs inputs of shape (words,) (got {style.input_shape}). Use another model.",
        )
    if style.normalization != "none":
        raise HyperparameterError(
            "model-option-unknown", f"`normalization` must be 'none' for {name} (got {style.normalization!r})."
        )
    return [_WordNumbers(style.classes), nn.Embedding(style.classes, WORD_WIDTH)]


def _next_word_mlp(style: _Style) -> nn.Module:
    """Return the perceptron of DPLIS, section 5, on vectors of words."""
    layers, size = [*_embedded("next_word_mlp", style), nn.Flatten()], style.input_shape[0] * WORD_WIDTH
    for width in WORD_HIDDEN:
        layers += [nn.Linear(size, width), *style.after(width)]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, style.classes))


def _next_word_lstm(style: _Style) -> nn.Module:
    """Return the LSTM of DPLIS, section 5. It has no activation of its own to choose."""
    layers = [*_embedded("next_word_lstm", style), _LastOutput(WORD_WIDTH, LSTM_WIDTH)]
    return nn.Sequential(*layers, nn.Linear(LSTM_WIDTH, style.classes))


_BUILDERS: Final[Mapping[str, Callable[[_Style], nn.Module]]] = {
    "logistic_regression": _perceptron(),
    "mlp_input": _perceptron(0),
    "mlp_64": _perceptron(64),
    "mlp_256": _perceptron(256),
    "mlp_256_256": _perceptron(256, 256),
    "mlp_512_128": _perceptron(512, 128),
    "mlp_1536_128": _perceptron(1536, 128),
    "tutorial_cnn": _tutorial_cnn,
    "four_conv_cnn": _four_conv_cnn,
    "next_word_mlp": _next_word_mlp,
    "next_word_lstm": _next_word_lstm,
}
