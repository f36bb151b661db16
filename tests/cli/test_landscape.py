"""`tune landscape`: what it measures of exported models, what it draws, and all that it refuses to look at."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from command_fakes import Tune
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from trainables.data import DatasetRequest, load_records
from trainables.landscape import sharpness
from trainables.models import build
from tuner.privacy.card.card import card_text
from tuner.runner import landscape as command

MODEL, CARD = "model.safetensors", "privacy_card.json"
SVG = "{http://www.w3.org/2000/svg}"
QUICK = ("--points", "5", "--iterations", "2", "--restarts", "1", "--records", "30")
SHAPES = {"digits": ((1, 8, 8), 10), "iris": ((4,), 3), "cifar10": ((3, 32, 32), 10)}


def export(tune: Tune, name: str, *, seed: int = 0, dataset: str = "digits", **changes: object) -> Path:
    """A folder as `tune export` writes it, of a model that was never trained."""
    folder = tune.folder / name
    folder.mkdir(parents=True)
    shape, classes = SHAPES[dataset]
    module = build("logistic_regression", input_shape=shape, classes=classes, seed=seed)
    save_file(module.state_dict(), str(folder / "model.safetensors"))
    fixed = {"search__space": {"learning_rate": 0.5}, "search__trials": 1, "trainable__batch_size": 32}
    tune.write(f"{name}/experiment.yaml", dataset__name=dataset, **fixed, **changes)
    section = json.loads(json.dumps(changes.get("dataset__validation", {})))
    key = {"set": dataset, "fraction": section.get("fraction", 0.1), "seed": section.get("split_seed", 0)}
    card = {"claim": {"epsilon": 8.5, "delta": 1e-5, "search": name}, "validation": {"key": key}}
    (folder / CARD).write_text(json.dumps(card))
    sign(folder)
    return folder


def sign(folder: Path) -> None:
    """Put the hashes of the files on the card, as `tune export` does. No ledger has the card: it is out of reach."""
    card = json.loads((folder / CARD).read_text())
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (MODEL, "experiment.yaml")}
    (folder / CARD).write_text(card_text({**card, "exported_files": hashes}))


def files(tune: Tune) -> set[Path]:
    return {path.relative_to(tune.folder) for path in tune.folder.rglob("*")}


def test_a_real_export_is_measured_on_its_own_validation_records(look: Tune, tmp_path: Path) -> None:
    said = look("landscape", "exports/tiny", "--public-data", "--out", str(tmp_path / "out"), "--points", "5", "--json")
    module = build("logistic_regression", input_shape=(1, 8, 8), classes=10, seed=0)
    module.load_state_dict(load_file("exports/tiny/model.safetensors"))
    splits = load_records(DatasetRequest(name="digits"))
    with torch.no_grad():
        logits = module.double()(splits.x_validation.double())
    (model,) = said.json["models"]
    assert model["loss"] == pytest.approx(float(cross_entropy(logits, splits.y_validation)), rel=1e-12)
    assert model["loss"] == model["line"]["losses"][2]
    scores = json.loads(Path("exports/tiny/privacy_card.json").read_text())["scores"]
    assert model["accuracy"] == pytest.approx(scores["validation_accuracy"], abs=1e-6)
    assert (said.json["data"]["split"], said.json["data"]["records"]) == ("validation", len(splits.y_validation))
    found = sharpness(module, splits.x_validation, splits.y_validation)
    assert model["sharpness"]["value"] == pytest.approx(found.value, rel=1e-9)
    assert found.value > 0
    assert json.loads((tmp_path / "out" / "landscape.json").read_text()) == said.json
    assert model["epsilon"] == 8.5


def test_several_models_are_drawn_together_and_told_in_a_table(bare: Tune) -> None:
    export(bare, "a/model")
    export(bare, "b/model", trainable__model="own_models:linear")
    export(bare, "other", seed=1)
    folders = ("a/model", "b/model", "other")
    said = bare("landscape", *folders, "--public-data", "--plane", "3", *QUICK)
    out = bare.folder / "a" / "model" / "landscape"
    assert {path.name for path in out.iterdir()} == {"landscape.json", "line.svg", "plane.svg"}
    models = json.loads((out / "landscape.json").read_text())["models"]
    assert [model["label"] for model in models] == ["a/model", "b/model", "other"]
    for model in models:
        assert f"{model['sharpness']['value']:.4g}" in said.text
        assert model["plane"]["losses"][1][1] == model["loss"] == model["line"]["losses"][2]
        assert model["plane"]["losses"][0][1] == pytest.approx(model["line"]["losses"][0], rel=1e-12)
    assert models[0]["line"] == models[1]["line"] != models[2]["line"], "the same model, the same directions"
    words = " ".join(ElementTree.fromstring((out / "line.svg").read_text()).itertext())
    assert all(name in words for name in folders)
    again = bare("landscape", "a/model", "--public-data", *QUICK, "--json", "--seed", "1").json
    assert again["models"][0]["line"] != models[0]["line"]


def test_no_training_record_is_looked_at(bare: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    export(bare, "plain")
    words = ("landscape", "plain", "--public-data", *QUICK, "--json")
    known, real = bare(*words).json["models"], command.load_records

    def spoilt(request: DatasetRequest) -> Any:  # noqa: ANN401
        splits = real(request)
        return replace(splits, x_train=splits.x_train * math.nan, y_train=splits.y_train[:0])

    monkeypatch.setattr(command, "load_records", spoilt)
    assert bare(*words).json["models"] == known
    monkeypatch.setattr(
        command, "load_records", lambda request: replace(real(request), x_validation=real(request).x_train)
    )
    assert bare(*words).json["models"] != known, "the control"


def test_fewer_records_are_spread_over_the_split() -> None:
    """The first ones of a file that is sorted by label would all have one."""
    assert command._spread(torch.arange(100), 4).tolist() == [0, 25, 50, 75]
    assert command._spread(torch.arange(10), 30).tolist() == list(range(10))


def another_split(path: Path) -> None:
    """Another split would make training records of some validation records."""
    path.write_text(path.read_text().replace("name: digits", "name: digits\n  validation: {split_seed: 7}"))


def not_finite(path: Path) -> None:
    save_file({name: value * math.nan for name, value in load_file(str(path)).items()}, str(path))


PUBLIC = ("--public-data",)
TEST = (*PUBLIC, "--split", "test")
REFUSED: dict[str, tuple[tuple[str, Callable[[Path], object]] | None, tuple[str, ...], str]] = {
    "nobody said that the data are public": (None, (), "[public-data-unconfirmed]"),
    "the training records": (None, (*PUBLIC, "--split", "train"), "[split-invalid]"),
    "another split than its card's": (("experiment.yaml", another_split), PUBLIC, "[split-changed]"),
    "a model without its card": ((CARD, Path.unlink), PUBLIC, "[export-not-found]"),
    "a card that is none": ((CARD, lambda path: path.write_text("[1]")), PUBLIC, "[card-unreadable]"),
    "parameters of another model": (
        (MODEL, lambda path: save_file({"weight": torch.zeros(3)}, str(path))),
        PUBLIC,
        "[export-unreadable]",
    ),
    "unreadable parameters": (
        (MODEL, lambda path: path.write_bytes(b"0" * 20)),
        PUBLIC,
        "[export-unreadable]",
    ),
    "parameters that are not finite": ((MODEL, not_finite), PUBLIC, "finite"),
    "records of another shape": (None, (*TEST, "--dataset", "iris"), "[input-shape-differs]"),
    "a data set that is not known": (None, (*PUBLIC, "--dataset", "digit"), "digits"),
    "validation of another data set": (None, (*PUBLIC, "--dataset", "iris"), "[options-conflict]"),
    "an even number of points": (None, (*PUBLIC, "--points", "4"), "[grid-points-invalid]"),
    "too small a plane": (None, (*PUBLIC, "--plane", "2"), "[grid-points-invalid]"),
    "a radius that is no number": (None, (*PUBLIC, "--radius", "nan"), "radius"),
    "a folder that is a file": (None, (*PUBLIC, "--out", f"plain/{CARD}"), "[output-unwritable]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_error_and_nothing_written(bare: Tune, case: str) -> None:
    change, words, names = REFUSED[case]
    export(bare, "plain")
    if change is not None:
        file, edit = change
        edit(bare.folder / "plain" / file)
        if file != CARD:
            sign(bare.folder / "plain")
    before = files(bare)
    said = bare("landscape", "plain", *words, code=2)
    assert names in said.err
    assert said.err.count("error:") == 1
    assert "measuring" not in said.out, "said at once, not after the first model was measured"
    assert files(bare) == before


@pytest.mark.parametrize("name", ["Fixed", "failing", "Talking"])
def test_a_model_whose_code_fails_is_named_with_its_error(bare: Tune, name: str) -> None:
    export(bare, "plain", trainable__model=f"own_models:{name}")
    state = load_file("plain/model.safetensors")
    save_file({key.removeprefix("1."): value for key, value in state.items()}, "plain/model.safetensors")
    sign(Path("plain"))
    before = files(bare)
    said = bare("landscape", "plain", "--public-data", code=2)
    assert "[model-code-failed]" in said.err
    assert "secret" not in said.text + said.err
    assert files(bare) == before


def test_models_of_other_records_are_not_compared(bare: Tune) -> None:
    """Each was trained on validation records of the other."""
    export(bare, "plain")
    export(bare, "moved", dataset__validation={"split_seed": 3})
    export(bare, "flowers", dataset="iris")
    before = files(bare)
    for second in ("moved", "flowers"):
        assert "[records-differ]" in bare("landscape", "plain", second, "--public-data", code=2).err
    words = ("landscape", "plain", "moved", "--public-data", "--dataset", "digits")
    assert "[records-differ]" in bare(*words, code=2).err
    assert files(bare) == before
    bare(*words, "--split", "test", *QUICK)
    export(bare, "large", dataset="cifar10")
    small = ("landscape", "large", "--public-data", "--dataset", "cifar10_10k2k", "--split", "test")
    assert "[training-records-shared]" in bare(*small, code=2).err, "test records of the one train the other"


def test_protected_validation_records_are_not_looked_at(bare: Tune) -> None:
    """Exact losses of theirs would be told beside the noised scores."""
    export(bare, "plain", dataset__validation={"protected": True})
    words = ("landscape", "plain", "--public-data")
    assert "[validation-protected]" in bare(*words, code=2).err
    bare(*words, "--split", "test", *QUICK)
    export(bare, "edited")
    card = bare.folder / "edited" / "privacy_card.json"
    values = json.loads(card.read_text())
    values["validation"]["protected"] = True
    card.write_text(json.dumps(values))
    sign(card.parent)
    error = bare("landscape", "edited", "--public-data", code=2).err
    assert "[validation-protected]" in error, "the file may be edited"


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


EDITS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "another split": ("experiment.yaml", lambda path: edited(path, "split_seed: 0", "split_seed: 1")),
    "another training": ("experiment.yaml", lambda path: edited(path, "epochs: 1", "epochs: 2")),
    "another model": (MODEL, not_finite),
    "another claim": (CARD, lambda path: edited(path, "8.5", "0.5")),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edited_export_is_refused_by_every_reader(
    finished: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """An edited `unit` or split made validation records of training records, whose exact losses were then shown."""
    shutil.copytree(finished.folder / "exports" / "tiny", tmp_path / "exports" / "tiny")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "exports" / "tiny"
    tune, sweep = Tune(tmp_path), finished.sweeps[0].name
    landscape = ("landscape", str(folder), "--public-data", *QUICK, "--out", str(tmp_path / "out"))
    report = ("report", sweep, "--storage", str(finished.folder / "runs"), "--out", str(tmp_path / "page.html"))
    said = tune(*landscape)
    assert "not compared" not in said.text, "the control: the ledger is there and has the card"
    tune(*report)
    (tmp_path / "page.html").unlink()
    shutil.rmtree(tmp_path / "out")
    name, edit = EDITS[case]
    edit(folder / name)
    assert "[export-changed]" in tune(*landscape, code=2).err
    if name == "experiment.yaml":
        assert "[export-changed]" in tune("train", str(folder / name), "--local", code=2).err
    if name == CARD:
        assert "[export-changed]" in tune(*report, code=2).err
    else:  # the hash on the card is edited too, so only the ledger knows better
        sign(folder)
        assert "[export-changed]" in tune(*landscape, code=2).err
    assert not (tmp_path / "out").exists()
    assert len(finished.sweeps) == 1


def test_a_card_whose_ledger_is_out_of_reach_is_said_to_be_not_compared(bare: Tune) -> None:
    export(bare, "plain")
    assert "was not compared with its ledger" in bare("landscape", "plain", "--public-data", *QUICK).text
