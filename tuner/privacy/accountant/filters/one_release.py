"""Privacy filter of one noisy copy of the records. It is charged as a whole, once, before it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, Self

from tuner.privacy.accountant.filters.base import UNITS, ChargedWhole
from tuner.privacy.accountant.mechanism import require_epsilon, require_steps
from tuner.privacy.accountant.noisy_records import NoisyRecords
from tuner.privacy.accountant.shuffled_rows import shuffled_epsilon

__all__ = ["OneRelease"]


@dataclass(frozen=True)
class OneRelease(ChargedWhole):
    """Privacy filter for one release of the records: a fixed number of noisy rows, in a secret random order.

    Formal guarantees:
        The release, and all that is computed from it without the records, is (ε, δ)-DP with ε = `claim(δ)`, for adding
        or removing a record and for replacing one. Without `clone_epsilon`, each row by itself has this (ε, δ) against
        everyone who sees the row (local). With it, the claim also uses the secret, uniformly random order of the rows.

    Args:
        randomiser: what happens to each record.
        rows: number of rows, which is PUBLIC. Missing records are filled up by rows without a record.
        clone_epsilon: ε₀ at which rows are counted as clones of a record (`shuffled_rows`); None for a local claim.
    """

    kind: ClassVar[str] = "one_release"
    label: ClassVar[str] = "one noisy copy of the records, drawn once"
    accounting: ClassVar[str] = (
        "the exact privacy profile of the Gaussian mechanism on the clipped features and of randomised response on the "
        "label, as one mechanism; if the claim uses the secret order of the rows, the smaller of this ε and a second "
        "ε, which counts similar rows as clones of a record (Feldman, McMillan and Talwar 2021)"
    )
    assumption: ClassVar[tuple[str, str]] = (
        "the release is charged before it is drawn, and it is drawn once",
        "the ledger has one entry for the charge and one for the checksum of the drawn release, and refuses others",
    )
    mode: ClassVar[str] = "release"
    mechanism_label: ClassVar[str] = (
        "each record is used at most once: its features are clipped to a norm (clip) and get Gaussian noise (noise is "
        "its standard deviation); its label goes through randomised response (with ε = label_epsilon)"
    )
    charged_thing: ClassVar[str] = "a release is"
    randomiser: NoisyRecords
    rows: int
    clone_epsilon: float | None = None

    def __post_init__(self) -> None:
        require_steps(self.rows, minimum=1, name="rows")
        if self.clone_epsilon is not None:
            require_epsilon(self.clone_epsilon, name="clone_epsilon")
            object.__setattr__(self, "clone_epsilon", float(self.clone_epsilon))

    def claim(self, delta: float) -> float:
        """Return ε of the release at `delta`; `math.inf` if none is proved."""
        if self.clone_epsilon is None:
            return self.randomiser.epsilon(delta)
        return shuffled_epsilon(self.randomiser, delta, rows=self.rows, clone_epsilon=self.clone_epsilon)

    def units_at(self, order: float) -> int | None:
        """Return the Rényi divergence of the release at `order`, in Rényi units."""
        return ceil(self.randomiser.divergence(order) * (1 + 1e-12) * UNITS)

    @property
    def summary(self) -> str:
        """Short text for a table: the rows and the noise."""
        return f"one release of {self.rows} rows"

    def body(self) -> dict[str, Any]:
        """Return the filter as plain JSON, for the ledger."""
        each = self.randomiser
        return {
            "kind": self.kind,
            "clip": each.clip,
            "noise": each.noise,
            "label_epsilon": each.label_epsilon,
            "classes": each.classes,
            "rows": self.rows,
            "clone_epsilon": self.clone_epsilon,
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Return the filter from its JSON."""
        names = ("clip", "noise", "label_epsilon", "classes")
        return cls(NoisyRecords(**{name: body[name] for name in names}), body["rows"], body["clone_epsilon"])
