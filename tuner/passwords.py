"""Passwords in addresses: which addresses contain one, and text without them."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

__all__ = ["has_password", "hide_password"]

_SECRET = "password|passwd|pwd|secret|token"
_USER_INFO = re.compile(r"(?<=://)(?:[^/\s'\"]*@|[^/\s'\"@]*:[^\s'\"]*@)")
"""User name and password of a URL. The second form is that of a password with an unquoted slash."""

_QUERY = re.compile(rf"(?i)(\b\w*(?:{_SECRET}))=[^&\s'\"]+")


def has_password(url: str) -> bool:
    """Return whether a URL contains a password, a token or, for a web server, a user name, which may be a token."""
    if _USER_INFO.search(url):
        try:
            parts = urlsplit(url)
        except ValueError:
            return True
        if parts.scheme in ("http", "https") or parts.password is not None or "@" not in parts.netloc:
            return True
    return any(re.search(rf"(?i)(?:{_SECRET})$", name) for name, _ in parse_qsl(url.partition("?")[2]))


def hide_password(text: str) -> str:
    """Return the text with user names, passwords and tokens in its URLs replaced by ``***``."""
    return _QUERY.sub(r"\1=***", _USER_INFO.sub("***@", text))
