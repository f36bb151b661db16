"""The methods by name: each module of this folder says which stages it changes, and the folder is the registry."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from trainables.engine.layout import Layout
from trainables.engine.step import Stages

__all__ = ["METHODS"]

METHODS: Final[Mapping[str, Callable[[Any, Layout], Stages]]] = {
    module.name: import_module(f"{__name__}.{module.name}").stages for module in pkgutil.iter_modules(__path__)
}
"""Method name -> stages(hyperparameters of that method's class, layout of the model)."""
