"""Loss landscape around a model: (C_ε, A)-sharpness, and slices along random directions. PUBLIC records only.

Formal guarantee: none. What is computed here is an exact function of the records that are given, and no noise covers
it. A private training record must never get here; `tuner.runner.landscape` ensures that.
"""

from __future__ import annotations

from trainables.landscape.loss import PublicLoss, Score
from trainables.landscape.sharpness import Sharpness, check_box, sharpness
from trainables.landscape.surface import LossSurface, check_grid, filter_normalised, loss_surface

__all__ = [
    "LossSurface",
    "PublicLoss",
    "Score",
    "Sharpness",
    "check_box",
    "check_grid",
    "filter_normalised",
    "loss_surface",
    "sharpness",
]
