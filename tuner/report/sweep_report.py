"""Facts of a sweep, which the text, the page and the JSON share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuner.privacy.card.claims import budget_sentence
from tuner.privacy.modes import COMPOSITION, Mode
from tuner.report.trial_row import CUT_OFF, TrialRow, best_row, varying_parameters
from tuner.report.wording import plural

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.report.spending import Spending
    from tuner.study.unimodal.inference.picture import CurvePicture

__all__ = ["Scale", "SweepReport"]


@dataclass(frozen=True)
class Scale:
    """Scale on which a searched parameter is sampled.

    Attributes:
        log: whether the axis is logarithmic.
        options: options of a choice, in the order of the file; empty for a range.
    """

    log: bool = False
    options: tuple[object, ...] = ()


_STATES = ("complete", "pruned", "failed", "running", CUT_OFF)


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """Facts of a sweep, running or ended.

    Attributes:
        name: name of the experiment.
        sweep: name of this sweep.
        state: ``running``, ``done``, ``budget reached``, ``interrupted``, ``failed``, ...
        trials: the trials in the order of their numbers.
        trials_planned: number of trials that the experiment asks for.
        metric: name of the score.
        mode: ``max`` or ``min``.
        budget: budget of the search; None if the sweep is not private.
        subtitle: what is trained on what, for example ``dplis, tutorial_cnn on cifar10``.
        reason: one sentence on why it ended.
        next_commands: suggested next commands.
        facts: further (name, value) rows: data set, noise, folder, ...
        card: the privacy card as text.
        experiment: the resolved experiment file.
        searched: names of the searched parameters; taken from the trials when empty.
        claim: sentence to show instead of a guarantee if nothing is charged; empty for none.
        accounting: accounting mode; if it hides the runs, `trials` has only the winner.
        unit: what the guarantee protects: a ``record``, or a ``user`` with all records.
        score_error: standard error of a protected score; None if scores have no noise.
        scales: scales of the searched parameters; other parameters are drawn by their values.
        not_started: number of candidates that did not fit the budget; no trial has their numbers.
        card_picture: the card's curve as SVG; empty for none.
        winner_lost: whether the hidden runs of a sealed search are gone, so that no winner can be released.
        curves: curves of a unimodal search, one per parameter; empty for other searches.
        spending: steps and ε against the best score; None if not requested.
        chosen: number of the winning trial (`tuner.sweep.winner`); None if that is the one with the best score.
        why: reason for the winner if another trial has the best score.
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
    accounting: Mode = COMPOSITION
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
    def runs_hidden(self) -> bool:
        """Whether only the winner is shown, and nothing of the other runs."""
        return self.accounting.runs_hidden

    @property
    def winner(self) -> TrialRow | None:
        """The trial that is the result."""
        return next((trial for trial in self.trials if trial.number == self.chosen), self.best)

    @property
    def best(self) -> TrialRow | None:
        """The complete trial with the best score; the first of several."""
        return best_row(self.trials, mode=self.mode)

    @property
    def sentence(self) -> str:
        """The sentence about the guarantee, or `claim` if nothing is charged; empty if nothing is guaranteed."""
        if self.budget is None:
            return self.claim
        return budget_sentence(self.budget, mode=self.accounting, unit=self.unit)

    @property
    def ended(self) -> int:
        """How many trials have ended."""
        return sum(trial.state not in ("running", CUT_OFF) for trial in self.trials)

    @property
    def counts(self) -> str:
        """Number of trials in each state, as text."""
        numbers = ((sum(trial.state == state for trial in self.trials), state) for state in _STATES)
        return ", ".join(f"{number} {state}" for number, state in numbers if number)

    @property
    def without_winner(self) -> str:
        """Text for a sealed search without a winner: whether one may still be released."""
        return "no winner" if self.state == "done" or self.winner_lost else "winner not released yet"

    @property
    def left_out(self) -> str:
        """Why some trial numbers are missing; empty if none is."""
        if not self.not_started:
            return ""
        were = "was" if self.not_started == 1 else "were"
        return f"{plural(self.not_started, 'candidate')} did not fit the remaining budget and {were} not started"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that get a column."""
        return self.searched or varying_parameters(trial.parameters for trial in self.trials)
