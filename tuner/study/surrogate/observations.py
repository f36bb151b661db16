"""What a surrogate learns from: scores of trials, and a prior over the best parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = ["PRIVATE", "PUBLIC", "Observation", "Prior", "Proposal", "Proxy", "Recommendation"]

PRIVATE: Final = "private"
PUBLIC: Final = "public"


@dataclass(frozen=True)
class Observation:
    """Score of one trial at one fraction of its training.

    Attributes:
        parameters: flat parameters of the trial. Those that the space does not search are ignored.
        noise: noise-to-signal ratio of a step: noise_multiplier / batch_size · √(number of trainable parameters). Only
            ratios of it matter, so a search may leave the root out in all its observations.
        fraction: steps trained, as a fraction of the final run's steps.
        source: ``private``, or ``public`` for a score on a public proxy.
        score: the score. Greater is better.
        error: standard error of the score.
        trial: name of the trial, which its scores at several fractions share. "" for a trial with one score.
    """

    parameters: Mapping[str, object]
    noise: float
    fraction: float
    source: str
    score: float
    error: float
    trial: str = ""


class Recommendation(Protocol):
    """Log-normal prior of a parameter's best value, such as `search_spaces.prior.Recommended`."""

    @property
    def value(self) -> float:
        """Median."""

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm."""


@dataclass(frozen=True)
class Proxy:
    """Where the scores of a public proxy are best.

    Attributes:
        best: configuration with the greatest expected score on the proxy.
        tops: mean and standard deviation of the best coordinate of each numeric parameter, the others as in `best`.
    """

    best: Mapping[str, object]
    tops: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Prior over the best parameters.

    Attributes:
        noise: noise-to-signal ratio for which the recommendations hold; None for the noise of the observations.
        fraction: fraction of training for which the recommendations hold.
        recommended: recommendation of each parameter. A parameter without one has the centre of its range, or the
            lower bound where no gain over it was measured, with a spread of half its range.
        slope: mean and standard deviation of p, where the best learning rate is proportional to noise^(−p).
        proxy: what a public proxy taught, or None.
    """

    noise: float | None = None
    fraction: float = 1.0
    recommended: Mapping[str, Recommendation] = field(default_factory=dict)
    slope: tuple[float, float] = (0.5, 0.5)
    proxy: Proxy | None = None


@dataclass(frozen=True)
class Proposal:
    """Configuration that a surrogate proposes, with the mean and the standard deviation of its score."""

    parameters: dict[str, object]
    mean: float
    sd: float
