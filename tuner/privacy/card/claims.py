"""The claim of a search in one sentence, for plans, reports and records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView

__all__ = ["budget_sentence", "guarantee_words"]


def budget_sentence(budget: BudgetView, *, sealed: bool = False, unit: str = "record") -> str:
    """Return the claim of a search that has begun, and what is not claimed.

    Args:
        budget: of the search; its scores are protected when it has some for them.
        sealed: whether the winner alone is shown.
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
    unit: str,
    protected: bool,
    sealed: bool = False,
    public: bool = False,
    planned: bool = False,
) -> str:
    """Return the claim: its numbers, whom it protects, what it covers and what is outside it.

    Args:
        epsilon: of the search.
        delta: of the search.
        unit: ``record`` or ``user``.
        protected: whether validation scores have noise and are inside the guarantee.
        sealed: whether the winner alone is shown.
        public: whether the search itself runs on public records, and one run on the private ones.
        planned: whether the search has not begun.
    """
    one = "record, whether it trains or validates" if protected else "training record"
    covers = "everything the search shows"
    if sealed:
        covers = "the winner: its configuration, its model and its score. Nothing else leaves the operator"
    elif public:
        covers = "the charged run. The search reads no private record"
    outside = "Test scores are" if protected else "Validation and test scores are"
    return (
        f"The guarantee {'will be' if planned else 'is'} the cap: ε = {epsilon:.10g} at δ = {delta:.10g}, add or "
        f"remove one {'user with all records' if unit == 'user' else one}, for {covers}. {outside} outside it."
    )
