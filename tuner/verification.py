"""The command `verify`: a card file, its page and its ledger, held against each other by other accountants."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TunerError

__all__ = ["CardReport", "verify_card"]


@dataclass(frozen=True)
class CardReport:
    """The answer, for people and for programs.

    Attributes:
        ok: whether the card follows from its ledger, every number of it confirmed.
        text: every check, and yes or no.
        values: the same as plain values.
    """

    ok: bool
    text: str
    values: dict[str, Any]


def verify_card(path: Path, ledger_url: str | None) -> CardReport:
    """Recompute a card.

    Args:
        path: the card's JSON file; a ``.md`` of the same name and the curve beside it are held against it too.
        ledger_url: its ledger; None takes the one named in the experiment file beside the card, else the default.

    Returns:
        The report; a ledger, a card or a page that cannot be read is a no, with the reason.
    """
    from tuner.privacy.ledger import Ledger
    from tuner.privacy.markdown import CURVE_FILE
    from tuner.privacy.verify import Check, Report, verify

    # An RDP accountant of dp_accounting tells of every order that it leaves out; the bound of the others stands.
    logging.getLogger("absl").setLevel(logging.ERROR)
    url = ledger_url or ""
    page, curve = path.with_suffix(".md"), path.with_name(CURVE_FILE)
    try:
        url = url or _ledger_beside(path)
        ledger = Ledger.open(url, create=False)
        text = path.read_bytes().decode()
        markdown = page.read_text() if page.exists() else None
        report = verify(text, ledger, markdown=markdown, svg=curve.read_text() if curve.exists() else None)
    except (TunerError, UnicodeDecodeError, OSError) as error:
        report = Report((Check("ledger and card can be read", ok=False, detail=str(error)),))
    values = {
        "ok": report.ok,
        "answer": report.answer,
        "card": str(path),
        "ledger": url or None,
        "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in report.checks],
    }
    return CardReport(ok=report.ok, text=f"{path} against {url or 'no ledger'}\n{report}", values=values)


def _ledger_beside(path: Path) -> str:
    """The ledger that the exported experiment file names; the default when there is no such file."""
    beside = path.with_name("experiment.yaml")
    if beside.exists():
        from tuner.experiment import load

        return load(beside).ledger
    return "sqlite:///runs/ledger.db"
