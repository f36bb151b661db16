"""DP-SGD (Abadi et al. 2016): the stages of every method, without changes."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.hyperparameters import Hyperparameters


@dataclass(frozen=True, kw_only=True)
class DPSGD(Hyperparameters):
    """Hyper-parameters of DP-SGD."""


METHOD = DPSGD
