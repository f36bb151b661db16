"""`tune landscape`: what it measures of exported models, what it draws, and all that it refuses to look at."""

from __future__ import annotations

import json
import math
import re
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
from tuner.figures import svg_text
from tuner.report.landscape_pictures import line_chart, plane_chart
from tuner.runner import landscape as command

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
    card = {"claim": {"epsilon": 8.5, "delta": 1e-5}, "validation": {"key": key}}
    (folder / "privacy_card.json").write_text(json.dumps(card))
    return folder


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
    export(bare, "plain")
    export(bare, "smoothed", seed=1)
    said = bare("landscape", "plain", "smoothed", "--public-data", "--plane", "3", *QUICK)
    out = bare.folder / "plain" / "landscape"
    assert {path.name for path in out.iterdir()} == {"landscape.json", "line.svg", "plane.svg"}
    models = json.loads((out / "landscape.json").read_text())["models"]
    for model in models:
        assert f"{model['sharpness']['value']:.4g}" in said.text
        assert model["label"] in said.text
        assert model["plane"]["losses"][1][1] == model["loss"] == model["line"]["losses"][2]
        assert model["plane"]["losses"][0][1] == pytest.approx(model["line"]["losses"][0], rel=1e-12)
    assert "lower bound" in said.text
    lines = ElementTree.fromstring((out / "line.svg").read_text())
    plane = ElementTree.fromstring((out / "plane.svg").read_text())
    words = " ".join(text for picture in (lines, plane) for text in picture.itertext())
    assert "plain" in words
    assert "smoothed" in words


def test_folders_of_one_name_keep_their_paths(bare: Tune) -> None:
    export(bare, "a/model")
    export(bare, "b/model")
    said = bare("landscape", "a/model", "b/model", "--public-data", *QUICK, "--json").json
    assert [model["label"] for model in said["models"]] == ["a/model", "b/model"]
    assert said["models"][0]["line"] == said["models"][1]["line"], "the same model, the same directions"
    other = bare("landscape", "a/model", "--public-data", *QUICK, "--json", "--seed", "1").json
    assert other["models"][0]["line"] != said["models"][0]["line"]


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
    rows = torch.arange(10)
    assert command._spread(rows, 3).tolist() == [0, 3, 6]
    assert command._spread(rows, 100).tolist() == rows.tolist()


def test_a_model_of_ones_own(bare: Tune) -> None:
    export(bare, "plain")
    export(bare, "own", trainable__model="landscape_models:own_model")
    models = bare("landscape", "plain", "own", "--public-data", *QUICK, "--json").json["models"]
    assert models[0]["line"] == models[1]["line"]


def test_a_model_that_double_precision_does_not_suit(bare: Tune) -> None:
    export(bare, "plain", trainable__model="landscape_models:float_model")
    state = load_file("plain/model.safetensors")
    save_file({name.removeprefix("1."): value for name, value in state.items()}, "plain/model.safetensors")
    before = files(bare)
    assert "[model-code-failed]" in bare("landscape", "plain", "--public-data", code=2).err
    assert files(bare) == before


def test_a_model_that_cannot_be_built_any_more(bare: Tune) -> None:
    export(bare, "plain", trainable__model="landscape_models:failing_model")
    error = bare("landscape", "plain", "--public-data", code=2).err
    assert "KeyError: 'mine'" in error


def test_a_look_at_the_test_set_says_what_it_is(bare: Tune) -> None:
    export(bare, "plain")
    said = bare("landscape", "plain", "--public-data", "--split", "test", *QUICK)
    assert "second look at the test set" in said.text
    assert "second look" not in bare("landscape", "plain", "--public-data", *QUICK).text


def test_another_public_set_of_the_same_shape(bare: Tune) -> None:
    folder = export(bare, "plain")
    (bare.folder / "none.npz").touch()
    text = (folder / "experiment.yaml").read_text().replace("name: digits", "name: mine\n  path: none.npz")
    (folder / "experiment.yaml").write_text(text.replace("path: none.npz", "path: none.npz\n  public_size: 2000"))
    card = json.loads((folder / "privacy_card.json").read_text())
    card["validation"]["key"]["set"] = "mine"
    (folder / "privacy_card.json").write_text(json.dumps(card))
    said = bare("landscape", "plain", "--public-data", "--dataset", "digits", "--split", "test", *QUICK, "--json").json
    assert (said["data"]["dataset"], said["data"]["split"]) == ("digits", "test")
    error = bare("landscape", "plain", "--public-data", "--dataset", "digits", *QUICK, code=2).err
    assert "--split test" in error


def tampered_split(tune: Tune) -> None:
    """Another split would make training records of some validation records."""
    path = tune.folder / "plain" / "experiment.yaml"
    path.write_text(path.read_text().replace("name: digits", "name: digits\n  validation: {split_seed: 7}"))


def other_parameters(tune: Tune) -> None:
    save_file({"weight": torch.zeros(3)}, str(tune.folder / "plain" / "model.safetensors"))


def no_parameters(tune: Tune) -> None:
    (tune.folder / "plain" / "model.safetensors").write_bytes(b"\x00" * 20)


def no_card(tune: Tune) -> None:
    (tune.folder / "plain" / "privacy_card.json").unlink()


def another_card(tune: Tune) -> None:
    (tune.folder / "plain" / "privacy_card.json").write_text("[1]")


def out_is_a_file(tune: Tune) -> None:
    (tune.folder / "taken").touch()


def not_finite(tune: Tune) -> None:
    path = tune.folder / "plain" / "model.safetensors"
    save_file({name: value * math.nan for name, value in load_file(str(path)).items()}, str(path))


def nothing(tune: Tune) -> None:
    """The folder is as it should be."""


PUBLIC = ("--public-data",)
REFUSED: dict[str, tuple[Callable[[Tune], None], tuple[str, ...], str]] = {
    "nobody said that the data are public": (nothing, (), "[public-data-unconfirmed]"),
    "the training records": (nothing, (*PUBLIC, "--split", "train"), "[split-invalid]"),
    "another split than its card's": (tampered_split, PUBLIC, "[split-changed]"),
    "no model there": (lambda tune: shutil.rmtree(tune.folder / "plain"), PUBLIC, "[export-not-found]"),
    "a model without its card": (no_card, PUBLIC, "[export-not-found]"),
    "a card that is none": (another_card, PUBLIC, "[card-unreadable]"),
    "parameters of another model": (other_parameters, PUBLIC, "[export-unreadable]"),
    "parameters that cannot be read": (no_parameters, PUBLIC, "[export-unreadable]"),
    "parameters that are not finite": (not_finite, PUBLIC, "finite"),
    "records of another shape": (nothing, (*PUBLIC, "--dataset", "iris", "--split", "test"), "[input-shape-differs]"),
    "images of another shape": (nothing, (*PUBLIC, "--dataset", "mnist", "--split", "test"), "[input-shape-differs]"),
    "a data set that is not known": (nothing, (*PUBLIC, "--dataset", "digit"), "digits"),
    "validation of another data set": (nothing, (*PUBLIC, "--dataset", "iris"), "[options-conflict]"),
    "an even number of points": (nothing, (*PUBLIC, "--points", "4"), "[grid-points-invalid]"),
    "too few points": (nothing, (*PUBLIC, "--points", "1"), "Use --points 3"),
    "an even plane": (nothing, (*PUBLIC, "--plane", "4"), "[grid-points-invalid]"),
    "too small a plane": (nothing, (*PUBLIC, "--plane", "2"), "Use --plane 3"),
    "a radius that is no number": (nothing, (*PUBLIC, "--radius", "nan"), "radius"),
    "an extent that is not finite": (nothing, (*PUBLIC, "--extent", "inf"), "extent"),
    "a folder that is a file": (out_is_a_file, (*PUBLIC, "--out", "taken"), "[output-unwritable]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_error_and_nothing_written(bare: Tune, case: str) -> None:
    change, words, names = REFUSED[case]
    export(bare, "plain")
    change(bare)
    before = files(bare)
    said = bare("landscape", "plain", *words, code=2)
    assert names in said.err
    assert said.err.count("error:") == 1
    assert ("measuring" in said.out) == (change is not_finite), "said at once, not after the first model was measured"
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
    assert "[validation-protected]" in bare("landscape", "edited", "--public-data", code=2).err, (
        "the file may be edited"
    )


def test_a_set_that_shares_records_is_refused(bare: Tune) -> None:
    """The test records of the small CIFAR-10 may be training records of the large one."""
    export(bare, "plain", dataset="cifar10")
    words = ("landscape", "plain", "--public-data", "--dataset", "cifar10_10k2k", "--split", "test")
    assert "[training-records-shared]" in bare(*words, code=2).err


def drawn(label: str, losses: list[float | None]) -> dict[str, Any]:
    """A model as the pictures take it."""
    line = {"coordinates": [-1.0, 0.0, 1.0], "losses": losses, "accuracies": [0.1, 0.9, 0.2]}
    return {
        "label": label,
        "loss": 1.0,
        "sharpness": {"value": 2.5},
        "line": line,
        "plane": {**line, "losses": [losses] * 3},
    }


def test_pictures_stand_alone_and_show_what_is_finite() -> None:
    models = [drawn("<b> & $c$", [1e-3, 1.0, 1e4]), drawn("gaps", [None, 1.0, None]), drawn("flat", [0.0, 0.0, 0.0])]
    for figure in (line_chart(models), plane_chart(models), plane_chart([models[2]]), line_chart(models * 7)):
        picture = svg_text(figure, "a title")
        root = ElementTree.fromstring(picture)
        assert root.tag == f"{SVG}svg"
        assert not re.search(r">-?(nan|inf)<|href=\"[^#]|url\([^#]|<script", picture)
        assert any("$c$" in text or "flat" in text for text in root.itertext())


def test_each_panel_draws_the_numbers_of_every_model() -> None:
    models = [drawn("one", [5.0, 1.0, 3.0]), drawn("gaps", [None, 2.0, 4.0])]
    loss, accuracy = line_chart(models).axes
    assert [list(line.get_ydata()) for line in loss.get_lines()] == [
        [5.0, 1.0, 3.0],
        [pytest.approx(math.nan, nan_ok=True), 2.0, 4.0],
    ]
    assert [list(line.get_ydata()) for line in accuracy.get_lines()] == [[0.1, 0.9, 0.2]] * 2
    assert all(list(line.get_xdata()) == [-1.0, 0.0, 1.0] for line in loss.get_lines())
    assert loss.get_yscale() == "linear"
    wide = line_chart([drawn("wide", [1e-3, 1.0, 1e4])])
    assert wide.axes[0].get_yscale() == "log"


def test_a_plane_has_a_panel_a_model_and_one_scale_of_colours() -> None:
    first, second, bar = plane_chart([drawn("one", [1.0, 2.0, 3.0]), drawn("two", [3.0, 4.0, 8.0])]).axes
    assert (first.get_title(), second.get_title(), bar.get_ylabel()) == ("one", "two", "loss")
    limits = {each.get_clim() for panel in (first, second) for each in panel.collections}
    assert limits == {(1.0, 8.0)}
