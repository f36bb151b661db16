"""Composed method: the parameters of DP-LSSGD, DPLIS and weight decay together."""

from search_spaces.methods import dp_lssgd, dp_weight_decay, dplis
from search_spaces.parameter import Parameter

PARAMETERS: tuple[Parameter, ...] = (*dp_lssgd.PARAMETERS, *dplis.PARAMETERS, *dp_weight_decay.PARAMETERS)
