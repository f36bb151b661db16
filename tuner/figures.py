"""Style and SVG output of all charts. Matplotlib is imported on first use, and its global state is left as it was."""

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

__all__ = ["BLACK", "BLUE", "GREEN", "GREY", "ORANGE", "PURPLE", "RED", "data_uri", "new_figure", "styled", "svg_text"]

# Okabe and Ito (2008): distinct for colour-blind readers. Series also differ in marker or dash.
BLUE, ORANGE, GREEN, RED, PURPLE = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7"
BLACK, GREY = "#1b2430", "#5b6776"

_STYLE: Any = {
    "font.size": 10,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "dp-tuner",  # the same chart has the same identifiers, so the same file
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
    """Apply the style of our charts, in a ``with`` or as a decorator."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # A glyph that the bundled font lacks, or numbers too large for a layout: the chart is still readable.
        warnings.simplefilter("ignore")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@styled()
def svg_text(figure: Figure, title: str, description: str = "") -> str:
    """Return a figure as an SVG document: the same input gives the same text.

    Args:
        figure: drawn under `styled`.
        title: read aloud by screen readers.
        description: longer text for them.
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
    """Return an SVG document as the address of an image: no script in it runs, and its styles stay its own."""
    return f"data:image/svg+xml,{quote(svg)}"
