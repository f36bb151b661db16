"""A search with a committed run, by the commands: what is charged as what, what is released, and a crash within it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_fakes import Tune, raising_at

from search_spaces.prior import largest_step
from tuner.experiment import load_experiment
from tuner.plan.plan import make_plan
from tuner.privacy.accountant.mechanism import SampledGaussian

COMMIT: dict[str, object] = {
    "privacy__noise_multiplier": "auto",
    "privacy__epsilon": 3.0,
    "trainable__epochs": 4,
    "search__trials": 3,
    "search__commit": {"share": 0.2, "start": "best_trial"},
}
SHORT, STEPS = 10, 39


def accounts(tune: Tune) -> dict[str, Any]:
    return tune.search_state(tune.sweeps[0].name).training.trials


def test_the_committed_run_is_charged_as_what_it_is_and_is_what_is_released(tune: Tune) -> None:
    protected = {"protected": True, "epsilon": 2.0}
    said = tune("run", tune.write(**COMMIT, dataset__validation=protected), "--local", "--json").json
    plan, rows = said["plan"], said["trials"]
    run = rows[-1]
    assert [row["committed"] for row in rows] == [False, False, False, True]
    assert (run["state"], run["step"], said["best"]["number"]) == ("complete", STEPS, 3)
    why = "trial 3 is the committed run"
    assert said["chosen"] == {"trial": 3, "by": "commit", "why": why, "tied": [], "expected": None}
    rate = plan["sample_rate"]
    searching = SampledGaussian(rate, plan["noise_multiplier"])
    committing = SampledGaussian(rate, plan["commit"]["noise_multiplier"])
    charged = {name: (account.mechanism, account.leased) for name, account in accounts(tune).items()}
    assert charged == {row["id"]: ((committing, STEPS) if row["committed"] else (searching, SHORT)) for row in rows}
    assert tune.search_state(said["sweep"]).validation.leased_steps == 4 * 2

    status = tune("status", "tiny", "--json").json["sweeps"][0]
    assert (status["trials"], status["committed_run"]) == ({"planned": 3, "complete": 3}, "complete")
    assert "3 planned, 3 complete; committed run complete" in tune("status", "tiny").text

    tune("export", "tiny")
    folder = tune.folder / "exports" / "tiny"
    card = json.loads((folder / "privacy_card.json").read_text())
    assert card["winner"]["trial"] == run["id"]
    assert (card["winner"]["noise_multiplier"], card["winner"]["steps"]) == (committing.noise_multiplier, STEPS)
    assert card["claim"]["epsilon"] == 3.0
    assert "weights of another trial" in card["winner"]["starts_from"]
    assert "the committed run starts from a charged trial's" in card["configuration"]["starting_weights"]
    assert "yes: the card follows from its ledger" in tune("verify", str(folder / "privacy_card.json")).out
    again = load_experiment(folder / "experiment.yaml")
    alone = make_plan(again, again.dataset_request())
    assert (alone.mechanism, alone.steps_per_trial, alone.commit) == (committing, STEPS, None)

    assert "[test-set-used]" in tune("export", "tiny", "--by", "score", "--out", "other", code=2).err
    (tune.sweeps[0] / "test_scores.json").unlink()
    tune("export", "tiny", "--by", "score", "--out", "other")
    other = load_experiment(tune.folder / "other" / "experiment.yaml")
    alone = make_plan(other, other.dataset_request())
    assert (alone.mechanism, alone.steps_per_trial) == (searching, SHORT), "a trial of the search, on demand"
    refused = tune("resume", "tiny", "--local", "--set", "search.trials=9", code=2).err
    assert "[resume-changes-setting]" in refused
    assert "committed run" in tune("report", "tiny").out + (tune.sweeps[0] / "report.html").read_text()
    tags = [run.data.tags for run in tune.mlflow_runs() if run.data.tags.get("committed")]
    assert len(tags) == 1
    (parent,) = [run for run in tune.mlflow_runs() if "trials_complete" in run.data.metrics]
    assert parent.data.metrics["trials_complete"] == 3, "the committed run is no trial"


def test_a_networks_committed_rate_is_at_most_what_networks_bear_and_a_linear_models_is_not(tune: Tune) -> None:
    most = largest_step("other", steps=STEPS, classes=10) / 2.0

    def committed_rate(name: str, model: str, low: float) -> float:
        space = {"learning_rate": {"log_uniform": [low, 50.0]}, "max_grad_norm": 2.0}
        file = tune.write(**COMMIT, search__space=space, name=name, trainable__model=model)
        said = tune("run", file, "--local").text
        assert ("networks that we measured collapsed" in " ".join(said.split())) is (model == "mlp_64")
        shown = tune("show", name, "--json").json
        return float(shown["trials"][-1]["parameters"]["learning_rate"])

    assert committed_rate("net", "mlp_64", low=0.95 * most) == pytest.approx(most)
    assert committed_rate("outside", "mlp_64", low=2 * most) == pytest.approx(2 * most), "within its domain"
    assert committed_rate("linear", "logistic_regression", low=2 * most) > 2.01 * most


@pytest.mark.slow
def test_an_interrupted_committed_run_goes_on_and_ends_earlier_by_what_it_lost(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 17 rungs and saves before it are those of three trials and of the run's first eleven steps."""
    with monkeypatch.context() as patch:
        raising_at(patch, 3 * 2 + 11, after=1)
        said = tune("run", tune.write(**COMMIT), "--local", code=130)
    assert "ends this run 1 step earlier than planned" in said.text
    assert "[sweep-not-finished]" in tune("export", "tiny", code=2).err
    (name,) = [name for name, account in accounts(tune).items() if not account.settled]
    assert accounts(tune)[name].leased == 12
    done = tune("resume", "tiny", "--local", "--json").json
    (run,) = [row for row in done["trials"] if row["committed"]]
    assert (run["id"], run["state"], run["step"]) == (name, "complete", STEPS - 1)
    assert accounts(tune)[name].leased == STEPS, "every step of the quota was taken once, and none twice"
    tune("export", "tiny")
    assert "yes:" in tune("verify", "exports/tiny/privacy_card.json").out


@pytest.mark.slow
def test_a_committed_run_starts_from_the_checkpoint_before_a_damaged_one(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        raising_at(patch, 3 * 2, after=1)
        tune("run", tune.write(**COMMIT), "--local", code=130)
    (committed,) = [name for name, account in accounts(tune).items() if not account.settled]
    folders = [folder / "checkpoint" for folder in (tune.sweeps[0] / "trials").iterdir() if folder.name != committed]
    assert len(folders) == 3
    for folder in folders:
        newest = max(folder.glob("step-*.pt"))
        bytes_ = newest.read_bytes()
        newest.write_bytes(bytes_[:-1] + bytes([bytes_[-1] ^ 1]))
    done = tune("resume", "tiny", "--local", "--json").json
    assert [row["state"] for row in done["trials"] if row["committed"]] == ["complete"]


@pytest.mark.slow
def test_a_committed_run_that_fails_releases_nothing_but_what_is_asked_for(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainables.training import PrivateTraining

    real = PrivateTraining.run_to

    def fails(training: PrivateTraining, step: int) -> None:
        if training.spec.steps == STEPS:
            raise ValueError("of a record")
        real(training, step)

    monkeypatch.setattr(PrivateTraining, "run_to", fails)
    said = tune("run", tune.write(**COMMIT), "--local", code=1)
    assert "the committed run failed" in said.text
    assert "tune export" not in said.text
    (run,) = [name for name, account in accounts(tune).items() if account.leased == STEPS]
    assert accounts(tune)[run].settled, "all its steps are charged, so that the charge tells no step"
    assert "--by score" in tune("export", "tiny", code=2).text
    assert tune("export", "tiny", "--by", "score", "--json").json["trial"]["id"] != run
