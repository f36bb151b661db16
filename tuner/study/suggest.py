"""Adapter with which search spaces draw values from Optuna. The search spaces themselves do not use Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from search_spaces.domains import Scalar, Suggest

if TYPE_CHECKING:
    from optuna.trial import Trial

__all__ = ["GridSpace", "OptunaSuggest", "Space"]


class Space(Protocol):
    """Protocol with the methods of `search_spaces.SearchSpace` that the driver needs."""

    def sample(self, suggest: Suggest) -> dict[str, object]:
        """Return the flat parameters of one trial. `suggest` is called for each parameter in a fixed order."""


class GridSpace(Space, Protocol):
    """Protocol with the methods of `search_spaces.SearchSpace` that a grid search needs."""

    def grid(self, points: int) -> Mapping[str, Sequence[object]]:
        """Return the grid values of each searched parameter. A range has at most `points` values."""


class OptunaSuggest:
    """Implementation of `Suggest` that draws the values with an Optuna trial."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def uniform(self, name: str, low: float, high: float, *, log: bool) -> float:
        """Return a number in [low, high]."""
        return self._trial.suggest_float(name, low, high, log=log)

    def integer(self, name: str, low: int, high: int, *, log: bool) -> int:
        """Return a whole number in [low, high]."""
        return self._trial.suggest_int(name, low, high, log=log)

    def choice(self, name: str, options: tuple[Scalar, ...]) -> Scalar:
        """Return one of the options."""
        chosen = self._trial.suggest_categorical(name, options)
        return options[options.index(chosen)]
