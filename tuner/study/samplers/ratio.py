"""Options of the bounded sampler, and the factors that bound its density; imports no Optuna."""

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
    """Rule of the sampler: with probability `explore` a draw from the prior, otherwise the best of `draws` draws.

    Formal guarantees:
        For all earlier results, the density of a candidate is at least `low` and at most `high` times the prior's. The
        best of N draws by ANY fixed score has a density between 0 and N times the prior's, because each of the N is
        drawn from the prior (ties go to the first).

    Attributes:
        explore: c, in (0, 1).
        draws: N, at least 2.
    """

    explore: float
    draws: int

    @property
    def low(self) -> float:
        """Lower bound c on the ratio of the densities."""
        return self.explore

    @property
    def high(self) -> float:
        """Upper bound C = c + (1 − c) · N on the ratio of the densities."""
        return self.explore + (1 - self.explore) * self.draws


def ratio_of(options: Mapping[str, object]) -> Ratio:
    """Return the rule for the options ``explore`` and ``ratio``, the upper bound C, with as many draws as C allows.

    Raises:
        InputError: a value is out of range.
    """
    explore, high = options.get("explore", EXPLORE), options.get("ratio", RATIO)
    if not (is_number(explore) and 0 < explore < 1):
        raise InputError(
            "option-invalid",
            f"`explore`, the share of candidates drawn from the prior, must be above 0 and below 1 (got {explore!r}). "
            "For a share of 1, use the sampler 'random'.",
        )
    if not (is_number(high) and high < _MOST_DRAWS):
        raise InputError(
            "option-invalid",
            f"`ratio` must be a number above 1 and below {_MOST_DRAWS} (got {high!r}). Write for example 2.",
        )
    # The tolerance keeps ratio 1.1 with explore 0.9 at two draws, which rounding would make one.
    draws = floor((high - explore) / (1 - explore) * (1 + 1e-12))
    if draws < 2:
        raise InputError(
            "option-invalid",
            f"`ratio` must be at least 2 - explore = {2 - explore:g}, which allows two draws (got {high!r}). Raise it, "
            "or use the sampler 'random'.",
        )
    return Ratio(float(explore), draws)
