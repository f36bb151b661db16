"""HTML pages from templates. Each page is one file that loads nothing; its content security policy forbids loading."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tuner.figures import data_uri, svg_text
from tuner.privacy.ledger.amounts import amount
from tuner.report.wording import format_value, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["page_from", "page_picture"]


def page_picture(picture: Figure | str, alt: str) -> Markup:
    """Return HTML for a figure or an SVG, with a description for readers who cannot see it."""
    svg = picture if isinstance(picture, str) else svg_text(picture, alt)
    return Markup('<img class="chart" alt="{}" src="{}">').format(alt, data_uri(svg))


def page_from(template: str, **values: object) -> str:
    """Render a template. All values are escaped."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tuner.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(value=format_value, with_error=with_error, breakable=_breakable, general=amount)
    return environment


def _breakable(name: str) -> Markup:
    """Allow line breaks after the dots and underscores of a long name."""
    return Markup(escape(name).replace(".", Markup(".<wbr>")).replace("_", Markup("_<wbr>")))
