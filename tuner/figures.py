"""Style and SVG output of all charts. Matplotlib is imported on first use. Its global settings stay unchanged."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "RED",
    "WIDE",
    "data_uri",
    "new_figure",
    "plain_ticks",
    "styled",
    "svg_text",
]

# Colours of Okabe and Ito (2008), which colour-blind readers can tell apart. Series also differ in marker or dash.
BLUE, ORANGE, GREEN, RED, PURPLE = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7"
BLACK, GREY = "#1b2430", "#5b6776"

WIDE = (8.6, 3.2)
"""Width and height in inches of a chart as wide as a page."""

_STYLE: Any = {
    "font.size": 10,
    "svg.fonttype": "none",  # letters are stored as text, not as outlines
    "svg.hashsalt": "dp-tuner",  # equal charts get equal identifiers
    "text.parse_math": False,  # a `$` in a name is a dollar sign
    "text.color": BLACK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": BLACK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": "medium",
    "axes.formatter.useoffset": False,
    "grid.color": "#e1e5ea",
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "legend.fontsize": "small",
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the common style to the charts drawn in a ``with`` block or a decorated function."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # Matplotlib warns of missing glyphs and of layouts with large numbers, but the charts stay readable.
        warnings.simplefilter("ignore")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure. Width and height are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain_ticks(axis: Any) -> None:  # noqa: ANN401 - an XAxis or a YAxis
    """Label an axis with plain numbers such as ``0.001``, not with powers."""
    from matplotlib.ticker import LogLocator

    axis.set_major_formatter(lambda value, _: f"{value:.6g}")
    if axis.get_scale() == "log":
        low, high = sorted(axis.get_view_interval())
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(lambda value, _: f"{value:.6g}" if high / low < 100 else "")


@styled()
def svg_text(figure: Figure, title: str, description: str = "") -> str:
    """Return a figure as an SVG document. Equal figures give equal text.

    The figure must have been drawn under `styled`. Screen readers read the title and the description aloud.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    drawn = buffer.getvalue()
    attributes, _, body = drawn[drawn.index("<svg ") + len("<svg ") :].partition(">")
    return (
        f'<svg role="img" aria-labelledby="title description" {attributes}>\n'
        f'<title id="title">{escape(title)}</title>\n<desc id="description">{escape(description)}</desc>{body}'
    )


def data_uri(svg: str) -> str:
    """Return a ``data:`` URI of an SVG document, for use as an image in a page.

    Browsers run no scripts in images and do not apply an image's styles to the page.
    """
    return f"data:image/svg+xml,{quote(svg)}"
