"""Budgets, trials and reports to show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tuner.report.sweep_report import SweepReport, TrialRow
from tuner.study.types import TrialStatus, TrialView


def budget(spent: int = 300, reserved: int = 100, cap: int = 1000) -> Any:  # noqa: ANN401 - stands for a BudgetView
    return SimpleNamespace(
        spent=spent / max(cap, 1),
        reserved=reserved / max(cap, 1),
        left=1 - (spent + reserved) / max(cap, 1),
        spent_steps=spent,
        reserved_steps=reserved,
        left_steps=cap - spent - reserved,
        step_cap=cap,
        epsilon_spent=2.71828,
        epsilon_cap=8.0,
        delta=1e-5,
        validation=None,
    )


def budget_of_units(left: float = 0.6) -> Any:  # noqa: ANN401 - stands for a BudgetView
    """A filter at a fixed order: steps are counted, and what is left is a share of a Rényi budget."""
    made = budget()
    made.spent, made.reserved, made.left = 0.9 - left, 0.1, left
    made.left_steps = made.step_cap = None
    return made


def budget_with_scores() -> Any:  # noqa: ANN401 - stands for a BudgetView
    made = budget()
    made.validation = budget(12, 8, 40)
    return made


def view(number: int, state: TrialStatus = TrialStatus.RUNNING, **changes: object) -> TrialView:
    values: dict[str, Any] = {
        "id": f"t{number}",
        "number": number,
        "parameters": {"learning_rate": 0.1 * (number + 1), "smoothing_samples": 10},
        "state": state,
        "steps_planned": 100,
    }
    return TrialView(**{**values, **changes})


def row(number: int, score: float | None = 0.5, state: str = "complete", **changes: object) -> TrialRow:
    values: dict[str, Any] = {
        "number": number,
        "state": state,
        "parameters": {"learning_rate": 10.0**-number, "schedule": ["constant", "cosine"][number % 2], "K": 10},
        "step": 100,
        "steps_planned": 100,
        "score": score,
        "curve": ((50, 0.1), (100, score)) if score is not None else (),
    }
    return TrialRow(**{**values, **changes})


def report(*trials: TrialRow, **changes: object) -> SweepReport:
    values: dict[str, Any] = {
        "name": "digits",
        "sweep": "digits-0001",
        "state": "done",
        "trials": trials,
        "trials_planned": 5,
        "metric": "validation_accuracy",
        "mode": "max",
        "budget": budget(),
    }
    return SweepReport(**{**values, **changes})
