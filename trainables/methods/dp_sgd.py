"""DP-SGD (Abadi et al. 2016): no stage is changed."""

from __future__ import annotations

from trainables.engine.layout import Layout
from trainables.engine.step import Stages
from trainables.hyperparameters import DPSGD


def stages(_hyperparameters: DPSGD, _layout: Layout) -> Stages:
    """The defaults."""
    return Stages()
