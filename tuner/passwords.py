"""Passwords in addresses: which addresses contain one, and text without them."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

__all__ = ["has_password", "hide_password"]

_SECRET = "password|passwd|pwd|secret|token"
_USER_INFO = re.compile(r"(?P<scheme>[\w+.-]+://)(?P<user>[^/\s'\"]*(?=@)|[^/\s'\"@]*:[^\s'\"]*(?=@))@")
"""User and password of a URL, to the last @. The second form matches a password with a slash, which is malformed."""

_WITHOUT_SCHEME = re.compile(r"[^/\s'\"@:]+:(?!/)[^\s'\"]+@(?=[\w.\[-])")
"""User and password of an address whose scheme is missing or malformed, to the last @."""

_QUERY = re.compile(rf"(?i)(\b\w*(?:{_SECRET}))=[^&\s'\"]+")
_QUERY_NAME = re.compile(rf"(?i)(?:{_SECRET})$")


def has_password(url: str) -> bool:
    """Return whether a URL contains a password or a token. The user of a web server may be a token."""
    found = _USER_INFO.search(url)
    if (found is not None and _is_secret(found)) or ("://" not in url and _WITHOUT_SCHEME.search(url)):
        return True
    return any(_QUERY_NAME.search(name) for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True))


def hide_password(text: str) -> str:
    """Return the text with passwords and tokens in its URLs replaced by ``***``, and users who have a password."""
    without = _USER_INFO.sub(lambda found: f"{found['scheme']}***@" if _is_secret(found) else found[0], text)
    words = (word if "://" in word else _WITHOUT_SCHEME.sub("***@", word) for word in re.split(r"(\s+)", without))
    return _QUERY.sub(r"\1=***", "".join(words))


def _is_secret(found: re.Match[str]) -> bool:
    return ":" in found["user"] or found["scheme"].lower() in ("http://", "https://")
