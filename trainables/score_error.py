"""Standard error of a validation accuracy. It is computed from released scores and public numbers only."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt

__all__ = ["ScoreError"]


@dataclass(frozen=True)
class ScoreError:
    """Standard error of the scores of one search.

    A score is an estimate of the accuracy on new records. It differs from it because the validation records are a
    sample and, if it is protected, because it has noise.

    Attributes:
        records: PUBLIC number of validation records, or of users if the search protects users.
        noise: standard deviation of the noise of a protected score, as an accuracy; 0 without noise.
    """

    records: int
    noise: float = 0.0

    @classmethod
    def of_split(cls, train_size: int, fraction: float, *, noise: float = 0.0) -> ScoreError | None:
        """Return the error of scores on the validation part of a data set, or None if this part is empty.

        Args:
            train_size: public number of training records, without the validation part.
            fraction: size of the validation part as a fraction of the whole data set, at least 0 and below 1.
            noise: standard deviation of the noise of a protected count of right answers; 0 without noise.
        """
        records = round(train_size * fraction / (1 - fraction))
        return cls(records, noise / records) if records else None

    def of(self, score: float) -> float:
        """Return the standard error of a score.

        The part of the records is the standard deviation of the accuracy's posterior distribution, Beta(r + 1, w + 1)
        for r right and w wrong answers. For many records it is sqrt(p(1 - p)/n), and it is never 0. A noisy score that
        is outside [0, 1] counts as 0 or 1.
        """
        mean = (min(max(score, 0.0), 1.0) * self.records + 1) / (self.records + 2)
        return hypot(sqrt(mean * (1 - mean) / (self.records + 3)), self.noise)

    def of_difference(self, score: float, other: float) -> float:
        """Return an upper estimate of the standard error of the difference between two trials' scores.

        It assumes independent errors. Trials are scored on the same records, so their errors are usually similar, and
        the true error of the difference is smaller.
        """
        return hypot(self.of(score), self.of(other))
