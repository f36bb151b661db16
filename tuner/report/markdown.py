"""A privacy card's Markdown as HTML: what `tuner.privacy.card.page` writes and no more, every letter escaped."""

from __future__ import annotations

import re
from html import escape
from urllib.parse import quote

__all__ = ["to_html"]

_INLINE = re.compile(r"(\*\*.+?\*\*|`[^`]+`)")
_HEADING = re.compile(r"(#{1,3}) (.+)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_BESIDE_HEADINGS = 2  # the page has h1 and h2 already
_OF_THE_PICTURE = "Every dot "  # begins the paragraph that explains the picture
_RULE = re.compile(r"\|(-+\|)+")


def to_html(text: str, picture: str = "") -> str:
    """Headings, paragraphs, flat lists, tables, ``**bold**`` and code in backticks; anything else is a paragraph.

    No part of the text is ever taken for HTML.

    Args:
        text: the card.
        picture: the picture beside it, as SVG; without it what the card says of a picture is left out.
    """
    blocks = re.split(r"\n[ \t]*\n", text.strip())
    lines = [[line.strip() for line in block.splitlines() if line.strip()] for block in blocks]
    if not picture:
        lines = [
            block
            for before, block in zip([[], *lines], lines, strict=False)
            if not (_is_picture(block) or (_is_picture(before) and " ".join(block).startswith(_OF_THE_PICTURE)))
        ]
    return "".join(_block(block, picture) for block in lines)


def _is_picture(lines: list[str]) -> bool:
    return _PICTURE.fullmatch(" ".join(lines)) is not None


def _block(lines: list[str], svg: str = "") -> str:
    if not lines:
        return ""
    if heading := _HEADING.fullmatch(lines[0]):
        tag = f"h{len(heading[1]) + _BESIDE_HEADINGS}"
        return f"<{tag}>{_inline(heading[2])}</{tag}>{_block(lines[1:], svg)}"
    if all(line.startswith("- ") for line in lines):
        return "<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>"
    if len(lines) > 1 and lines[0].startswith("|") and _RULE.fullmatch(lines[1]):
        head, rows = _row(lines[0], "th"), "".join(_row(line, "td") for line in lines[2:])
        return f'<div class=wide><table class="num"><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    if svg and (picture := _PICTURE.fullmatch(" ".join(lines))):
        # As the address of an image no script in it can run, and its styles are its own.
        return f'<p><img alt="{escape(picture[1])}" src="data:image/svg+xml,{quote(svg)}"></p>'
    return f"<p>{_inline(' '.join(lines))}</p>"


def _row(line: str, tag: str) -> str:
    cells = line.strip("|").split("|")
    return "<tr>" + "".join(f"<{tag}>{_inline(cell.strip())}</{tag}>" for cell in cells) + "</tr>"


def _inline(text: str) -> str:
    parts = []
    for part in _INLINE.split(text):
        if _INLINE.fullmatch(part):
            tag, inner = ("b", part[2:-2]) if part.startswith("**") else ("code", part[1:-1])
            parts.append(f"<{tag}>{escape(inner)}</{tag}>")
        else:
            parts.append(escape(part))
    return "".join(parts)
