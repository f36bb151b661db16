"""Budgets, trials and reports to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from tuner.report.spending import Spending, spending
from tuner.report.sweep_report import SweepReport
from tuner.report.trial_row import TrialRow
from tuner.study.types import TrialStatus, TrialView
from tuner.study.unimodal.inference.picture import NEVER_STARTED, CurvePicture, CurvePoint


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


def point(trial: int, value: float, score: float | None, fraction: float = 1.0, state: str = "complete") -> CurvePoint:
    return CurvePoint(trial=trial, value=value, score=score, fraction=fraction, state=state)


CURVE_POINTS = (
    point(0, 0.0, 0.80),
    point(1, 30.0, 0.85),
    point(2, 5.0, 0.82, 0.5, "pruned"),
    point(3, 12.0, 0.83, 0.25, "running"),
    point(4, 90.0, None, 0.0, NEVER_STARTED),
    point(5, 60.0, None, 0.0, "running"),
    point(6, 100.0, 0.10),
)


def picture(**changes: object) -> CurvePicture:
    """The curve of a radius that is best at 30, with a trial in every state."""
    values: dict[str, Any] = {
        "parameter": "smoothing_radius",
        "low": 0.0,
        "high": 100.0,
        "warp": "log1p",
        "values": (0.0, 10.0, 30.0, 100.0),
        "mean": (0.80, 0.83, 0.85, 0.10),
        "band_low": (0.79, 0.82, 0.845, 0.05),
        "band_high": (0.81, 0.84, 0.855, 0.15),
        "height_at": 1.0,
        "above": 10.0,
        "below": 60.0,
        "points": CURVE_POINTS,
        "best": 1,
        "near": 0.93,
        "tolerance": 0.002,
    }
    return CurvePicture(**{**values, **changes})


SPENT_TRIALS = (
    row(0, 0.80, id="t0"),
    row(1, 0.70, "pruned", step=20, id="t1"),
    row(2, 0.85, id="t2"),
    row(4, 0.60, "running", step=40, id="t4"),
)


def root_of(steps: Mapping[str, int]) -> float:
    """An accountant: ε is the square root of the steps."""
    return float(sum(steps.values()) ** 0.5)


@dataclass
class ChargedBudget:
    """A search's budget: the steps charged to each trial, and its odometer, which may read less than the steps."""

    charged: Mapping[str, int]
    steps_epsilon: Callable[[Mapping[str, int]], float] = root_of
    cap: float = 20.0
    odometer: float | None = None

    def charged_steps(self, trial: str) -> int:
        return self.charged[trial]

    def view(self) -> SimpleNamespace:
        spent = root_of(self.charged) if self.odometer is None else self.odometer
        steps = sum(self.charged.values())
        return SimpleNamespace(spent_steps=steps, epsilon_spent=spent, epsilon_cap=self.cap, delta=1e-5)


def spending_of(rows: Sequence[TrialRow], *, mode: str = "max", **budget: object) -> Spending:
    """Spending with one excluded candidate of 100 steps; `budget` goes to `ChargedBudget`."""
    named = [replace(each, id=f"t{each.number}") for each in rows]
    values: dict[str, Any] = {"charged": {each.id: each.step for each in named}, **budget}
    charged: Any = ChargedBudget(**values)
    found = spending(named, mode=mode, budget=charged, excluded=1, whole=100)
    assert found is not None
    return found
