"""Which run an export lets out: one that was charged, with the settings of its model, and a card or nothing at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import STEPS, Tune
from sealed_fakes import sealed

from trainables.training import PrivateTraining
from tuner.errors import VerificationError
from tuner.privacy.card import card as cards

CARD = Path("exports/tiny/privacy_card.json")


def test_a_sealed_winner_that_is_not_the_longest_run_is_exported(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    real = PrivateTraining.evaluate

    def short_ones_win(self: PrivateTraining, split: str = "validation") -> dict[str, float]:
        return {name: value - 0.001 * self.spec.steps for name, value in real(self, split).items()}

    monkeypatch.setattr(PrivateTraining, "evaluate", short_ones_win)
    sealed(tune, 10, "--quiet", search__space={"learning_rate": 0.5, "epochs": {"choice": [1, 2]}})
    released = json.loads((tune.sweeps[0] / "winner.json").read_text())
    export = tune("export", "tiny", "--json").json
    assert export["trial"]["parameters"] == released["parameters"]
    card = json.loads(CARD.read_text())
    assert card["winner"]["steps"] == released["steps"]
    assert [run["steps"] for run in card["training_cap"]["filter"]["runs"]] == [2 * STEPS]
    assert tune("verify", str(CARD), "--json").json["answer"] == "yes"


def test_a_sealed_export_tells_no_number_and_refuses_other_settings_than_its_models(tune: Tune) -> None:
    sealed(tune, 2, "--quiet")
    path = tune.sweeps[0] / "winner.json"
    text = path.read_text()
    values = json.loads(text)
    for change in ({"seed": values["seed"] + 1}, {"parameters": {**values["parameters"], "learning_rate": 0.123}}):
        path.write_text(json.dumps({**values, **change}))
        assert "[sweep-files-changed]" in tune("export", "tiny", code=1).text
    path.write_text(text)
    assert "[no-curve]" in tune("export", "tiny", "--by", "curve", code=2).err
    assert not Path("exports").exists()
    export = tune("export", "tiny", "--by", "score", "--json").json
    assert "chosen" not in export
    assert "number" not in export["trial"]
    assert export["trial"]["id"] == "winner"
    assert json.loads(CARD.read_text())["ledger"]["head_seq"] == 2, "opened, begun"
    assert '"leased_steps"' not in CARD.read_text()
    trials = [path.name for path in (tune.sweeps[0] / "sealed" / "trials").iterdir()]
    assert trials, "the names of its runs are looked for"
    exported = b"".join(path.read_bytes() for path in Path("exports/tiny").iterdir())
    assert not any(name.encode() in exported for name in trials)


def test_a_refused_card_leaves_nothing_behind_and_the_test_set_unused(
    charged: Tune, scored: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise VerificationError("card-run-not-charged", "no card for this one")

    with monkeypatch.context() as patch:
        patch.setattr(cards, "build_card", refuse)
        assert "[card-run-not-charged]" in charged("export", "tiny", code=None).err
    assert scored == []
    assert not Path("exports").exists()
    assert not (charged.sweeps[0] / "test_scores.json").exists()
    charged("export", "tiny")
    assert scored == ["test"]
