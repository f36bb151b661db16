"""Pages with interactive charts: one file that loads nothing, and whose policy lets only our two scripts run.

`templates/plotly-cartesian.min.js` is plotly.js 4.1.1, the bundle with contours, unchanged from the npm package
``plotly.js-cartesian-dist-min`` (SHA-256 79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a).
`templates/interactive.js` draws the charts and sorts the tables.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup

from tuner.report.pages import page_from

if TYPE_CHECKING:
    from tuner.report.charts import Chart

__all__ = ["Places", "interactive_page"]

_SCRIPTS = ("plotly-cartesian.min.js", "interactive.js")


class Places:
    """The charts of a page, and the places where its script draws them."""

    def __init__(self) -> None:
        self._charts: list[Chart] = []

    def __bool__(self) -> bool:
        return bool(self._charts)

    def place(self, *charts: Chart | None, label: str = "Show") -> Markup:
        """Return the place of one chart, or of several among which the reader chooses; empty without a chart."""
        known = [chart for chart in charts if chart is not None]
        first = len(self._charts)
        self._charts += known
        numbers = " ".join(str(first + at) for at in range(len(known)))
        shown = Markup('<div class="plot" data-charts="{}" data-label="{}"></div>').format(numbers, label)
        return shown if known else Markup("")

    @property
    def json(self) -> Markup:
        """The charts as JSON. No name can end the element or begin another one: `<` is written as an escape."""
        return Markup(json.dumps(_finite(self._charts), allow_nan=False).replace("<", "\\u003c"))


def interactive_page(template: str, places: Places, **values: object) -> str:
    """Render a template that extends ``interactive.html``."""
    scripts = [files("tuner.report").joinpath("templates", name).read_text(encoding="utf-8") for name in _SCRIPTS]
    return page_from(
        template,
        charts=places.json,
        scripts=[Markup(script) for script in scripts],
        hashes=[_hash(script) for script in scripts],
        **values,
    )


def _hash(script: str) -> str:
    """Return a script's source expression for the page's content security policy. No other script may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _finite(value: object) -> object:
    """Return plain values with None for numbers that JSON does not know. The browser draws nothing there."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(each) for each in value]
    return value
