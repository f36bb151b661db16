"""HTML pages from templates. A page is one file. It loads nothing, and its content security policy forbids loading."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tuner.figures import data_uri, svg_text
from tuner.report.wording import format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PagePicture", "page_from", "page_picture", "write_page"]


@dataclass(frozen=True)
class PagePicture:
    """A picture inside a page.

    Attributes:
        address: the whole picture as a ``data:`` URL.
        alt: description for readers who cannot see the picture.
    """

    address: str
    alt: str


def page_picture(figure: Figure, alt: str) -> PagePicture:
    """Return a figure as a picture inside a page."""
    return PagePicture(data_uri(svg_text(figure, alt)), alt)


def page_from(template: str, **values: object) -> str:
    """Return the page of a template. Every value is escaped."""
    return _environment().get_template(template).render(values)


def write_page(page: str, path: Path) -> None:
    """Write a page atomically: a reader sees the old file or the new one, never a part of it.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)


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
    environment.filters.update(value=format_value, breakable=_breakable, general=_general)
    return environment


def _breakable(name: str) -> Markup:
    """Allow line breaks after the dots and underscores of a long name."""
    return Markup(escape(name).replace(".", Markup(".<wbr>")).replace("_", Markup("_<wbr>")))


def _general(number: float) -> str:
    return f"{number:g}"
