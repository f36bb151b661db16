"""Features of a setting that the prior's formulas are linear in. The measurement and the recommendation share them."""

from __future__ import annotations

from math import log, sqrt
from typing import Final

__all__ = ["FEATURES", "features", "noise_to_signal"]

FEATURES: Final = ("noise", "dimension", "classes")
"""Names of the features, all logarithms.

- ``noise``: the noise of all steps together, which grows like the square root of their number, plus `_FLOOR`. Below
  `_FLOOR`, other things limit the rate.
- ``dimension``: the number of trainable parameters.
- ``classes``: the number of classes.
"""

_FLOOR: Final = 1.0


def noise_to_signal(*, noise_multiplier: float, batch_size: float, dimension: float) -> float:
    """Return the length of a step's noise, divided by the largest length of the mean clipped gradient."""
    return noise_multiplier / batch_size * sqrt(dimension)


def features(
    *, noise_multiplier: float, batch_size: float, steps: float, dimension: float, classes: float
) -> dict[str, float]:
    """Return the features by name. All arguments must be positive; the noise may be 0."""
    ratio = noise_to_signal(noise_multiplier=noise_multiplier, batch_size=batch_size, dimension=dimension)
    return {
        "noise": log(ratio * sqrt(steps) + _FLOOR),
        "dimension": log(dimension),
        "classes": log(classes),
    }
