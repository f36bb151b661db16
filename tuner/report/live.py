"""Live view of a sweep. It is a table with progress and budget bars on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from tuner.privacy.card.claims import budget_sentence
from tuner.privacy.ledger.amounts import amount
from tuner.report.text import NOT_PRIVATE, budget_bar, guarantee_text
from tuner.report.text import console as standard_console
from tuner.report.trial_row import TrialRow, best_row, varying_parameters
from tuner.report.wording import budget_line, format_value, parameters_text, plural, trial_name, with_error

if TYPE_CHECKING:
    from trainables.score_error import ScoreError
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.study.types import TrialView

__all__ = ["LiveView"]

_STYLES = {
    "running": "cyan",
    "paused": "blue",
    "complete": "green",
    "pruned": "yellow",
    "failed": "bold red",
    "lost": "magenta",
}
_MARKS = {"running": "●", "paused": "‖", "complete": "✓", "pruned": "✂", "failed": "✗", "lost": "?"}
_LINES_AROUND = 18  # panel, claim, heading, bars and sentences around the rows of the table
_REFRESH_A_SECOND = 4
_BUDGET_SECONDS = 2.0  # least time between two readings of the ledger
_ECHO = 3  # columns left free for the ^C that a terminal echoes; in the last column it would wrap and break the drawing
_SAVED = 24  # columns that marks for states and steps without a bar save
_NARROW = 9  # columns of a value and the gap before it
_LEAST_SHARE = 0.05  # of the sweep, from which the time that is left is guessed
_WIDE = 100  # columns from which the metric is named in the heading of the table


class LiveView:
    """Observer that shows a search while it runs. Use it in a ``with`` statement.

    On a terminal, it redraws one table in place. The table is removed at the end, because the summary follows. After
    an error or an interrupt, the table stays. Elsewhere, the view prints one line per event or, with ``quiet``, per
    finished trial. The budget is read when it is shown: on a terminal after every event and every two seconds, because
    steps are charged between reports, and elsewhere when a trial ends. If the budget cannot be read, the table shows
    the last reading and says so.

    Args:
        budget_view: returns the current budget of the search, whose ε may be an upper bound (`odometer.read_search`);
            None for a sweep that is not private.
        searched: names of the parameters to show; if empty, those that differ between trials.
        earlier: the trials that ran before the sweep was resumed.
        note: returns a line to show under the bars, or an empty text.
        headline: first line: what is claimed, of one search or of all.
        claim: sentence to show instead of a guarantee if nothing is charged.
        unit: unit of privacy, ``record`` or ``user``.
        waiting: text to show until the first trial starts.
        finding: returns the findings so far, to show under the table.
        error: standard error of the scores; None if it is not known.
    """

    def __init__(
        self,
        *,
        name: str,
        trials: int,
        metric: str,
        mode: str = "max",
        budget_view: Callable[[], BudgetView] | None = None,
        subtitle: str = "",
        searched: Sequence[str] = (),
        earlier: Iterable[TrialView] = (),
        note: Callable[[], str] | None = None,
        console: Console | None = None,
        quiet: bool = False,
        headline: str = "",
        claim: str = "",
        unit: str = "record",
        waiting: str = "",
        finding: Callable[[], str] | None = None,
        error: ScoreError | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._subtitle, self._planned = name, subtitle, trials
        self._metric, self._mode, self._searched = metric, mode, tuple(searched)
        self._budget_view, self._note, self._finding = budget_view, note, finding
        self._quiet, self._claim, self._unit, self._waiting, self._clock = quiet, claim, unit, waiting, clock
        self._headline, self._console = headline, console or standard_console()
        self._found = ""  # the last finding that was printed
        self._mutex = threading.RLock()
        self._error = error
        self._rows = {trial.id: TrialRow.of(trial).with_error(error) for trial in earlier}
        self._reading = threading.Lock()  # one reader at a time: an older view never replaces a newer one
        self._budget: BudgetView | None = None
        self._budget_due = 0.0
        self._budget_trouble = ""
        self._live: Live | None = None
        self._began, self._share_before = clock(), 0.0

    def __enter__(self) -> Self:
        if self._budget_view is not None:
            self._budget = self._budget_view()  # a budget that cannot be read at the start is an error
            self._budget_due = self._clock() + _BUDGET_SECONDS
        self._began, self._share_before = self._clock(), self._share()
        if self._console.is_terminal and not self._quiet:
            self._live = Live(
                console=self._console, get_renderable=self.render, refresh_per_second=_REFRESH_A_SECOND, transient=True
            )
            self._live.start()
        else:
            if self._headline:
                self._say(self._headline)
            ended = self._ended()
            planned = f"{plural(self._planned, 'trial')} planned" + (
                f", {ended} of them ended before the resume" if self._rows else ""
            )
            self._say(f"{self._name}: {planned}. {self._sentence() or f'{NOT_PRIVATE}.'}")
            if self._waiting and not self._quiet:
                self._say(self._waiting)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live is not None:
            try:
                self._read_budget()
            finally:  # even after a second interrupt the cursor must be shown
                self._live.stop()
                self._live = None
            if kind is not None:
                self._console.print(self.render())

    def trial_started(self, trial: TrialView) -> None:
        """Show a trial that starts."""
        with self._mutex:
            self._waiting = ""
            self._take(trial)
            if not self._quiet:
                names = varying_parameters(row.parameters for row in self._rows.values())
                chosen = parameters_text(trial.parameters, self._searched or names)
                self._say(f"{_name(trial)} started  {chosen}")

    def trial_reported(self, trial: TrialView, step: int, metrics: dict[str, float]) -> None:
        """Show the scores of a trial at a rung."""
        with self._mutex:
            self._take(trial)
            if not self._quiet:
                score = format_value(metrics.get(self._metric))
                self._say(f"{_name(trial)} step {step}/{trial.steps_planned}  {self._metric} {score}")

    def trial_paused(self, trial: TrialView) -> None:
        """Show a trial that pauses."""
        with self._mutex:
            self._take(trial)
            if not self._quiet:
                self._say(f"trial {trial.number} paused at step {trial.step}/{trial.steps_planned}")

    def trial_lost(self, trial: TrialView, why: str) -> None:
        """Show a trial at the step from which it continues."""
        with self._mutex:
            self._take(trial)

    def trial_finished(self, trial: TrialView) -> None:
        """Show a trial that ended."""
        with self._mutex:
            row = self._take(trial)
            if self._live is None:
                self._read_budget()
            reason = f" ({row.reason})" if row.reason else ""
            best = "  BEST" if row is self._best else ""
            budget = f"  budget: {budget_line(self._budget, live=True)}" if self._budget else ""
            self._say(
                f"{_name(row)} {row.state}{reason}  {self._metric} {with_error(row.score, row.error)}{best}"
                f"  {self._ended()}/{plural(self._planned, 'trial')}{budget}"
            )
            found = "" if self._finding is None or self._quiet else self._finding()
            if found and found != self._found:
                self._found = found
                self._say(found)

    def say(self, line: str) -> None:
        """Print a line, also above a live table."""
        with self._mutex:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def render(self) -> RenderableType:
        """Return the view as it is now."""
        if self._clock() >= self._budget_due and self._reading.acquire(blocking=False):
            try:
                self._read_held()
            finally:
                self._reading.release()
        with self._mutex:
            rows = sorted(self._rows.values(), key=lambda row: row.number)
            best = self._best
            bar = max(min(self._console.width - 4 - _ECHO, 120) - 48, 10)
            parts: list[RenderableType] = [Text(self._headline, style="bold")] if self._headline else []
            parts.append(self._table(rows, best))
            if self._waiting:
                parts.append(Text(self._waiting, style="cyan"))
            if self._finding is not None and (found := self._finding()):
                parts.append(Text(found))
            parts += [Rule(style="dim"), self._progress(best, bar), *self._budget_parts(bar)]
            if self._budget_trouble:
                parts.append(Text(self._budget_trouble, style="yellow"))
            if self._note is not None and (note := self._note()):
                parts.append(Text(note, style="dim"))
            title = Text.assemble((self._name, "bold"), f"  {self._subtitle}" if self._subtitle else "")
            panel = Panel(Group(*parts), title=title, title_align="left", border_style="blue", expand=False)
            panel.width = min(self._console.measure(panel).maximum, self._console.width - _ECHO)
            return panel

    def _take(self, trial: TrialView) -> TrialRow:
        row = TrialRow.of(trial).with_error(self._error)
        self._rows[trial.id] = row
        self._budget_due = 0.0  # the next drawing of the table reads the budget
        return row

    def _ended(self) -> int:
        rows = (row for row in self._rows.values() if not row.committed)
        return sum(row.state not in ("running", "paused") for row in rows)

    @property
    def _best(self) -> TrialRow | None:
        return best_row(self._rows.values(), mode=self._mode)

    def _read_budget(self) -> None:
        with self._reading:
            self._read_held()

    def _read_held(self) -> None:
        """Read the budget. The caller must hold the lock `_reading`. An error is shown and does not stop the sweep."""
        if self._budget_view is None:
            return
        try:
            self._budget = self._budget_view()
            self._budget_trouble = ""
        except Exception as error:  # noqa: BLE001 - the trials will hit the same error when they are charged, and raise it
            self._budget_trouble = (
                f"the ledger cannot be read now ({type(error).__name__}): the budget shown is from an earlier reading"
            )
        self._budget_due = self._clock() + _BUDGET_SECONDS

    def _say(self, line: str) -> None:
        if self._live is None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _table(self, rows: list[TrialRow], best: TrialRow | None) -> Table:
        names = self._searched or varying_parameters(row.parameters for row in rows)
        heading = self._metric if self._console.width >= _WIDE else "score"
        steps = 9 + max((len(f" {row.step}/{row.steps_planned}") for row in rows), default=0)
        room = (
            self._console.width
            - 4
            - _ECHO
            - (5 + 2)
            - (10 + 2)
            - (steps + 2)
            - (max(len(heading), *(len(with_error(row.score, row.error)) for row in rows), 6) + 2)
        )
        names_fit = sum(max(len(name), 12) + 2 for name in names) <= room
        # Where the names do not fit, states are marks, steps have no bar, and names are broken at their underscores.
        # Where not even the values fit, one column has as many as it can.
        small = not names_fit and room + _SAVED >= _NARROW * len(names)
        table = Table(box=None, pad_edge=False, header_style="bold", expand=False, padding=(0, 1 if small else 2, 0, 0))
        table.add_column("trial", justify="right", min_width=3 if small else 5)
        table.add_column("" if small else "state", no_wrap=True, min_width=1 if small else 10)
        table.add_column("steps", no_wrap=True, min_width=5 if small else steps)
        table.add_column(Text(heading), justify="right", no_wrap=True, min_width=6)
        for name in names if names_fit or small else ():
            table.add_column(Text(name.replace("_", " ") if small else name), justify="right", overflow="fold")
        if not names_fit and not small:
            table.add_column("parameters", overflow="ellipsis", no_wrap=True, max_width=max(room, 10))
        shown, hidden = self._visible(rows, best)
        for row in shown:
            cells = [Text(format_value(row.parameters.get(name))) for name in names]
            if not names_fit and not small:
                cells = [Text(parameters_text(row.parameters, names))]
            table.add_row(
                f"{'★ ' if row is best else ''}{'committed ' if row.committed else ''}{row.number}",
                Text(_MARKS[row.state] if small else f"{_MARKS[row.state]} {row.state}", style=_STYLES[row.state]),
                f"{row.step}/{row.steps_planned}" if small else _steps(row),
                with_error(row.score, row.error),
                *cells,
                style="bold" if row is best else "",
            )
        if hidden:
            table.caption = f"{hidden} more {'trial is' if hidden == 1 else 'trials are'} not shown"
        return table

    def _visible(self, rows: list[TrialRow], best: TrialRow | None) -> tuple[list[TrialRow], int]:
        """Return the rows that fit on the terminal, and how many do not.

        Running trials come first, then the best trial, then the newest ones.
        """
        room = max(self._console.height - _LINES_AROUND, 3)
        if len(rows) <= room:
            return rows, 0
        ranked = sorted(rows, key=lambda row: (row.state != "running", row is not best, -row.number))
        return sorted(ranked[:room], key=lambda row: row.number), len(rows) - room

    def _progress(self, best: TrialRow | None, bar: int) -> RenderableType:
        done = self._ended()
        drawn = ProgressBar(total=max(self._planned, 1), completed=done, width=bar, complete_style="green")
        found = f"  best {with_error(best.score, best.error)} ({_name(best)})" if best else ""
        row = Table.grid()
        row.add_row(Text("trials  ", "bold"), drawn, Text(f"  {done}/{self._planned}"), Text(found, "bold green"))
        return Group(row, Text(f"        {self._time()}", style="dim"))

    def _share(self) -> float:
        """Return the share of the sweep that is done: of the steps that it may take, or of the trials."""
        if self._budget is not None and self._budget.step_cap:
            return self._budget.spent_steps / self._budget.step_cap
        return self._ended() / max(self._planned, 1)

    def _time(self) -> str:
        """Return how long this run has taken, and what is left if no trial ends early, both in whole minutes."""
        seconds, done = self._clock() - self._began, self._share() - self._share_before
        took = f"{seconds / 60:.0f} min so far"
        if done < _LEAST_SHARE or self._share() >= 1:
            return took
        return f"{took}, at most about {max(1, round(seconds / done * (1 - self._share()) / 60))} min left"

    def _budget_parts(self, bar: int) -> list[RenderableType]:
        budget, sentence = self._budget, guarantee_text(self._sentence())
        if budget is None:
            return [sentence]
        sentences = [] if self._headline else [sentence]  # the guarantee is said once
        parts = [_budget_row("budget", budget, bar), _budget_words(budget, "steps")]
        if budget.validation is not None:
            parts += [_budget_row("scores", budget.validation, bar), _budget_words(budget.validation, "scores")]
        return [*parts, *sentences]

    def _sentence(self) -> str:
        return self._claim if self._budget is None else budget_sentence(self._budget, unit=self._unit)


def _name(trial: TrialRow | TrialView) -> str:
    return trial_name(trial.number, committed=trial.committed)


def _budget_row(name: str, budget: BudgetView, bar: int) -> Text:
    spent = f"≤ {format_value(budget.epsilon_spent)}"  # rounded up while the search runs
    numbers = f"  ε spent {spent} (estimate), cap {amount(budget.epsilon_cap)}"
    return Text(f"{name:<8}", "bold") + budget_bar(budget, width=bar) + Text(numbers)


def _budget_words(budget: BudgetView, what: str) -> Text:
    if budget.step_cap is None or budget.left_steps is None:
        left, whole = f"{budget.left:.0%} of the budget", f"  ({what})"
    else:
        left, whole = format_value(budget.left_steps), f"  of {format_value(budget.step_cap)} {what}"
    spent = (f"█ spent {format_value(budget.spent_steps)}", "magenta")
    reserved = (f"▓ reserved {format_value(budget.reserved_steps)}", "yellow")
    return Text.assemble("        ", spent, "  ", reserved, "  ", (f"░ left {left}", "grey62"), whole)


def _steps(row: TrialRow) -> RenderableType:
    made, style = Table.grid(), _STYLES[row.state]
    bar = ProgressBar(max(row.steps_planned, 1), row.step, width=8, complete_style=style, finished_style=style)
    made.add_row(bar, Text(f" {row.step}/{row.steps_planned}"))
    return made
