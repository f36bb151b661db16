"""Public weights and frozen layers by the commands: card, verify, resume, export, and each refusal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command_fakes import Tune, raising_at
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from trainables.models import build
from trainables.start import TRAINED_ON

PUBLIC = "public.safetensors"
HIDDEN = {"trainable__model": "mlp_64", "trainable__freeze": ["1"], "search__trials": 1}


def tensors(**changed: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Weights of `mlp_64` for digits under another seed, some of which are replaced or left out."""
    state = {**build("mlp_64", input_shape=(1, 8, 8), classes=10, seed=7).state_dict()}
    state |= {name.replace("_", "."): value for name, value in changed.items()}  # type: ignore[misc]
    return {name: value for name, value in state.items() if value is not None}


def weights(tune: Tune, **changed: torch.Tensor | None) -> str:
    """Write a file of weights, and return its hash."""
    save_file(tensors(**changed), tune.folder / PUBLIC)
    return digest(tune.folder / PUBLIC)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def started(tune: Tune, start: Any = None, **changes: Any) -> str:  # noqa: ANN401 - any value of the file
    given = {"path": PUBLIC, "public": True} if start is None else start
    return tune.write(**{**HIDDEN, "trainable__start": given, **changes})


def refused(tune: Tune, file: str, code: str) -> None:
    """One clear error: exit 2, no entry in the ledger, no folder and no run of MLflow."""
    said = tune("run", file, "--local", "--quiet", code=2)
    assert said.err.count(f"[{code}]") >= 1, said.err
    assert not tune.entries
    assert not tune.sweeps
    assert not tune.mlflow_runs()


def exported(tune: Tune) -> Path:
    tune("export", "tiny")
    (folder,) = (tune.folder / "exports").iterdir()
    return folder


def test_a_search_from_public_weights_trains_the_rest_and_says_whose_word_they_are(tune: Tune) -> None:
    known = weights(tune)
    file = started(tune)
    assert "trainable.start are public" in tune("plan", file).text
    tune("run", file, "--local", "--quiet")
    stored = yaml.safe_load((tune.sweeps[0] / "experiment.yaml").read_text())
    assert stored["trainable"]["start"]["sha256"] == known
    folder = exported(tune)
    card, page = folder / "privacy_card.json", folder / "privacy_card.md"
    values = json.loads(card.read_text())
    assert f"assumed public, sha256 {known}" in values["configuration"]["starting_weights"]
    assert values["configuration"]["frozen_layers"] == ["1"]
    assert [row["status"] for row in values["assumptions"] if known in row["why"]] == ["assumed"]
    assert page.read_text().count(known) == 2
    assert yaml.safe_load((folder / "experiment.yaml").read_text())["trainable"]["start"]["sha256"] == known
    tune("verify", str(card))
    before, after = load_file(tune.folder / PUBLIC), load_file(folder / "model.safetensors")
    assert torch.equal(before["1.weight"], after["1.weight"])
    assert not torch.equal(before["3.weight"], after["3.weight"])
    card.write_text(card.read_text().replace(known, "0" * 64))
    assert tune("verify", str(card), code=None).code != 0, "a card that names other weights is found"


def test_other_weights_are_refused_by_resume_and_export_and_a_moved_file_is_not(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights(tune)
    file = started(tune, search__trials=2)
    with monkeypatch.context() as patch:
        raising_at(patch, 1)
        tune("run", file, "--local", "--quiet", code=130)
    charged = tune.entries
    good = (tune.folder / PUBLIC).read_bytes()
    weights(tune, **{"3_bias": torch.zeros(10)})
    assert "[start-changed]" in tune("resume", "tiny", "--local", "--quiet", code=2).err
    assert tune.entries == charged
    (tune.folder / "elsewhere").mkdir()
    (tune.folder / "elsewhere" / PUBLIC).write_bytes(good)
    moved = f"trainable.start.path={tune.folder / 'elsewhere' / PUBLIC}"
    tune("resume", "tiny", "--local", "--quiet", "--set", moved)
    (tune.folder / "elsewhere" / PUBLIC).write_bytes(good[:-1] + b"\x01")
    assert "[start-changed]" in tune("export", "tiny", code=2).err
    assert not (tune.folder / "exports").exists()


@pytest.mark.parametrize(
    ("start", "code"),
    [
        (PUBLIC, "start-not-declared"),
        ({"path": PUBLIC}, "start-not-declared"),
        ({"path": PUBLIC, "public": False}, "start-not-declared"),
        ({"path": PUBLIC, "public": True, "sha256": "0" * 64}, "start-changed"),
        ({"path": "absent.safetensors", "public": True}, "start-unreadable"),
    ],
)
def test_weights_that_are_not_declared_or_are_others_are_refused(tune: Tune, start: object, code: str) -> None:
    weights(tune)
    refused(tune, started(tune, start), code)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"3_weight": torch.zeros(10, 65)}, "start-does-not-fit"),
        ({"3_weight": torch.zeros(10, 64, dtype=torch.int64)}, "start-does-not-fit"),
        ({"4_weight": torch.zeros(1)}, "start-does-not-fit"),
        ({"3_bias": torch.full((10,), 1e300, dtype=torch.float64)}, "start-not-finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tune: Tune, changed: dict[str, torch.Tensor], code: str) -> None:
    weights(tune, **changed)
    refused(tune, started(tune), code)


def test_a_pickled_file_is_not_read(tune: Tune) -> None:
    torch.save(tensors(), tune.folder / PUBLIC)
    refused(tune, started(tune), "start-unreadable")


@pytest.mark.parametrize(("freeze", "code"), [(["2"], "freeze-unknown"), (["1", "3"], "model-not-trainable")])
def test_frozen_layers_that_are_no_layers_or_are_all_of_them_are_refused(
    tune: Tune, freeze: list[str], code: str
) -> None:
    weights(tune)
    refused(tune, started(tune, trainable__freeze=freeze), code)


def test_weights_that_were_trained_on_these_records_are_refused(look: Tune, tune: Tune) -> None:
    """By the header of an export, or by the card next to a copy without the header; a copy without both is the word."""
    (folder,) = (look.folder / "exports").iterdir()
    model, card = folder / "model.safetensors", folder / "privacy_card.json"
    linear = {"trainable__model": "logistic_regression", "trainable__freeze": []}
    refused(tune, started(tune, {"path": str(model), "public": True}, **linear), "start-trained-here")
    bare = tune.folder / "model.safetensors"
    save_file(load_file(model), bare)
    told = json.loads(card.read_text())
    told["exported_files"]["model.safetensors"] = digest(bare)
    (tune.folder / "privacy_card.json").write_text(json.dumps(told))
    file = started(tune, {"path": str(bare), "public": True}, **linear)
    refused(tune, file, "start-trained-here")
    (tune.folder / "privacy_card.json").unlink()
    tune("plan", file, "--no-timing")


def test_an_export_names_the_records_of_the_weights_it_started_from(tune: Tune) -> None:
    """Or a search in between would make weights that were trained on some records look public to these records."""
    header = {TRAINED_ON: json.dumps({"search": "earlier", "datasets": ["breast_cancer"]})}
    save_file(tensors(), tune.folder / PUBLIC, metadata=header)
    tune("run", started(tune), "--local", "--quiet")
    with safe_open(exported(tune) / "model.safetensors", "pt") as file:
        assert set(json.loads(file.metadata()[TRAINED_ON])["datasets"]) == {"digits", "breast_cancer"}
