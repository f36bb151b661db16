"""The check of a privacy card: rendered anew from its ledger and compared, and recomputed by a second accountant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.errors import LedgerError, TunerError, VerificationError
from tuner.privacy.card.card import build_card, card_hash, parse_card
from tuner.privacy.card.own_words import own_words_of
from tuner.privacy.card.page import render_markdown
from tuner.privacy.card.sections.place import SCHEMA_VERSION
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetState
from tuner.privacy.verify.differences import clipped, differences
from tuner.privacy.verify.report import Check, Report, not_judged
from tuner.privacy.verify.second_opinion import second_opinion

__all__ = ["check_card", "render_anew"]


def check_card(
    card: Mapping[str, Any] | str,
    ledger: Ledger,
    *,
    page: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Report:
    """Check a card against its ledger.

    Args:
        card: the text of the card file, of which every byte counts, or its parsed values.
        ledger: the opened ledger of its data set.
        page: the text of the card's page; None where there is none.
        files: SHA-256 of the exported files in the card's folder, by name; None where nobody looked.

    Returns:
        The report. It never raises for a card or a ledger that does not hold. What an accountant cannot compute is
        neither confirmed nor refuted, and the answer is then not yes.
    """
    checks: list[Check] = []
    try:
        for check in _checks(card, ledger, page, files):
            checks.append(check)
    except TunerError as error:
        checks.append(Check("card can be rendered anew", ok=False, detail=str(error)))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError, RecursionError) as error:
        checks.append(Check("card has its fields", ok=False, detail=f"a field is missing or mistyped: {error!r}"))
    return Report(tuple(checks))


def render_anew(card: Mapping[str, Any], state: DatasetState) -> dict[str, Any]:
    """Return the card that the ledger and the operator's own words give.

    Args:
        card: the card, from which the operator's own words are read, and nothing else.
        state: the data set at the entry that the card names.

    Raises:
        KeyError: the card lacks one of the operator's own words.
        TypeError: a section is not a mapping.
        TunerError: the ledger does not have its search or its run, or the operator's words do not fit them.
    """
    search = state.by_name.get(card["claim"]["search"])
    return build_card(own_words_of(card, charged_whole=search is not None and search.charged_whole), state=state)


def _checks(
    card: Mapping[str, Any] | str, ledger: Ledger, page: str | None, files: Mapping[str, str] | None
) -> Iterator[Check]:
    if isinstance(card, str):
        card = parse_card(card)
        yield Check("card text", ok=True, detail="byte for byte as export writes it")
    if card["schema"] != SCHEMA_VERSION:
        raise VerificationError(
            "card-format",
            f"The format of the card is {card['schema']!r}, and this version reads format {SCHEMA_VERSION}. Verify it "
            "with the version of dp-tuner that wrote it.",
        )
    try:
        ledger.verify_chain()
    except LedgerError as error:
        yield Check("ledger chain", ok=False, detail=str(error))
        return
    yield Check("ledger chain", ok=True, detail="every entry hashes, links and was allowed")
    dataset, search, seq = card["claim"]["dataset"], card["claim"]["search"], card["ledger"]["head_seq"]
    yield _recorded(card, ledger)
    state = ledger.state_at(dataset, seq)
    yield _head(card, state)
    yield from _compared(card, state)
    entries = [(entry.kind, entry.data) for entry, _ in ledger.entries(dataset) if entry.seq <= seq]
    yield from second_opinion(card, entries, search)
    if page is not None:
        yield _page(card, page)
    if files is not None:
        yield from _files(card, files)


def _recorded(card: Mapping[str, Any], ledger: Ledger) -> Check:
    name, found = "card hash", card_hash(card)
    known = [digest for digest, _, _ in ledger.search_state(card["claim"]["search"]).cards]
    if found in known:
        return Check(name, ok=True, detail=f"{found} is recorded in the ledger")
    issued = ", ".join(known) or "no card"
    return Check(name, ok=False, detail=f"the card hashes to {found}; the ledger issued {issued}")


def _head(card: Mapping[str, Any], state: DatasetState) -> Check:
    named = (card["ledger"]["head_seq"], card["ledger"]["head_hash"])
    same = (state.seq, state.head) == named
    detail = f"the card names entry {named[0]} of the ledger, {named[1]}; "
    detail += "it is there" if same else f"the ledger has entry {state.seq}, {state.head}"
    return Check("ledger head", ok=same, detail=detail)


def _compared(card: Mapping[str, Any], state: DatasetState) -> Iterator[Check]:
    """The whole card against the one rendered anew: every number, word and key but the operator's own."""
    name = "card rendered anew"
    try:
        wanted = render_anew(card, state)
    except ArithmeticError as error:
        yield Check(name, ok=None, detail=not_judged(error))
        return
    wrong = list(differences(card, wanted))
    yield Check(
        name,
        ok=not wrong,
        detail="; ".join(each.detail for each in wrong) or "every number and word is the same",
        exact="; ".join(each.exact for each in wrong) or None,
    )


def _page(card: Mapping[str, Any], page: str) -> Check:
    """The page against one rendered from the card, whose digits it must show."""
    name, wanted = "card page", render_markdown(card)
    if page == wanted:
        return Check(name, ok=True, detail="every line is the same")
    pairs = zip(wanted.splitlines(), page.splitlines(), strict=False)
    gives, says = next(((a, b) for a, b in pairs if a != b), ("its end", "more or fewer lines"))
    short_gives, short_says = clipped(gives, says)
    return Check(
        name,
        ok=False,
        detail=f"the page says {short_says}, and the card gives {short_gives}",
        exact=f"the page says {says!r}, and the card gives {gives!r}",
    )


def _files(card: Mapping[str, Any], files: Mapping[str, str]) -> Iterator[Check]:
    for name, digest in sorted(card["exported_files"].items()):
        found = files.get(name)
        if found is None:
            yield Check(f"file {name}", ok=True, detail="not compared: it is not in the card's folder")
        elif found == digest:
            yield Check(f"file {name}", ok=True, detail="it was exported with the card")
        else:
            yield Check(f"file {name}", ok=False, detail=f"it hashes to {found}; the card was issued for {digest}")
