"""The examples of code of one's own run as they stand, cut to seconds."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest
import torch
from command_fakes import Tune
from safetensors.torch import load_file

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def here(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """The commands in a copy of the folder of examples."""
    shutil.copytree(EXAMPLES, tune.folder, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(str(tune.folder))
    for name in [path.stem for path in EXAMPLES.glob("*.py")]:
        sys.modules.pop(name, None)
    return tune


def test_records_model_and_method_of_ones_own(here: Tune) -> None:
    run_path(str(here.folder / "own_records.py"))
    cut = ["--set", "search.trials=2", "--set", "trainable.epochs=1"]
    here("run", "own.yaml", "--local", "--quiet", *cut)
    here("export", "own")
    folder = here.folder / "exports" / "own"
    card = json.loads((folder / "privacy_card.json").read_text())
    assert card["configuration"]["method"] == "own_method:stages"
    assert {"own.keep", "own.root"} <= card["configuration"]["parameters"].keys()
    assumed = [row for row in card["assumptions"] if "own_method:stages" in row["why"]]
    assert {row["status"] for row in assumed} == {"assumed"}
    assert any("initial weights" in row["assumption"] for row in assumed)
    assert "holds" not in next(row["status"] for row in card["assumptions"] if "at most C" in row["assumption"])
    here("verify", str(folder / "privacy_card.json"))
    here("plan", str(folder / "experiment.yaml"), "--no-timing")


@pytest.mark.slow
def test_adapters_learn_and_the_public_transformer_stays(here: Tune) -> None:
    import_module("lora").pretrain(steps=2, images=40)
    here("run", "lora.yaml", "--local", "--quiet", "--set", "search.trials=1", "--set", "trainable.epochs=1")
    here("export", "lora")
    public = load_file(here.folder / "printed.safetensors")
    trained = load_file(here.folder / "exports" / "lora" / "model.safetensors")
    moved = {name for name, value in public.items() if not torch.equal(value, trained[name])}
    assert moved == {"last.weight", "last.bias"}
    adapters = [value for name, value in trained.items() if ".up." in name]
    assert len(adapters) == 8
    assert all(bool(value.count_nonzero()) for value in adapters)
