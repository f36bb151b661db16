"""Text before and after a sweep: the plan, and the summary with suggested next commands."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleDimensions, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tuner.report.sweep_report import SweepReport
from tuner.report.wording import (
    budget_line,
    expected_text,
    format_value,
    parameters_text,
    plural,
    tied_text,
    trial_name,
    with_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.report.trial_row import TrialRow

__all__ = [
    "NOT_PRIVATE",
    "PlanTable",
    "PlanText",
    "budget_bar",
    "console",
    "guarantee_text",
    "plan_panel",
    "sign_of_life",
    "summary",
    "view_console",
]

NOT_PRIVATE = "NOT PRIVATE: nothing here carries a guarantee"

_PATIENCE = 1.0  # seconds after which a command gives a sign of life
_ROWS = 10
_BAR = 40
_WIDE = 100  # width from which the heading of the table names the metric
_PIPE_COLUMNS = 120  # width of a file or a pipe; with Rich's 80 columns, lines would be folded


class _Console(Console):
    """Console that becomes quiet when nobody reads its pipe any more. Rich's console would end the process."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what is still to be written


class _ViewConsole(_Console):
    """Console on a terminal of its own descriptor, whose size is asked of that descriptor."""

    @property
    def size(self) -> ConsoleDimensions:
        if self._width is None and not self.is_dumb_terminal:
            with contextlib.suppress(OSError, ValueError):
                columns, lines = os.get_terminal_size(self.file.fileno())
                return ConsoleDimensions(columns, self._height or lines)
        return super().size

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


class _PipeConsole(_Console):
    """Console of a search. When nobody reads its pipe any more, the search stops as if its terminal had closed.

    Under `nohup`, which hides the end of a terminal, the search goes on.
    """

    def on_broken_pipe(self) -> None:
        super().on_broken_pipe()
        signal.raise_signal(signal.SIGHUP)


@contextlib.contextmanager
def view_console() -> Iterator[Console]:
    """Yield the console of a live view, which draws while records are behind the wall (`trainables.wall`).

    The wall takes the descriptor of standard output away from the whole process. So on a terminal, the view draws on a
    copy of this descriptor.
    """
    usual = console()
    if not usual.is_terminal:
        yield _PipeConsole(width=usual.width)
        return
    try:
        number = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):  # not a file of the operating system
        yield usual
        return
    with open(number, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors) as file:
        yield _ViewConsole(file=file)


@contextlib.contextmanager
def sign_of_life(what: str) -> Iterator[None]:
    """Print a line to standard error if the block takes long. If standard error is no terminal, print nothing."""
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(_PATIENCE, lambda: print(f"{what} …", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def console(*, quiet: bool = False) -> Console:
    """Return the console for standard output. Without a terminal, it has at least 120 columns."""
    made = _Console(quiet=quiet)
    return made if made.is_terminal else _Console(quiet=quiet, width=max(made.width, _PIPE_COLUMNS))


@dataclass(frozen=True, kw_only=True)
class PlanTable:
    """Small table of a plan. Its first column names the rows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class PlanText:
    """A plan as text."""

    title: str  # name of the experiment
    claim: str  # first line: what is claimed, of one search or of all
    facts: tuple[tuple[str, str], ...]  # names and values: trials, steps, ε of one trial, noise, time, ...
    tables: tuple[PlanTable, ...] = ()  # comparisons with other modes
    sentence: str = ""  # about the guarantee
    warnings: tuple[str, ...] = ()


def _facts_table(facts: Sequence[tuple[str, str]]) -> Table:
    """Return a table of names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name), Text(value))
    return table


def _small_table(table: PlanTable) -> Table:
    made = Table(box=None, pad_edge=False, header_style="dim")
    for place, name in enumerate(table.header):
        made.add_column(Text(name), justify="right" if place else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*map(Text, row))
    return made


def plan_panel(text: PlanText) -> RenderableType:
    """Return the plan of a sweep that has not started."""
    parts: list[RenderableType] = [_facts_table(text.facts)]
    for table in text.tables:
        parts += [Text(), Text(table.title), _small_table(table)]
    if text.sentence:
        parts += [Text(), Text(text.sentence, style="italic")]
    parts += [Text(f"! {warning}", style="yellow") for warning in text.warnings]
    title = Text.assemble((text.title, "bold"), "  plan")
    return _Framed(first=text.claim, title=title, body=lambda _console, _room: parts, border="blue")


def budget_bar(budget: BudgetView, *, width: int) -> Text:
    """Return one bar with the spent, reserved and remaining parts of the budget."""
    spent = round(budget.spent * width)
    reserved = min(round(budget.reserved * width), width - spent)
    return Text.assemble(
        ("█" * spent, "magenta"), ("▓" * reserved, "yellow"), ("░" * (width - spent - reserved), "grey50")
    )


def guarantee_text(sentence: str) -> Text:
    """Return the sentence about the guarantee as text. Without a sentence, say that there is no guarantee."""
    return Text(sentence, style="italic") if sentence else Text(NOT_PRIVATE, style="bold red")


def summary(report: SweepReport) -> RenderableType:
    """Return the summary of an ended sweep: the best trial, the spending, and suggested next commands."""
    head = [("ended as", report.state + (f": {report.reason}" if report.reason else ""))]
    best = report.winner
    if report.runs_hidden:
        found = report.without_winner if best is None else _score(report)
        head.append(("winner", "none" if found == "no winner" else found))
    else:
        counts = f" ({report.counts})" if report.counts else ""
        head.append(("trials", f"{report.ended} of {report.trials_planned}{counts}"))
        head += _without_score(report.trials)
        without = "none: the committed run is not complete" if report.commits else "no trial ran to its end"
        named = "" if best is None else f"{trial_name(best.number, committed=best.committed)}, {_score(report)}"
        head.append(("released" if report.commits else "best", named or without))
        head += [("chosen", report.why)] * (bool(report.why) and not report.commits)
    if best is not None:
        head += [(f"  {name}", format_value(value, 6)) for name, value in best.parameters.items()]
    if not report.runs_hidden:
        head += [("tied", tied_text(report.tied))] * bool(report.tied)
        head += [("expected", expected_text(report.expected))] * (report.expected is not None)
    head += [("curve", curve.line) for curve in report.curves]
    parts: list[RenderableType] = [_facts_table([*head, *report.facts]), Text()]
    if report.budget is not None and not report.runs_hidden:
        parts.append(budget_bar(report.budget, width=_BAR) + Text(f"  {budget_line(report.budget)}"))
    parts.append(guarantee_text(report.sentence))
    if report.next_commands:
        parts += [Text(), Text("next", style="dim")]
        parts += [Text(f"  {command}", style="bold") for command in report.next_commands]
    title = Text.assemble((report.sweep, "bold"), f"  {report.subtitle}" if report.subtitle else "")

    def body(console: Console, room: int) -> list[RenderableType]:
        return parts if report.runs_hidden else [_best_table(report, console, room), Text(), *parts]

    return _Framed(first=report.headline, title=title, body=body, border="green" if best else "red")


def _without_score(trials: Sequence[TrialRow]) -> list[tuple[str, str]]:
    """Return a line for each reason for which trials failed or were lost, with the numbers of these trials."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        if trial.state in ("failed", "lost"):
            numbers.setdefault((trial.state, trial.reason or "no reason is stored"), []).append(str(trial.number))
    return [(state, f"{', '.join(those)}: {reason}") for (state, reason), those in numbers.items()]


def _score(report: SweepReport) -> str:
    best = report.winner
    return f"{report.metric} {with_error(best.score, best.error) if best else '–'}"


@dataclass(frozen=True, kw_only=True)
class _Framed:
    """Line about the claim, title and body. The last two have a frame on a terminal and are plain lines elsewhere."""

    first: str
    title: Text
    body: Callable[[Console, int], list[RenderableType]]
    border: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.first:
            yield Text(self.first, style="bold")
        if not console.is_terminal:
            yield self.title
            yield from self.body(console, options.max_width)
            return
        inside = Group(*self.body(console, options.max_width - 4))
        yield Panel(inside, title=self.title, title_align="left", border_style=self.border, expand=False)


def _best_table(report: SweepReport, console: Console, room: int) -> Table:
    """Return a table of the best trials. If it is wider than `room`, one column contains all parameters."""
    wide = _trial_table(report, room, report.parameters)
    fits = not report.parameters or console.measure(wide, options=console.options.update(width=10_000)).maximum <= room
    return wide if fits else _trial_table(report, room, ())


def _trial_table(report: SweepReport, room: int, columns: Sequence[str]) -> Table:
    """Return a table of at most `_ROWS` trials: the best first, and trials without a rank last."""
    sign = -1.0 if report.mode == "max" else 1.0

    def rank(trial: TrialRow) -> tuple[bool, bool, float, int]:
        return trial.state != "complete", trial.score is None, sign * (trial.score or 0.0), trial.number

    ranked = sorted(report.trials, key=rank)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column(Text(report.metric if room >= _WIDE - 4 else "score"), justify="right", no_wrap=True)
    for name in columns:
        table.add_column(Text(name), justify="right", no_wrap=True)
    together = report.parameters if not columns else ()
    if together:
        table.add_column("parameters", overflow="fold")
    for trial in ranked[:_ROWS]:
        values = [Text(format_value(trial.parameters.get(name))) for name in columns]
        if together:
            values = [Text(parameters_text(trial.parameters, together, between=", "))]
        number = f"committed {trial.number}" if trial.committed else str(trial.number)
        table.add_row(number, trial.state, str(trial.step), with_error(trial.score, trial.error), *values)
    more = [f"the best {_ROWS} of {plural(len(ranked), 'trial')}"] if len(ranked) > _ROWS else []
    if report.left_out:
        more.append(report.left_out)
    table.caption = "; ".join(more) or None
    return table
