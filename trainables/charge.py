"""Charge: the way in which a trial pays for its steps and for the scores of protected validation records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

__all__ = ["LEASE_STEPS", "Charge", "NoCharge", "lease_size", "leases_to_the_end"]

# Largest number of charged steps that a trial can lose by crashes. The first attempt leases half of them at a time, the
# second attempt a quarter, and so on. Only attempts that lost a part of a lease are counted.
LEASE_STEPS: Final = 200


def lease_size(restarts: int) -> int:
    """Return the largest number of steps in one lease of a trial that was cut off `restarts` times."""
    return max(LEASE_STEPS >> (restarts + 1), 1)


def leases_to_the_end(steps: int, rungs: Sequence[int], *, restarts: int) -> Iterator[int]:
    """Yield the leases that a trial still asks for if nothing stops it. The last `steps` steps are not leased yet.

    `rungs` are the rising numbers of steps at which the trial reports. The last is its end.
    """
    at = rungs[-1] - steps
    for rung in rungs:
        while at < rung:
            size = min(lease_size(restarts), rung - at)
            yield size
            at += size


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
