"""What leaves a sweep: a file that trains again, a model without its secrets, and a card that nobody can alter."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from command_fakes import STEPS, Tune
from safetensors.torch import load_file, save_file

from trainables.data import DatasetRequest, load_records
from trainables.models import build
from trainables.rungs import checkpoint_path
from trainables.training import PrivateTraining
from tuner.privacy.verify import checks

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


def test_nothing_of_the_secret_generator_leaves(look: Tune) -> None:
    """The key in a checkpoint foretells the noise of the steps to come."""
    path = checkpoint_path(look.sweeps[0], str(exported_trial(look)["id"]))
    assert path is not None
    file = path if path.is_file() else next(each for each in path.iterdir() if each.suffix == ".pt")
    key = torch.load(file, weights_only=True)["secret"]["key"].numpy().tobytes()
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


def test_the_test_set_is_scored_once(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[str] = []
    real = PrivateTraining.evaluate

    def counted(self: PrivateTraining, split: str = "validation") -> dict[str, float]:
        scored.append(split)
        return real(self, split)

    monkeypatch.setattr(PrivateTraining, "evaluate", counted)
    tune("run", tune.write(), "--local", "--quiet")
    assert set(scored) == {"validation"}, "a search never looks at the test set"
    first = tune("export", "tiny", "--json").json
    assert scored.count("test") == 1
    kept = json.loads((tune.sweeps[0] / "test_scores.json").read_text())
    assert kept["trial"] == first["trial"]["id"]
    assert kept["scores"].items() <= first["scores"].items()
    second = tune("export", "tiny", "--out", "again", "--json").json
    assert second["scores"] == first["scores"]
    assert scored.count("test") == 1
    assert tune("verify", "again/privacy_card.json", "--json").json["ok"] is True


def test_the_exported_file_trains_again_as_a_charge_of_its_own(tune: Tune) -> None:
    tune("run", tune.write(), "--local", "--quiet")
    export = tune("export", "tiny", "--json").json
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
    assert tune("verify", str(Path(said["folder"]) / "privacy_card.json")).text.endswith("follows from its ledger")
    assert "[train-not-single]" in tune("train", "tiny.yaml", "--local", code=2).err


def test_export_refuses_what_it_cannot_write(look: Tune, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = look.entries
    assert "[output-unwritable]" in look("export", "tiny", "--out", str(tmp_path / "file"), code=2).err
    assert look.entries == before
    assert "no_such" in look("export", "no_such", code=2).err


def test_verify_says_yes_and_why(look: Tune) -> None:
    said = look("verify", str(CARD), "--json").json
    assert said["ok"] is True
    assert said["answer"] == "yes"
    assert len(said["checks"]) >= 13
    assert all(check["ok"] for check in said["checks"])
    assert {
        "ledger chain",
        "card hash",
        "card rendered anew",
        "independent accountant, cap of training",
        "independent accountant, curve of training",
        "not below Opacus' PRV",
        "card page",
    } <= {check["name"] for check in said["checks"]}


def test_what_is_no_card_is_not_answered_by_a_no(look: Tune, tmp_path: Path) -> None:
    """A yes or no is for cards; who names another file is told which one was meant."""
    for name in ("privacy_card.md", "privacy_curve.svg", "experiment.yaml", "model.safetensors"):
        said = look("verify", str(CARD.with_name(name)), code=2)
        assert "[card-not-found]" in said.err
        assert f"{CARD}?" in said.err, "the file that was meant"
        assert said.out == ""
    for name, text in (("plan.json", '{"name": "tiny"}'), ("list.json", "[]"), ("notes.txt", "no card"), ("a", "")):
        path = tmp_path / name
        path.write_text(text)
        assert "[card-not-found]" in look("verify", str(path), code=2).err
    # A card that was broken stays one, and does not hold.
    broken = tmp_path / "privacy_card.json"
    broken.write_text(CARD.read_text()[:-3])
    assert "NO " in look("verify", str(broken), "--ledger", look.ledger_url, code=1).out


def test_every_number_of_the_curve_is_in_the_picture_beside_the_card(look: Tune) -> None:
    card, picture = json.loads(CARD.read_text()), CARD.with_name("privacy_curve.svg").read_text()
    assert len(card["training_cap"]["curve"]) >= 9
    for row in card["training_cap"]["curve"]:
        assert f"ε = {row['epsilon']:.6g} at δ = {row['delta']:g}" in picture
    assert "](privacy_curve.svg)" in CARD.with_suffix(".md").read_text()


MODES: dict[str, dict[str, object]] = {
    "coupon_book": {
        "search__space": {"learning_rate": 0.5, "batch_size": {"choice": [64, 128]}},
        "privacy__epsilon": 9.0,
    },
    "fixed_order": {
        "search__space": {"learning_rate": 0.5, "noise_multiplier": {"uniform": [2.0, 4.0]}},
        "privacy__noise_multiplier": "auto",
        "privacy__cap": "fixed_order",
        "privacy__epsilon": 12.0,
    },
    "validation": {"dataset__validation": {"fraction": 0.1, "protected": True}, "privacy__noise_multiplier": "auto"},
    "sealed": {
        "privacy__accounting": "selection",
        "privacy__noise_multiplier": "auto",
        "privacy__runs": {"law": "geometric", "at_most": 60},
    },
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_exports_a_card_that_verifies_and_a_file_that_trains(tune: Tune, mode: str) -> None:
    tune("run", tune.write(**MODES[mode]), "--local", "--quiet")
    export = tune("export", "tiny", "--json").json
    card = json.loads(CARD.read_text())
    said = tune("verify", str(CARD), "--json").json
    assert said["answer"] == "yes", [check for check in said["checks"] if not check["ok"]]
    kinds = {
        "coupon_book": "coupon_book",
        "fixed_order": "fixed_order",
        "validation": "total_steps",
        "sealed": "sealed",
    }
    assert card["training_cap"]["filter"]["kind"] == kinds[mode]
    assert (card["validation_cap"] is not None) == (mode == "validation")
    assert card["claim"]["mode"] == ("selection" if mode == "sealed" else "composition")
    parameters = export["trial"]["parameters"]
    if mode == "coupon_book":
        assert card["configuration"]["batch_size_expected"] == parameters["batch_size"]
        assert card["winner"]["sample_rate"] == parameters["batch_size"] / card["records"]["public_size"]
    if mode == "fixed_order":
        assert card["winner"]["noise_multiplier"] == parameters["noise_multiplier"]
    # The exported file is an ordinary search of one trial of the winner's own mechanism.
    plan = tune("plan", "exports/tiny/experiment.yaml", "--json", "--no-timing").json
    assert (plan["trials"], plan["accounting"], plan["cap"]) == (1, "composition", "total_steps")
    assert plan["sample_rate"] == card["winner"]["sample_rate"]
    assert plan["noise_multiplier"] == card["winner"]["noise_multiplier"]
    assert plan["epsilon_at_cap"] == pytest.approx(card["winner"]["single_run_epsilon"], rel=1e-6)


def test_a_sealed_export_tells_no_number_of_a_run(tune: Tune) -> None:
    tune("run", tune.write(**MODES["sealed"]), "--local", "--quiet")
    export = tune("export", "tiny", "--json").json
    assert "number" not in export["trial"]
    assert export["trial"]["id"] == "winner"
    text = CARD.read_text()
    assert json.loads(text)["ledger"]["head_seq"] == 2, "opened, begun"
    assert '"leased_steps"' not in text
    trials = [path.name for path in (tune.sweeps[0] / "sealed" / "trials").iterdir()]
    assert trials, "the names of its runs are looked for"
    for path in Path("exports/tiny").iterdir():
        for name in trials:
            assert name.encode() not in path.read_bytes(), path
    assert tune("export", "tiny", "--json").json["scores"] == export["scores"]


def test_the_charged_run_of_a_public_search_says_what_was_declared(tune: Tune, own_digits: Path) -> None:
    public = {"name": "others", "path": str(own_digits), "public_size": 300}
    file = tune.write(
        privacy__accounting="public", privacy__noise_multiplier="auto", trainable__batch_size=64, search__public=public
    )
    tune("run", file, "--local", "--quiet")
    tune("export", "tiny", "--json")
    card = json.loads(CARD.read_text())
    assert tune("verify", str(CARD), "--json").json["answer"] == "yes"
    assert card["claim"]["mode"] == "public"
    assert card["public_search"]["dataset"] == "others"
    assert card["public_search"]["label"].startswith("ASSUMED")
    assert str(own_digits.parent) not in CARD.read_text(), "no path of this machine"
    plan = tune("plan", "exports/tiny/experiment.yaml", "--json", "--no-timing").json
    assert (plan["trials"], plan["accounting"]) == (1, "composition")


def test_a_card_per_user_tells_the_bound_of_what_one_gives(tune: Tune, own_digits: Path) -> None:
    dataset = {"name": "diaries", "path": str(own_digits), "public_users": 60, "records_per_user": 4}
    file = tune.write(dataset=dataset, privacy__unit="user", privacy__noise_multiplier="auto", trainable__batch_size=12)
    tune("run", file, "--local", "--quiet")
    tune("export", "tiny", "--json")
    card = json.loads(CARD.read_text())
    assert tune("verify", str(CARD), "--json").json["answer"] == "yes"
    assert card["records"]["records_per_user"] == 4
    assert card["claim"]["adjacency"] == "add_or_remove_one_user"
    assert card["winner"]["sample_rate"] == 12 / card["records"]["public_size"]
    assert card["records"]["public_size"] <= 60
    assert "each user" in card["validation"]["split"]
    plan = tune("plan", "exports/tiny/experiment.yaml", "--json", "--no-timing").json
    assert (plan["unit"], plan["trials"]) == ("user", 1)


@pytest.fixture
def own_digits(tmp_path: Path) -> Path:
    """Records of the user's own that look like digits."""
    generator = np.random.default_rng(3)
    path = tmp_path / "others" / "others.npz"
    path.parent.mkdir()
    inputs = generator.random((400, 1, 8, 8), dtype=np.float32)
    targets = generator.integers(0, 10, 400)
    values = {"x_train": inputs[:300], "y_train": targets[:300], "x_test": inputs[300:], "y_test": targets[300:]}
    np.savez(path, **values, user_train=np.arange(300) % 60)
    return path


@pytest.fixture
def copied(look: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """The export and its ledger, to be tampered with."""
    shutil.copytree("exports", tmp_path / "exports")
    (tmp_path / "runs").mkdir()
    with sqlite3.connect("runs/ledger.db") as source, sqlite3.connect(tmp_path / "runs" / "ledger.db") as target:
        source.backup(target)
    monkeypatch.chdir(tmp_path)
    return Tune(tmp_path)


def digits_of(text: str) -> list[int]:
    return [place for place, sign in enumerate(text) if sign.isdigit()]


def with_digit(text: str, place: int) -> str:
    return f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 20])
def test_one_changed_digit_anywhere_in_the_card_is_a_no(
    copied: Tune, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The accountants are left out, so that digits are tried in seconds: what remains must say no by itself."""
    from tuner.privacy.ledger.ledger import Ledger

    monkeypatch.setattr(checks, "second_opinion", lambda *_: iter(()))
    ledger = Ledger.open(copied.ledger_url, create=False)
    text = CARD.read_text()
    assert checks.check_card(text, ledger).ok
    places = digits_of(text)
    assert len(places) > 400
    for place in places[::every]:
        report = checks.check_card(with_digit(text, place), ledger)
        assert not report.ok, f"{text[place - 30 : place + 10]!r}"
        assert any(check.detail for check in report.checks if not check.ok)


@pytest.mark.parametrize("name", ["privacy_card.json", "privacy_card.md"])
def test_a_changed_card_or_page_ends_in_one(copied: Tune, name: str) -> None:
    path = CARD.with_name(name)
    text = path.read_text()
    places = digits_of(text)
    for place in places[:: len(places) // 5]:
        path.write_text(with_digit(text, place))
        said = copied("verify", str(CARD), "--ledger", copied.ledger_url, code=1)
        assert "NO " in said.out
        assert "no: the card does not hold" in said.out
    path.write_text(text)
    copied("verify", str(CARD), "--ledger", copied.ledger_url)


@pytest.mark.slow
def test_every_digit_of_the_card_by_the_whole_command(copied: Tune) -> None:
    text = CARD.read_text()
    for place in digits_of(text)[::10]:
        CARD.write_text(with_digit(text, place))
        copied("verify", str(CARD), "--ledger", copied.ledger_url, code=1)


def test_one_changed_digit_anywhere_in_the_ledger_is_a_no(
    copied: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "second_opinion", lambda *_: iter(()))
    path = tmp_path / "runs" / "ledger.db"
    raw = sqlite3.connect(path)
    for trigger in ("entries_are_final", "entries_stay"):
        raw.execute(f"DROP TRIGGER {trigger}")
    rows = raw.execute("SELECT id, seq, time, body, previous, hash FROM entries").fetchall()
    assert len(rows) > 6
    for identity, *values in rows:
        for column, value in zip(("seq", "time", "body", "previous", "hash"), values, strict=True):
            places = digits_of(str(value))
            for place in places[:: max(1, len(places) // 4)]:
                # Two entries cannot have one number: SQLite itself forbids it.
                changed = int(value) + 100 if column == "seq" else with_digit(str(value), place)
                raw.execute(f"UPDATE entries SET {column} = ? WHERE id = ?", (changed, identity))
                raw.commit()
                said = copied("verify", str(CARD), "--ledger", copied.ledger_url, code=1)
                assert "NO " in said.out, (column, value)
                raw.execute(f"UPDATE entries SET {column} = ? WHERE id = ?", (value, identity))
                raw.commit()
    raw.close()
    copied("verify", str(CARD), "--ledger", copied.ledger_url)


def test_a_card_without_its_ledger_is_a_no(copied: Tune, tmp_path: Path) -> None:
    (tmp_path / "runs" / "ledger.db").unlink()
    said = copied("verify", str(CARD), "--ledger", copied.ledger_url, "--json", code=1).json
    assert said["ok"] is False
    assert "ledger" in said["checks"][-1]["detail"]
    assert not (tmp_path / "runs" / "ledger.db").exists(), "a look makes no ledger"
    copied("budget", "set", "digits", "--epsilon", "9", "--delta", "1e-4")
    assert "NO " in copied("verify", str(CARD), "--ledger", copied.ledger_url, code=1).out
    assert "NO " in copied("verify", str(CARD), "--ledger", "nowhere", code=1).out


def test_an_experiment_file_that_cannot_be_read_says_nothing_of_the_card(copied: Tune, tmp_path: Path) -> None:
    """It names the ledger: without it the question cannot be asked, and the answer is no no."""
    (tmp_path / "exports" / "tiny" / "experiment.yaml").write_text("name: [")
    said = copied("verify", str(CARD), code=2)
    assert "[card-ledger-unknown]" in said.err
    assert "experiment.yaml" in said.err
    assert "[card-ledger-unknown]" in said.err
    assert said.out == ""
    assert "does not hold" in copied("verify", str(CARD), "--ledger", copied.ledger_url, code=1).out, "another file"


def test_a_card_is_for_the_files_that_were_exported_with_it(copied: Tune) -> None:
    def said(code: int) -> dict[str, tuple[bool, str]]:
        checks = copied("verify", str(CARD), "--ledger", copied.ledger_url, "--json", code=code).json["checks"]
        return {check["name"]: (check["ok"], check["detail"]) for check in checks}

    model, file = CARD.with_name("model.safetensors"), CARD.with_name("experiment.yaml")
    named = json.loads(CARD.read_text())["exported_files"]
    assert named == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (model, file)}
    assert said(0)[f"file {model.name}"][0] is True
    weights = load_file(model)
    save_file({name: value + 1 for name, value in weights.items()}, str(model))
    assert said(1)[f"file {model.name}"][0] is False, "another model under the same card"
    model.unlink()
    assert said(0)[f"file {model.name}"][0] is True, "absent, and not compared"
    file.write_text(file.read_text().replace("epochs: 1", "epochs: 2"))
    assert said(1)[f"file {file.name}"][0] is False
