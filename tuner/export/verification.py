"""The command `verify`: check a card file, its page and its exported files against the ledger."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainables.suggestions import meant, near_files
from tuner.errors import InputError, TunerError

__all__ = ["verify_card"]


def verify_card(path: Path, ledger_url: str | None) -> tuple[dict[str, Any], str]:
    """Check a card file, its page of the same name, and the picture and the exported files in its folder.

    Without a URL, the experiment file in the card's folder names the ledger. Without that file, the default ledger is
    used.

    Returns:
        The values of `tune verify --json`, and the report as text. If the ledger or one of the files cannot be read,
        the answer is no.

    Raises:
        InputError: the file is not a card, or the experiment file that names the ledger cannot be read.
    """
    from tuner.privacy.card.card import file_hash
    from tuner.privacy.card.own_words import EXPORTED
    from tuner.privacy.card.page import CURVE_FILE
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.verify.checks import check_card
    from tuner.privacy.verify.report import Check, Report

    # The RDP accountant of dp_accounting logs every order that it leaves out. Without them its bound still holds.
    logging.getLogger("absl").setLevel(logging.ERROR)
    _require_card(path)
    url = ledger_url or _ledger_of(path)
    page, picture = path.with_suffix(".md"), path.with_name(CURVE_FILE)
    try:
        ledger = Ledger.open(url, create=False)
        text = path.read_bytes().decode()
        page_text = page.read_text("utf-8") if page.exists() else None
        picture_text = picture.read_bytes().decode() if picture.exists() else None
        files = {name: file_hash(path.with_name(name)) for name in EXPORTED if path.with_name(name).is_file()}
        report = check_card(text, ledger, page=page_text, picture=picture_text, files=files)
    except (TunerError, UnicodeDecodeError, OSError) as error:
        ok = None if getattr(error, "code", "") == "ledger-not-found" else False  # no ledger contradicts nothing
        report = Report((Check("ledger and card can be read", ok=ok, detail=str(error)),))
    claim = _claim(path, outdated=any(check.outdated for check in report.checks))
    values = {
        "claim": claim,
        "ok": report.ok,
        "answer": report.answer,
        "card": str(path),
        "ledger": url,
        "checks": [asdict(check) for check in report.checks],
    }
    return values, f"{claim}\n{path} against {url}\n{report}"


def _claim(path: Path, *, outdated: bool) -> str:
    """Return the first line of the report: what the card says, checked or not."""
    from tuner.privacy.card.claims import claim_of_card

    try:
        claim = claim_of_card(json.loads(path.read_bytes())).removeprefix("Claimed: ")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError):
        return "The card's claim cannot be read."
    return f"When it was made, the card claimed {claim}" if outdated else f"The card claims {claim}"


def _require_card(path: Path) -> None:
    """Raise an InputError if the file is not a card. A damaged card passes; `verify` later answers "no" for it."""
    try:
        text = path.read_bytes().decode().lstrip()
    except (FileNotFoundError, NotADirectoryError) as error:
        found = meant(near_files(path, kinds=(".json",)))
        raise InputError(
            "card-not-found", f"There is no file {path}.{found} `tune export NAME` writes privacy_card.json."
        ) from error
    except (UnicodeDecodeError, IsADirectoryError):
        text = ""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith("{") and path.suffix == ".json":
            return
        read = None
    if isinstance(read, dict) and read.keys() & {"claim", "schema"}:
        return
    card = path / "privacy_card.json" if path.is_dir() else path.with_name("privacy_card.json")
    fix = f"Did you mean {card}?" if card != path and card.exists() else "Give the exported privacy_card.json."
    raise InputError("card-not-found", f"{path} is not a privacy card. {fix}")


def _ledger_of(path: Path) -> str:
    """Return the ledger that the exported experiment file names, or the default if there is no such file."""
    from tuner.privacy.ledger.stores import default_url

    experiment = path.with_name("experiment.yaml")
    if not experiment.exists():
        return default_url()
    from tuner.experiment import load_experiment

    try:
        return load_experiment(experiment).ledger
    except (TunerError, OSError, UnicodeDecodeError) as error:
        raise InputError(
            "card-ledger-unknown",
            f"{error}\nThis experiment file names the ledger. Fix the file, or name the ledger with --ledger URL.",
        ) from error
