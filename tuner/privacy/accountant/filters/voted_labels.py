"""Privacy filter of labels that teachers voted for. They are charged as a whole, once, before they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, ClassVar, Self

from tuner.errors import InputError
from tuner.privacy.accountant.filters.base import UNITS, ChargedWhole
from tuner.privacy.accountant.mechanism import is_real_number
from tuner.privacy.accountant.voted_labels import VotingNoise

__all__ = ["VotedLabels"]


@dataclass(frozen=True)
class VotedLabels(ChargedWhole):
    """Privacy filter for one draw of voted labels: at most Q tests, and at most A answers (Confident-GNMax).

    Formal guarantees:
        The labels, which queries have one, and all that is computed from them without the votes, is (ε, δ)-DP with
        ε = `claim(δ)` for the teachers' records, whatever the votes are. The claim does not depend on the threshold.

    Args:
        noise: noise and limits.
        threshold: T, in votes. PUBLIC.
    """

    kind: ClassVar[str] = "voted_labels"
    label: ClassVar[str] = "labels that teachers voted for, drawn once"
    accounting: ClassVar[str] = (
        "the exact privacy profile of one Gaussian mechanism that bounds all tests and answers together, whatever the "
        "votes are; an ε computed from the votes is not used, because it would not be private"
    )
    assumption: ClassVar[tuple[str, str]] = (
        "the numbers of tests and answers are limited; all tests and answers are charged before they are drawn",
        "all labels are charged at once, before a vote is read; the two limits are fixed earlier",
    )
    mode: ClassVar[str] = "votes"
    mechanism_label: ClassVar[str] = (
        "one Gaussian mechanism for each test, on the largest count of votes for an input, and one for each answer, on "
        "all counts of the input"
    )
    charged_thing: ClassVar[str] = "voted labels are"
    noise: VotingNoise
    threshold: float

    def __post_init__(self) -> None:
        if not (is_real_number(self.threshold) and isfinite(self.threshold)):
            raise InputError(
                "votes-invalid", f"`threshold` must be finite (got {self.threshold!r}). Correct `privacy.votes`."
            )
        object.__setattr__(self, "threshold", float(self.threshold))

    def claim(self, delta: float) -> float:
        """Return ε of all labels together at `delta`; `math.inf` if none is proved."""
        return self.noise.epsilon(delta)

    def units_at(self, order: float) -> int | None:
        """Return the Rényi divergence of all labels together at `order`, in Rényi units."""
        return ceil(self.noise.divergence(order) * (1 + 1e-12) * UNITS)

    @property
    def summary(self) -> str:
        """Short text for a table: the limit of answers."""
        return f"at most {self.noise.answers} voted labels"

    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""
        each = self.noise
        return {
            "kind": self.kind,
            "threshold": self.threshold,
            "queries": each.queries,
            "answers": each.answers,
            "threshold_noise": each.threshold_noise,
            "answer_noise": each.answer_noise,
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter from its JSON."""
        names = ("queries", "answers", "threshold_noise", "answer_noise")
        return cls(VotingNoise(**{name: body[name] for name in names}), body["threshold"])
