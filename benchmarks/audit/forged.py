"""Forged cards of every mode, and forged ledgers: all are found, except the operator's own words, which are listed."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.harness import Results, Settings, Table, at_least, at_most

BARS = {
    "forged.cards": at_least(1000),
    "forged.cards_not_found": at_most(0),
    "forged.ledgers": at_least(200),
    "forged.ledgers_not_found": at_most(0),
    "forged.controls_confirmed": at_least(1.0),
}
_TESTS: Final = Path(__file__).resolve().parents[2] / "tests"
_EVERY: Final = 6  # a quick run checks one card of six, and one ledger of two


def measure(settings: Settings, results: Results) -> None:
    """Forge cards and ledgers, and check each."""
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))  # the cards of every mode are those of the tests
    from card_fakes import KINDS, charged, set_caps

    from benchmarks.audit.forging import all_forged, forged_chains, forger
    from tuner.errors import TunerError
    from tuner.privacy.card.card import issue_card
    from tuner.privacy.card.own_words import OWN_WORDS
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.verify.checks import check_card

    own = {each.path for each in OWN_WORDS}
    count: Counter[str] = Counter()
    missed, own_changed, confirmed = [], Counter[str](), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cards = {}
        for kind in KINDS:
            ledger = Ledger.open(f"sqlite:///{folder}/{kind}.db")
            set_caps(ledger, kind)
            facts = replace(charged(ledger, kind), files={"model.safetensors": "a" * 64})
            cards[kind] = (ledger, issue_card(ledger, facts))
        with forger():
            for kind, (ledger, card) in cards.items():
                confirmed += check_card(card, ledger).answer != "no"
                for number, (path, forgery, other) in enumerate(all_forged(card)):
                    if settings.quick and number % _EVERY:
                        continue
                    count["cards"] += 1
                    if check_card(other, ledger).answer == "no":
                        continue
                    word = next((each for each in own if f"{path}.".startswith(f"{each}.")), None)
                    if word is None:
                        missed.append((kind, path, forgery))
                    else:
                        own_changed[word] += 1
        # A forged chain must be found by the check of the card, with nothing left out. The entries of a search over
        # blocks are in the chains of all its blocks.
        chains = (
            (card, forging)
            for kind, (_, card) in cards.items()
            if not settings.quick or kind in {"total_steps", "blocks"}
            for forging in forged_chains(folder / f"{kind}.db", folder)
        )
        for number, (card, (what, file)) in enumerate(chains):
            if settings.quick and number % 2:
                continue
            count["ledgers"] += 1
            found = False
            with contextlib.suppress(TunerError):
                found = True
                forged = Ledger.open(f"sqlite:///{file}", create=False)
                found = check_card(card, forged).answer == "no"
            if not found:
                missed.append(("ledger", what, ""))
    results.count("forged.cards", count["cards"])
    results.count("forged.cards_not_found", sum(kind != "ledger" for kind, *_ in missed))
    results.count("forged.ledgers", count["ledgers"])
    results.count("forged.ledgers_not_found", sum(kind == "ledger" for kind, *_ in missed))
    results.count(
        "forged.controls_confirmed", confirmed / len(cards), note="share of cards that are confirmed unforged"
    )
    results.tables["forgeries that were not found"] = Table(("kind", "place", "forgery"), tuple(missed[:30]))
    results.tables["the operator's own words: not found, and listed"] = Table(
        ("word", "forgeries that passed"), tuple((word, own_changed[word]) for word in sorted(own))
    )
