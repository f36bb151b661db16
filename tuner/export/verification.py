"""The command `verify`: a card, its page and its ledger, compared by independent accountants."""

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
        text: all checks, and yes or no.
        values: the same as plain values.
    """

    ok: bool
    text: str
    values: dict[str, Any]


def verify_card(path: Path, ledger_url: str | None) -> CardReport:
    """Recompute a card and compare it with its files.

    Args:
        path: the card's JSON file; the page (``.md``) and the curve in the same folder are compared too.
        ledger_url: the card's ledger; None for the one named in the experiment file in the same folder, or else the
            default.

    Returns:
        The report. A ledger, card or page that cannot be read makes the answer no, with the reason.

    Raises:
        InputError: the file is not a card, or the experiment file in the same folder, which names the ledger, cannot be
            read.
        OSError: the file cannot be read.
    """
    from tuner.privacy.card.card import EXPORTED, file_hash
    from tuner.privacy.card.page import CURVE_FILE
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.verify.verify import Check, Report, verify

    # The RDP accountant of dp_accounting logs every order that it skips; the bound from the other orders is valid.
    logging.getLogger("absl").setLevel(logging.ERROR)
    _require_card(path)
    url = ledger_url or _ledger_of_export(path)
    page, curve = path.with_suffix(".md"), path.with_name(CURVE_FILE)
    try:
        ledger = Ledger.open(url, create=False)
        text = path.read_bytes().decode()
        markdown = page.read_text() if page.exists() else None
        svg = curve.read_text() if curve.exists() else None
        files = {name: file_hash(path.with_name(name)) for name in EXPORTED if path.with_name(name).is_file()}
        report = verify(text, ledger, markdown=markdown, svg=svg, beside=files)
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
    """Refuse a file that is not a card, instead of answering no.

    An edited card is still a card, even when it is no valid JSON any more: for that one the answer is no.
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
    has_card = card != path and card.exists()
    raise InputError(
        "card-unreadable", f"{path} is not a privacy_card.json" + (f"; did you mean {card}?" if has_card else ".")
    )


def _ledger_of_export(path: Path) -> str:
    """Return the ledger that the exported experiment file names, or the default when there is no such file.

    Raises:
        InputError: the file cannot be read, which is no statement about the card.
    """
    experiment = path.with_name("experiment.yaml")
    if experiment.exists():
        from tuner.experiment import load_experiment

        try:
            return load_experiment(experiment).ledger
        except (TunerError, OSError, UnicodeDecodeError) as error:
            raise InputError(
                "export-unreadable",
                f"{error}\nThis file names the card's ledger; name the ledger yourself with: --ledger URL.",
            ) from error
    return "sqlite:///runs/ledger.db"
