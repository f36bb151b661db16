"""What a search tells its surrogate: the noise of its trials and of the final run, and how exact its scores are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt

from tuner.study.surrogate.observations import Observation, Prior

__all__ = ["SearchSetting"]


@dataclass(frozen=True, kw_only=True)
class SearchSetting:
    """Facts about a search.

    Attributes:
        last_step: step at which the longest trial ends, as Optuna stores it.
        noise_of: noise-to-signal ratio of a trial with these flat parameters.
        final_noise: the same of the final run; None if the final run is a trial of the search.
        length: steps of a whole trial, as a fraction of the final run's.
        records: number of validation records of a score, or None if unknown.
        blur: standard error that noise adds to a protected score, in units of the score.
        is_accuracy: whether the score is a fraction of right answers.
        prior: prior over the best parameters.
        public: scores on a public proxy, from a search that is over.
    """

    last_step: int
    noise_of: Callable[[Mapping[str, object]], float] = lambda _parameters: 1.0
    final_noise: Callable[[Mapping[str, object]], float] | None = None
    length: float = 1.0
    records: float | None = None
    blur: float = 0.0
    is_accuracy: bool = False
    prior: Prior | None = None
    public: tuple[Observation, ...] = ()

    @property
    def final(self) -> Callable[[Mapping[str, object]], float]:
        """Noise-to-signal ratio of the final run."""
        return self.final_noise or self.noise_of

    @property
    def trial_is_final(self) -> bool:
        """Whether the final run is a trial of the search."""
        return self.final_noise is None and self.length == 1.0

    def error(self, score: float) -> float:
        """Return the standard error of a score. A proportion of 0 or 1 is taken as half a record away from it."""
        if not (self.is_accuracy and self.records):
            return self.blur
        edge = min(0.5 / self.records, 0.5)
        share = min(max(score, edge), 1.0 - edge)
        return sqrt(share * (1.0 - share) / self.records + self.blur**2)
