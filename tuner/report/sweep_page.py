"""The report of a sweep as one HTML page."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from tuner.privacy.ledger.amounts import amount
from tuner.report.budget_charts import charges_chart, epsilon_chart, price_chart, spending_chart
from tuner.report.card_html import card_html
from tuner.report.charts import learning_curves, ranking_chart, scores_chart
from tuner.report.curve_chart import curve_chart, curve_plot
from tuner.report.interactive import Places, interactive_page
from tuner.report.pages import page_from, page_picture
from tuner.report.parameter_charts import importance_chart, pair_chart, parallel_chart, parameter_chart
from tuner.report.plan_facts import CANDIDATE_HEADS, candidate_cells
from tuner.report.sweep_report import SweepReport
from tuner.report.wording import expected_text, format_value, plural, tied_text, trial_name, with_error

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView
    from tuner.report.spending import Spending
    from tuner.study.unimodal.inference.picture import CurvePicture

__all__ = ["sweep_page"]

_STATE_CLASSES = {
    **dict.fromkeys(("failed", "crashed"), "bad"),
    **dict.fromkeys(("starting", "running"), "running"),
    "interrupted": "pruned",
}
_EVERY = 4  # every fourth value of the curve is in its table
_PAIRED = 6  # most important parameters of which every pair has a chart
_COLUMNS = 12  # steps at most that have a column in the table of all scores


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
    if report.runs_hidden:
        return page_from("sealed.html", **values)  # nothing to draw, so no script
    places = Places()
    return interactive_page("sweep.html", places, **values, **_trial_values(report, places))


def _trial_values(report: SweepReport, places: Places) -> dict[str, Any]:
    """Return the values of the template ``trials.html``, which shows the trials of a search that is not sealed."""
    with_epsilon = any(trial.epsilon is not None for trial in report.trials)
    with_reasons = any(trial.reason for trial in report.trials)
    heads = ["trial", "state", "steps", report.metric, *(["ε of the trial alone"] if with_epsilon else [])]
    heads += [*report.parameters, *(["reason"] if with_reasons else [])]  # in the order of the template's cells
    shown, names = [report], report.parameters
    important = sorted(names, key=lambda name: -report.importances.get(name, 0.0))[:_PAIRED]
    spending = report.spending
    return {
        "scores": [
            places.place(scores_chart(shown)),
            places.place(learning_curves(shown)),
            places.place(ranking_chart(report)),
        ],
        "importances": [(name, f"{share:.0%}") for name, share in report.importances.items()],
        "parameters": [
            places.place(importance_chart(report)),
            places.place(*(pair_chart(shown, *pair) for pair in combinations(important, 2)), label="Two parameters:"),
            places.place(parallel_chart(shown, names)),
            *(places.place(parameter_chart(shown, name)) for name in names),
        ],
        "curves": [_curve(picture, report, places) for picture in report.curves if picture.points],
        "spending": None if spending is None else _spending(spending, report.metric),
        "spent": [
            places.place(None if spending is None else spending_chart(spending, report.metric)),
            places.place(charges_chart(report)),
            places.place(epsilon_chart(shown)),
        ],
        "prices": [candidate_cells(row, "this search") for row in report.prices],
        "price_heads": ("way to search", *CANDIDATE_HEADS[1:-1], "remark"),
        "price_chart": places.place(price_chart(report.prices)),
        "trial_heads": heads,
        "with_epsilon": with_epsilon,
        "with_reasons": with_reasons,
        "steps": _scores_by_step(report),
    }


def _scores_by_step(report: SweepReport) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of a table of every score; empty if trials report at too many different steps."""
    steps = sorted({step for trial in report.trials for step, _ in trial.curve})
    if not 1 < len(steps) <= _COLUMNS:
        return [], []
    rows = [
        [str(trial.number), *(format_value(dict(trial.curve).get(step)) for step in steps)] for trial in report.trials
    ]
    return ["trial", *(f"at {step}" for step in steps)], rows


def _boxes(report: SweepReport) -> list[tuple[str, str, list[str]]]:
    """Return a name, a value and remarks for each of the three main figures."""
    best = report.winner or report.best
    cap, remarks_of_cap = "none", ["nothing charged" if report.claim else "not private"]
    if report.budget is not None:
        covers = "for the winner alone" if report.runs_hidden else "for the whole search"
        cap, remarks_of_cap = amount(report.budget.epsilon_cap), [f"at δ = {amount(report.budget.delta)}", covers]
    remarks = []
    if report.runs_hidden and best is None:
        remarks.append(report.without_winner)
    elif best is not None:
        remarks += [trial_name(best.number, committed=best.committed)] * (not report.runs_hidden)
        remarks += ["± is one standard error"] * (best.error is not None)
        expected = expected_text(report.expected)
        remarks += [text for text in (tied_text(report.tied), expected and f"expected: {expected}") if text]
    trials = ("trials", f"{report.ended} of {report.trials_planned}", [report.counts])
    return [
        (f"best {report.metric}", with_error(best.score, best.error) if best else "–", remarks),
        ("runs", "sealed", ["their number is never shown"]) if report.runs_hidden else trials,
        ("guaranteed ε (the cap)", cap, remarks_of_cap),
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


def _curve(picture: CurvePicture, report: SweepReport, places: Places) -> dict[str, Any]:
    figure = curve_chart(picture, report.metric)
    alt = f"{report.metric} by {picture.parameter}: {' '.join(picture.sentences)}"
    values = list(zip(picture.values, picture.mean, picture.band_low, picture.band_high, strict=True))[::_EVERY]
    return {
        "picture": picture,
        "chart": places.place(curve_plot(picture, report.metric)),
        "static": figure and page_picture(figure, alt),
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
    heads = ["after trial", f"best {metric}", "steps", "steps, if all had run to their end"]
    rows: list[tuple[object, ...]] = [(row.trial, row.best, row.steps, row.whole_steps) for row in spending.rows]
    if spending.with_epsilon:
        heads += ["ε", "ε, if all had run to their end"]
        rows = [(*cells, row.epsilon, row.whole_epsilon) for cells, row in zip(rows, spending.rows, strict=True)]
    return {"heads": heads, "rows": [list(map(format_value, row)) for row in rows]}
