"""Check that compares a ledger's prices and claims with newly computed values."""

from __future__ import annotations

from tuner.privacy.ledger.admission import order_filter, units_at
from tuner.privacy.ledger.rules import contradiction
from tuner.privacy.ledger.state import DatasetState, SearchState

__all__ = ["check_prices", "check_search"]

_SLACK = 1e-8
"""Allowed relative difference between a recorded and a newly computed price. Different machines round differently."""


def check_prices(state: DatasetState) -> None:
    """Raise `LedgerCorruptError` if a recorded price is too low, or a filter allows more ε than its search claims."""
    cap, where = state.cap, f"data set {state.dataset!r}"
    if cap is not None and cap.order is not None and cap.units is not None:
        now = order_filter(cap.order, cap.epsilon, cap.delta)
        if cap.units > (now or 0) * (1 + _SLACK):
            raise contradiction(
                "ledger-price-too-low", where, f"its cap allows {now} Rényi units, but the ledger recorded {cap.units}"
            )
    for search in state.searches:
        check_search(state, search)


def check_search(state: DatasetState, search: SearchState) -> None:
    """Raise `LedgerCorruptError` if a price of a search is too low, or its filter allows more ε than it claims."""

    def compare(what: str, stated: int | None, now: int | None) -> None:
        if stated is not None and (now is None or now > stated * (1 + _SLACK) + 1):
            raise contradiction(
                "ledger-price-too-low",
                f"data set {state.dataset!r}",
                f"{what} costs {now} Rényi units, but the ledger recorded only {stated}",
            )

    if search.counts:
        _check_claims(state, search)
    if state.cap is not None and search.counts:
        validation = search.validation.filter if search.validation else None
        compare(f"search {search.search!r}", search.units, units_at(state.cap.order, search.filter, validation))
    for pool in search.pools.values():
        for name, trial in pool.trials.items() if pool.filter.priced else ():
            if trial.mechanism is not None:
                compare(f"trial {name!r} of {search.search!r}", trial.price, pool.filter.price(trial.mechanism))


def _check_claims(state: DatasetState, search: SearchState) -> None:
    """Raise `LedgerCorruptError` if a filter allows a larger ε than its search claims."""
    for name, pool in search.pools.items():
        epsilon, delta = pool.claim
        needed = pool.filter.claim(delta)
        if not needed <= epsilon * (1 + _SLACK):
            raise contradiction(
                "ledger-claim-too-low",
                f"data set {state.dataset!r}",
                f"search {search.search!r} claims (ε, δ) = {pool.claim!r} for {name} records, but its filter allows "
                f"ε = {needed!r}",
            )
