"""DP-SGD: it has only the parameters that all methods share."""

from search_spaces.parameter import Parameter

PARAMETERS: tuple[Parameter, ...] = ()
