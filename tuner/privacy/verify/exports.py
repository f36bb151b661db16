"""Check of an export before it is used: its files against its privacy card, and the card against the ledger.

It compares hashes only. `tune verify` also recomputes the card's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.errors import InputError, LedgerError, TunerError
from tuner.privacy.card.card import file_hash, parse_card
from tuner.privacy.card.own_words import EXPORTED
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.verify.checks import check_files, check_page, check_recorded
from tuner.privacy.verify.report import Check

__all__ = ["CARD_FILE", "EXPERIMENT_FILE", "ledger_to_compare", "require_unchanged"]

CARD_FILE = "privacy_card.json"
EXPERIMENT_FILE = "experiment.yaml"
"""Names of the card's file and of the experiment file in the folder of an export."""


def ledger_to_compare(url: str) -> Ledger | None:
    """Return the ledger of an export, or None if it cannot be reached from here. No ledger is created."""
    try:
        return Ledger.open(url, create=False) if Ledger.exists(url) else None
    except TunerError:
        return None


def require_unchanged(
    folder: Path, ledger: Ledger | None, *, names: tuple[str, ...] = EXPORTED, page: bool = False
) -> dict[str, Any]:
    """Return the card of an export after comparing the export with it.

    Args:
        folder: the folder that `tune export` wrote.
        ledger: the ledger that recorded the card's hash; None if it cannot be reached, so the card is not compared.
        names: files to compare with the hashes on the card.
        page: whether the card's page is compared too.

    Raises:
        InputError: a file, the page or the card was changed after the export.
    """
    try:
        card = parse_card((folder / CARD_FILE).read_bytes().decode())
        failed = next((check for check in _checks(card, ledger, folder, names, page=page) if not check.ok), None)
        found = None if failed is None else f"{failed.name}: {failed.detail}"
    except (LedgerError, KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        found = str(error) if isinstance(error, LedgerError) else f"{CARD_FILE} is not a complete privacy card"
    except TunerError as error:
        found = error.message
    if found is not None:
        raise InputError(
            "export-changed",
            f"{folder} differs from what `tune export` wrote ({found}). Restore the folder from a copy, or export "
            "the trial again. To train a changed configuration, copy experiment.yaml to another folder.",
        )
    return card


def _checks(
    card: dict[str, Any], ledger: Ledger | None, folder: Path, names: tuple[str, ...], *, page: bool
) -> Iterator[Check]:
    listed = {name: card["exported_files"][name] for name in names}  # an unlisted file is a KeyError
    yield from check_files({"exported_files": listed}, {name: file_hash(folder / name) for name in names})
    if ledger is not None:
        yield check_recorded(card, ledger)
    if page:
        yield check_page(card, (folder / CARD_FILE).with_suffix(".md").read_text("utf-8"))
