"""Checks of a model before training: it has logits for every input, and samples do not affect each other.

All inputs are public. The checks are tests and no proof: a model that raises or mixes samples at one unlikely value
passes them. Therefore the privacy card of a user's own model says that this is assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, nan, prod
from typing import Final

import torch
from torch import Tensor, nn

from trainables.engine.batches import RAISED
from trainables.engine.layout import Layout
from trainables.engine.unrolled import dropout_problem
from trainables.errors import GateError, HyperparameterError

__all__ = ["check_domain", "check_logits", "check_private", "hostile_inputs", "public_inputs", "refuse_raising"]

_LARGEST: Final = torch.finfo(torch.float32).max
_TINY: Final = 2.0**-149  # the smallest denormal number
# fmt: off
_CONSTANTS: Final = (
    0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 3.0, -7.0, 10.0, 255.0, 1e3, -1e3, 65536.0, 2.0**24, 2.0**31, -(2.0**31), 1e9, 1e30,
    -1e30, _LARGEST, -_LARGEST, _TINY, -_TINY, 2.0**-126,
)
# fmt: on
# 1.9 and 3 are for models that convert inputs to integers. Every input in [0, 1) would become the same integer, 0.
_OUTLIERS: Final = (0.0, 1.9, 3.0, 1e3, -1e3, 1e30, nan)
_EXAMPLES: Final = 3
_ORDINARY: Final = 8.0
_SEED: Final = 0  # a public seed
_ELSEWHERE: Final = (1, 2)  # seeds of other weights at which a user's own model is checked
_MANY: Final = 64  # samples of a large batch, for models that count them
_MANY_NUMBERS: Final = 2**22  # most numbers of this batch


def public_inputs(input_shape: tuple[int, ...], count: int = _EXAMPLES) -> Tensor:
    """Return `count` random inputs for checking or timing a model: floats in [0, 1), the same at every call."""
    return torch.rand((count, *input_shape), generator=torch.Generator().manual_seed(_SEED))


def hostile_inputs(input_shape: tuple[int, ...]) -> Tensor:
    """Return public inputs that a careless model raises for, shape (n, *input_shape), float32, all finite.

    They are constants (zeros, small and large integers, the largest and the smallest numbers), mixtures of all of them,
    single spikes, and random bytes and numbers. Inputs that are scaled by a constant, such as bytes / 255, belong to
    the same domain: every finite float32 tensor of the input shape.
    """
    size, generator = prod(input_shape), torch.Generator().manual_seed(_SEED)
    constants = torch.tensor(_CONSTANTS)
    cycled = constants.repeat(-(-size // len(constants)))[:size]
    spike = torch.zeros(size)
    spike[:1] = _LARGEST
    rows = [
        *(constant.expand(size) for constant in constants),
        cycled,
        cycled.flip(0),
        spike,
        -spike.flip(0),
        torch.arange(size).float(),
        torch.tensor([_LARGEST, -_LARGEST]).repeat(-(-size // 2))[:size],
        torch.randint(0, 256, (size,), generator=generator).float(),
        1e3 * torch.randn(size, generator=generator),
    ]
    return torch.stack(rows).view(len(rows), *input_shape)


def check_domain(module: nn.Module, *, input_shape: tuple[int, ...], classes: int) -> None:
    """Raise GateError if the model raises for a hostile public input, forward or backward.

    The domain of a model is every finite float32 tensor of the input shape. A record for which a model raises would
    add nothing to the gradient, and count as a wrong answer.
    """
    inputs = hostile_inputs(input_shape)
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def try_all(x: Tensor) -> None:
        with torch.enable_grad():
            logits = module(x)
            loss = nn.functional.cross_entropy(logits, torch.zeros(len(x), dtype=torch.int64), reduction="sum")
        torch.autograd.grad(loss, trainable, allow_unused=True)
        if logits.shape != (len(x), classes):
            raise ValueError(f"the shape {tuple(logits.shape)} instead of {(len(x), classes)}")

    refuse_raising(try_all, inputs)


def refuse_raising(run: Callable[[Tensor], object], inputs: Tensor) -> None:
    """Raise GateError if `run` raises for the public `inputs`, shape (n, ...). The message names the first of them."""
    error = _raised(run, inputs)
    if error is None:
        return
    parts = (inputs[place : place + 1] for place in range(len(inputs)))
    guilty, error = next(((each, alone) for each in parts if (alone := _raised(run, each))), (inputs, error))
    values = ", ".join(f"{value:g}" for value in guilty.flatten()[:3].tolist())
    raise GateError(
        "model-raises",
        f"The model must not raise an error for any finite input, but it raised {type(error).__name__} for an input "
        f"that starts with {values}. Clamp the input inside the model, for example `self.rows(x.clamp(0, "
        "999).long())` for 1000 rows.",
    ) from error


def _raised(run: Callable[[Tensor], object], inputs: Tensor) -> BaseException | None:
    try:
        run(inputs)
    except KeyboardInterrupt:
        raise
    except RAISED as error:
        return error
    return None


def check_logits(module: nn.Module, *, input_shape: tuple[int, ...], classes: int) -> None:
    """Raise HyperparameterError unless the model returns one finite number for each class and sample.

    Probabilities are refused: their softmax is nearly uniform, so the model would learn little for its ε.
    """
    inputs = public_inputs(input_shape)
    with torch.no_grad():
        outputs = module(inputs)
    wanted = (len(inputs), classes)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != wanted:
        got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
        raise HyperparameterError(
            "model-output-shape",
            f"The model must return logits of shape {wanted} for {len(inputs)} inputs of shape {input_shape}, but it "
            f"returned {got}. For example, use nn.Linear(..., {classes}) as its last layer.",
        )
    labels = torch.arange(len(inputs)) % classes
    loss = float(nn.functional.cross_entropy(outputs.double(), labels))
    if not isfinite(loss):
        raise HyperparameterError(
            "model-output-not-finite",
            f"The model must return finite logits for inputs in [0, 1) (got the cross-entropy {loss}).",
        )
    if (
        classes > 1
        and bool((outputs >= 0).all())
        and torch.allclose(outputs.sum(1), torch.ones(len(inputs)).to(outputs))
    ):
        raise HyperparameterError(
            "model-output-probabilities",
            "The model must return logits, but the outputs of each sample are probabilities (they add up to 1). Remove "
            "the softmax at its end: the loss computes it.",
        )


def check_private(module: nn.Module, *, input_shape: tuple[int, ...] | None = None, own: bool = False) -> None:
    """Raise GateError if the output for one sample depends on other samples or on a hidden random stream.

    Layer types that are known to do so are refused. With `input_shape`, the model also gets public inputs one by one
    and in company (`_samples_mix`). The outputs must be equal. With `own`, for a user's model, they must be so in a
    large batch and at public random weights too, because initial weights of 0 can hide that samples mix.
    """
    problems = [_problem_of_layer(name, layer) for name, layer in module.named_modules()]
    if not any(parameter.requires_grad for parameter in module.parameters()):
        problems.append(
            ("model-not-trainable", "The model has no trainable parameter. Give it one with requires_grad=True.")
        )
    GateError.raise_any(problems)
    if input_shape is None:
        return
    layout = Layout.of(module)
    initial = layout.flatten(module)
    mixed = _samples_mix(module, input_shape, large=own)
    for seed in _ELSEWHERE if own and not mixed else ():
        layout.write(layout.elsewhere(initial, seed=seed), module)
        mixed |= _samples_mix(module, input_shape)
    layout.write(initial, module)
    if mixed:
        raise GateError(
            "samples-mixed",
            f"The output of {type(module).__name__} for a sample must not depend on other samples or on earlier calls, "
            "and no call may change a buffer or a frozen parameter.",
        )


def _problem_of_layer(name: str, layer: nn.Module) -> tuple[str, str] | None:
    where = f"Layer {name!r} is {type(layer).__name__}"
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return "samples-mixed", f"{where}, which mixes samples. Use nn.GroupNorm or `normalization: group`."
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        return "running-statistics", f"{where}, which stores statistics of the records. Set track_running_stats=False."
    return dropout_problem(name, layer)


def _samples_mix(module: nn.Module, input_shape: tuple[int, ...], *, large: bool = False) -> bool:
    """Return whether the output for a public sample depends on other samples, or a call changes what the model holds.

    Each sample is compared alone and in company: of random samples, of copies of itself, of zeros, of small integers,
    of constants, of a sample with which it shares half of its values, of one or two outliers, and with `large` of a
    large batch.
    """
    a, b, c = public_inputs(input_shape)
    generator = torch.Generator().manual_seed(_SEED + 1)
    whole, other = torch.randint(0, 4, (2, *input_shape), generator=generator).float()
    zeros, ones = torch.zeros_like(a), torch.ones_like(a)
    half = torch.cat([a.flatten()[: -(-a.numel() // 2)], b.flatten()[-(-a.numel() // 2) :]]).view_as(a)
    odd = [value * b if isfinite(value) else torch.full_like(b, value) for value in _OUTLIERS]
    companies = [
        (a, b, c),
        (a, a, b),
        (a, a, a, b, b),
        (zeros, a, zeros, b),
        (zeros, zeros, zeros),
        (whole, other, whole, a),
        (ones, ones, a, 2 * ones, -ones),
        (half, a, b),
        *((a, each, c) for each in odd),
        *((a, each, each, c) for each in odd),
    ]
    before = {name: value.clone() for name, value in _held(module).items()}
    with torch.no_grad():
        disturbed = any(_disturbs(module, torch.stack(company)) for company in companies)
        if large:
            many = public_inputs(input_shape, max(_EXAMPLES, min(_MANY, _MANY_NUMBERS // a.numel())))
            disturbed = disturbed or _disturbs(module, many, last=_EXAMPLES)
    _train_on(module, torch.stack([a, b, c]))
    after = _held(module)
    kept = after.keys() == before.keys() and all(torch.equal(value, before[name]) for name, value in after.items())
    return disturbed or not kept


def _held(module: nn.Module) -> dict[str, Tensor]:
    """Return all that a module holds: its parameters and buffers."""
    return {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}


def _train_on(module: nn.Module, inputs: Tensor) -> None:
    """Make a forward and a backward pass, in which a model may do what it does not do without gradients."""
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def run(x: Tensor) -> None:
        with torch.enable_grad():
            torch.autograd.grad(module(x).sum(), trainable, allow_unused=True)

    _raised(run, inputs)  # `check_domain` refuses a model that raises


def _disturbs(module: nn.Module, together: Tensor, *, last: int | None = None) -> bool:
    """Return whether the output for an ordinary sample differs between this company and a call with the sample alone.

    Outputs for outliers are not compared, because they may have large rounding errors. With `last`, only the outputs
    for so many samples at the end are compared.
    """
    ordinary = [place for place, sample in enumerate(together) if float(sample.abs().max()) < _ORDINARY]
    compared = ordinary if last is None else ordinary[-last:]
    try:
        alone, outputs = torch.cat([module(together[place][None]) for place in compared]), module(together)
    except KeyboardInterrupt:
        raise
    except RAISED:
        return False  # `check_domain` refuses a model that raises, and NaN is outside the domain
    size = float(alone.abs().nan_to_num(posinf=0.0).max()) if alone.numel() else 0.0
    return not torch.allclose(outputs[compared], alone, rtol=1e-4, atol=1e-5 * max(1.0, size), equal_nan=True)
