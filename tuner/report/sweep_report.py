"""What is shown of a sweep, and in which words: the same for the live table, the text and the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from search_spaces import promoted_levels
from tuner.privacy.card.claims import budget_sentence
from tuner.study.best import best_of

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.report.spending import Spending
    from tuner.study.types import TrialView
    from tuner.study.unimodal.inference.picture import CurvePicture

__all__ = [
    "CUT_OFF",
    "Scale",
    "Shares",
    "SweepReport",
    "TrialRow",
    "best_row",
    "budget_line",
    "count",
    "format_value",
    "varying_parameters",
    "with_error",
]

CUT_OFF = "cut off"
"""The state of a trial that stands as running in a sweep that does not run; a resume goes on with it."""


@dataclass(frozen=True)
class Scale:
    """How a searched parameter is drawn.

    Attributes:
        log: on a logarithmic axis.
        options: of a choice, in the order of the file; empty for a range.
    """

    log: bool = False
    options: tuple[object, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial as it is shown.

    Attributes:
        number: counted from 0.
        state: ``running``, ``complete``, ``pruned``, ``failed``, or `CUT_OFF`.
        parameters: flat parameters, fixed ones included.
        step: steps taken.
        steps_planned: steps of a trial that is not pruned.
        score: the last score; None when there is none or it is not a number.
        reason: why it was pruned or failed.
        curve: (step, score) of every report.
        epsilon: what its own steps cost.
        id: name of the trial in ledger and folder.
    """

    number: int
    state: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    step: int = 0
    steps_planned: int = 0
    score: float | None = None
    reason: str = ""
    curve: tuple[tuple[int, float], ...] = ()
    epsilon: float | None = None
    id: str = ""

    @classmethod
    def of(cls, trial: TrialView, *, curve: Sequence[tuple[int, float]] = (), epsilon: float | None = None) -> TrialRow:
        """The row of a trial that the search knows."""
        score = trial.last_score
        return cls(
            number=trial.number,
            state=trial.state.name.lower(),
            parameters=dict(trial.parameters),
            step=trial.step,
            steps_planned=trial.steps_planned,
            score=score if score is not None and math.isfinite(score) else None,
            reason=trial.reason,
            curve=tuple((step, value) for step, value in curve if math.isfinite(value)),
            epsilon=epsilon,
            id=trial.id,
        )


_STATES = ("complete", "pruned", "failed", "running", CUT_OFF)


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """A sweep, running or ended, as it is shown.

    Attributes:
        name: name of the experiment.
        sweep: name of this sweep.
        state: ``running``, ``done``, ``budget reached``, ``interrupted``, ``failed``, ...
        trials: in order of their numbers.
        trials_planned: how many the experiment asks for.
        metric: what is searched for.
        mode: ``max`` or ``min``.
        budget: of the search; None for a sweep that is not private.
        subtitle: for example ``dplis, tutorial_cnn on cifar10``.
        reason: one sentence on why it ended.
        next_commands: what to run next.
        facts: more rows for the head of the page (data set, noise, versions, ...).
        card: the privacy card as text.
        experiment: the resolved experiment file.
        searched: names of the parameters that are searched; taken from the trials when empty.
        claim: what is said of the guarantee of a sweep without a budget; empty where there is none.
        sealed: whether only the best of its runs is told, and nothing of the others.
        unit: what the guarantee protects: a ``record``, or a ``user`` with all records.
        score_error: standard error of a protected score; None where scores have no noise.
        scales: how searched parameters are drawn; what is not in it by its values.
        not_started: candidates that were drawn and did not fit, so that their numbers are of no trial.
        card_picture: the picture beside the card, as SVG; empty where there is none.
        winner_lost: whether the sealed part is gone, so that no winner can come any more.
        curves: what a unimodal search believes, a picture a parameter; none of another search.
        spending: steps and ε against the best score; None where it was not asked for.
        chosen: number of the trial that wins (`tuner.sweep.winner`); None where that is the one with the best score.
        why: in words, where the one that wins is another than the one with the best score.
    """

    name: str
    sweep: str
    state: str
    trials: tuple[TrialRow, ...]
    trials_planned: int
    metric: str
    mode: str
    budget: BudgetView | None
    subtitle: str = ""
    reason: str = ""
    next_commands: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    card: str = ""
    experiment: str = ""
    searched: tuple[str, ...] = ()
    claim: str = ""
    sealed: bool = False
    unit: str = "record"
    score_error: float | None = None
    scales: Mapping[str, Scale] = field(default_factory=dict)
    not_started: int = 0
    card_picture: str = ""
    winner_lost: bool = False
    curves: tuple[CurvePicture, ...] = ()
    spending: Spending | None = None
    chosen: int | None = None
    why: str = ""

    @property
    def winner(self) -> TrialRow | None:
        """The trial that is named as the result."""
        return next((trial for trial in self.trials if trial.number == self.chosen), self.best)

    @property
    def best(self) -> TrialRow | None:
        """The complete trial with the best score; the first of several."""
        return best_row(self.trials, mode=self.mode)

    @property
    def sentence(self) -> str:
        """What may be claimed: of the budget, or what is said where nothing is charged; empty where nothing is."""
        if self.budget is None:
            return self.claim
        return budget_sentence(self.budget, sealed=self.sealed, unit=self.unit)

    @property
    def ended(self) -> int:
        """How many trials have ended."""
        return sum(trial.state not in ("running", CUT_OFF) for trial in self.trials)

    @property
    def counts(self) -> str:
        """How many trials are in each state, in words."""
        numbers = ((sum(trial.state == state for trial in self.trials), state) for state in _STATES)
        return ", ".join(f"{number} {state}" for number, state in numbers if number)

    @property
    def without_winner(self) -> str:
        """What is said of a sealed search that has told no winner: it may still come, until the search is over."""
        return "no winner" if self.state == "done" or self.winner_lost else "winner not released yet"

    @property
    def left_out(self) -> str:
        """Why numbers of trials are left out; empty where none is."""
        if not self.not_started:
            return ""
        were = "was" if self.not_started == 1 else "were"
        return f"{count(self.not_started, 'candidate')} did not fit what was left and {were} not started"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that are worth a column."""
        return self.searched or varying_parameters(trial.parameters for trial in self.trials)


@dataclass(frozen=True)
class Shares:
    """The three parts of a budget bar, each in 0..1; together 1."""

    spent: float
    reserved: float
    left: float

    @classmethod
    def of(cls, budget: BudgetView) -> Shares:
        """The parts of what the search may spend: of steps, of coupons or of Rényi divergence, as its cap counts."""
        spent = min(max(budget.spent, 0.0), 1.0)
        reserved = min(max(budget.reserved, 0.0), 1.0 - spent)
        return cls(spent, reserved, 1.0 - spent - reserved)


def best_row(rows: Iterable[TrialRow], *, mode: str) -> TrialRow | None:
    """Return the complete trial with the best score; the one with the lowest number of equals."""
    complete = (row for row in rows if row.state == "complete")
    return best_of(complete, score=lambda row: row.score, mode=mode, tie=lambda row: -row.number)


def format_value(value: object, digits: int = 4) -> str:
    """A value for a table: numbers to some significant digits, what is missing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, Mapping) and (levels := promoted_levels(value)) is not None:
        return "→".join(map(str, levels))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)
    return f"{value:.{digits}g}" if math.isfinite(value) else "not a number"


def with_error(score: float | None, error: float | None) -> str:
    """A score, with the standard error of its noise where there is noise."""
    return format_value(score) if score is None or error is None else f"{format_value(score)} ± {error:.2g}"


def count(number: int, what: str) -> str:
    """A number of things: ``1 step``, ``2 steps``, ``2 searches``."""
    several = f"{what}es" if what.endswith(("ch", "s")) else f"{what}s"
    return f"{format_value(number)} {what if number == 1 else several}"


def varying_parameters(trials: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """Names of the parameters that are not the same in all trials, in the order in which they appear."""
    rows = list(trials)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(rows) < 2:
        return tuple(names)
    return tuple(name for name in names if len({repr(row.get(name)) for row in rows}) > 1)


def budget_line(budget: BudgetView) -> str:
    """The three parts of the budget in words; every ε in it is the odometer's, and says so."""
    scores = "" if budget.validation is None else f"; protected scores: {_parts(budget.validation, 'score')}"
    return f"{_parts(budget, 'step')}; ε spent so far (odometer) {format_value(budget.epsilon_spent)}{scores}"


def _parts(budget: BudgetView, what: str) -> str:
    if budget.step_cap is None or budget.left_steps is None:
        shares = Shares.of(budget)
        return (
            f"{count(budget.spent_steps, what)} spent, {format_value(budget.reserved_steps)} reserved; "
            f"{shares.spent:.0%} of the budget spent, {shares.reserved:.0%} reserved, {shares.left:.0%} left"
        )
    return (
        f"{format_value(budget.spent_steps)} spent, {format_value(budget.reserved_steps)} reserved, "
        f"{format_value(budget.left_steps)} left of {count(budget.step_cap, what)}"
    )
