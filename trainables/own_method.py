"""A method of the user's own: what it may change of a private step, and the check before anything is charged.

It supplies at most two functions. The engine does sampling, clip, noise and normalisation, and no method can replace
them. `before_clip` gets one sample's gradient at a time, so the clip after it still bounds each sample. `after_noise`
gets the noised gradient, so its work is post-processing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from search_spaces import Scalar
from search_spaces.spaces import OWN, is_own_method
from trainables.errors import GateError, HyperparameterError
from trainables.hyperparameters import Hyperparameters
from trainables.own_code import own_function

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.engine.layout import Layout
    from trainables.engine.step import Stages

__all__ = ["OwnMethod", "check_own_method", "is_own_method"]

STAGES: Final = ("before_clip", "after_noise")
_OWN_FIELDS: Final = ("function", "own")


@dataclass(frozen=True, kw_only=True)
class OwnMethod(Hyperparameters):
    """Hyper-parameters of a method of the user's own, with those that every method has.

    Attributes:
        function: ``package.module:function``, which is called as function(layout, **own). It returns a mapping from the
            stages that it changes (names in STAGES) to functions. Each of these takes and returns a gradient of shape
            (d,).
        own: the method's own parameters.
    """

    function: str
    own: Mapping[str, Scalar] = field(default_factory=dict)

    def _problem(self, name: str, value: object) -> tuple[str, str] | None:
        return None if name in _OWN_FIELDS else super()._problem(name, value)

    def stages(self, layout: Layout) -> Stages:
        """Return the stages with the user's functions.

        Raises:
            HyperparameterError: the function does not exist, does not take the parameters, or returns something else.
        """
        from trainables.engine.postprocess import unchanged

        found = _called(self.function, layout, self.own)
        if "after_noise" in found and self.optimizer == "adam_corrected":
            raise HyperparameterError(
                "method-with-corrected-adam",
                f"`optimizer` must not be adam_corrected with {self.function}, because the variance of the noise after "
                "`after_noise` is not known. Use adam or sgd.",
            )
        return replace(
            super().stages(layout),
            before_clip=found.get("before_clip"),
            postprocess=found.get("after_noise", unchanged),
        )


def _method_function(name: str) -> Callable[..., object]:
    """Return the function of ``package.module:function``. Raise HyperparameterError if it cannot be imported."""
    found = own_function(name, what="method", code="method-not-importable")
    if not callable(found):
        raise HyperparameterError("method-stages-invalid", f"{name} must be a function (got {type(found).__name__}).")
    return found  # type: ignore[no-any-return]


def _called(name: str, layout: Layout, own: Mapping[str, Scalar]) -> dict[str, Callable[[Tensor], Tensor]]:
    function = _method_function(name)
    try:
        inspect.signature(function).bind(layout, **own)
    except TypeError as error:
        raise HyperparameterError(
            "method-parameters",
            f"`search.space.{OWN}` must name the parameters of {name} (got {', '.join(own) or 'none'}: {error}).",
        ) from error
    found = function(layout, **own)
    wrong = not isinstance(found, Mapping) or not found or not set(found) <= set(STAGES)
    if wrong or not all(callable(each) for each in found.values()):  # type: ignore[attr-defined]
        got = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
        raise HyperparameterError(
            "method-stages-invalid",
            f"{name} must return functions for one or both of {' and '.join(STAGES)} (got {got or 'nothing'}). A "
            "method cannot replace sampling, clip, noise or normalisation.",
        )
    return dict(found)  # type: ignore[call-overload, no-any-return]


def check_own_method(settings: OwnMethod, layout: Layout) -> None:
    """Try the user's functions on made-up gradients, and raise GateError unless each is a function of one vector.

    They must return a finite vector of the same shape and type, and the same one at each call. `before_clip` must
    treat each sample alone: it is tried next to others, and by itself.
    """
    import torch

    from trainables.engine.per_sample import each_alone

    stages = settings.stages(layout)
    rows = torch.randn(4, layout.dimension, generator=torch.Generator().manual_seed(0))
    kept = rows.clone()
    found: dict[str, tuple[Tensor, Tensor]] = {}
    if stages.before_clip is not None:
        together, again = (each_alone(stages.before_clip, rows) for _ in range(2))
        alone = torch.cat([each_alone(stages.before_clip, row[None]) for row in rows])
        found |= {"before_clip": (together, again), "before_clip of one sample": (alone, together)}
    # A copy for each call: the function may change its argument in place.
    found["after_noise"] = stages.postprocess(rows[0].clone()), stages.postprocess(rows[0].clone())
    for what, (one, other) in found.items():
        wanted = rows[0] if what == "after_noise" else rows
        if one.shape != wanted.shape or one.dtype != wanted.dtype or not bool(one.isfinite().all()):
            raise GateError(
                "method-output-invalid",
                f"`{what}` of {settings.function} must return finite numbers of type {wanted.dtype} and of shape "
                f"({layout.dimension},), like its argument.",
            )
        if not torch.allclose(one, other, rtol=1e-4, atol=1e-5):
            raise GateError(
                "method-depends-on-more",
                f"`{what}` of {settings.function} must depend on its argument alone: not on other samples, on earlier "
                "calls or on random numbers.",
            )
    if not torch.equal(rows, kept):
        raise GateError(
            "method-depends-on-more", f"`before_clip` of {settings.function} must not change its argument in place."
        )
