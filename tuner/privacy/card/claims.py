"""Sentences that state the claim of a search, for plans, reports and MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.privacy.modes import COMPOSITION, Mode

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView

__all__ = ["budget_sentence", "guarantee_words"]


def budget_sentence(budget: BudgetView, *, mode: Mode = COMPOSITION, unit: str = "record") -> str:
    """Return sentences about a search that has begun: what it claims, and what it does not claim.

    Args:
        budget: budget of the search. If it includes a budget for validation scores, the claim covers these scores.
        mode: accounting mode of the search.
        unit: unit of protection, ``record`` or ``user``.
    """
    words = guarantee_words(
        budget.epsilon_cap, budget.delta, mode=mode, unit=unit, protected=budget.validation is not None
    )
    # A search with hidden runs has no odometer, because it is charged as a whole when it begins.
    return words if mode.runs_hidden else f"{words} The amount spent so far (odometer) is not a guarantee."


def guarantee_words(
    epsilon: float,
    delta: float,
    *,
    mode: Mode,
    unit: str,
    protected: bool,
    planned: bool = False,
) -> str:
    """Return a sentence that states the claim: ε and δ, whom it protects, what it covers and what it does not cover.

    Args:
        epsilon: ε of the claim.
        delta: δ of the claim.
        mode: accounting mode of the search.
        unit: unit of protection, ``record`` or ``user``.
        protected: whether validation scores have noise, so that the guarantee covers them.
        planned: whether the search has not begun yet.
    """
    one = "record, whether it trains or validates" if protected else "training record"
    outside = "Test scores are" if protected else "Validation and test scores are"
    return (
        f"The guarantee {'will be' if planned else 'is'} the cap: ε = {epsilon:.10g} at δ = {delta:.10g}, add or "
        f"remove one {'user with all records' if unit == 'user' else one}, for {mode.guarantee}. {outside} outside it."
    )
