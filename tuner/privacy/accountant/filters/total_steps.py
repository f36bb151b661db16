"""Privacy filter with one mechanism and a cap on the total number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tuner.privacy.accountant import pld
from tuner.privacy.accountant.filters.base import FixedParts, Part, TrialSteps, Used, steps_of_runs
from tuner.privacy.accountant.mechanism import SampledGaussian, require_steps

__all__ = ["TotalSteps"]


@dataclass(frozen=True)
class TotalSteps(FixedParts):
    """Privacy filter that allows one mechanism for all trials, and caps the total number of steps.

    Formal guarantees:
        All trials together lose at most as much privacy as `step_cap` adaptively composed steps of the mechanism. This
        holds for any number of trials and any early stops.

    Args:
        mechanism: the mechanism of every step.
        step_cap: largest number of steps of all trials together, at least 1.
    """

    kind: ClassVar[str] = "total_steps"
    label: ClassVar[str] = "a cap on the total number of steps; all trials use one mechanism"
    accounting: ClassVar[str] = (
        "all allowed steps composed, by a pessimistic privacy loss distribution (connect-the-dots)"
    )
    assumption: ClassVar[tuple[str, str]] = (
        "all trials have one sample rate and one noise multiplier",
        "both were fixed when the search was opened",
    )
    mechanism: SampledGaussian
    step_cap: int

    def __post_init__(self) -> None:
        require_steps(self.step_cap, minimum=1, name="step_cap")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The mechanism with its allowed number of steps."""
        return ((self.mechanism, self.step_cap),)

    def left_after(self, mechanism: SampledGaussian, *, steps: int, same: int, units: int, price: int) -> int:
        """Return how many more steps can be reserved; 0 if `mechanism` is not the filter's mechanism."""
        return max(self.step_cap - steps, 0) if mechanism == self.mechanism else 0

    def discretisation_error(self, delta: float) -> float:
        """Return an upper estimate of how far rounding of losses raises the claimed ε."""
        return pld.discretisation_error(self.mechanism, self.step_cap, delta)

    def share(self, used: Used, *, units: int) -> float:
        """Return the number of steps in `used` as a share of the cap."""
        return sum(used.values()) / self.step_cap

    def trials_that_fit(self, menu: Sequence[TrialSteps], trials: int) -> tuple[int, int]:
        """Return how many trials fit: first if all are the longest, then if all are the shortest."""
        least = self.step_cap // max(each.longest for each in menu)
        most = self.step_cap // min(each.shortest for each in menu)
        return min(trials, least), min(trials, most)

    def epsilon_of_planned(self, menu: Sequence[TrialSteps], trials: float, delta: float) -> float:
        """Return ε at `delta` of `trials` trials if each of them is the longest one in `menu`."""
        return pld.epsilon(self.mechanism, steps_of_runs(trials, max(each.longest for each in menu)), delta)

    @property
    def summary(self) -> str:
        """Short text for a table: the kind of the filter, and its limits as numbers."""
        noise, rate = self.mechanism.noise_multiplier, self.mechanism.sample_rate
        return f"at most {self.step_cap} steps of noise {noise:g}, rate {rate:.4g}"

    def limit(self, unit: str, mechanism: SampledGaussian) -> str:
        """Return the cap in words, for the message of a refused request."""
        return f"{self.step_cap} {unit}"

    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""
        return {"kind": self.kind, **self.mechanism.body(), "step_cap": self.step_cap}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter from its JSON."""
        return cls(SampledGaussian.from_body(body), body["step_cap"])
