"""Charge: how a trial pays for its steps, and for the scores of protected validation records."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Charge", "NoCharge"]


class Charge(Protocol):
    """What pays for the steps and scores of one trial; picklable where trials run elsewhere.

    Each request names what the trial really samples and adds, so that a ledger can refuse what was not reserved.
    """

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Charge `steps` durably, BEFORE they are taken.

        Args:
            steps: at least 1.
            sample_rate: with which the trial samples its batches.
            noise_multiplier: with which the trial adds noise.

        Raises:
            Exception: the steps are refused; then none of them may be taken.
        """
        ...

    def leased(self) -> int:
        """Return the steps charged to this trial so far, by all its attempts."""
        ...

    def restarts(self) -> int:
        """Return how often this trial was interrupted after it had leased, and reserved again what it repeats."""
        ...

    def release(self, count: int = 1, *, noise: float) -> None:
        """Charge `count` validation scores durably, BEFORE they are computed.

        Args:
            count: at least 1.
            noise: standard deviation of the noise on each released count.

        Raises:
            Exception: the scores are refused; then none of them may be computed.
        """
        ...

    def released(self) -> int:
        """Return the scores charged to this trial so far, by all its attempts."""
        ...


class NoCharge:
    """Charge of a trial that needs no budget: counts its steps and scores, and refuses nothing."""

    def __init__(self) -> None:
        self._leased = self._released = 0

    def lease(self, steps: int, *, sample_rate: float, noise_multiplier: float) -> None:
        """Count `steps`."""
        self._leased += steps

    def leased(self) -> int:
        """Return the steps counted so far."""
        return self._leased

    def restarts(self) -> int:
        """Return 0: an interruption loses no budget."""
        return 0

    def release(self, count: int = 1, *, noise: float) -> None:
        """Count `count` scores."""
        self._released += count

    def released(self) -> int:
        """Return the scores counted so far."""
        return self._released
