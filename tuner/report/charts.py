"""Charts as SVG made by hand: no script, no library, nothing loaded; colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tuner.report.sweep_report import CUT_OFF, SweepReport, TrialRow, format_value
from tuner.study.best import is_better

__all__ = ["CHART_STYLE", "PALETTE", "curves", "legend", "score_by_parameter", "score_by_trial", "state_class"]

PALETTE = """
:root{--page:#f6f7f9;--box:#fff;--ink:#1b2430;--soft:#5b6776;--line:#e1e5ea;--blue:#2f6fde;--amber:#d98a00;
--red:#cf3b3b;--green:#1f8a4c;--violet:#7a4fd0;--track:#e8ebef}
@media (prefers-color-scheme:dark){:root{--page:#12161c;--box:#1a2028;--ink:#e6eaf0;--soft:#97a3b2;--line:#2b343f;
--blue:#6fa1ff;--amber:#f0b040;--red:#ff7b72;--green:#56c981;--violet:#a98bf0;--track:#2a323c}}
"""
"""Colours of a page and of a picture that stands alone, for light and dark screens."""

CHART_STYLE = """
.complete{color:var(--blue)}.pruned{color:var(--amber)}.failed{color:var(--red)}.running,.cut-off{color:var(--soft)}
svg .grid{stroke:var(--line)}svg .tick{font-size:11px;fill:var(--soft)}svg .label{font-size:12.5px;fill:var(--ink)}
svg .point{fill:currentColor;fill-opacity:.75;stroke:var(--box)}
svg .point.pruned{fill:var(--box);stroke:currentColor;stroke-width:1.8}
svg .point.best{color:var(--green);fill-opacity:1;stroke-width:2}
svg .best-line{fill:none;stroke:var(--green);stroke-width:2}
svg .curve{fill:none;stroke:currentColor;stroke-opacity:.45;stroke-width:1.4}
svg .curve.best{color:var(--green);stroke-opacity:1;stroke-width:2.6}
"""
"""How the parts of a chart look."""

_STATES = ("complete", "pruned", "failed", "running", CUT_OFF)
LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 12.0, 40.0


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels; logarithmic where the values are spread over decades."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, *, log: bool | None = False) -> Axis:
        """An axis that holds all values; `log` None for a logarithmic one where they are spread."""
        low, high = min(values), max(values)
        may_be_log = low > 1e-200 and high / low < 1e100  # beyond, edges have no room
        log = may_be_log and (high / low >= 20 if log is None else log)
        if low == high:
            pad = abs(low) * 0.1 or 1.0
            return cls(low - pad, high + pad, start, end)
        if log:
            edge = (high / low) ** 0.04
            return cls(low / edge, high * edge, start, end, log=True)
        pad = (high - low) * 0.06
        return cls(low - pad, high + pad, start, end)

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            factors = (1, 2, 5) if self.high / self.low < 200 else (1,)
            every = [factor * 10.0**decade for decade in decades for factor in factors]
            found = [tick for tick in every if self.low <= tick <= self.high]
            if len(found) > 1:
                return found  # else the axis spans less than from 1 to 2, and even steps serve it
        rough = (self.high - self.low) / 5
        if not rough > 0:  # the smallest numbers there are have no fifth
            return [self.low, self.high]
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Frame:
    width: float
    height: float
    x: Axis
    y: Axis

    def draw(
        self,
        body: str,
        *,
        x_label: str,
        y_label: str,
        x_ticks: Sequence[tuple[float, str]] | None = None,
        about: str = "",
    ) -> str:
        bottom = self.height - BOTTOM
        parts = [
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(about or f"{y_label} by {x_label}")}">'
        ]
        for tick in self.y.ticks():
            y = self.y.at(tick)
            parts.append(f'<line class="grid" x1="{LEFT:g}" x2="{self.width - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{LEFT - 6:g}" y="{y + 3.5:.1f}" text-anchor="end">{_tick(tick)}</text>'
            )
        for value, label in x_ticks if x_ticks is not None else [(tick, _tick(tick)) for tick in self.x.ticks()]:
            x = self.x.at(value)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:g}" y2="{bottom:g}"/>')
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{bottom + 15:g}" text-anchor="middle">{escape(label)}</text>'
            )
        middle = (LEFT + self.width - RIGHT) / 2
        parts.append(body)
        label = f'<text class="label" x="{middle:g}" y="{self.height - 6:g}" text-anchor="middle">'
        parts.append(f"{label}{escape(x_label)}</text></svg>")
        return "".join(parts)


def score_by_trial(report: SweepReport) -> str:
    """Every trial's score in the order of the trials, and the best so far as a line."""
    scored = [trial for trial in report.trials if trial.score is not None]
    if not scored:
        return ""
    width, height = 760.0, 260.0
    frame = _frame(width, height, [float(trial.number) for trial in report.trials], _scores(scored))
    steps: list[str] = []
    best: float | None = None
    for trial in report.trials:
        if trial.state == "complete" and is_better(trial.score, best, mode=report.mode) and trial.score is not None:
            x, y = frame.x.at(trial.number), frame.y.at(trial.score)
            steps.append(f"M{x:.1f} {y:.1f}" if best is None else f"H{x:.1f}V{y:.1f}")
            best = trial.score
    if best is not None:
        steps.append(f"H{frame.x.at(report.trials[-1].number):.1f}")
    body = f'<path class="best-line" d="{"".join(steps)}"/>' if steps else ""
    body += "".join(_point(trial, frame.x.at(trial.number), frame, report) for trial in scored)
    numbers = sorted({round(tick) for tick in frame.x.ticks() if tick >= 0})
    return frame.draw(
        body, x_label="trial", y_label=report.metric, x_ticks=[(float(number), str(number)) for number in numbers]
    )


def score_by_parameter(report: SweepReport, name: str) -> str:
    """Score over one parameter: the options of a choice side by side, numbers on the scale on which they are drawn."""
    scored = [trial for trial in report.trials if trial.score is not None and name in trial.parameters]
    if len(scored) < 2:
        return ""
    width, height = 370.0, 240.0
    values = [trial.parameters[name] for trial in scored]
    scale = report.scales.get(name)
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    options = scale.options if scale is not None else ()
    if not options and len(numbers) == len(values) and all(math.isfinite(number) for number in numbers):
        frame = _frame(width, height, numbers, _scores(scored), log=None if scale is None else scale.log)
        body = "".join(
            _point(trial, frame.x.at(value), frame, report) for trial, value in zip(scored, numbers, strict=True)
        )
        return frame.draw(body, x_label=name, y_label=report.metric)
    others = sorted({_word(value) for value in values})
    words = list(dict.fromkeys([*map(_word, options), *others]))
    frame = _frame(width, height, [-0.5, len(words) - 0.5], _scores(scored))
    body = "".join(
        _point(trial, frame.x.at(words.index(_word(value))), frame, report)
        for trial, value in zip(scored, values, strict=True)
    )
    ticks = [(float(index), word) for index, word in enumerate(words)]
    return frame.draw(body, x_label=name, y_label=report.metric, x_ticks=ticks)


def curves(report: SweepReport) -> str:
    """Score by step of every trial that reported at least twice; the one that wins stands out."""
    drawn = [trial for trial in report.trials if len(trial.curve) > 1]
    if not drawn:
        return ""
    points = [point for trial in drawn for point in trial.curve]
    frame = _frame(760.0, 260.0, [float(step) for step, _ in points], [score for _, score in points])
    best = report.winner
    body = ""
    for trial in sorted(drawn, key=lambda trial: trial is best):  # the best last, so on top
        path = " ".join(f"{frame.x.at(step):.1f},{frame.y.at(score):.1f}" for step, score in trial.curve)
        kind = "curve best" if trial is best else f"curve {state_class(trial.state)}"
        body += f'<polyline class="{kind}" points="{path}"><title>{escape(_hint(trial, report))}</title></polyline>'
    return frame.draw(body, x_label="step", y_label=report.metric)


def legend(report: SweepReport, *, lines: bool = False) -> str:
    """The states that a chart shows, each with its mark: a filled or a hollow dot, or a line."""
    drawn = [trial for trial in report.trials if (len(trial.curve) > 1 if lines else trial.score is not None)]
    there = {"best" if trial is report.winner else trial.state for trial in drawn}
    words = {"best": "winner"} if report.why else {}
    keys = [
        f'<span class="{state_class(state)}">{"—" if lines else "○" if state == "pruned" else "●"} '
        f"{words.get(state, state)}</span>"
        for state in (*_STATES, "best")
        if state in there
    ]
    return f'<p class="key soft">{"".join(keys)}</p>'


def state_class(state: str) -> str:
    """The class of a state in the style sheet."""
    return escape(state).replace(" ", "-")


def _frame(width: float, height: float, xs: Sequence[float], ys: Sequence[float], *, log: bool | None = False) -> Frame:
    x = Axis.over(xs, LEFT, width - RIGHT, log=log)
    return Frame(width, height, x, Axis.over(ys, height - BOTTOM, TOP))


def _scores(trials: Sequence[TrialRow]) -> list[float]:
    return [trial.score for trial in trials if trial.score is not None]


def _point(trial: TrialRow, x: float, frame: Frame, report: SweepReport) -> str:
    if trial.score is None:
        return ""
    y = frame.y.at(trial.score)
    hint = f"<title>{escape(_hint(trial, report))}</title>"
    if trial is report.winner:
        return f'<circle class="point best" cx="{x:.1f}" cy="{y:.1f}" r="6.5">{hint}</circle>'
    return f'<circle class="point {state_class(trial.state)}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">{hint}</circle>'


def _hint(trial: TrialRow, report: SweepReport) -> str:
    lines = [f"trial {trial.number}, {trial.state}", f"{report.metric} {format_value(trial.score)}"]
    return "\n".join(lines + [f"{name} {format_value(trial.parameters.get(name))}" for name in report.parameters])


def _word(value: object) -> str:
    return format_value(value, 8)  # options that differ are not to fall on one place


def _tick(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.6g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
