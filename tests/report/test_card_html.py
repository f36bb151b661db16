"""A card's Markdown as HTML: shown as it reads, and never taken for HTML or for an address."""

from __future__ import annotations

import re

from html_checks import checked, words_of
from hypothesis import given
from hypothesis import strategies as st

from tuner.privacy.card.page import CURVE_FILE
from tuner.report.card_html import card_html, markdown_html

CARD = """# Privacy card: digits

**ε = 4: for what is shown & <b>kept</b>.** Check `tune verify <x>`.

| | ε |
|---|---|
| **claimed** | 4 |
| <i>spent</i> | 1.5 |

## Details for a reviewer

### The claim

- search: a|b
- `<script>`: **x**
- escaped: &#60;img&#62;
"""

TAGS = {"strong", "em", "p", "ul", "ol", "li", "h3", "h4", "h5", "h6", "h7", "h8", "code"} | {
    "table", "thead", "tbody", "tr", "th", "td"
}  # fmt: skip


def test_a_card_is_shown_as_it_reads() -> None:
    card = card_html(CARD)
    assert card is not None
    checked(card.page)
    checked(card.details)
    assert "<h3>Privacy card: digits</h3>" in card.page
    assert "<td><strong>claimed</strong></td>\n<td>4</td>" in card.page
    assert "<code>tune verify &lt;x&gt;</code>" in card.page
    assert "&lt;i&gt;spent&lt;/i&gt;" in card.page
    assert "<h5>The claim</h5>" in card.details
    assert "<li>search: a|b</li>" in card.details
    assert "<li><code>&lt;script&gt;</code>: <strong>x</strong></li>" in card.details
    assert "&lt;img&gt;" in card.details
    assert "reviewer" not in card.page + card.details, "the page has that heading"
    assert card_html("") is None


@given(text=st.text(alphabet="<>&\"'`*|-#![]()= \n\tabh:/.\u2028", max_size=60))
def test_no_card_writes_html_or_loads_anything(text: str) -> None:
    found = markdown_html(text, "<svg/>")
    checked(found)
    assert set(re.findall(r"</?([a-z0-9]+)", found)) <= TAGS


def test_the_picture_of_a_card_is_in_the_page_or_nothing_is_said_of_it() -> None:
    text = f"## Numbers\n\n![The pairs of ε and δ]({CURVE_FILE})\n\nEvery dot is a pair that holds.\n\nAfter it.\n"
    bare = markdown_html(text)
    assert words_of(bare) == "Numbers After it."
    assert CURVE_FILE not in bare
    page = markdown_html(text, '<svg><script>alert("1")</script></svg>')
    assert checked(page).pictures == ["The pairs of ε and δ"]
    assert "Every dot" in words_of(page)
    assert "<svg" not in page, "as an image it can run nothing and style nothing"
