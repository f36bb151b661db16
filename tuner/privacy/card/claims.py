"""The claim of a search in one sentence, for plans, reports and records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.privacy.modes import COMPOSITION, Mode

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView

__all__ = ["budget_sentence", "guarantee_words"]


def budget_sentence(budget: BudgetView, *, mode: Mode = COMPOSITION, unit: str = "record") -> str:
    """Return the claim of a search that has begun, and what is not claimed.

    Args:
        budget: of the search; its scores are protected when it has some for them.
        mode: accounting mode of the search.
        unit: ``record`` or ``user``.
    """
    words = guarantee_words(
        budget.epsilon_cap, budget.delta, mode=mode, unit=unit, protected=budget.validation is not None
    )
    # A search with hidden runs shows no odometer: it is charged as a whole when it begins.
    return words if mode.runs_hidden else f"{words} What is spent so far is the odometer, not a guarantee."


def guarantee_words(
    epsilon: float,
    delta: float,
    *,
    mode: Mode,
    unit: str,
    protected: bool,
    planned: bool = False,
) -> str:
    """Return the claim: its numbers, whom it protects, what it covers and what is outside it.

    Args:
        epsilon: of the search.
        delta: of the search.
        mode: accounting mode of the search.
        unit: ``record`` or ``user``.
        protected: whether validation scores have noise and are inside the guarantee.
        planned: whether the search has not begun.
    """
    one = "record, whether it trains or validates" if protected else "training record"
    outside = "Test scores are" if protected else "Validation and test scores are"
    return (
        f"The guarantee {'will be' if planned else 'is'} the cap: ε = {epsilon:.10g} at δ = {delta:.10g}, add or "
        f"remove one {'user with all records' if unit == 'user' else one}, for {mode.guarantee}. {outside} outside it."
    )
