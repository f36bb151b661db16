"""The command `verify`: check a card file, its page and its exported files against the ledger."""

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
    """Answer of `tune verify`.

    Attributes:
        ok: whether the card follows from its ledger, with every number confirmed.
        text: every check, and the answer.
        values: the same as plain values.
    """

    ok: bool
    text: str
    values: dict[str, Any]


def verify_card(path: Path, ledger_url: str | None) -> CardReport:
    """Check a card file against its ledger.

    Args:
        path: the card's JSON file; the page of the same name and the exported files in its folder are checked too.
        ledger_url: its ledger; None takes the one named by the experiment file in that folder, else the default.

    Returns:
        The report. A ledger, a card or a page that cannot be read is a no, with the reason.

    Raises:
        InputError: the file is not a card, or the experiment file that names the ledger cannot be read.
        OSError: the file cannot be read.
    """
    from tuner.privacy.card.card import file_hash
    from tuner.privacy.card.own_words import EXPORTED
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.verify.checks import check_card
    from tuner.privacy.verify.report import Check, Report

    # An RDP accountant of dp_accounting logs every order that it leaves out; the bound of the others holds.
    logging.getLogger("absl").setLevel(logging.ERROR)
    _require_card(path)
    url = ledger_url or _ledger_of(path)
    page = path.with_suffix(".md")
    try:
        ledger = Ledger.open(url, create=False)
        text = path.read_bytes().decode()
        page_text = page.read_text() if page.exists() else None
        files = {name: file_hash(path.with_name(name)) for name in EXPORTED if path.with_name(name).is_file()}
        report = check_card(text, ledger, page=page_text, files=files)
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
    """Refuse a file that is not a card. A damaged card gets the answer "no" instead."""
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
    meant = f"Did you mean {card}?" if card != path and card.exists() else "Give the exported privacy_card.json."
    raise InputError("card-not-found", f"{path} is not a privacy card. {meant}")


def _ledger_of(path: Path) -> str:
    """Return the ledger that the exported experiment file names; the default when there is no such file.

    Raises:
        InputError: the file cannot be read, which says nothing about the card.
    """
    experiment = path.with_name("experiment.yaml")
    if not experiment.exists():
        return "sqlite:///runs/ledger.db"
    from tuner.experiment import load_experiment

    try:
        return load_experiment(experiment).ledger
    except (TunerError, OSError, UnicodeDecodeError) as error:
        raise InputError(
            "card-ledger-unknown", f"{error}\nThis file names the ledger. Fix it, or name the ledger: --ledger URL."
        ) from error
