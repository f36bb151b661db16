"""Exports: which run is let out, a file that trains again, a model without secrets, a card whose changes are found."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch
from command_fakes import STEPS, Tune
from safetensors.torch import load_file
from sealed_fakes import sealed

from trainables.checkpoint import read_state
from trainables.data import DatasetRequest, load_records
from trainables.engine.layout import Layout
from trainables.models import build
from trainables.rungs import checkpoint_path
from trainables.training import PrivateTraining
from tuner.errors import VerificationError
from tuner.privacy.card import card as cards

CARD = Path("exports/tiny/privacy_card.json")


def exported_trial(tune: Tune) -> dict[str, object]:
    trials = tune("show", "tiny", "--json").json["trials"]
    return max(trials, key=lambda trial: trial["score"])


def test_the_exported_model_scores_what_the_winner_scored(look: Tune) -> None:
    module = build("logistic_regression", input_shape=(8, 8), classes=10, seed=123)
    state = load_file("exports/tiny/model.safetensors")
    assert set(state) == set(module.state_dict())
    module.load_state_dict(state)
    splits = load_records(DatasetRequest(name="digits"))

    def accuracy(inputs: torch.Tensor, targets: torch.Tensor) -> float:
        with torch.no_grad():
            return float((module(inputs).argmax(1) == targets).double().mean())

    scores = json.loads(CARD.read_text())["scores"]
    assert accuracy(splits.x_validation, splits.y_validation) == pytest.approx(scores["validation_accuracy"], abs=1e-6)
    assert scores["validation_accuracy"] == exported_trial(look)["score"]
    assert accuracy(splits.x_test, splits.y_test) == pytest.approx(scores["test_accuracy"], abs=1e-6)


def test_an_extrapolated_model_is_exported_and_named(tune: Tune) -> None:
    tune("run", tune.write(), "--local", "--quiet", "--set", "search.space.extrapolation=1")
    assert "extrapolation 1  (of the average of the weights; 0 is none)" in tune("export", "tiny").out
    checkpoint = checkpoint_path(tune.sweeps[0], str(exported_trial(tune)["id"]))
    assert checkpoint is not None
    kept = read_state(checkpoint)["average"]
    module = build("logistic_regression", input_shape=(8, 8), classes=10, seed=123)
    module.load_state_dict(load_file("exports/tiny/model.safetensors"))
    found = Layout.of(module).flatten(module).double()
    torch.testing.assert_close(found, 2 * kept["average"] - kept["half"], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(found, kept["average"], rtol=1e-3, atol=1e-3), "the comparison would see it"


def test_nothing_of_the_secret_generator_leaves(look: Tune) -> None:
    """The key in a checkpoint foretells the noise of the steps to come."""
    path = checkpoint_path(look.sweeps[0], str(exported_trial(look)["id"]))
    assert path is not None
    file = path if path.is_file() else next(each for each in path.iterdir() if each.suffix == ".pt")
    key = read_state(file)["secret"]["key"].numpy().tobytes()
    assert len(key) >= 32
    assert key in file.read_bytes(), "it is looked for in the form in which it is stored"
    shown = [each for each in Path("exports").rglob("*") if each.is_file()]
    shown += [each for each in Path("runs/mlartifacts").rglob("*") if each.is_file()]
    assert len(shown) >= 8
    for each in shown:
        content = each.read_bytes()
        assert key not in content, each
        assert key.hex().encode() not in content, each
    assert sorted(each.name for each in Path("exports/tiny").iterdir()) == [
        "experiment.yaml",
        "model.safetensors",
        "privacy_card.json",
        "privacy_card.md",
        "privacy_curve.svg",
    ]


def test_the_test_set_is_scored_once_and_the_exported_file_trains_again_as_a_charge_of_its_own(
    tune: Tune, scored: list[str]
) -> None:
    tune("run", tune.write(), "--local", "--quiet")
    assert set(scored) == {"validation"}, "a search never looks at the test set"
    export = tune("export", "tiny", "--json").json
    kept = json.loads((tune.sweeps[0] / "test_scores.json").read_text())
    assert kept["trial"] == export["trial"]["id"]
    assert kept["scores"].items() <= export["scores"].items()
    again = tune("export", "tiny", "--out", "again", "--json").json
    assert again["scores"] == export["scores"]
    assert scored.count("test") == 1
    assert tune("verify", "again/privacy_card.json", "--json").json["ok"] is True

    file = "exports/tiny/experiment.yaml"
    plan = tune("plan", file, "--json", "--no-timing").json
    assert (plan["trials"], plan["free"], plan["steps_per_trial"]) == (1, [], STEPS)
    assert plan["epsilon_at_cap"] <= plan["epsilon"] <= plan["epsilon_trial"] * 1.000001
    said = tune("train", file, "--local", "--json").json
    assert said["claim"]["epsilon"] == plan["epsilon"]
    assert said["trial"]["parameters"] == export["trial"]["parameters"]
    assert tune.entries.count("open_search") == 2
    committed = tune("budget", "--json").json["datasets"][0]["committed"]["epsilon"]
    assert committed == pytest.approx(8.5 + plan["epsilon"], abs=1e-12)
    tune("verify", str(Path(said["folder"]) / "privacy_card.json"))
    assert "[train-not-single]" in tune("train", "tiny.yaml", "--local", code=2).err


# Which run is let out.


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


def test_the_weights_of_another_search_are_not_exported_under_this_ones_claim(charged: Tune) -> None:
    """As if the folders of two searches were mixed up. The other has less noise."""
    less = ("--set", "privacy.epsilon=50", "--set", "privacy.noise_multiplier=0.6")
    charged("run", "tiny.yaml", "--local", "--quiet", "--set", "name=other", *less)
    of = {sweep.name.partition("-")[0]: sweep for sweep in charged.sweeps}
    for own, foreign in zip(*(sorted((of[name] / "trials").iterdir()) for name in ("tiny", "other")), strict=True):
        shutil.rmtree(own / "checkpoint")
        shutil.copytree(foreign / "checkpoint", own / "checkpoint")
    assert "[checkpoint-foreign]" in charged("export", "tiny", code=2).err
    assert not Path("exports").exists()
    charged("export", "other")  # the control


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


def test_train_refuses_what_it_cannot_write_before_it_charges(charged: Tune) -> None:
    charged("export", "tiny")
    before = charged.entries
    bad = {"tiny.yaml": "unwritable", "tiny.yaml/x": "unwritable", "exports/tiny": "taken"}
    for out, problem in bad.items():
        said = charged("train", "exports/tiny/experiment.yaml", "--local", "--out", out, code=2).err
        assert f"[output-{problem}]" in said
    assert charged.entries == before
    notes = charged.folder / "exports" / "tiny-best" / "privacy_card.md"
    notes.parent.mkdir()
    notes.write_text("my notes")  # the default is then another folder
    said = charged("train", "exports/tiny/experiment.yaml", "--local", "--json").json
    assert Path(said["folder"]).name == charged.sweeps[-1].name
    assert notes.read_text() == "my notes"


def test_an_export_replaces_an_export_of_the_same_search_only(charged: Tune) -> None:
    folder = charged.folder / "mine"
    folder.mkdir()
    (folder / "experiment.yaml").write_text("# my own file")
    assert "[output-taken]" in charged("export", "tiny", "--out", "mine", code=2).err
    assert (folder / "experiment.yaml").read_text() == "# my own file"
    (folder / "experiment.yaml").unlink()
    charged("export", "tiny", "--out", "mine")
    charged("export", "tiny", "--out", "mine")
    card = (folder / "privacy_card.json").read_bytes()
    charged("run", "tiny.yaml", "--local", "--quiet", "--set", "name=second")
    said = charged("export", "second", "--out", "mine", code=2).err
    assert f"has the export of {charged.sweeps[-1].name}" in said
    assert (folder / "privacy_card.json").read_bytes() == card


def test_export_refuses_what_it_cannot_write(look: Tune, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = look.entries
    for out in (tmp_path / "file", "/proc"):  # a folder that exists, but takes no file
        assert "[output-unwritable]" in look("export", "tiny", "--out", str(out), code=2).err
    assert look.entries == before
    said = look("export", "tiny", "--out", "x" * 300, code=1).err
    assert "[system-error]" in said
    assert "Traceback" not in said
    assert "no_such" in look("export", "no_such", code=2).err


def test_what_is_no_card_is_not_answered_by_a_no(look: Tune, tmp_path: Path) -> None:
    """A yes or no is for cards; who names another file is told which one was meant."""
    for name in ("privacy_card.md", "privacy_curve.svg", "experiment.yaml", "model.safetensors"):
        said = look("verify", str(CARD.with_name(name)), code=2)
        assert "[card-not-found]" in said.err
        assert f"{CARD}?" in said.err, "the file that was meant"
        assert said.out == ""
    for name, text in (("plan.json", '{"name": "tiny"}'), ("list.json", "[]"), ("a", "")):
        path = tmp_path / name
        path.write_text(text)
        assert "[card-not-found]" in look("verify", str(path), code=2).err
    # A card that was broken stays one, and fails its checks.
    broken = tmp_path / "privacy_card.json"
    broken.write_text(CARD.read_text()[:-3])
    assert "NO " in look("verify", str(broken), "--ledger", look.ledger_url, code=1).out


@pytest.fixture
def copied(look: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """The export and its ledger, to be tampered with."""
    shutil.copytree("exports", tmp_path / "exports")
    (tmp_path / "dp-tuner").mkdir()
    with (
        sqlite3.connect("dp-tuner/ledger.db") as source,
        sqlite3.connect(tmp_path / "dp-tuner" / "ledger.db") as target,
    ):
        source.backup(target)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return Tune(tmp_path)


def test_an_exported_file_is_named_by_the_hash_of_what_it_is(look: Tune) -> None:
    named = json.loads(CARD.read_text())["exported_files"]
    files = (CARD.with_name("model.safetensors"), CARD.with_name("experiment.yaml"))
    assert named == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_changed_file_of_an_export_ends_in_one(copied: Tune) -> None:
    def wrong(code: int) -> list[str]:
        checks = copied("verify", str(CARD), "--ledger", copied.ledger_url, "--json", code=code).json["checks"]
        return [check["name"] for check in checks if not check["ok"]]

    CARD.with_name("model.safetensors").unlink()
    assert wrong(code=0) == [], "a file that is absent is not compared"
    for name, says, lie, check in (
        ("privacy_card.json", '"epsilon": 8.5', '"epsilon": 0.5', "card hash"),
        ("privacy_card.md", "ε = 8.5", "ε = 0.5", "card page"),
        ("privacy_curve.svg", "claimed: ε = 8.5", "claimed: ε = 0.5", "card picture"),
        ("experiment.yaml", "epochs: 1", "epochs: 2", "file experiment.yaml"),
    ):
        path = CARD.with_name(name)
        text = path.read_text()
        assert says in text
        path.write_text(text.replace(says, lie))
        found = wrong(code=1)
        assert check in found
        assert found == [check] or name == "privacy_card.json"
        path.write_text(text)


def test_a_card_without_its_ledger_is_a_no(copied: Tune, tmp_path: Path) -> None:
    (tmp_path / "dp-tuner" / "ledger.db").unlink()
    said = copied("verify", str(CARD), "--ledger", copied.ledger_url, "--json", code=1).json
    assert said["ok"] is False
    assert "ledger" in said["checks"][-1]["detail"]
    assert not (tmp_path / "dp-tuner" / "ledger.db").exists(), "a look makes no ledger"
    copied("budget", "set", "digits", "--epsilon", "9", "--delta", "1e-4")
    assert "NO " in copied("verify", str(CARD), "--ledger", copied.ledger_url, code=1).out
    assert "NO " in copied("verify", str(CARD), "--ledger", "nowhere", code=1).out


def test_an_experiment_file_that_cannot_be_read_says_nothing_of_the_card(copied: Tune, tmp_path: Path) -> None:
    """It names the ledger: without it the question cannot be asked, and the answer is no no."""
    (tmp_path / "exports" / "tiny" / "experiment.yaml").write_text("name: [")
    said = copied("verify", str(CARD), code=2)
    assert "[card-ledger-unknown]" in said.err
    assert said.out == ""
    assert "check failed" in copied("verify", str(CARD), "--ledger", copied.ledger_url, code=1).out, "another file"
