"""Promotion: a whole number that rises at given steps of a trial, such as K of DPLIS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from trainables.errors import HyperparameterError

__all__ = ["Promotion"]

_LEVELS, _FROM_STEP = "promote", "from_step"


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """Levels of one number, each with its first step.

    A promotion costs no privacy, because the steps at which the number rises are fixed in advance.

    Attributes:
        levels: at least two rising whole numbers of at least 1.
        from_step: first step of each level, rising from 0.
    """

    levels: tuple[int, ...]
    from_step: tuple[int, ...]

    def __post_init__(self) -> None:
        steps = self.from_step
        paired = _rising(steps, first=0) and steps[0] == 0 and len(steps) == len(self.levels)
        wrong = []
        if not _rising(self.levels, first=1):
            wrong.append(
                f"`{_LEVELS}` must be two or more whole numbers, all at least 1 and in rising order (got "
                f"{self.levels!r})."
            )
        if not paired:
            wrong.append(f"`{_FROM_STEP}` must be one step for each level, rising from 0 (got {steps!r}).")
        HyperparameterError.raise_any(("promotion-malformed", message) for message in wrong)

    @classmethod
    def of(cls, value: Mapping[str, object]) -> Self:
        """Return the promotion of a trial's parameter such as ``{promote: [1, 3, 10], from_step: [0, 40, 80]}``."""
        if set(value) != {_LEVELS, _FROM_STEP}:
            raise HyperparameterError(
                "promotion-malformed",
                f"A promoted parameter must have the keys {_LEVELS} and {_FROM_STEP} (got {dict(value)!r}).",
            )
        return cls(levels=_numbers(value[_LEVELS]), from_step=_numbers(value[_FROM_STEP]))


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _rising(values: tuple[int, ...], *, first: int) -> bool:
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    return whole and len(values) >= 2 and values[0] >= first and all(low < high for low, high in pairwise(values))
