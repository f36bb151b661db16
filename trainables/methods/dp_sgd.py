"""DP-SGD (Abadi et al. 2016): no stage is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.hyperparameters import Hyperparameters, Method

if TYPE_CHECKING:
    from trainables.engine.layout import Layout
    from trainables.engine.step import Stages

__all__ = ["DPSGD", "METHOD"]


@dataclass(frozen=True, kw_only=True)
class DPSGD(Hyperparameters):
    """Hyper-parameters of DP-SGD."""


def _changes(_hyperparameters: DPSGD, _layout: Layout) -> Stages:
    from trainables.engine.step import Stages

    return Stages()


METHOD = Method(DPSGD, _changes)
