"""Loss landscape around a model: (C_ε, A)-sharpness, and slices along random directions. For PUBLIC records only.

Formal guarantee: none, because the results are computed from the records without noise. `tuner.runner.landscape`
ensures that the records are public.
"""

from __future__ import annotations

from trainables.landscape.loss import PublicLoss
from trainables.landscape.sharpness import Sharpness, check_box, sharpness
from trainables.landscape.surface import LossSurface, check_grid, filter_normalised, loss_surface

__all__ = [
    "LossSurface",
    "PublicLoss",
    "Sharpness",
    "check_box",
    "check_grid",
    "filter_normalised",
    "loss_surface",
    "sharpness",
]
