"""Options of the bounded sampler, and the factors that bound its density. This module does not import Optuna."""

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
    """Parameters of the bounded sampler, which determine the bounds on its density.

    With probability c, a candidate is drawn from the prior. Otherwise it is the best of N draws from the prior.

    Formal guarantees:
        Given any earlier results, the density of a candidate is at least `low` and at most `high` times the density of
        the prior. The reason is the following. If ANY fixed score selects the best of N draws, the density of the
        selected draw is at most N times the density of the prior. Of draws with equal scores, the first wins.

    Attributes:
        explore: c, in (0, 1).
        draws: N, at least 2.
    """

    explore: float
    draws: int

    @property
    def low(self) -> float:
        """Lower bound c on the density of a candidate, relative to the density of the prior."""
        return self.explore

    @property
    def high(self) -> float:
        """Upper bound C = c + (1 − c) · N on the density of a candidate, relative to the density of the prior."""
        return self.explore + (1 - self.explore) * self.draws


def ratio_of(options: Mapping[str, object]) -> Ratio:
    """Return the `Ratio` for the sampler's options ``explore`` (c) and ``ratio`` (the upper bound C).

    The number of draws N is the largest that C allows.

    Raises:
        InputError: a value is out of range.
    """
    explore, high = options.get("explore", EXPLORE), options.get("ratio", RATIO)
    if not (is_number(explore) and 0 < explore < 1):
        raise InputError(
            "option-invalid",
            f"`explore` must be above 0 and below 1 (got {explore!r}). It is the share of candidates that are drawn "
            "from the prior. For a share of 1, use the sampler 'random'.",
        )
    if not (is_number(high) and high < _MOST_DRAWS):
        raise InputError(
            "option-invalid",
            f"`ratio` must be a number above 1 and below {_MOST_DRAWS} (got {high!r}). Write for example 2.",
        )
    # The last factor absorbs rounding errors. Without it, `ratio` 1.1 and `explore` 0.9 would give one draw, not two.
    draws = floor((high - explore) / (1 - explore) * (1 + 1e-12))
    if draws < 2:
        raise InputError(
            "option-invalid",
            f"`ratio` must be at least 2 - explore = {2 - explore:g} (got {high!r}), because the sampler selects "
            "one of at least two draws. Raise `ratio`, or use the sampler 'random'.",
        )
    return Ratio(float(explore), draws)
