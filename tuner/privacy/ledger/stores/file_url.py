"""URLs of SQLite ledgers. They are read without SQLAlchemy, whose import takes a fifth of a second."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

__all__ = ["file_of"]


def file_of(url: str) -> Path | None:
    """Return the absolute file of a URL that is only `sqlite:///` and a path; None for any other URL."""
    path = unquote(url.removeprefix("sqlite:///"))
    if not url.startswith("sqlite:///") or "?" in url or path in ("", ":memory:"):
        return None
    return Path(path).expanduser().resolve()
