"""Searches that perturb a minimum, by the commands: charged as steps, verified, exported; and what is refused."""

from __future__ import annotations

import json

import pytest
from command_fakes import Tune

MINIMUM: dict[str, object] = {
    "trainable__method": "objective_perturbation",
    "trainable__batch_size": 1261,
    "privacy__noise_multiplier": "auto",
    "search__space": {"weight_decay": {"log_uniform": [0.01, 1.0]}},
}


def test_a_search_is_charged_step_by_step_exported_and_verified(tune: Tune) -> None:
    found = tune("run", tune.write(**MINIMUM), "--local", "--json").json
    assert [trial["state"] for trial in found["trials"]] == ["complete"] * 2
    assert tune.search_state(tune.sweeps[-1].name).training.leased_steps == 2
    told = tune("export", "tiny", "--out", "out").text
    assert "test_accuracy" in told
    card = json.loads((tune.folder / "out" / "privacy_card.json").read_text())
    assert card["configuration"]["method"] == "objective_perturbation"
    assert card["winner"]["sample_rate"] == 1.0
    assert card["winner"]["releases"][0]["release"] == "perturbed minimum"
    assumed = " ".join(row["assumption"] for row in card["assumptions"])
    assert "convex" in assumed
    assert "Poisson" not in assumed
    assert "yes: the card follows from its ledger" in tune("verify", "out/privacy_card.json").text
    assert "least weight_decay" in tune("plan", "tiny.yaml", "--no-timing").text


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"trainable__model": "mlp_64"}, "model-not-convex"),
        ({"trainable__batch_size": 128}, "convex-one-step"),
        ({"trainable__epochs": 2}, "convex-one-step"),
        ({"search__space": {"weight_decay": {"choice": [0.0, 1.0]}}}, "convex-not-strong"),
        ({"search__space": {"learning_rate": "default"}}, "parameter-unknown"),
        ({"search__full_runs": 1}, "convex-unsupported"),
        ({"search__commit": 0.1}, "convex-unsupported"),
        ({"search__sampler": "surrogate"}, "convex-unsupported"),
        ({"privacy__accounting": "auto"}, "convex-unsupported"),
        ({"privacy__accounting": "release"}, "release-method"),
    ],
)
def test_what_the_proof_does_not_cover_is_refused_before_a_charge(
    tune: Tune, changes: dict[str, object], code: str
) -> None:
    said = tune("run", tune.write(**{**MINIMUM, **changes}), "--local", code=2)
    assert f"[{code}]" in said.text
    assert tune.entries == []
    assert tune.sweeps == []
