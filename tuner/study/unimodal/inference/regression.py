"""Projection on unimodal sequences: up to a mode, and down after it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["project"]

Array = NDArray[np.float64]


def project(draws: Array) -> Array:
    """Return for each row the unimodal sequence with its mode that is nearest in the largest difference.

    On either side of the mode this is the middle between the least monotone sequence above the row and the greatest one
    below it (Barlow et al. 1972, section 1.4: isotonic regression in the supremum norm).
    """
    places = np.arange(draws.shape[-1])
    modes = draws.argmax(-1)[:, None]
    left, right = places <= modes, places >= modes
    above = np.minimum(np.maximum.accumulate(draws, -1), np.maximum.accumulate(draws[:, ::-1], -1)[:, ::-1])
    to_mode = np.minimum.accumulate(np.where(left, draws, np.inf)[:, ::-1], -1)[:, ::-1]
    from_mode = np.minimum.accumulate(np.where(right, draws, np.inf), -1)
    below = np.where(left, to_mode, from_mode)
    found: Array = (above + below) / 2
    return found
