"""Methods of a user's own, right and wrong, found by a name that no other module of the tests has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def halved(_layout: object, *, by: float = 2.0) -> Mapping[str, Any]:
    return {"after_noise": lambda gradient: gradient / by}


def deciding(_layout: object) -> Mapping[str, Any]:
    """It asks for a value, which a function of one sample in a batch cannot have."""
    return {"before_clip": lambda gradient: gradient if float(gradient.sum()) > 0 else -gradient}


def without_noise(_layout: object) -> Mapping[str, Any]:
    return {"noise": lambda gradient: gradient}


_CALLS: list[int] = []


def growing(_layout: object) -> Mapping[str, Any]:
    def before_clip(gradient: Tensor) -> Tensor:
        _CALLS.append(1)
        return gradient * len(_CALLS)

    return {"before_clip": before_clip}
