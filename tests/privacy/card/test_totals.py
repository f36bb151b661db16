"""The sentence about all searches together, over one data set and over the blocks of a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.privacy.card.claims import Total, claim_line, mixes_sides, totals_sentence
from tuner.privacy.modes import COMPOSITION

A = Total(dataset="sales/a", cap=(8.0, 1e-4), committed=(3.0, 1e-5), searches=1)
B = Total(dataset="sales/b", cap=(6.0, 2e-4), committed=(5.0, 3e-5), searches=2)
C = Total(dataset="sales/c", cap=(6.0, 2e-4), committed=(1.0, 1e-5), searches=1)
FREE, VOID = replace(C, cap=None, committed=(9.0, 4e-5)), replace(C, void=True)
ABOVE = replace(C, committed=(7.0, 1e-5), within=False)


def test_the_largest_cap_and_the_largest_total_are_named() -> None:
    said = totals_sentence([A, B, C])
    assert "each of the 3 blocks" in said
    assert "at most ε = 8, δ = 0.0002, which is the largest of the caps" in said
    assert "Largest total so far: sales/b, 2 searches, ε = 5, δ = 3e-05" in said
    assert totals_sentence([A]) == A.sentence


def test_a_total_over_different_validation_splits_says_for_which_records_it_holds() -> None:
    condition = "this holds only for records that no search used, in any version, for validation without protection"
    for total in (A, ABOVE, FREE):
        assert condition in totals_sentence([replace(total, mixed=True)])
        assert condition not in totals_sentence([total])
    assert totals_sentence([replace(FREE, mixed=True)]).endswith(FREE.how_to_cap)
    said = totals_sentence([A, replace(B, mixed=True), replace(FREE, mixed=True)])
    assert said.count(condition) == 1
    assert "on sales/c, sales/b did not use the same records for validation" in said
    assert said.endswith(FREE.how_to_cap)
    assert condition not in totals_sentence([replace(VOID, mixed=True)])


def test_records_of_a_void_total_were_used_even_if_no_search_counts() -> None:
    said = replace(VOID, searches=0, committed=(0.0, 0.0)).sentence
    assert "used without protection (no charged search)" in said
    assert "no search yet" not in said


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (FREE, "sales/c: no cap, and every search adds to the total. Largest total so far: sales/c"),
        (VOID, "The TOTAL of sales/c is VOID"),
        (ABOVE, ABOVE.sentence),
    ],
)
def test_a_block_that_no_cap_bounds_is_never_hidden_behind_others(bad: Total, words: str) -> None:
    for totals in ([bad, A, B], [A, bad, B], [A, B, bad]):
        said = totals_sentence(totals)
        assert words in said
        assert "any one of the other 2 blocks together: at most ε = 8" in said
        assert said.index(words) < said.index("at most ε = 8")
    assert totals_sentence([A, FREE, B]).endswith("To set a cap: tune budget set sales/c --epsilon E --delta D")
    all_bad = totals_sentence([FREE, VOID, ABOVE])
    assert all(each in all_bad for each in ("no cap", "VOID", "above the cap"))


def test_a_search_is_of_all_searches_only_if_each_block_has_a_cap() -> None:
    for totals, what in (([A, B], "this search"), ([A, FREE], "ONE search"), ([], "ONE search")):
        line = claim_line(2.0, 1e-5, totals, mode=COMPOSITION, unit="record", protected=False)
        assert f"of {what}." in line


def test_a_total_is_weaker_only_where_the_other_one_promises_more() -> None:
    assert not replace(A, searches=9, committed=(7.9, 9e-5)).weaker_than(A), "more searches within the cap"
    assert not replace(A, cap=(4.0, 1e-4)).weaker_than(A)
    for weaker in (replace(A, cap=(9.0, 1e-4)), replace(A, cap=(8.0, 2e-4)), replace(A, cap=None)):
        assert weaker.weaker_than(A)
    for weaker in (replace(A, within=False), replace(A, void=True), replace(A, mixed=True)):
        assert weaker.weaker_than(A)
        assert not weaker.weaker_than(weaker)
    assert not A.weaker_than(FREE), "which states a sum alone"
    assert not replace(C, cap=(9.0, 2e-4)).weaker_than(ABOVE), "which promises no cap"


def test_only_records_that_validate_without_protection_are_left_out() -> None:
    exact, protected = '{"seed":0}', '{"scores":"protected","seed":1}'
    assert mixes_sides([exact, protected])
    assert mixes_sides([exact, "null"])
    assert not mixes_sides([protected, '{"scores":"protected","seed":2}']), "each claim covers both sides"
    assert not mixes_sides([exact])
