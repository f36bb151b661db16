"""A second count of the ledger's entries, from their plain bodies, to compare with the ledger's own rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

__all__ = ["Counted", "may_make", "recount"]

Steps = Counter[tuple[float, float]]


@dataclass
class Counted:
    """One search according to its entries.

    Attributes:
        epsilon: the claim.
        delta: the claim.
        filters: bodies by pool, `training` and where scores are protected `validation`.
        charged: by pool, leased steps of each (sample_rate, noise_multiplier).
        mechanisms: by pool and trial.
        begun: number of times that a sealed search was charged.
        open: whether it may still be charged.
    """

    epsilon: float
    delta: float
    filters: dict[str, Mapping[str, Any]]
    charged: dict[str, Steps] = field(default_factory=lambda: {"training": Counter(), "validation": Counter()})
    mechanisms: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    begun: int = 0
    open: bool = True

    @property
    def counts(self) -> bool:
        """Whether its claim counts against the data set."""
        return self.open or self.begun > 0 or any(sum(steps.values()) for steps in self.charged.values())

    def steps(self, pool: str) -> list[tuple[float, float, int]]:
        """Return (sample_rate, noise_multiplier, steps) of what was charged in a pool."""
        return [(*mechanism, steps) for mechanism, steps in sorted(self.charged[pool].items())]


def recount(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, Counted], Decimal, Decimal]:
    """Count a data set's entries.

    Args:
        entries: (kind, body) in their order.

    Returns:
        The searches by name, and the sums of ε and of δ of those that count.

    Raises:
        KeyError: a value is missing.
        ValueError: a step is leased of another mechanism than the trial reserved.
    """
    found: dict[str, Counted] = {}
    for kind, body in entries:
        match kind:
            case "open_search":
                found[body["search"]] = _opened(body)
            case "begin":
                found[body["search"]].begun += 1
            case "reserve":
                _name_mechanism(found[body["search"]], body)
            case "lease":
                search, pool = found[body["search"]], body["pool"]
                mechanism = _mechanism(body)
                if search.mechanisms.get((pool, body["trial"])) != mechanism:
                    raise ValueError(f"trial {body['trial']!r} leased steps of a mechanism that it did not reserve")
                search.charged[pool][mechanism] += body["steps"]
            case "close_search" | "reopen_search":
                found[body["search"]].open = kind == "reopen_search"
    held = [search for search in found.values() if search.counts]
    epsilon = sum((Decimal(repr(float(search.epsilon))) for search in held), Decimal(0))
    delta = sum((Decimal(repr(float(search.delta))) for search in held), Decimal(0))
    return found, epsilon, delta


def may_make(body: Mapping[str, Any], run: tuple[float, float, int]) -> bool:
    """Return whether a sealed search may make a run: one of its own, or a shorter one of the same mechanism.

    Args:
        body: of its filter.
        run: (sample_rate, noise_multiplier, steps).
    """
    rate, noise, steps = run
    return any(
        (each["sample_rate"], each["noise_multiplier"]) == (rate, noise) and 0 < steps <= each["steps"]
        for each in body["runs"]
    )


def _opened(body: Mapping[str, Any]) -> Counted:
    filters = {"training": body["filter"]}
    if body["validation"] is not None:
        filters["validation"] = body["validation"]["filter"]
    return Counted(body["epsilon"], body["delta"], filters)


def _name_mechanism(search: Counted, body: Mapping[str, Any]) -> None:
    search.mechanisms.setdefault((body["pool"], body["trial"]), _mechanism(body))


def _mechanism(body: Mapping[str, Any]) -> tuple[float, float]:
    said = body["mechanism"]
    return said["sample_rate"], said["noise_multiplier"]
