"""The card's page and its curve: that people can read them, and that they follow from the card alone."""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from math import exp, inf, nan
from typing import Any

import pytest
from card_fakes import FACTS, KINDS, MECHANISM, IssuedCards, charged, open_first
from hypothesis import given
from hypothesis import strategies as st
from ledgers import lease

from tuner.privacy.accountant.filters import TotalSteps
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.card.card import card_text, issue_card, parse_card
from tuner.privacy.card.curve import claim_curve, curve_figure, render_svg
from tuner.privacy.card.page import render_markdown
from tuner.privacy.card.text import odds_factor
from tuner.privacy.ledger.ledger import Ledger

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def issued(issued_cards: IssuedCards) -> dict[str, Any]:
    return copy.deepcopy(issued_cards["total_steps"][1])


@pytest.fixture(params=KINDS)
def card(issued_cards: IssuedCards, request: pytest.FixtureRequest) -> dict[str, Any]:
    return copy.deepcopy(issued_cards[request.param][1])


def test_the_page_follows_from_the_card_alone(card: dict[str, Any]) -> None:
    """A card that was read has its fields in another order than one that was made."""
    read = parse_card(card_text(card))
    assert render_markdown(read) == render_markdown(card)
    assert render_svg(read) == render_svg(card)


def test_the_meaning_says_what_the_claim_means_in_odds(card: dict[str, Any]) -> None:
    page = render_markdown(card)
    meaning = page[page.index("## What this means") : page.index("## The numbers")]
    assert card["released"] in meaning
    assert card["kept_from_analysts"] in meaning
    epsilon = card["claim"]["epsilon"]
    factor = float(re.findall(r"e\^ε, here ([\d.]+)\.", meaning)[0])
    assert exp(epsilon) <= factor <= exp(epsilon) * 1.01
    right = float(re.findall(r"right in at most ([\d.]+) %", meaning)[0]) / 100
    best = (exp(epsilon) + 1e-5) / (1 + exp(epsilon))
    assert best <= right <= best + 1e-4
    assert "1 in 100000." in meaning


def test_the_odds_of_any_epsilon_are_rounded_up() -> None:
    assert [odds_factor(epsilon) for epsilon in (0.1, 8.0, 900.0)] == ["1.11", "2981", "more than 100000"]


def test_the_sealed_page_has_no_row_of_what_was_spent(issued_cards: IssuedCards) -> None:
    assert "| spent |" in render_markdown(issued_cards["total_steps"][1])
    assert "| spent |" not in render_markdown(issued_cards["sealed"][1])


def test_the_validation_cap_has_a_row(issued_cards: IssuedCards) -> None:
    card = issued_cards["validation"][1]
    (row,) = re.findall(r"^\| validation \| (\S+) \| (\S+) \|", render_markdown(card), flags=re.M)
    assert row[1] == "1e-06"
    assert float(row[0]) >= card["validation_cap"]["epsilon_at_cap"]


@pytest.mark.parametrize("epsilon", [nan, -1e9, 0.0, 1e999])
def test_a_claim_that_is_none_is_not_rendered(issued: dict[str, Any], epsilon: float) -> None:
    issued["claim"]["epsilon"] = epsilon
    with pytest.raises(ValueError, match="finite"):
        render_markdown(issued)
    with pytest.raises(ValueError, match="finite"):
        render_svg(issued)


@given(value=st.floats(min_value=1e-9, max_value=1e9))
def test_no_figure_of_the_table_reads_as_less_than_it_is(issued_cards: IssuedCards, value: float) -> None:
    card = copy.deepcopy(issued_cards["total_steps"][1])
    card["spent"]["epsilon_spent"] = value
    (shown,) = re.findall(r"\| spent \| (\S+) \|", render_markdown(card))
    assert value <= float(shown) <= value * 1.00101
    assert len(shown.split("e")[0].replace(".", "").strip("0")) <= 4


def test_the_page_says_more_committed_than_the_cap_and_splits_that_differ(ledger: Ledger) -> None:
    facts = charged(ledger, "total_steps")
    ledger.set_cap("digits", 4.0, 1e-5)
    page = render_markdown(issue_card(ledger, facts))
    assert "Over the cap" not in page
    assert "splits differ" not in page
    split = {"set": "digits", "fraction": 0.2, "seed": 3}
    small: dict[str, Any] = {"filter": TotalSteps(SampledGaussian(0.02, 3.0), 10), "epsilon": 1.0, "delta": 1e-6}
    ledger.set_cap("digits", 9.0, 1e-3)
    ledger.open_search("digits", "third", details={"split": split}, **small)
    ledger.open_search("digits", "fourth", **small)
    ledger.set_cap("digits", 3.5, 1e-3)
    page = render_markdown(issue_card(ledger, facts))
    assert "Over the cap" in page
    (line,) = (line for line in page.splitlines() if line.startswith("**Validation splits differ.**"))
    assert "set digits, fraction 0.2, seed 3" in line


def test_a_cap_without_an_order_names_none(card: dict[str, Any]) -> None:
    (line,) = (line for line in render_markdown(card).splitlines() if line.startswith("- cap set by the owner"))
    assert line == "- cap set by the owner: ε = 20.0, δ = 0.001"


@pytest.mark.parametrize(("trials", "several"), [(("a",), False), (("a", "b"), True)])
def test_one_trial_is_no_choice_from_several(ledger: Ledger, trials: tuple[str, ...], several: bool) -> None:
    open_first(ledger, filter=TotalSteps(MECHANISM, 1000), epsilon=4.0)
    for trial in trials:
        ledger.reserve("first", trial, 120, mechanism=MECHANISM)
        lease(ledger, "first", trial, 120)
    status = issue_card(ledger, FACTS)["claim"]["model_alone"]["status"]
    assert status.startswith("NOT a guarantee")
    assert ("chosen from several" in status) == several


def test_the_page_says_everything_the_json_says(card: dict[str, Any]) -> None:
    page = render_markdown(card)

    def leaves(value: object) -> list[object]:
        if isinstance(value, dict):
            return [leaf for item in value.values() for leaf in leaves(item)]
        return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]

    claim = card["claim"]
    claim["statement"] = claim["statement"].removeprefix(f"({claim['epsilon']!r}, {claim['delta']!r})-")
    for row in (card["dataset_budget"], *(card["dataset_budget"]["blocks"] or ())):
        row.pop("validation_splits")  # in words, tested above
    for leaf in leaves(card):
        if isinstance(leaf, str | float) and not isinstance(leaf, bool):
            assert (" ".join(leaf.split()) if isinstance(leaf, str) else repr(leaf)) in page


def test_the_curve_can_be_read_by_anyone(card: dict[str, Any]) -> None:
    text = render_svg(card)
    tree = ElementTree.fromstring(text)
    assert tree.get("role") == "img"
    named = {element.get("id"): element.text or "" for element in tree.iter() if element.get("id")}
    assert tree.get("aria-labelledby", "").split() == ["title", "description"]
    assert "first" in named["title"]
    # Self-contained: nothing is loaded and nothing runs.
    assert "<script" not in text
    assert not re.search(r"href=\"[^#]|url\([^#]", text)


def test_the_dots_are_where_the_card_says(card: dict[str, Any]) -> None:
    axes = curve_figure(card).axes[0]
    drawn = {line.get_label(): [tuple(map(float, point)) for point in line.get_xydata()] for line in axes.get_lines()}
    claim = card["claim"]
    expected = [[(row["epsilon"], row["delta"]) for row in card["training_cap"]["curve"]]]
    if card["validation_cap"] is not None:
        expected.append([(row["epsilon"], row["delta"]) for row in card["validation_cap"]["curve"]])
    assert list(drawn.values()) == [*expected, [(claim["epsilon"], claim["delta"])]]
    assert axes.get_yscale() == "log"
    assert axes.get_xlim()[0] == 0


def test_names_are_never_taken_for_markup(issued: dict[str, Any]) -> None:
    issued["claim"]["search"] = '<script>"&'
    tree = ElementTree.fromstring(render_svg(issued))
    assert not list(tree.iter(f"{SVG}script"))
    assert '<script>"&' in "".join(tree.itertext())


def test_names_make_no_links_tags_or_cells_of_the_page(issued: dict[str, Any]) -> None:
    name = '<img src=x onerror="a()"> [here](http://x.y) **n** a|b `c` plain_name'
    plain_page = render_markdown(issued)
    for section, key in (("claim", "dataset"), ("claim", "search"), ("records", "preprocessing")):
        issued[section][key] = name
    issued["dataset_budget"]["dataset"] = name
    page = render_markdown(issued)
    assert "&#60;img" in page
    assert "plain_name" in page, "the names that issued cards have stay as they are"
    for sign in ("<img", "[here]", "**n**", "a|b", "`c`"):
        assert sign not in page
    assert page.count("|") == plain_page.count("|")


def test_the_curve_leaves_out_what_cannot_be_told() -> None:
    filter = replace(KINDS["sealed"]["filter"], at_most=200)
    rows = claim_curve(filter, 1e-5)
    assert len(rows) > 3
    assert min(row["delta"] for row in rows) > 1e-9, "there the cut of the law takes all of δ"
    assert filter.claim(1e-9) == inf
    assert all(row["epsilon"] < inf for row in rows)
