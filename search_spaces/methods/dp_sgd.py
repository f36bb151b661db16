"""DP-SGD: no parameters of its own."""

from search_spaces.parameter import Parameter

PARAMETERS: tuple[Parameter, ...] = ()
