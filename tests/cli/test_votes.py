"""Students on voted labels by the commands: one charge for any number of searches, its card, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_fakes import Tune

from trainables import data
from trainables.data import DATASETS, DatasetRequest

TEACHERS = 20
VOTES: dict[str, object] = {
    "trainable__method": "pate",
    "privacy__noise_multiplier": "auto",
    "privacy__accounting": "votes",
    "privacy__votes": {"threshold": 5, "queries": 300, "answers": 40, "threshold_share": 0.2},
    "search__space": {"learning_rate": "default", "smoothing_sigma": 0.02, "smoothing_samples": 3},
}
CHARGED = ["open_search", "release", "stored"]


@pytest.fixture(autouse=True)
def voted_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digits, as if 20 teachers of theirs had voted on their training inputs: 16 rightly, 4 for the next class."""
    monkeypatch.setitem(DATASETS, "digits", replace(DATASETS["digits"], teachers=TEACHERS))

    def votes_on(_known: object, request: DatasetRequest) -> torch.Tensor:
        labels = data.load_records(request).y_train
        one = torch.nn.functional.one_hot
        return 16 * one(labels, 10) + 4 * one((labels + 1) % 10, 10)

    monkeypatch.setattr("trainables.data.votes.votes_on", votes_on)


def run(tune: Tune, *more: str, code: int = 0, **changes: object) -> Any:  # noqa: ANN401 - the printed JSON
    said = tune("run", tune.write(**{**VOTES, **changes}), "--local", "--json", *more, code=code)
    return json.loads(said.out) if code == 0 else said


def releases(tune: Tune) -> list[Path]:
    return sorted((tune.folder / "dp-tuner" / "ledger.db.releases").glob("*.npz"))


def test_students_and_a_later_search_add_nothing_and_the_card_is_verified(tune: Tune) -> None:
    first = run(tune)
    assert first["claim"] == {"epsilon": 8.5, "delta": 1e-5}
    assert tune.entries == CHARGED
    (stored,) = releases(tune)
    assert stored.stat().st_mode & 0o777 == 0o600
    tune("export", "tiny")
    path = tune.folder / "exports" / "tiny" / "privacy_card.json"
    card = json.loads(path.read_text())
    assert card["claim"]["mode"] == "votes"
    assert card["release"]["answers_at_most"] == 40
    assert "would not be private" in card["release"]["given_the_votes"]
    status = {each["assumption"]: each["status"] for each in card["assumptions"]}
    assert status["one record changes the votes of at most one teacher"] == "assumed"
    tune("verify", str(path))
    run(tune, name="later", trainable__epochs=2, trainable__model="mlp_64")
    assert [kind for kind in tune.entries if kind != "card"] == CHARGED, "the second search is charged nothing"
    # Another limit is another draw, and is charged.
    run(tune, privacy__votes={"threshold": 5, "queries": 300, "answers": 41, "threshold_share": 0.2})
    assert [kind for kind in tune.entries if kind != "card"] == CHARGED * 2
    # A forged limit, threshold or noise is found.
    for name, value in (("answers_at_most", 39), ("threshold", 4.0), ("answer_noise", 1e3)):
        from tuner.privacy.card.card import card_text

        path.write_text(card_text({**card, "release": {**card["release"], name: value}}))
        assert tune("verify", str(path), code=None).code != 0


def test_a_plan_and_an_audit_read_no_vote_and_show_no_figure_of_the_votes(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a vote was read")

    monkeypatch.setattr(data, "load_votes", refused)
    said = tune("plan", tune.write(**VOTES), "--no-timing")
    assert "so it is not shown" in said.text
    said = tune("audit", "tiny.yaml", "--json").json
    assert said["ok"] is True
    assert 0.5 < said["canaries"]["epsilon_at_least"] <= said["claim"]["epsilon"]
    assert said["sensitivity"]["largest_ratio"] == 1
    assert tune.entries == []


def test_votes_that_give_a_teacher_two_votes_end_in_fixed_words_after_the_charge(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> torch.Tensor:
        raise ValueError("row 17 has 21 votes")

    monkeypatch.setattr("trainables.data.votes.votes_on", wrong)
    said = run(tune, code=1)
    assert "row 17" not in said.text
    assert tune.entries == CHARGED[:2], "charged before a vote was read"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"dataset__name": "iris"}, "votes-without"),
        ({"trainable__method": "dp_sgd", "privacy__accounting": "composition", "privacy__votes": {}}, "votes-without"),
        ({"trainable__method": "dp_sgd"}, "release-method"),
        ({"trainable__method": "input_perturbation"}, "release-method"),
        ({"privacy__accounting": "release", "privacy__votes": {}}, "release-method"),
        ({"privacy__accounting": "composition"}, "release-unused"),
        ({"privacy__noise_multiplier": 2.0}, "release-noise"),
        ({"privacy__private": False}, "mode-needs-private"),
        ({"privacy__delta": 1e-3}, "delta-too-large"),
        ({"dataset__validation": {"protected": True}}, "release-scores"),
        ({"privacy__votes": {"answers": [10, 20]}}, "release-searched"),
        ({"privacy__votes": {"threshold_share": 1.0}}, "value-out-of-range"),
        ({"search__space": {"learning_rate": "default", "smoothing_sigma": -0.1}}, "value-illegal"),
    ],
)
def test_bad_input_is_one_clear_error_and_charges_nothing(tune: Tune, changes: dict[str, object], code: str) -> None:
    said = run(tune, code=2, **changes)
    assert code in said.text
    assert tune.entries == []
    assert tune.sweeps == []
    assert tune.mlflow_runs() == []
