"""Recount of the charges from the ledger's entries. It reads plain JSON and does not use the ledger's own rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

__all__ = ["Counted", "capped", "may_make", "recount", "voided", "within_sums"]

Steps = Counter[tuple[float, float]]


@dataclass
class Counted:
    """Charges of one search, as recounted from the ledger's entries. The search claims (`epsilon`, `delta`)-DP.

    Attributes:
        filters: JSON of the filter of each pool. The pool `training` has the training steps. If scores are protected,
            the pool `validation` has the private scores.
        charged: number of leased steps for each pool and each (sample_rate, noise_multiplier).
        mechanisms: (sample_rate, noise_multiplier) that each trial reserved, for each pool.
        held: steps that each trial has reserved and not yet leased, for each pool.
        begun: how often the search was charged as a whole. It must be 1 if the search is a release, or is sealed and
            has begun, and 0 otherwise.
        stored: checksums of the releases that were stored. There must be at most one.
        open: whether the search is open.
        blocks: other data sets on which the whole claim counts.
        mirror_of: the search whose claim this entry commits on one of its other blocks; None for a search of its own.
    """

    epsilon: float
    delta: float
    filters: dict[str, Mapping[str, Any]]
    charged: dict[str, Steps] = field(default_factory=lambda: {"training": Counter(), "validation": Counter()})
    mechanisms: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    held: Counter[tuple[str, str]] = field(default_factory=Counter)
    begun: int = 0
    stored: list[str] = field(default_factory=list)
    open: bool = True
    blocks: tuple[str, ...] = ()
    mirror_of: str | None = None

    @property
    def counts(self) -> bool:
        """Whether the search's claim counts against the data set's cap."""
        return self.open or self.begun > 0 or any(sum(steps.values()) for steps in self.charged.values())

    def steps(self, pool: str) -> list[tuple[float, float, int]]:
        """Return (sample_rate, noise_multiplier, charged steps) of each mechanism in a pool."""
        return [(*mechanism, steps) for mechanism, steps in sorted(self.charged[pool].items())]


def recount(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, Counted], Decimal, Decimal]:
    """Return the searches of a data set by name, and the total ε and total δ that count against its cap.

    Args:
        entries: (kind, body) of each entry, oldest first.

    Raises:
        KeyError: an entry lacks a value.
        ValueError: a trial leased steps of a mechanism that it did not reserve, or reserved its next rung before it had
            taken all steps of the last one.
    """
    found: dict[str, Counted] = {}
    for kind, body in entries:
        match kind:
            case "open_search":
                found[body["search"]] = _opened(body)
            case "begin" | "release":
                found[body["search"]].begun += 1
            case "stored":
                found[body["search"]].stored.append(body["sha256"])
            case "reserve":
                search, account = found[body["search"]], (body["pool"], body["trial"])
                search.mechanisms.setdefault(account, _mechanism(body))
                if body.get("rung") and body["pool"] == "training" and search.held[account]:
                    raise ValueError(
                        f"trial {body['trial']!r} reserved its next rung before it had finished the previous one"
                    )
                search.held[account] += body["steps"]
            case "lease":
                search, pool = found[body["search"]], body["pool"]
                mechanism = _mechanism(body)
                if search.mechanisms.get((pool, body["trial"])) != mechanism:
                    raise ValueError(
                        f"trial {body['trial']!r} was charged for steps of a mechanism that it did not reserve"
                    )
                search.held[pool, body["trial"]] -= body["steps"]
                search.charged[pool][mechanism] += body["steps"]
            case "close_search" | "reopen_search":
                found[body["search"]].open = kind == "reopen_search"
    held = [search for search in found.values() if search.counts]
    epsilon = sum((Decimal(repr(float(search.epsilon))) for search in held), Decimal(0))
    delta = sum((Decimal(repr(float(search.delta))) for search in held), Decimal(0))
    return found, epsilon, delta


def voided(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """Return (use, reason) of each use of the records for which the owner gave up the data set's total."""
    return [(body["use"], body["why"]) for kind, body in entries if kind == "void"]


def capped(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[float, float, float | None] | None:
    """Return (ε, δ, Rényi order or None) of the cap that the owner set last; None if no cap was set."""
    caps = [(body["epsilon"], body["delta"], body.get("order")) for kind, body in entries if kind == "cap"]
    return caps[-1] if caps else None


def within_sums(cap: tuple[float, float, float | None] | None, epsilon: Decimal, delta: Decimal) -> bool | None:
    """Return whether a total fits the cap by the sums of ε and of δ; None without a cap.

    If the cap has a Rényi order, the sums may use half of δ. If they do not fit, the order may still admit the total,
    which is not decided here, so the result is None.
    """
    if cap is None:
        return None
    rules = 1 if cap[2] is None else 2
    fits = epsilon <= Decimal(repr(float(cap[0]))) and rules * delta <= Decimal(repr(float(cap[1])))
    return True if fits else None if rules == 2 else False


def may_make(body: Mapping[str, Any], run: tuple[float, float, int]) -> bool:
    """Return whether a sealed search was charged for `run` or for a longer run with the same mechanism.

    Args:
        body: JSON of the search's filter.
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
    blocks, mirror_of = tuple(body.get("blocks", ())), body.get("mirror_of")
    return Counted(body["epsilon"], body["delta"], filters, blocks=blocks, mirror_of=mirror_of)


def _mechanism(body: Mapping[str, Any]) -> tuple[float, float]:
    said = body["mechanism"]
    return said["sample_rate"], said["noise_multiplier"]
