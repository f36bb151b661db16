"""Conversion of a privacy card from Markdown to HTML. HTML and links in the card are shown as plain text."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from tuner.privacy.card.page import CURVE_FILE
from tuner.report.pages import page_picture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["CardHtml", "card_html", "markdown_html"]

_DETAILS = "Details for a reviewer"
_UNDER_THE_PAGE = 2  # the page has h1 and h2 of its own
_ABOUT_THE_PICTURE = "Every dot "  # begins the paragraph that explains the picture


class CardHtml(NamedTuple):
    """Privacy card as HTML: the visible part `page`, and the part `details`, which the reader can unfold."""

    page: Markup
    details: Markup
    heading: str = _DETAILS


def card_html(text: str, picture: str = "") -> CardHtml | None:
    """Return a card's Markdown as HTML, or None if the text is empty.

    `picture` is the card's curve as SVG. If it is empty, the text about the picture is left out.
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
    if token.attrGet("src") != CURVE_FILE or not values["picture"]:
        return escape(token.content)
    return str(page_picture(values["picture"], token.content))


def _without_picture(tokens: Sequence[Token]) -> list[Token]:
    """Remove the paragraph with the card's picture, and the next one if it explains the picture."""
    kept: list[Token] = []
    after_picture = skipping = False
    for place, token in enumerate(tokens):
        if token.type == "paragraph_open":
            inline = tokens[place + 1]
            children = inline.children or ()
            is_picture = any(child.type == "image" and child.attrGet("src") == CURVE_FILE for child in children)
            skipping = is_picture or (after_picture and inline.content.startswith(_ABOUT_THE_PICTURE))
            after_picture = is_picture
        if not skipping:
            kept.append(token)
        skipping = skipping and token.type != "paragraph_close"
    return kept
