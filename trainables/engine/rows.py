"""Linear layers that round a row in the same way wherever it is in a pass.

With one record more, each later record of a batch is one row further. On CPUs, a product with few outputs and a number
of inputs that is no multiple of 4 may round a row differently there. Such a difference of 1e-7 can switch a ReLU, or a
class whose logits are almost equal, so the one record could change the gradients of all others. With a multiple of 16
outputs, and of 16 inputs for the product of the backward pass, this was never seen
(`tests/trainables/test_even_passes.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["EvenLinear", "linear"]

_MULTIPLE: Final = 16


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b, as `torch.nn.functional.linear`, in which the rounding of a row does not depend on its place.

    Args:
        input: x, shape (..., in), or (k, B, in) for k weights.
        weight: W, shape (out, in), or (k, out, in) for k products. A vector is one product, as in torch.
        bias: b, shape (out,), or (k, out).
    """
    if weight.dim() < 2:
        return nn.functional.linear(input, weight, bias)
    outputs, inputs = weight.shape[-2:]
    more, x = _even(outputs) - outputs, input
    if x.requires_grad and _even(inputs) > inputs:  # for the product of the backward pass
        x, weight = (nn.functional.pad(each, (0, _even(inputs) - inputs)) for each in (x, weight))
    if more:
        weight = nn.functional.pad(weight, (0, 0, 0, more))
        bias = None if bias is None else nn.functional.pad(bias, (0, more))
    if weight.dim() == 2:
        found = nn.functional.linear(x, weight, bias)
    else:
        found = x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)
    return found[..., :outputs].contiguous() if more else found


def _even(size: int) -> int:
    return -(-size // _MULTIPLE) * _MULTIPLE


class EvenLinear(TorchFunctionMode):
    """Context in which `linear` replaces `torch.nn.functional.linear`, also in `torch.nn.Linear` and in users' code.

    What `torch.nn.MultiheadAttention` computes inside, products written as `x @ W`, and scripts are not replaced.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        arguments: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - the function's result
        """Call the function, or `linear` in its place."""
        del types
        chosen = linear if function is nn.functional.linear else function
        return chosen(*arguments, **(named or {}))
