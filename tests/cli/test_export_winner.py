"""Which run an export lets out: one that was charged, with the settings of its model, and a card or nothing at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
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


@pytest.mark.parametrize("change", ["parameters", "seed"])
def test_a_winner_of_other_settings_than_its_sealed_model_is_refused(tune: Tune, change: str) -> None:
    sealed(tune, 2, "--quiet")
    path = tune.sweeps[0] / "winner.json"
    text = path.read_text()
    values = json.loads(text)
    values[change] = values["seed"] + 1 if change == "seed" else {**values["parameters"], "learning_rate": 0.123}
    path.write_text(json.dumps(values))
    assert "[sweep-files-changed]" in tune("export", "tiny", code=1).text
    assert not Path("exports/tiny").exists()
    path.write_text(text)
    tune("export", "tiny")


def test_a_refused_card_leaves_nothing_behind_and_the_test_set_unused(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("run", tune.write(), "--local", "--quiet")
    scored: list[str] = []
    real = PrivateTraining.evaluate

    def counted(self: PrivateTraining, split: str = "validation") -> dict[str, float]:
        scored.append(split)
        return real(self, split)

    def refuse(*_: object, **__: object) -> None:
        raise VerificationError("card-run-not-charged", "no card for this one")

    monkeypatch.setattr(PrivateTraining, "evaluate", counted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cards, "build_card", refuse)
        assert "[card-run-not-charged]" in tune("export", "tiny", code=None).err
    assert scored == []
    assert not Path("exports").exists()
    assert not (tune.sweeps[0] / "test_scores.json").exists()
    tune("export", "tiny")
    assert scored == ["test"]


def test_the_exported_seed_is_the_one_that_was_trained_with(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's seed is below 2³², and so is that of every trial: counted up beyond it starts from 0 again."""
    real = PrivateTraining.evaluate

    def second_wins(self: PrivateTraining, split: str = "validation") -> dict[str, float]:
        return {name: value - (self.spec.seed == 2**32 - 1) for name, value in real(self, split).items()}

    monkeypatch.setattr(PrivateTraining, "evaluate", second_wins)
    tune("run", tune.write(seed=2**32 - 1, search__trials=2), "--local", "--quiet")
    number = tune("export", "tiny", "--json").json["trial"]["number"]
    seed = yaml.safe_load(Path("exports/tiny/experiment.yaml").read_text())["seed"]
    assert (number, seed) == (1, 0)
    tune("plan", "exports/tiny/experiment.yaml", "--no-timing")
