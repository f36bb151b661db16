"""The report of a sweep as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.report.card_html import card_html
from tuner.report.charts import parameter_chart, steps_chart, trials_chart
from tuner.report.curve_chart import curve_chart, spending_chart
from tuner.report.pages import page_from, page_picture
from tuner.report.sweep_report import SweepReport
from tuner.report.wording import format_value, plural, trial_name, with_error

if TYPE_CHECKING:
    from markupsafe import Markup

    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.report.spending import Spending
    from tuner.study.unimodal.inference.picture import CurvePicture

__all__ = ["sweep_page"]

_STATE_CLASSES = {
    **dict.fromkeys(("failed", "crashed", "the first trials all failed"), "bad"),
    **dict.fromkeys(("starting", "running"), "running"),
    "interrupted": "pruned",
}
_EVERY = 4  # every fourth value of the curve is in its table


def sweep_page(report: SweepReport) -> str:
    """Return the page. The page of a sealed search shows only the winner."""
    winner = report.winner
    values: dict[str, Any] = {
        "title": report.sweep,
        "report": report,
        "state_class": _STATE_CLASSES.get(report.state, "good"),
        "boxes": _boxes(report),
        "bars": _bars(report),
        "best_title": _best_title(report),
        "best_rows": [(name, format_value(value, 6)) for name, value in winner.parameters.items()] if winner else [],
        # The command that writes this page is left out.
        "commands": [command for command in report.next_commands if not command.startswith("tune report ")],
        "card": card_html(report.card, report.card_picture),
    }
    if not report.runs_hidden:
        values |= _trial_values(report)
    return page_from("sweep.html", **values)


def _trial_values(report: SweepReport) -> dict[str, Any]:
    """Return the values of the template ``trials.html``, which shows the trials of a search that is not sealed."""
    with_epsilon = any(trial.epsilon is not None for trial in report.trials)
    with_reasons = any(trial.reason for trial in report.trials)
    heads = ["trial", "state", "steps", report.metric, *(["ε of the trial alone"] if with_epsilon else [])]
    heads += [*report.parameters, *(["reason"] if with_reasons else [])]  # in the order of the template's cells
    return {
        "curves": [_curve(picture, report) for picture in report.curves if picture.points],
        "spending": None if report.spending is None else _spending(report.spending, report.metric),
        "charts": _charts(report),
        "trial_heads": heads,
        "with_epsilon": with_epsilon,
        "with_reasons": with_reasons,
    }


def _boxes(report: SweepReport) -> list[tuple[str, str, str]]:
    """Return a name, a value and a remark for each of the three main figures."""
    best = report.best
    cap, delta = "none", "nothing charged" if report.claim else "not private"
    if report.budget is not None:
        covers = "the winner alone" if report.runs_hidden else "the whole search"
        cap, delta = f"{report.budget.epsilon_cap:.10g}", f"at δ = {report.budget.delta:.10g}, for {covers}"
    remarks = []
    if report.runs_hidden and best is None:
        remarks.append(report.without_winner)
    elif best is not None:
        remarks += [trial_name(best.number, committed=best.committed)] * (not report.runs_hidden)
        remarks += ["± is the standard error from a score's noise"] * (report.score_error is not None)
    trials = ("trials", f"{report.ended} of {report.trials_planned}", report.counts)
    return [
        (f"best {report.metric}", with_error(best.score if best else None, report.score_error), ", ".join(remarks)),
        ("runs", "sealed", "their number is never shown") if report.runs_hidden else trials,
        ("guaranteed ε (the cap)", cap, delta),
    ]


def _bars(report: SweepReport) -> list[tuple[str, list[tuple[str, float, str]], str]]:
    """Return a title, the parts and the total for each budget bar: one for steps, and one for protected scores."""
    budget = report.budget
    if budget is None or report.runs_hidden:
        return []
    bars = [("", *_bar(budget, "step"))]
    if budget.validation is not None:
        bars.append(("Protected scores", *_bar(budget.validation, "score")))
    return bars


def _bar(budget: BudgetView, what: str) -> tuple[list[tuple[str, float, str]], str]:
    # The steps that are left depend on the mechanism unless all steps are alike.
    left = f"{budget.left:.1%}" if budget.left_steps is None else plural(budget.left_steps, what)
    parts = [
        ("spent", budget.spent, f"{plural(budget.spent_steps, what)}, ε {format_value(budget.epsilon_spent)}"),
        ("reserved", budget.reserved, plural(budget.reserved_steps, what)),
        ("left", budget.left, left),
    ]
    return parts, "" if budget.step_cap is None else plural(budget.step_cap, what)


def _best_title(report: SweepReport) -> str:
    if report.runs_hidden:
        return "The winner" if report.winner else report.without_winner.capitalize()
    if report.commits:
        return "The committed run" if report.winner else "The committed run is not complete"
    return f"Best trial: {report.winner.number}" if report.winner else "No trial is complete"


def _charts(report: SweepReport) -> list[tuple[str, list[Markup]]]:
    metric, named = report.metric, report.parameters
    sections = [
        ("trial", [(trials_chart(report), f"{metric} of each trial, and the best so far")]),
        ("parameter", [(parameter_chart(report, name), f"{metric} by {name}") for name in named]),
        ("step", [(steps_chart(report), f"{metric} of each trial by step")]),
    ]
    drawn = []
    for by, figures in sections:
        pictures = [page_picture(figure, f"{alt}; numbers in the table of trials") for figure, alt in figures if figure]
        if pictures:
            drawn.append((f"{metric} by {by}", pictures))
    return drawn


def _curve(picture: CurvePicture, report: SweepReport) -> dict[str, Any]:
    figure = curve_chart(picture, report.metric)
    alt = f"{report.metric} by {picture.parameter}: {' '.join(picture.sentences)}"
    values = list(zip(picture.values, picture.mean, picture.band_low, picture.band_high, strict=True))[::_EVERY]
    return {
        "picture": picture,
        "chart": figure and page_picture(figure, alt),
        "points": [
            (
                point.trial,
                format_value(point.value),
                format_value(point.score),
                f"{point.fraction:.0%}" if point.fraction else "–",
                point.state,
            )
            for point in picture.points
        ],
        "table": [tuple(map(format_value, row)) for row in values],
    }


def _spending(spending: Spending, metric: str) -> dict[str, Any]:
    heads = ["after trial", f"best {metric}", "steps", "steps, run whole"]
    rows: list[tuple[object, ...]] = [(row.trial, row.best, row.steps, row.whole_steps) for row in spending.rows]
    if spending.with_epsilon:
        heads += ["ε", "ε, run whole"]
        rows = [(*cells, row.epsilon, row.whole_epsilon) for cells, row in zip(rows, spending.rows, strict=True)]
    figure = spending_chart(spending, metric)
    return {
        "chart": figure and page_picture(figure, f"best {metric} by what was spent: {' '.join(spending.sentences)}"),
        "heads": heads,
        "rows": [map(format_value, row) for row in rows],
    }
