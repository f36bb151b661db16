"""Formatting of numbers for all reports: scores, counts, and the parts of a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from search_spaces import promoted_levels

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView

__all__ = ["budget_line", "expected_text", "format_value", "parameters_text", "plural", "tied_text", "with_error"]

_NAMED = 8  # trials that are named at most


def format_value(value: object, digits: int = 4) -> str:
    """Return a value as text for a table. A float has at most `digits` significant digits, and None is a dash."""
    if value is None:
        return "–"
    if isinstance(value, Mapping) and (levels := promoted_levels(value)) is not None:
        return "→".join(map(str, levels))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)
    return f"{value + 0.0:.{digits}g}" if math.isfinite(value) else "not a number"  # without the sign of -0.0


def with_error(score: float | None, error: float | None) -> str:
    """Return a score as text, with its standard error if it is known."""
    return format_value(score) if score is None or error is None else f"{format_value(score)} ± {error:.2g}"


def tied_text(tied: Sequence[int]) -> str:
    """Return the trials within the error of the best score as text, or an empty text if there are none."""
    if not tied:
        return ""
    named = ", ".join(map(str, tied[:_NAMED])) + (f" and {len(tied) - _NAMED} more" if len(tied) > _NAMED else "")
    trials = "trial" if len(tied) == 1 else "trials"
    return f"perhaps as good as the best (within one standard error of the difference): {trials} {named}"


def expected_text(expected: float | None) -> str:
    """Return the corrected score of the winner as text, or an empty text if there is none."""
    return "" if expected is None else f"about {expected:.3g}, corrected for being the best of many noisy scores"


def parameters_text(parameters: Mapping[str, object], names: Iterable[str], *, between: str = "  ") -> str:
    """Return the named parameters as text: ``learning_rate=0.1  batch_size=64``."""
    return between.join(f"{name}={format_value(parameters[name])}" for name in names if name in parameters)


def plural(number: int, what: str) -> str:
    """Return a number with its noun: ``1 step``, ``2 steps``, ``2 searches``."""
    several = f"{what}es" if what.endswith(("ch", "s")) else f"{what[:-1]}ies" if what.endswith("py") else f"{what}s"
    return f"{format_value(number)} {what if number == 1 else several}"


def budget_line(budget: BudgetView, *, live: bool = False) -> str:
    """Return the parts of the budget as text. The spent ε is an estimate; with `live`, it is rounded up."""
    scores = "" if budget.validation is None else f"; protected scores: {_parts(budget.validation, 'score')}"
    spent = f"{'at most ' if live else ''}{format_value(budget.epsilon_spent)}"
    return f"{_parts(budget, 'step')}; ε spent so far (estimate) {spent}{scores}"


def _parts(budget: BudgetView, what: str) -> str:
    if budget.step_cap is None or budget.left_steps is None:
        return (
            f"{plural(budget.spent_steps, what)} spent, {format_value(budget.reserved_steps)} reserved; "
            f"{budget.spent:.0%} of the budget spent, {budget.reserved:.0%} reserved, {budget.left:.0%} left"
        )
    return (
        f"{format_value(budget.spent_steps)} spent, {format_value(budget.reserved_steps)} reserved, "
        f"{format_value(budget.left_steps)} left of {plural(budget.step_cap, what)}"
    )


def trial_name(number: int, *, committed: bool) -> str:
    """Return the name of a trial in a sentence. The committed run follows the search, and its model is released."""
    return f"committed run {number}" if committed else f"trial {number}"
