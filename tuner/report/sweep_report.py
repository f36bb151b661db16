"""Facts of a sweep for all three renderers: text, HTML page and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tuner.privacy.card.claims import budget_sentence
from tuner.privacy.modes import COMPOSITION, Mode
from tuner.report.trial_row import CUT_OFF, TrialRow, best_row, varying_parameters
from tuner.report.wording import plural

if TYPE_CHECKING:
    from search_spaces.domains import Domain
    from tuner.plan.comparison import CandidateRow
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.report.spending import Charged, Spending
    from tuner.study.unimodal.inference.picture import CurvePicture

__all__ = ["SweepReport"]


_STATES = ("complete", "pruned", "failed", "lost", "running", "paused", CUT_OFF)


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """Facts of a running or ended sweep. For a sealed sweep, `trials` contains only the winner."""

    name: str  # of the experiment
    sweep: str  # id of the sweep
    state: str  # "running", "done", "budget reached", "interrupted", "failed", ...
    trials: tuple[TrialRow, ...]  # in the order of their numbers
    trials_planned: int
    metric: str
    mode: str  # "max" or "min"
    budget: BudgetView | None  # None if the sweep is not private
    headline: str = ""  # first line of every view: what is claimed, of one search or of all
    subtitle: str = ""  # for example "dplis, tutorial_cnn on cifar10"
    reason: str = ""  # why the sweep ended
    next_commands: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()  # further names and values: data set, noise, folder, ...
    card: str = ""  # the privacy card as Markdown
    experiment: str = ""  # the resolved experiment file
    searched: tuple[str, ...] = ()  # searched parameters; if empty, those that differ between the trials
    claim: str = ""  # sentence shown instead of a guarantee if nothing is charged
    accounting: Mode = COMPOSITION
    unit: str = "record"  # what the guarantee protects: a "record", or a "user" with all records
    domains: Mapping[str, Domain] = field(default_factory=dict)  # of the searched parameters
    not_started: int = 0  # candidates that did not fit the budget; no trial has their numbers
    card_picture: str = ""  # the card's curve as SVG
    winner_lost: bool = False  # the runs of a sealed search are gone, so no winner can be released
    curves: tuple[CurvePicture, ...] = ()  # of a unimodal search, one per parameter
    dataset: str = ""  # whose records the trials are scored on; scores of different data sets are not compared
    spending: Spending | None = None
    charges: tuple[Charged, ...] = ()  # what each trial was charged
    prices: tuple[CandidateRow, ...] = ()  # expected prices of search; empty if they are not known
    chosen_by_auto: str = ""  # why `accounting: auto` took this search; empty if the file named it
    importances: Mapping[str, float] = field(default_factory=dict)  # of searched parameters, by fANOVA; sum 1
    chosen: int | None = None  # number of the winning trial; None if it is the one with the best score
    why: str = ""  # why another trial than the one with the best score wins
    tied: tuple[int, ...] = ()  # numbers of the trials whose score is within the error of the winner's
    expected: float | None = None  # of the winner by noisy scores: its accuracy, corrected for the choice of the best
    commits: bool = False  # whether a committed run follows the search; then only that run is exported

    @property
    def runs_hidden(self) -> bool:
        """Whether the report shows only the winner and nothing about the other runs."""
        return self.accounting.runs_hidden

    @cached_property
    def winner(self) -> TrialRow | None:
        """The trial that `tune export` exports."""
        if self.commits and self.committed is None:
            return None
        return next((trial for trial in self.trials if trial.number == self.chosen), self.best)

    @property
    def committed(self) -> TrialRow | None:
        """The committed run, if it is complete."""
        return next((trial for trial in self.trials if trial.committed and trial.state == "complete"), None)

    @cached_property
    def best(self) -> TrialRow | None:
        """The complete trial with the best score, or the committed run. Of equal scores, it is the first trial."""
        return best_row(self.trials, mode=self.mode)

    @property
    def sentence(self) -> str:
        """The sentence about the guarantee, or `claim` if nothing is charged. It is empty if there is no guarantee."""
        if self.budget is None:
            return self.claim
        return budget_sentence(self.budget, mode=self.accounting, unit=self.unit)

    @property
    def ended(self) -> int:
        """Number of trials that have ended, without the committed run."""
        trials = (trial for trial in self.trials if not trial.committed)
        return sum(trial.state not in ("running", "paused", CUT_OFF) for trial in trials)

    @property
    def counts(self) -> str:
        """Number of trials in each state, as text, without the committed run."""
        trials = [trial for trial in self.trials if not trial.committed]
        numbers = ((sum(trial.state == state for trial in trials), state) for state in _STATES)
        return ", ".join(f"{number} {state}" for number, state in numbers if number)

    @property
    def without_winner(self) -> str:
        """Text for a sealed search without a winner: whether a winner may still be released."""
        return "no winner" if self.state == "done" or self.winner_lost else "winner not released yet"

    @property
    def left_out(self) -> str:
        """Reason why some trial numbers are missing, or an empty text if none is missing."""
        if not self.not_started:
            return ""
        were = "was" if self.not_started == 1 else "were"
        return f"{plural(self.not_started, 'configuration')} did not fit the remaining budget and {were} not started"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that have a column in the table."""
        return self.searched or varying_parameters(trial.parameters for trial in self.trials)
