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


def guarantee_words(epsilon: float, delta: float, *, sealed: bool, unit: str, protected: bool) -> str:
    """The claim as the plan made it (`presenting_plan`), now that it holds.

    Args:
        epsilon: of the search.
        delta: of the search.
        sealed: whether the winner alone is told.
        unit: ``record`` or ``user``.
        protected: whether validation scores have noise and are inside the guarantee.
    """
    one = "record, whether it trains or validates" if protected else "training record"
    covers = "the winner: its configuration, its model and its score. Nothing else leaves the operator"
    outside = "Test scores are" if protected else "Validation and test scores are"
    return (
        f"The guarantee is the cap: ε = {epsilon:.10g} at δ = {delta:.10g}, add or remove one "
        f"{'user with all records' if unit == 'user' else one}, for "
        f"{covers if sealed else 'everything the search shows'}. {outside} outside it."
    )
