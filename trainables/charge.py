"""Charge: the way in which a trial pays for its steps and for the scores of protected validation records."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Charge", "NoCharge"]


class Charge(Protocol):
    """Payment for the steps and scores of one trial. A charge must be picklable if trials run in other processes.

    Each request names its mechanism, so that the ledger (the durable record of charges) can refuse a mechanism that was
    not reserved. If a request raises an error, the trial must not take the steps or compute the scores.
    """

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Charge durably for `steps` steps, BEFORE the trial takes them. `steps` is at least 1."""

    def leased(self) -> int:
        """Return the number of steps charged to this trial so far, over all its attempts."""

    def restarts(self) -> int:
        """Return how often this trial lost leased steps in an interruption and had to pay for them again."""

    def release(self, count: int = 1, *, noise: float) -> None:
        """Charge durably for `count` validation scores, BEFORE they are computed. `count` is at least 1.

        `noise` is the standard deviation of the noise on the number of right answers.
        """

    def released(self) -> int:
        """Return the number of scores charged to this trial so far, over all its attempts."""


class NoCharge:
    """Charge of a trial that needs no budget. It counts steps and scores, and refuses nothing."""

    def __init__(self) -> None:
        self._leased = self._released = 0

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Add `steps` to the number of steps."""
        self._leased += steps

    def leased(self) -> int:
        """Return the number of steps added so far."""
        return self._leased

    def restarts(self) -> int:
        """Return 0, because an interruption loses no budget."""
        return 0

    def release(self, count: int = 1, *, noise: float) -> None:
        """Add `count` to the number of scores."""
        self._released += count

    def released(self) -> int:
        """Return the number of scores added so far."""
        return self._released
