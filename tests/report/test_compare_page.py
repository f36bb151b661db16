"""The interactive page has the numbers of the sweeps, runs its own two scripts, and nothing that a name could bring."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from html_checks import NASTY
from report_fakes import budget, report, row

from search_spaces.domains import LogUniform
from tuner.privacy.modes import SELECTION
from tuner.report.compare_page import compare_page
from tuner.report.interactive import charts
from tuner.report.sweep_report import SweepReport

NAN = float("nan")


def of(epsilon: float, score: float, sweep: str, **changes: object) -> SweepReport:
    spent = budget()
    spent.epsilon_cap = epsilon
    return report(row(0, score / 2), row(1, score), row(2, 0.01, "pruned"), sweep=sweep, budget=spent, **changes)


def chart(name: str, *reports: SweepReport) -> dict[str, Any]:
    return next(each for each in charts(reports) if each["name"] == name)


def test_the_front_has_the_sweeps_that_no_cheaper_one_beats() -> None:
    drawn = chart("score against guaranteed ε", of(3.0, 0.8, "b"), of(1.0, 0.7, "a"), of(8.0, 0.75, "c"))["data"]
    assert list(zip(drawn[0]["x"], drawn[0]["y"], strict=True)) == [(1.0, 0.7), (3.0, 0.8)]
    assert {(each["name"], each["x"][0], each["y"][0]) for each in drawn[1:]} == {
        ("a", 1.0, 0.7), ("b", 3.0, 0.8), ("c", 8.0, 0.75)
    }  # fmt: skip


def test_every_trial_is_a_mark_of_its_state_and_a_line_of_its_reports() -> None:
    shown = of(1.0, 0.8, "a", domains={"learning_rate": LogUniform(0.001, 1.0)}, searched=("learning_rate", "schedule"))
    (marks,) = chart("score by learning_rate", shown)["data"]
    assert list(zip(marks["x"], marks["y"], marks["marker"]["symbol"], strict=True)) == [
        (1.0, 0.4, "circle"), (0.1, 0.8, "star"), (0.01, 0.01, "circle-open")
    ]  # fmt: skip
    assert chart("score by learning_rate", shown)["layout"]["xaxis"]["type"] == "log"
    lines = chart("learning curves", shown)["data"]
    assert [list(zip(line["x"], line["y"], strict=True)) for line in lines] == [
        [(50, 0.1), (100, score)] for score in (0.4, 0.8, 0.01)
    ]
    assert [line["line"]["dash"] for line in lines] == ["solid", "solid", "dot"]
    parallel = chart("parallel coordinates", shown)["data"]
    assert [line["y"][0] for line in parallel] == [1.0, 0.5, 0.0], "the rate is on the scale on which it was drawn"


def test_the_table_has_only_settings_that_differ_and_not_where_things_are_kept() -> None:
    page = compare_page(
        [
            of(1.0, 0.7, "a", experiment="privacy: {epsilon: 1.0}\nseed: 1\nstorage: here\n"),
            of(2.0, 0.8, "b", experiment="privacy: {epsilon: 2.0}\nseed: 1\nstorage: there\n"),
        ]
    )
    table = page[page.index("Settings that differ") : page.index("<h2>Trials")]
    assert "privacy.epsilon" in table
    assert not re.search("seed|storage", table)


def test_only_the_two_scripts_of_the_policy_run_and_no_name_becomes_markup() -> None:
    rows = [row(number, 0.5, parameters={NASTY: f"{NASTY} {number}"}, reason=NASTY) for number in range(3)]
    page = compare_page(
        [report(*rows, sweep=NASTY, metric=NASTY, headline=NASTY, experiment="a: '<script>'", searched=())]
    )
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = re.search(r"script-src ([^\"]*)\"", page)
    assert allowed is not None
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert allowed.group(1).replace("&#39;", "'").split() == [f"'sha256-{each}'" for each in hashes]
    assert len(scripts) == 2
    outside = page
    for text in scripts:
        outside = outside.replace(text, "")
    data = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', outside, re.DOTALL)
    assert len(data) == 1
    assert outside.count("<script") == 3
    assert json.loads(data[0])[0]["name"] == "score by trial"
    assert not re.search(r"https?://", outside)


def test_a_sealed_search_shows_its_winner_alone_and_no_number_is_nan() -> None:
    winner = row(0, 0.87, parameters={"learning_rate": 0.3}, curve=())
    page = compare_page([report(winner, accounting=SELECTION), report(row(0, parameters={"learning_rate": NAN}))])
    table = page[page.index("<h2>The sweeps") : page.index("<h2>Charts")]
    assert "sealed" in table
    assert "0.87" in table
    assert "NaN" not in page[page.index('id="charts"') : page.index("</script>", page.index('id="charts"'))]
