"""DP-SGD: no parameters beyond those of every method."""

from __future__ import annotations

from search_spaces.parameter import Parameter

__all__ = ["PARAMETERS"]

PARAMETERS: tuple[Parameter, ...] = ()
