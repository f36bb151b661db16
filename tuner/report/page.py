"""The report of a sweep as one HTML page that needs nothing else: no script, no address, no picture file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.files import write_text
from tuner.report.charts import (
    CHART_STYLE,
    PALETTE,
    curves,
    legend,
    score_by_parameter,
    score_by_trial,
    state_class,
)
from tuner.report.curve_chart import CURVE_STYLE
from tuner.report.curve_sections import curve_sections, spending_section
from tuner.report.markdown import to_html
from tuner.report.sweep_report import Shares, SweepReport, TrialRow, count, format_value, with_error

if TYPE_CHECKING:
    from tuner.privacy.ledger.search_budget import BudgetView

__all__ = ["STYLE", "render", "write"]

_REVIEWER = "Details for a reviewer"
_KINDS = {
    "failed": "bad",
    "crashed": "bad",
    "the first trials all failed": "bad",
    "interrupted": "pruned",
    "starting": "running",
    "running": "running",
}

STYLE = (
    PALETTE
    + """*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1160px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 2px;overflow-wrap:anywhere}h2{font-size:17px;margin:0 0 12px}
section h2:not(:first-child){margin-top:18px}
p{margin:6px 0}.soft{color:var(--soft)}.num{font-variant-numeric:tabular-nums}
section{background:var(--box);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin-top:18px}
.heads{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px;margin-top:18px}
.head{background:var(--box);border:1px solid var(--line);border-radius:10px;padding:14px 18px}
.head b{display:block;font-size:24px;line-height:1.25;overflow-wrap:anywhere}
.chip{display:inline-block;border-radius:99px;padding:1px 10px;font-size:13px;border:1px solid currentColor;
white-space:nowrap}
.good,.key .best{color:var(--green)}.bad{color:var(--red)}
.bar{display:flex;height:22px;border-radius:6px;overflow:hidden;background:var(--track);margin:10px 0 8px}
.bar i{display:block}.spent{background:var(--violet)}.reserved{background:var(--amber)}
.key{display:flex;flex-wrap:wrap;gap:4px 22px;font-size:14px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}.left{background:var(--track)}
.claim{border-left:3px solid var(--violet);padding-left:12px;margin-top:12px}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(320px,100%),1fr));gap:8px 18px}
svg{width:100%;height:auto;display:block}.wide>svg{min-width:560px}
"""
    + CHART_STYLE
    + CURVE_STYLE
    + """.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600;white-space:normal;vertical-align:bottom}
td:last-child,th:last-child{text-align:left;white-space:normal;min-width:170px}
tr.best td{font-weight:650;background:color-mix(in srgb,var(--green) 12%,transparent)}
.facts td,.facts th{text-align:left;white-space:normal;overflow-wrap:anywhere;vertical-align:top}
.facts th{width:min(210px,38%);font-weight:400}.facts td:last-child{min-width:0}
th.words{min-width:110px}
.plain td:last-child,.plain th:last-child{text-align:right;white-space:nowrap;min-width:0}
pre{background:var(--page);border:1px solid var(--line);border-radius:8px;
padding:12px;overflow-x:auto;
white-space:pre-wrap;font:13px/1.45 ui-monospace,Menlo,Consolas,monospace;margin:8px 0 0}
.card h3{font-size:17px;margin:0 0 10px}.card h4{font-size:15px;margin:20px 0 4px}
.card h5{font-size:14px;margin:16px 0 2px}.card p,.card ul{max-width:80ch;overflow-wrap:anywhere}
.card ul{margin:4px 0;padding-left:20px}.card details{margin-top:16px}
.card img{width:100%;max-width:640px;background:#fff;border-radius:8px}
.card th:first-child,.card td:first-child{text-align:left}
code{font:.92em ui-monospace,Menlo,Consolas,monospace}
summary{cursor:pointer;font-weight:600}
@media print{body{background:#fff}section,.head{break-inside:avoid}}
"""
)


def render(report: SweepReport) -> str:
    """The page. Shows nothing but what is in the report."""
    trials: tuple[str, ...] = ()
    if not report.sealed:
        trials = (curve_sections(report), spending_section(report), _charts(report), _table(report))
    body = "".join(
        (
            _heading(report),
            _heads(report),
            _budget(report),
            _best(report),
            *trials,
            _facts(report),
            _card(report.card, report.card_picture),
            _text("Experiment file, resolved", report.experiment),
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(report.sweep)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def write(report: SweepReport, path: Path) -> None:
    """Writes the page; whoever reads the file meanwhile sees the old one or the new one, whole.

    Raises:
        OSError: the file cannot be written.
    """
    write_text(path, render(report))


def _heading(report: SweepReport) -> str:
    kind = _KINDS.get(report.state, "good")
    reason = f" {escape(report.reason)}" if report.reason else ""
    return (
        f"<h1>{escape(report.sweep)}</h1><p class=soft>{escape(report.subtitle or report.name)}</p>"
        f'<p><span class="chip {kind}">{escape(report.state)}</span>{reason}</p>'
    )


def _heads(report: SweepReport) -> str:
    best = report.best
    cap, delta = "none", "nothing charged" if report.claim else "not private"
    if report.budget is not None:
        covers = "the winner alone" if report.sealed else "the whole search"
        cap, delta = f"{report.budget.epsilon_cap:.10g}", f"at δ = {report.budget.delta:.10g}, for {covers}"
    which = f"trial {best.number}" if best and not report.sealed else ""
    if report.sealed and best is None:
        which = report.without_winner
    elif best is not None and report.score_error is not None:
        which += f"{', ' if which else ''}± is the noise of a score"
    runs = ("runs", "sealed", "how many there were is not told")
    boxes = (
        (f"best {report.metric}", with_error(best.score if best else None, report.score_error), which),
        runs if report.sealed else ("trials", f"{report.ended} of {report.trials_planned}", report.counts),
        ("guaranteed ε (the cap)", cap, delta),
    )
    return (
        "<div class=heads>"
        + "".join(
            f"<div class=head><span class=soft>{escape(name)}</span><b class=num>{escape(value)}</b>"
            f"<span class=soft>{escape(more)}</span></div>"
            for name, value, more in boxes
        )
        + "</div>"
    )


def _budget(report: SweepReport) -> str:
    budget = report.budget
    if budget is None:
        words = '<p class="bad">Not private: nothing here carries a guarantee.</p>'
        if report.claim:
            words = f"<p class=claim>{escape(report.claim)}</p>"
        return f"<section><h2>Privacy budget</h2>{words}</section>"
    if report.sealed:
        return f"<section><h2>Privacy budget</h2><p class=claim>{escape(report.sentence)}</p></section>"
    scores = "" if budget.validation is None else f"<h2>Protected scores</h2>{_bar(budget.validation, 'score')}"
    return (
        f"<section><h2>Privacy budget</h2>{_bar(budget, 'step')}{scores}"
        f"<p class=claim>{escape(report.sentence)}</p></section>"
    )


def _bar(budget: BudgetView, what: str) -> str:
    """Spent, reserved and left as one bar, with a key; in shares where what is left depends on the mechanism."""
    shares = Shares.of(budget)
    left = f"{shares.left:.1%}" if budget.left_steps is None else count(budget.left_steps, what)
    parts = (
        ("spent", shares.spent, f"{count(budget.spent_steps, what)}, ε {format_value(budget.epsilon_spent)}"),
        ("reserved", shares.reserved, count(budget.reserved_steps, what)),
        ("left", shares.left, left),
    )
    bar = "".join(f'<i class="{name}" style="width:{100 * share:.3f}%"></i>' for name, share, _ in parts)
    key = "".join(f'<span><i class="{name}"></i>{name} {escape(words)}</span>' for name, _, words in parts)
    whole = "" if budget.step_cap is None else f"<span class=soft>of {count(budget.step_cap, what)}</span>"
    return f'<div class=bar>{bar}</div><div class="key num">{key}{whole}</div>'


def _best(report: SweepReport) -> str:
    best = report.winner
    rows = [(name, format_value(value, 6)) for name, value in best.parameters.items()] if best else []
    more = ""
    # The reader has this page already.
    if commands := [command for command in report.next_commands if not command.startswith("tune report ")]:
        more = "<pre>" + "\n".join(map(escape, commands)) + "</pre>"
    if not rows and not more:
        return ""
    title = f"Best trial: {best.number}" if best else "No trial ran to its end"
    if report.sealed:
        title = "The winner" if best else report.without_winner.capitalize()
    why = f"<p class=soft>Chosen: {escape(report.why)}.</p>" if report.why else ""
    return f"<section><h2>{escape(title)}</h2>{why}{_rows(rows)}{more}</section>"


def _charts(report: SweepReport) -> str:
    parts = []
    points = legend(report)
    if by_trial := score_by_trial(report):
        title = f"{escape(report.metric)} by trial"
        parts.append(f"<section><h2>{title}</h2>{points}<div class=wide>{by_trial}</div></section>")
    charts = [chart for name in report.parameters if (chart := score_by_parameter(report, name))]
    if charts:
        inner = "".join(f"<div>{chart}</div>" for chart in charts)
        parts.append(
            f"<section><h2>{escape(report.metric)} by parameter</h2>{points}<div class=grid2>{inner}</div></section>"
        )
    if by_step := curves(report):
        title, lines = f"{escape(report.metric)} by step", legend(report, lines=True)
        parts.append(f"<section><h2>{title}</h2>{lines}<div class=wide>{by_step}</div></section>")
    return "".join(parts)


def _table(report: SweepReport) -> str:
    if not report.trials:
        return "<section><h2>Trials</h2><p class=soft>No trial has started.</p></section>"
    with_epsilon = any(trial.epsilon is not None for trial in report.trials)
    names = [
        "trial",
        "state",
        "steps",
        report.metric,
        *(["ε of the trial, as if alone"] if with_epsilon else []),
        *report.parameters,
    ]
    reasons = any(trial.reason for trial in report.trials)
    head = "".join(_head(name) for name in [*names, *(["reason"] if reasons else [])])
    best = report.winner
    rows = "".join(
        _trial(trial, report.parameters, best=trial is best, epsilon=with_epsilon, reasons=reasons)
        for trial in report.trials
    )
    left_out = f"<p class=soft>{escape(report.left_out)}</p>" if report.left_out else ""
    kind = "num" if reasons else "num plain"
    return (
        f'<section><h2>Trials</h2><div class=wide><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{left_out}</section>"
    )


def _head(name: str) -> str:
    words = " class=words" if " " in name else ""  # else a narrow screen breaks it at every word
    return f"<th{words}>{_breakable(name)}</th>"


def _breakable(name: str) -> str:
    """A long dotted name that a narrow column may break after its dots and underscores."""
    return escape(name).replace(".", ".<wbr>").replace("_", "_<wbr>")


def _trial(trial: TrialRow, names: Sequence[str], *, best: bool, epsilon: bool, reasons: bool) -> str:
    cells = [
        f"{trial.number}{' ★' if best else ''}",
        f'<span class="chip {state_class(trial.state)}">{escape(trial.state)}</span>',
        f"{format_value(trial.step)} / {format_value(trial.steps_planned)}",
        format_value(trial.score if trial.score is None or math.isfinite(trial.score) else None),
        *([format_value(trial.epsilon)] if epsilon else []),
        *(escape(format_value(trial.parameters.get(name))) for name in names),
        *([escape(trial.reason)] if reasons else []),
    ]
    return f"<tr{' class=best' if best else ''}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _facts(report: SweepReport) -> str:
    return f"<section><h2>The sweep</h2>{_rows(report.facts)}</section>" if report.facts else ""


def _rows(rows: Sequence[tuple[str, str]]) -> str:
    inner = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="facts num">{inner}</table>' if inner else ""


def _card(text: str, picture: str) -> str:
    """The card as it reads, with its picture; what is for a reviewer is folded away."""
    if not text:
        return ""
    page, mark, details = text.partition(f"\n## {_REVIEWER}\n")
    more = f"<details><summary>{_REVIEWER}</summary>{to_html(details)}</details>" if mark else ""
    return f'<section class="card">{to_html(page, picture)}{more}</section>'


def _text(title: str, text: str) -> str:
    if not text:
        return ""
    return f"<section><details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details></section>"
