"""A privacy card's Markdown as HTML. Any HTML or link in it is shown as plain text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from tuner.figures import data_uri
from tuner.privacy.card.page import CURVE_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["CardHtml", "card_html", "markdown_html"]

_DETAILS = "Details for a reviewer"
_UNDER_THE_PAGE = 2  # the page has h1 and h2 of its own
_ABOUT_THE_PICTURE = "Every dot "  # begins the paragraph that explains the picture


@dataclass(frozen=True)
class CardHtml:
    """A card as a part of a page.

    Attributes:
        page: HTML of the main text.
        details: HTML of the details, which a reader can unfold; empty if the card has none.
        heading: heading of the details.
    """

    page: Markup
    details: Markup
    heading: str = _DETAILS


def card_html(text: str, picture: str = "") -> CardHtml | None:
    """Return a card as HTML; None for an empty text.

    Args:
        text: the card as Markdown.
        picture: the card's curve as SVG. If it is empty, the text about the picture is left out.
    """
    if not text:
        return None
    page, _, details = text.partition(f"\n## {_DETAILS}\n")
    return CardHtml(markdown_html(page, picture), markdown_html(details))


def markdown_html(text: str, picture: str = "") -> Markup:
    """Return headings, paragraphs, lists, tables, bold text, code and the card's picture as HTML."""
    parser = _parser()
    tokens = parser.parse(text)
    if not picture:
        tokens = _without_picture(tokens)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{int(token.tag[1]) + _UNDER_THE_PAGE}"
    return Markup(parser.renderer.render(tokens, parser.options, {"picture": picture}))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Only the Markdown that a card uses is on: no links, no HTML, no addresses.
    parser = MarkdownIt("zero").enable(["heading", "list", "table", "emphasis", "backticks", "entity", "image"])
    parser.add_render_rule("image", _image)
    return parser


def _image(_renderer: object, tokens: Sequence[Token], index: int, _options: object, values: dict[str, str]) -> str:
    """Put the card's picture into the page. Any other picture is replaced by its description."""
    token = tokens[index]
    words = escape(token.content)
    if token.attrGet("src") != CURVE_FILE or not values["picture"]:
        return words
    return f'<img class="chart" alt="{words}" src="{data_uri(values["picture"])}">'


def _without_picture(tokens: Sequence[Token]) -> list[Token]:
    """Remove the paragraph with the card's picture, and the next one if it explains the picture."""
    kept: list[Token] = []
    after_picture = False
    at = 0
    while at < len(tokens):
        if tokens[at].type != "paragraph_open":
            kept.append(tokens[at])
            at += 1
            continue
        inline = tokens[at + 1]
        is_picture = any(
            child.type == "image" and child.attrGet("src") == CURVE_FILE for child in inline.children or ()
        )
        if not is_picture and not (after_picture and inline.content.startswith(_ABOUT_THE_PICTURE)):
            kept += tokens[at : at + 3]
        after_picture = is_picture
        at += 3
    return kept
