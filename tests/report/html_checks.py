"""Check pages: well-formed, nothing loaded, and nothing run but the scripts that their policy names by hash."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

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


def without_scripts(page: str) -> tuple[str, list[dict[str, Any]]]:
    """Return an interactive page as a browser without scripts has it, and the charts that its scripts would draw."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = re.search(r"script-src ([^\"]*)\"", page)
    assert allowed is not None
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert allowed.group(1).replace("&#39;", "'").split() == [f"'sha256-{each}'" for each in hashes]
    assert len(scripts) == 2
    for text in scripts:
        page = page.replace(f"<script>{text}</script>", "")
    (data,) = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    page = page.replace(f'<script type="application/json" id="charts">{data}</script>', "")
    assert "<script" not in page.lower()
    return page, json.loads(data)


def words_of(page: str) -> str:
    return " ".join(" ".join(checked(page).words).split())
