"""`accounting: auto` by the commands: what is stored, charged, resumed and exported is one concrete search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import Tune

from tuner.experiment import load_experiment
from tuner.plan.prices import MeasuredSearch, Prices

AUTO: dict[str, object] = {
    "privacy": {"epsilon": 3.0, "accounting": "auto"},
    "search__trials": 3,
    "search__sampler": "tpe",
    "search__space": {"learning_rate": {"log_uniform": [0.1, 20.0]}},
}


def plant(patch: pytest.MonkeyPatch, best: str) -> None:
    """Let one candidate be two points better than no search on every measured data set."""
    rows = tuple(
        MeasuredSearch(
            arm=arm, trials=3, axes=1, family="linear", train_size=1000, dataset=f"{number}",
            epsilon=epsilon, price=price,
        )
        for number in range(12)
        for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0)
        for arm, price in (("prior", 3.0), (best, 1.0))
    )  # fmt: skip
    patch.setattr("tuner.plan.comparison.shipped_prices", lambda: Prices(provenance={}, searches=rows))


@pytest.mark.slow
def test_a_search_that_auto_chose_is_an_ordinary_one_and_is_resumed_as_it_was_chosen(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "commit")
    file = tune.write(**AUTO)
    dry = tune("run", file, "--dry-run", "--local")
    assert "auto takes" in dry.text
    assert tune.entries == []
    said = tune("run", file, "--local", "--json").json
    assert [row["committed"] for row in said["trials"]] == [False, False, False, True]
    (sweep,) = tune.sweeps
    stored = load_experiment(sweep / "experiment.yaml")
    assert stored.privacy.accounting == said["plan"]["accounting"] == "composition"
    assert stored.chosen_by_auto is not None
    assert stored.chosen_by_auto.candidate == "commit"
    assert "points above one run without a search" in stored.chosen_by_auto.reason
    reserved = tune.entries.count("reserve")

    plant(monkeypatch, "selection")
    assert "auto takes sealed search" in tune("plan", file, "--no-timing").text, (
        "the control: it would choose otherwise"
    )
    resumed = tune("run", file, "--resume", "--local", "--json").json
    assert resumed["sweep"] == said["sweep"]
    assert tune.entries.count("reserve") == reserved, "the search is complete, so nothing more is charged"
    refused = tune("run", tune.write(**AUTO, trainable__epochs=2), "--resume", "--local", code=2).err
    assert "[resume-changes-setting]" in refused
    assert "trainable.epochs" in refused

    tune("report", "tiny")
    page = (sweep / "report.html").read_text()
    for row in json.loads((sweep / "comparison.json").read_text())["rows"]:
        assert row["title"] in page, "all that auto compared"

    tune("export", "tiny")
    folder = Path(tune.folder / "exports" / "tiny")
    assert "yes: the card follows from its ledger" in tune("verify", str(folder / "privacy_card.json")).out
    assert load_experiment(folder / "experiment.yaml").chosen_by_auto is None


def test_the_plan_has_every_candidate_and_says_in_words_that_no_search_pays(
    bare: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "middle")
    file = bare.write(**AUTO)
    values = bare("plan", file, "--no-timing", "--json").json
    rows = {row["candidate"]: row for row in values["comparison"]}
    assert set(rows) == {"prior", "gen", "commit", "full_runs", "composition", "selection", "proxy"}
    assert [name for name, row in rows.items() if row["taken"]] == ["prior"]
    assert rows["prior"]["price"]["value"] == pytest.approx(3.0)
    assert rows["gen"]["refused"]
    assert rows["commit"]["unmeasured"] == "not measured"
    assert rows["prior"]["noise_multiplier"] == values["noise_multiplier"] < rows["composition"]["noise_multiplier"]
    assert values["auto"]["candidate"] == "prior"
    assert values["auto"]["reason"].startswith("do not search")
    assert "do not search" in bare("plan", file, "--no-timing").text
    assert "valid" in bare("validate", file).out
    own = bare("plan", file, "--no-timing", "--json", "--set", "privacy.accounting=composition").json
    assert [row["candidate"] for row in own["comparison"] if row["taken"]] == ["composition"]
    assert own["auto"]["candidate"] == "prior"


@pytest.mark.parametrize(
    ("change", "code"),
    [({"privacy__private": False}, "mode-needs-private"), ({"search__commit": 0.1}, "auto-decides")],
)
def test_what_contradicts_auto_ends_with_code_2_and_charges_nothing(
    bare: Tune, change: dict[str, object], code: str
) -> None:
    file = bare.write(**{**AUTO, **change})
    for words in (("run", file, "--local"), ("plan", file), ("validate", file)):
        assert f"[{code}]" in bare(*words, code=2).err
    assert bare.entries == []
