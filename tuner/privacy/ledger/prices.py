"""Prices and claims of the ledger, recomputed: the accountant's numbers that entries only noted."""

from __future__ import annotations

from tuner.privacy.ledger.admission import order_filter, units_at
from tuner.privacy.ledger.rules import contradiction
from tuner.privacy.ledger.state import TRAINING, VALIDATION, DatasetState, SearchState

__all__ = ["check_prices"]

_SLACK = 1e-8
"""Relative difference that is allowed between a noted price and one computed now: machines round differently."""


def check_prices(state: DatasetState) -> None:
    """Recompute what the entries noted: the claims of the searches, and Rényi divergences.

    Raises:
        LedgerCorruptError: a noted price is below the true one, or a search may cost more than it claims.
    """

    def compare(what: str, noted: int | None, now: int | None) -> None:
        if noted is not None and (now is None or now > noted * (1 + _SLACK) + 1):
            raise contradiction(
                "ledger-price-too-low",
                f"data set {state.dataset!r}",
                f"{what} was noted at {noted} Rényi units and costs {now}",
            )

    cap = state.cap
    if cap is not None and cap.order is not None and cap.units is not None:
        now = order_filter(cap.order, cap.epsilon, cap.delta)
        if cap.units > (now or 0) * (1 + _SLACK):
            raise contradiction(
                "ledger-price-too-low",
                f"data set {state.dataset!r}",
                f"its cap was noted at {cap.units} Rényi units and holds {now}",
            )
    for search in state.searches:
        if search.counts:
            _check_claims(state, search)
        if cap is not None and search.counts:
            validation = search.validation.filter if search.validation else None
            compare(f"search {search.search!r}", search.units, units_at(cap.order, search.filter, validation))
        for pool in search.pools.values():
            for name, trial in pool.trials.items() if pool.filter.priced else ():
                if trial.mechanism is not None:
                    compare(f"trial {name!r} of {search.search!r}", trial.price, pool.filter.price(trial.mechanism))


def _check_claims(state: DatasetState, search: SearchState) -> None:
    """Refuse a filter that costs more than its search claims: somebody else may have written the entry."""
    claims = {TRAINING: (search.epsilon, search.delta), VALIDATION: search.validation_claim}
    for name, pool in search.pools.items():
        claim = claims[name]
        if claim is not None and not pool.filter.claim(claim[1]) <= claim[0] * (1 + _SLACK):
            raise contradiction(
                "ledger-claim-too-low",
                f"data set {state.dataset!r}",
                f"search {search.search!r} claims {claim!r} for its pool {name}, but may cost "
                f"{pool.filter.claim(claim[1])!r}",
            )
