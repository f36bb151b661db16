"""The command `verify`: a card file, its page and its ledger, held against each other by other accountants."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import InputError, TunerError

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

    Raises:
        InputError: the file is no card at all, but something else; or the experiment file beside it, which names the
            ledger, cannot be read.
        OSError: the file cannot be read.
    """
    from tuner.privacy.card.card import EXPORTED, file_hash
    from tuner.privacy.card.page import CURVE_FILE
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.verify.verify import Check, Report, verify

    # An RDP accountant of dp_accounting tells of every order that it leaves out; the bound of the others stands.
    logging.getLogger("absl").setLevel(logging.ERROR)
    _require_card(path)
    url = ledger_url or _ledger_beside(path)
    page, curve = path.with_suffix(".md"), path.with_name(CURVE_FILE)
    try:
        ledger = Ledger.open(url, create=False)
        text = path.read_bytes().decode()
        markdown = page.read_text() if page.exists() else None
        svg = curve.read_text() if curve.exists() else None
        beside = {name: file_hash(path.with_name(name)) for name in EXPORTED if path.with_name(name).is_file()}
        report = verify(text, ledger, markdown=markdown, svg=svg, beside=beside)
    except (TunerError, UnicodeDecodeError, OSError) as error:
        report = Report((Check("ledger and card can be read", ok=False, detail=str(error)),))
    values = {
        "ok": report.ok,
        "answer": report.answer,
        "card": str(path),
        "ledger": url,
        "checks": [
            {"name": check.name, "ok": check.ok, "detail": check.detail, "exact": check.exact}
            for check in report.checks
        ],
    }
    return CardReport(ok=report.ok, text=f"{path} against {url}\n{report}", values=values)


def _require_card(path: Path) -> None:
    """Refuse what is no card, rather than answer that it does not hold.

    A card in which something was changed stays one, also where that makes it no JSON: the answer to it is no.
    """
    try:
        text = path.read_bytes().decode().lstrip()
    except UnicodeDecodeError:
        text = ""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith("{") and path.suffix == ".json":
            return
        read = None
    if isinstance(read, dict) and read.keys() & {"claim", "schema"}:
        return
    card = path.with_name("privacy_card.json")
    beside = card != path and card.exists()
    raise InputError(f"{path} is not a privacy_card.json" + (f"; did you mean {card}?" if beside else "."))


def _ledger_beside(path: Path) -> str:
    """The ledger that the exported experiment file names; the default when there is no such file.

    Raises:
        InputError: there is one that cannot be read, which says nothing of the card.
    """
    beside = path.with_name("experiment.yaml")
    if beside.exists():
        from tuner.experiment import load_experiment

        try:
            return load_experiment(beside).ledger
        except (TunerError, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{error}\nThe ledger is named there; name it yourself: --ledger URL.") from error
    return "sqlite:///runs/ledger.db"
