"""Filter of one mechanism: a cap on the steps of all trials together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tuner.privacy.accountant import pld
from tuner.privacy.accountant.filters.base import FixedParts, Part, Tally, TrialSteps, Used
from tuner.privacy.accountant.mechanism import SampledGaussian, require_steps

__all__ = ["TotalSteps"]


@dataclass(frozen=True)
class TotalSteps(FixedParts):
    """One mechanism for all trials, and a cap on the steps of all trials together.

    Formal guarantees:
        However many trials take the steps, and whenever each of them stops, what they show is at most `step_cap`
        adaptively composed steps of one mechanism.

    Args:
        mechanism: the mechanism of every step of every trial.
        step_cap: at least 1.
    """

    kind: ClassVar[str] = "total_steps"
    label: ClassVar[str] = "one mechanism for all trials; a cap on total steps"
    accounting: ClassVar[str] = "privacy loss distribution of the cap on total steps, connect-the-dots, pessimistic"
    assumption: ClassVar[tuple[str, str]] = (
        "one (sample_rate, noise_multiplier) for all trials",
        "fixed when the search was opened",
    )
    mechanism: SampledGaussian
    step_cap: int

    def __post_init__(self) -> None:
        require_steps(self.step_cap, minimum=1, name="step_cap")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The mechanism with all of its steps."""
        return ((self.mechanism, self.step_cap),)

    def left_after(self, tally: Tally, mechanism: SampledGaussian, *, price: int) -> int:
        """Return how many more steps of `mechanism` may be promised; 0 for another one."""
        return max(self.step_cap - tally.steps, 0) if mechanism == self.mechanism else 0

    def discretisation_error(self, delta: float) -> float:
        """Return an estimate, erring upwards, of how much the grid inflates the claimed ε."""
        return pld.discretisation_error(self.mechanism, self.step_cap, delta)

    def share(self, used: Used, *, units: int) -> float:
        """Return the share of the steps that `used` takes."""
        return sum(used.values()) / self.step_cap

    def trials_that_fit(self, menu: Sequence[TrialSteps], trials: int) -> tuple[int, int]:
        """Return how many trials fit: all of the longest, and all of the shortest."""
        least = self.step_cap // max(each.longest for each in menu)
        most = self.step_cap // min(each.shortest for each in menu)
        return min(trials, least), min(trials, most)

    def epsilon_of_planned(self, menu: Sequence[TrialSteps], trials: int, delta: float) -> float:
        """Return ε at `delta` of `trials` trials of the longest."""
        return pld.epsilon(self.mechanism, trials * max(each.longest for each in menu), delta)

    @property
    def summary(self) -> str:
        """The filter with its numbers, in a few words for a table."""
        noise, rate = self.mechanism.noise_multiplier, self.mechanism.sample_rate
        return f"at most {self.step_cap} steps of noise {noise:g}, rate {rate:.4g}"

    def limit(self, unit: str, mechanism: SampledGaussian) -> str:
        """Return the limit that a refused request would pass."""
        return f"{self.step_cap} {unit}"

    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""
        return {"kind": self.kind, **self.mechanism.body(), "step_cap": self.step_cap}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter that `body()` wrote."""
        return cls(SampledGaussian.from_body(body), body["step_cap"])
