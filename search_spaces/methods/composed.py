"""Composed method: the parameters of DP-LSSGD, DPLIS and weight decay in one search."""

from __future__ import annotations

from search_spaces.methods import dp_lssgd, dp_weight_decay, dplis
from search_spaces.parameter import Parameter

__all__ = ["PARAMETERS"]

PARAMETERS: tuple[Parameter, ...] = (*dp_lssgd.PARAMETERS, *dplis.PARAMETERS, *dp_weight_decay.PARAMETERS)
