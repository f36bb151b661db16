"""Privacy filter of a sealed search. Such a search is charged as a whole and releases only its best run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite
from typing import Any, ClassVar, Self

from tuner.errors import InputError
from tuner.privacy.accountant.filters.base import ChargedWhole, Part
from tuner.privacy.accountant.mechanism import SampledGaussian, require_steps
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.selection import epsilon_selection

__all__ = ["Sealed"]


@dataclass(frozen=True)
class Sealed(ChargedWhole):
    """Privacy filter for a random, hidden number of runs, of which only the best is released.

    Formal guarantees:
        The winner, its configuration and its score are (ε, δ)-DP with ε = `claim(δ)`. The claim includes the δ that
        the truncation of the number of runs adds (`selection.epsilon_selection`). The search is charged as a whole
        when it begins, so the ledger does not show the number of runs.

    Args:
        law: probability law of the number of runs.
        at_most: largest allowed number of runs. The law is truncated at this number.
        runs: one pair (mechanism, steps) for each configuration that may be sampled from the prior.
        ratio: (c, C), the lower and the upper bound of a quotient: an adaptive sampler's density divided by the
            prior's density (DP-HyPO). It is (1, 1) for a sampler that does not adapt.
    """

    kind: ClassVar[str] = "sealed"
    label: ClassVar[str] = "a random, hidden number of runs, of which only the best is released"
    accounting: ClassVar[str] = (
        "the smaller of two bounds for the best of a random, hidden number of runs: one uses the privacy profile of a "
        "run, the other its Rényi divergence; both reserve a part of δ, because the number of "
        "runs is limited"
    )
    assumption: ClassVar[tuple[str, str]] = (
        "the whole search is charged before its first run",
        "the ledger has one entry for the charge, and refuses a second one",
    )
    charged_thing: ClassVar[str] = "a sealed search is"
    mode: ClassVar[str] = "selection"
    law: RunLaw
    at_most: int
    runs: tuple[Part, ...]
    ratio: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        require_steps(self.at_most, minimum=1, name="at_most")
        for _, steps in self.runs:
            require_steps(steps, minimum=1)
        low, high = self.ratio
        if not self.runs or not (isfinite(low) and isfinite(high) and 0 < low <= 1 <= high):
            raise InputError(
                "filter-invalid",
                f"A sealed search needs at least one run (got {self.runs!r}), and a ratio (c, C) with "
                f"0 < c <= 1 <= C (got {self.ratio!r}).",
            )
        object.__setattr__(self, "runs", tuple(sorted(set(self.runs))))
        object.__setattr__(self, "ratio", (float(low), float(high)))

    @property
    def mechanisms(self) -> tuple[SampledGaussian, ...]:
        """The mechanisms that a run may use."""
        return tuple(dict(self.runs))

    def claim(self, delta: float) -> float:
        """Return a proved ε of the released winner at `delta`; `math.inf` if none is proved."""
        return epsilon_selection(self.law, self.runs, delta, at_most=self.at_most, ratio=self.ratio)

    def units_at(self, order: float) -> int | None:
        """Return None, because a search with a truncated number of runs has no Rényi bound."""
        return None

    @property
    def charged_runs(self) -> tuple[Part, ...]:
        """Pair (mechanism, steps) of each possible run."""
        return self.runs

    @property
    def hidden_runs(self) -> tuple[RunLaw, int]:
        """Probability law and largest possible value of the number of runs."""
        return self.law, self.at_most

    def law_facts(self, epsilon: float) -> dict[str, Any]:
        """Return the law of the number of runs, where it is truncated, and the δ that truncation adds at `epsilon`."""
        tail = self.law.tail(self.at_most)
        return {
            **self.law.body(),
            "at_most": self.at_most,
            "probability_of_more": tail,
            "delta_of_truncation": (1 + exp(min(epsilon, 700.0))) * tail,
        }

    @property
    def summary(self) -> str:
        """Name of the filter in one word, for a table."""
        return "sealed"

    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""
        return {
            "kind": self.kind,
            "law": self.law.body(),
            "at_most": self.at_most,
            "runs": [{**mechanism.body(), "steps": steps} for mechanism, steps in self.runs],
            "ratio": list(self.ratio),
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter from its JSON."""
        low, high = body["ratio"]
        runs = tuple((SampledGaussian.from_body(run), run["steps"]) for run in body["runs"])
        return cls(RunLaw.from_body(body["law"]), body["at_most"], runs, (low, high))
