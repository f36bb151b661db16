"""What a search claims, in the words that every view of it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView

__all__ = ["budget_sentence", "guarantee_words"]


def budget_sentence(budget: BudgetView, *, sealed: bool = False, unit: str = "record") -> str:
    """What may be claimed, and what not; for every view of a sweep in the same words.

    Args:
        budget: of the search; scores are protected when it has some for them.
        sealed: whether the winner alone is told.
        unit: ``record`` or ``user``.
    """
    words = guarantee_words(
        budget.epsilon_cap, budget.delta, sealed=sealed, unit=unit, protected=budget.validation is not None
    )
    # A sealed search shows no odometer: it is charged as a whole when it begins.
    return words if sealed else f"{words} What is spent so far is the odometer, not a guarantee."


def guarantee_words(
    epsilon: float,
    delta: float,
    *,
    sealed: bool,
    unit: str,
    protected: bool,
    public: bool = False,
    planned: bool = False,
) -> str:
    """Return the claim of a search.

    Args:
        epsilon: of the search.
        delta: of the search.
        sealed: whether the winner alone is told.
        unit: ``record`` or ``user``.
        protected: whether validation scores have noise and are inside the guarantee.
        public: whether the search reads public records only, and one run is charged.
        planned: whether the search has not started.
    """
    one = "record, whether it trains or validates" if protected else "training record"
    if unit == "user":
        one = "user with all records"
    covers = "everything the search shows"
    if sealed:
        covers = "the winner: its configuration, its model and its score. Nothing else leaves the operator"
    elif public:
        covers = "the charged run. The search reads no private record"
    outside = "Test scores are" if protected else "Validation and test scores are"
    verb = "will be" if planned else "is"
    return (
        f"The guarantee {verb} the cap: ε = {epsilon:.10g} at δ = {delta:.10g}, add or remove one {one}, for {covers}. "
        f"{outside} outside it."
    )
