"""Check pages: well-formed, nothing loaded, nothing run."""

from __future__ import annotations

import re
from html.parser import HTMLParser

NASTY = """<script>alert(1)</script> & "quotes" 'too'"""
PICTURE = "data:image/svg+xml,"
VOID = {"meta", "wbr", "img"}
REFUSED = {"script", "link", "iframe", "object", "svg"}


class Checker(HTMLParser):
    """Fails on tags that do not close in order, and collects words, pictures and what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.pictures: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        source = values.pop("src", None)
        if tag == "img" and source is not None and source.startswith(PICTURE):
            self.pictures.append(values["alt"] or "")
        elif source is not None or tag in REFUSED:
            self.loads.append(tag)
        self.loads += [name for name in values if name == "href" or name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


def checked(page: str) -> Checker:
    """What is on a page, which is well-formed and needs nothing but itself."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.loads == []
    assert not re.search(r"https?://|url\(|@import", page)
    return checker


def words_of(page: str) -> str:
    return " ".join(" ".join(checked(page).words).split())
