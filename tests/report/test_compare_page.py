"""The interactive page has the numbers of the sweeps, runs its own two scripts, and nothing that a name could bring."""

from __future__ import annotations

import re
from typing import Any

from html_checks import NASTY, checked, without_scripts
from report_fakes import budget, report, row

from search_spaces.domains import LogUniform
from tuner.privacy.modes import SELECTION
from tuner.report.compare_page import compare_page
from tuner.report.sweep_report import SweepReport

NAN = float("nan")


def of(epsilon: float, score: float, sweep: str, **changes: object) -> SweepReport:
    spent = budget()
    spent.epsilon_cap = epsilon
    return report(row(0, score / 2), row(1, score), row(2, 0.01, "pruned"), sweep=sweep, budget=spent, **changes)


def chart(name: str, *reports: SweepReport) -> dict[str, Any]:
    return next(each for each in without_scripts(compare_page(reports))[1] if each["name"] == name)


def test_the_front_has_the_sweeps_that_no_cheaper_one_beats() -> None:
    drawn = chart("score against guaranteed ε", of(3.0, 0.8, "b"), of(1.0, 0.7, "a"), of(8.0, 0.75, "c"))["data"]
    assert list(zip(drawn[0]["x"], drawn[0]["y"], strict=True)) == [(1.0, 0.7), (3.0, 0.8), (8.0, 0.8)]
    assert {(each["name"], each["x"][0], each["y"][0]) for each in drawn[1:]} == {
        ("a", 1.0, 0.7), ("b", 3.0, 0.8), ("c", 8.0, 0.75)
    }  # fmt: skip


def test_no_guarantee_is_rounded_down() -> None:
    page, drawn = without_scripts(compare_page([of(1.23449, 0.7, "a"), of(3.0, 0.8, "b")]))
    assert "1.23449" in page
    (front,) = [each for each in drawn if each["name"] == "score against guaranteed ε"]
    assert front["layout"]["xaxis"]["ticktext"] == ["1.23449", "3"]
    assert "guaranteed ε 1.23449 of" in front["data"][1]["hovertext"][0]


def test_sweeps_with_one_guarantee_are_next_to_each_other_and_differ_in_shape() -> None:
    marks = chart("score against guaranteed ε", of(2.0, 0.8, "b"), of(2.0, 0.7, "a"), of(8.0, 0.75, "c"))["data"][1:]
    places = [each["x"][0] for each in marks]
    assert len(set(places)) == 3
    assert places[0] + places[1] == 4.0
    assert all("guaranteed ε 2 " in each["hovertext"][0] for each in marks[:2])
    assert len({each["marker"]["symbol"] for each in marks}) == 3
    (front, *_) = chart("score against guaranteed ε", of(2.0, 0.7, "a"), of(2.0, 0.8, "b"), of(8.0, 0.75, "c"))["data"]
    assert list(zip(front["x"], front["y"], strict=True)) == [(2.0, 0.8), (8.0, 0.8)], "of one ε, the best counts"


def test_scores_of_different_data_sets_are_never_in_one_chart() -> None:
    one, two = of(1.0, 0.7, "a", dataset="mnist"), of(2.0, 0.8, "b", dataset="adult")
    other = of(3.0, 0.9, "c", dataset="adult", metric="validation_loss", mode="min")
    page, drawn = without_scripts(compare_page([one, two, other]))
    assert "score against guaranteed ε" not in [each["name"] for each in drawn]
    for each in drawn:
        names = {trace["legendgroup"] for trace in each["data"] if "legendgroup" in trace}
        assert len(names & {"a", "b", "c"}) <= 1
    for name in ("validation_accuracy on mnist", "validation_accuracy on adult", "validation_loss on adult"):
        assert f"<h2>{name}</h2>" in page
    assert any(each["name"] == "score against guaranteed ε" for each in without_scripts(compare_page([two, two]))[1])


def test_several_sweeps_share_the_scale_on_which_values_were_drawn() -> None:
    changes = {"domains": {"learning_rate": LogUniform(0.001, 1.0)}, "searched": ("learning_rate", "schedule")}
    shown = (of(1.0, 0.8, "a", **changes), of(1.0, 0.6, "b", **changes))
    scores = chart("learning_rate", *shown)
    marks = scores["data"][0]
    assert list(zip(marks["x"], marks["y"], marks["marker"]["symbol"], strict=True)) == [
        (1.0, 0.4, "circle"), (0.1, 0.8, "star"), (0.01, 0.01, "circle-open")
    ]  # fmt: skip
    assert scores["layout"]["xaxis"]["type"] == "log"
    lines = [line for line in chart("parallel coordinates", *shown)["data"] if line["x"] != [None]]
    assert sorted({line["y"][0] for line in lines}) == [0.0, 0.5, 1.0]


def test_the_table_has_only_settings_that_differ_and_not_where_things_are_kept() -> None:
    page = compare_page(
        [
            of(1.0, 0.7, "a", experiment="privacy: {epsilon: 1.0}\nseed: 1\nstorage: here\nsearch: {commit: null}\n"),
            of(2.0, 0.8, "b", experiment="privacy: {epsilon: 2.0}\nseed: 1\nstorage: there\nsearch: {commit: 0.5}\n"),
        ]
    )
    table = page[page.index("Settings that differ") : page.index("<h2>Trials")].replace("<wbr>", "")
    assert "privacy.epsilon" in table
    assert "None" not in table, "a setting without a value is a dash"
    assert not re.search("seed|storage", table)


def test_only_the_two_scripts_of_the_policy_run_and_no_name_becomes_markup() -> None:
    rows = [row(number, 0.5, parameters={NASTY: f"{NASTY} {number}"}, reason=NASTY) for number in range(3)]
    page = compare_page(
        [report(*rows, sweep=NASTY, metric=NASTY, headline=NASTY, experiment="a: '<script>'", searched=())]
    )
    outside, drawn = without_scripts(page)
    assert checked(outside).pictures == []
    assert drawn[0]["name"] == f"{NASTY} of each trial"
    assert "<script" not in str(drawn[0]["data"]), "plotly reads some markup"


def test_a_sealed_search_shows_its_winner_alone_and_no_number_is_nan() -> None:
    winner = row(0, 0.87, parameters={"learning_rate": 0.3}, curve=())
    page = compare_page([report(winner, accounting=SELECTION), report(row(0, parameters={"learning_rate": NAN}))])
    table = page[page.index("<h2>The sweeps") : page.index("Each guarantee covers ONE")]
    assert "sealed" in table
    assert "0.87" in table
    assert "NaN" not in page[page.index('id="charts"') : page.index("</script>", page.index('id="charts"'))]
