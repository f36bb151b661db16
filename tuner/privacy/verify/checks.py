"""Checks of a privacy card. The card is compared with one built from the ledger. Its claims are recomputed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from tuner.errors import LedgerError, TunerError, VerificationError
from tuner.privacy.card.card import build_card, card_hash, parse_card
from tuner.privacy.card.claims import Total
from tuner.privacy.card.curve import picture_numbers, render_svg
from tuner.privacy.card.own_words import EXPORTED, own_words_of
from tuner.privacy.card.page import render_markdown
from tuner.privacy.card.sections.exported import SCHEMA_VERSION
from tuner.privacy.ledger.history import void_text
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.ledger.state import DatasetState
from tuner.privacy.verify.differences import clipped, differences, short
from tuner.privacy.verify.report import Check, Report, not_judged
from tuner.privacy.verify.second_opinion import second_opinion

__all__ = ["check_card", "check_files", "check_page", "check_picture", "check_recorded"]


def check_card(
    card: Mapping[str, Any] | str,
    ledger: Ledger,
    *,
    page: str | None = None,
    picture: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Report:
    """Check a card against its ledger and return the report.

    A wrong card or ledger gives a failed check, not an exception.

    Args:
        card: the text of the card file, or its parsed values. The text is compared byte for byte.
        ledger: the ledger in which the search was charged.
        page: the text of the card's page; None skips the check of the page.
        picture: the text of the card's picture; None skips the check of the picture.
        files: SHA-256 of each exported file in the card's folder, by file name; None skips the checks of the files.
    """
    checks: list[Check] = []
    try:
        for check in _checks(card, ledger, page, picture, files):
            checks.append(check)
    except TunerError as error:
        checks.append(Check("card can be rendered anew", ok=False, detail=str(error)))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError, RecursionError) as error:
        checks.append(
            Check("card has its fields", ok=False, detail=f"a field is missing or has a wrong type: {error!r}")
        )
    return Report(tuple(checks))


def _checks(
    card: Mapping[str, Any] | str,
    ledger: Ledger,
    page: str | None,
    picture: str | None,
    files: Mapping[str, str] | None,
) -> Iterator[Check]:
    if isinstance(card, str):
        card = parse_card(card)
        yield Check("card text", ok=True, detail="the file has exactly the bytes that `tune export` writes")
    if card["schema"] != SCHEMA_VERSION:
        raise VerificationError(
            "card-format",
            f"The card has format {card['schema']!r}, but this version of dp-tuner only reads format {SCHEMA_VERSION}. "
            "Use the version that wrote the card.",
        )
    dataset, search, budget = card["claim"]["dataset"], card["claim"]["search"], card["dataset_budget"]
    try:
        damaged = ledger.verify_chain(dataset)
        names = ledger.search_state(search).datasets
        for block in names:
            if block in damaged:
                raise damaged[block]
    except LedgerError as error:
        yield Check("ledger chain", ok=False, detail=str(error))
        return
    others = (
        f". DAMAGED in the same ledger, but not used by this card: the data sets {', '.join(map(repr, damaged))}"
        if damaged
        else ""
    )
    yield Check(
        "ledger chain", ok=True, detail=f"every entry has the right hash and follows the ledger's rules{others}"
    )
    yield check_recorded(card, ledger)
    heads = {row["dataset"]: (row["head_seq"], row["head_hash"]) for row in budget["blocks"] or ()}
    heads[dataset] = (card["ledger"]["head_seq"], card["ledger"]["head_hash"])
    chains, states = {}, {}
    for name in (dataset, *names[1:]):
        history = [pair for pair in ledger.entries(name) if name not in heads or pair[0].seq <= heads[name][0]]
        chains[name] = [(entry.kind, entry.data) for entry, _ in history]
        states[name] = history[-1][1] if history else DatasetState(dataset=name)
        if name in heads:
            yield _head("ledger head" if name == dataset else f"ledger head of block {name}", heads[name], states[name])
    yield from _compared(card, states.pop(dataset), tuple(states.values()))
    if card["records"]["division"] is not None:
        yield _division(ledger, dataset)
    yield from second_opinion(card, chains, search)
    yield from _totals_today(budget, ledger.states_of(names))
    if page is not None:
        yield check_page(card, page)
    if picture is not None:
        yield check_picture(card, picture)
    if files is not None:
        yield from check_files(card, files)


def _totals_today(budget: Mapping[str, Any], states: Sequence[DatasetState]) -> Iterator[Check]:
    """Compare what the card says of all searches together with what the ledger says today.

    Each later search adds to a total, but it stays true that the total is at most the cap. That ends if the owner sets
    a larger cap, or lets the records be used without protection.
    """
    for row, now in zip(budget["blocks"] or [budget], states, strict=True):
        then, today = Total.of_card(row), Total.of_state(now)
        what = "the data set's total" if len(states) == 1 else f"the total of block {now.dataset}"
        detail = "; ".join([today.sentence, *map(void_text, now.voids)])
        outdated = today.weaker_than(then)
        if outdated or now.voids:
            yield Check(f"{what} today", ok=True, detail=detail, outdated=outdated)


def check_recorded(card: Mapping[str, Any], ledger: Ledger) -> Check:
    """Compare the card's hash with those that the ledger recorded. Raise `LedgerError` if the search is unknown."""
    name, found = "card hash", card_hash(card)
    known = [digest for digest, _, _ in ledger.search_state(card["claim"]["search"]).cards]
    if found in known:
        return Check(name, ok=True, detail=f"the ledger recorded the hash of this card, {found}")
    issued = ", ".join(known) or "no card"
    return Check(name, ok=False, detail=f"the card's hash is {found}, but the ledger recorded {issued}")


def _head(name: str, named: tuple[int, str], state: DatasetState) -> Check:
    same = (state.seq, state.head) == named
    detail = f"the card names the ledger entry {named[0]} with the hash {named[1]}, "
    detail += "which the ledger has" if same else f"but the ledger has the entry {state.seq} with the hash {state.head}"
    return Check(name, ok=same, detail=detail)


def _compared(card: Mapping[str, Any], state: DatasetState, others: Sequence[DatasetState]) -> Iterator[Check]:
    """Compare the card with a new one that is built from the ledger and the operator's own words on the card."""
    name, search = "card rendered anew", state.by_name.get(card["claim"]["search"])
    try:
        own_words = own_words_of(
            card,
            hides_runs=search is not None and search.hides_runs,
            on_release=search is not None and search.charged_whole and not search.hides_runs,
        )
        wanted = build_card(own_words, state=state, others=others)
    except ArithmeticError as error:
        yield Check(name, ok=None, detail=not_judged(error))
        return
    wrong = list(differences(card, wanted))
    yield Check(
        name,
        ok=not wrong,
        detail="; ".join(each.detail for each in wrong)
        or "a new card, built from the ledger and from what only the operator knows, has the same numbers and words",
        exact="; ".join(each.exact for each in wrong) or None,
    )


def _division(ledger: Ledger, dataset: str) -> Check:
    """Check the stored division among users, on which the total for one user rests."""
    name = "division among users"
    try:
        ledger.verify_division(dataset)
    except LedgerError as error:
        if error.code != "ledger-not-granted":
            return Check(name, ok=False, detail=str(error))
        return Check(name, ok=True, detail="not compared: this database role has no right to read the stored division")
    return Check(name, ok=True, detail="the stored division of records among users matches the ledger's entries")


def check_page(card: Mapping[str, Any], page: str) -> Check:
    """Compare the page of the card with a page rendered from the card."""
    name, wanted = "card page", render_markdown(card)
    if page == wanted:
        return Check(name, ok=True, detail="every line is the same as on a page rendered from the card")
    pairs = zip(wanted.splitlines(), page.splitlines(), strict=False)
    gives, says = next(((a, b) for a, b in pairs if a != b), ("the right ending", "a different ending"))
    short_gives, short_says = clipped(gives, says)
    return Check(
        name,
        ok=False,
        detail=f"the page says {short_says}, but the card gives {short_gives}",
        exact=f"the page says {says!r}, but the card gives {gives!r}",
    )


def check_picture(card: Mapping[str, Any], picture: str) -> Check:
    """Compare the picture with one drawn from the card. If they differ, compare only the numbers in the picture.

    Another version of matplotlib may draw the same card differently, so a different drawing alone is not wrong.
    """
    name = "card picture"
    if picture == render_svg(card):
        return Check(name, ok=True, detail="the picture is the same as one drawn from the card")
    missing = next((text for text in picture_numbers(card) if f">{escape(text)}<" not in picture), None)
    if missing is not None:
        return Check(
            name,
            ok=False,
            detail=f"the picture lacks the text {short(missing)}, which follows from the card",
            exact=f"the picture lacks the text {missing!r}, which follows from the card",
        )
    return Check(
        name,
        ok=None,
        detail="not confirmed: the picture contains the card's numbers, but it differs from one that is drawn here. "
        "Either another version of matplotlib drew it, or it was changed. Only the card's numbers count",
    )


def check_files(card: Mapping[str, Any], files: Mapping[str, str]) -> Iterator[Check]:
    """Compare the SHA-256 of exported files with those on the card."""
    for name in EXPORTED:
        digest, found = card["exported_files"].get(name), files.get(name)
        if digest is None:
            yield Check(f"file {name}", ok=True, detail="not compared: the card does not list the file")
        elif found is None:
            yield Check(f"file {name}", ok=True, detail="not compared: the file is not in the card's folder")
        elif found == digest:
            yield Check(f"file {name}", ok=True, detail="the file has the hash that the card lists")
        else:
            yield Check(f"file {name}", ok=False, detail=f"the file has the hash {found}, but the card lists {digest}")
