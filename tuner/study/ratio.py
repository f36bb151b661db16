"""The options of the bounded sampler, and between which factors they keep its density; imports no Optuna."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from search_spaces.domains import is_number
from tuner.errors import InputError

__all__ = ["Ratio", "ratio_of"]

EXPLORE, RATIO = 0.9, 1.1
_MOST_DRAWS = 1000


@dataclass(frozen=True)
class Ratio:
    """With probability `explore` a candidate is a draw from the prior, otherwise the best of `draws` such draws.

    Formal guarantees:
        Whatever was seen before, the density of a candidate is at least `low` and at most `high` times the prior's:
        the best of N draws by ANY fixed score has a density between 0 and N times the prior's, because each of the N
        is drawn from it (ties go to the first).

    Attributes:
        explore: c, in (0, 1).
        draws: N, at least 2.
    """

    explore: float
    draws: int

    @property
    def low(self) -> float:
        """c, the least that any candidate's density is multiplied by."""
        return self.explore

    @property
    def high(self) -> float:
        """C = c + (1 − c) · N, the most."""
        return self.explore + (1 - self.explore) * self.draws


def ratio_of(options: Mapping[str, object]) -> Ratio:
    """The bounds that the options of the sampler ask for.

    Args:
        options: ``explore``, and ``ratio``: the most that any candidate may become likelier; N is the largest for it.

    Raises:
        InputError: a value is out of range.
    """
    explore, high = options.get("explore", EXPLORE), options.get("ratio", RATIO)
    if not (is_number(explore) and 0 < explore < 1):
        raise InputError(
            f"explore must be a number above 0 and below 1, got {explore!r}. "
            "It is the share of candidates that are drawn from the prior; 1 is the sampler random."
        )
    if not (is_number(high) and high < _MOST_DRAWS):
        raise InputError(f"ratio must be a number above 1 and below {_MOST_DRAWS}, got {high!r}. Write for example 2.")
    # A hair of slack, so that ratio 1.1 with explore 0.9 is two draws and not, by rounding, one.
    draws = floor((high - explore) / (1 - explore) * (1 + 1e-12))
    if draws < 2:
        raise InputError(
            f"ratio must be at least 2 - explore = {2 - explore:g}, so that there are two draws to choose from, got "
            f"{high!r}. Raise it, or take the sampler random."
        )
    return Ratio(float(explore), draws)
