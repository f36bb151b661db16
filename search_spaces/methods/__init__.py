"""Registry of the parameters of each method. Every module of this folder describes one method."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from search_spaces.parameter import Parameter

__all__ = ["METHODS", "MINIMA"]

METHODS: dict[str, tuple[Parameter, ...]] = {
    module.name: import_module(f"{__name__}.{module.name}").PARAMETERS for module in iter_modules(__path__)
}
"""Method name → the parameters of this method, without the parameters that every method has."""

MINIMA = frozenset({"objective_perturbation", "output_perturbation"})
"""Methods that perturb the minimum of a convex loss in one step. The noise is the only parameter that they share."""
