"""Every cap and every unit, from the file to the card: the steps charged are the steps drawn."""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command_fakes import Tune, until, write_images

from trainables.engine.step import PrivateStep
from trainables.training import PrivateTraining
from tuner.privacy.accountant.mechanism import SampledGaussian

CARD = "exports/tiny/privacy_card.json"
RATE = {"log_uniform": [0.1, 2.0]}
AUTO = {"privacy__noise_multiplier": "auto", "search__trials": 4, "search__sampler": "tpe", "search__pruner": "median"}
BOOK: dict[str, object] = {**AUTO, "search__space": {"learning_rate": RATE, "batch_size": {"choice": [128, 256]}}}
MODES: dict[str, dict[str, object]] = {
    "protected coupon_book": {**BOOK, "dataset__validation": {"protected": True, "epsilon": 4.0}},
    "fixed_order": {
        **AUTO,
        "privacy__noise_multiplier": {"uniform": [1.5, 4.0]},
        "search__space": {"learning_rate": RATE, "batch_size": {"integer": [100, 160]}},
    },
    "epochs": {**AUTO, "search__space": {"learning_rate": RATE, "epochs": {"uniform": [0.5, 2.0]}}},
    "protected users": {
        **AUTO,
        "dataset": {
            "name": "owned",
            "path": "owned.npz",
            "public_users": 100,
            "records_per_user": 4,
            "validation": {"protected": True},
        },
        "privacy__unit": "user",
        "privacy__delta": 1e-3,
        "trainable__batch_size": 20,
        "trainable__epochs": 2,
    },
}
CAPS = {"protected coupon_book": "coupon_book", "fixed_order": "fixed_order"}


@pytest.fixture
def owned(tune: Tune) -> None:
    """Records of a hundred users, each with some."""
    users = np.repeat(np.arange(100), np.random.default_rng(0).integers(1, 9, 100))
    write_images(tune.folder / "owned.npz", len(users), user_train=users)


class Counted:
    """Counts the noise that is really drawn: steps by mechanism, and scores."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: Counter[SampledGaussian] = Counter()
        self.scores = 0
        self.stop_at = -1
        take, score = PrivateStep.take, PrivateTraining._released_score

        def taken(step: PrivateStep, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
            self.steps[SampledGaussian(step.mechanism.sample_rate, step.mechanism.noise_multiplier)] += 1
            if self.steps.total() == self.stop_at:
                raise KeyboardInterrupt
            return take(step, *arguments, **more)

        def scored(training: PrivateTraining, noise: float) -> float:
            self.scores += 1
            return score(training, noise)

        patch.setattr(PrivateStep, "take", taken)
        patch.setattr(PrivateTraining, "_released_score", scored)


def shown(tune: Tune) -> tuple[str, list[dict[str, Any]]]:
    values = tune("show", "tiny", "--json").json
    return values["sweep"], values["trials"]


def check_ledger(tune: Tune, counted: Counted, *, slack: int) -> Any:  # noqa: ANN401 - a SearchState
    """What was drawn is charged, by mechanism, and not more than `slack` steps and scores too much."""
    sweep, trials = shown(tune)
    state = tune.search_state(sweep)
    charged: Counter[SampledGaussian] = Counter()
    for trial in state.training.trials.values():
        assert trial.mechanism is not None
        charged[trial.mechanism] += trial.leased
    assert counted.steps <= charged, "never fewer than were drawn"
    assert charged.total() - counted.steps.total() <= slack
    released = 0 if state.validation is None else state.validation.leased_steps
    assert counted.scores <= released <= counted.scores + slack
    assert state.filter.claim(state.delta) <= state.epsilon
    if state.validation is not None:
        assert state.validation.filter.claim(state.validation_claim[1]) <= state.validation_claim[0] <= state.epsilon
    for trial in trials:
        mechanism, chosen = state.training.trials[trial["id"]].mechanism, trial["parameters"]
        if "batch_size" in chosen:
            assert mechanism.sample_rate == chosen["batch_size"] / 1261
        if "noise_multiplier" in chosen:
            assert mechanism.noise_multiplier == chosen["noise_multiplier"]
        if "epochs" in chosen:
            assert trial["steps_planned"] == round(chosen["epochs"] * 1261 / 128)
    return state


QUICK = ("protected coupon_book", "protected users")


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode in QUICK else pytest.mark.slow) for mode in MODES]
)
def test_what_is_drawn_is_charged_and_the_card_follows(
    tune: Tune, owned: None, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    counted = Counted(monkeypatch)
    told = tune("run", tune.write(**MODES[mode]), "--local", "--json").json
    assert told["state"] == "done"
    assert told["plan"]["cap"] == CAPS.get(mode, "total_steps")
    state = check_ledger(tune, counted, slack=0)
    assert state.unit == ("user" if "users" in mode else "record")
    assert (state.validation is not None) == ("protected" in mode)
    assert state.status == "closed"
    budget = tune("status", "tiny", "--json").json["sweeps"][0]["budget"]
    assert budget["spent_steps"] == counted.steps.total()
    assert 0 < budget["epsilon_spent"] <= budget["epsilon_cap"] == 8.5
    parent = next(run for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-")
    assert parent.data.metrics["steps_spent"] == counted.steps.total()
    assert ("one user" in parent.data.tags["mlflow.note.content"]) == ("users" in mode)
    if "protected" in mode:
        assert budget["validation"]["spent_steps"] == parent.data.metrics["scores_spent"] == counted.scores > 0
    before = counted.steps.total(), counted.scores
    exported = tune("export", "tiny", "--json").json
    assert exported["claim"] == {"epsilon": 8.5, "delta": state.delta}
    assert (counted.steps.total(), counted.scores) == before, "an export draws nothing"
    check_card(tune, mode, exported["trial"]["parameters"])


def check_card(tune: Tune, mode: str, parameters: dict[str, Any]) -> None:
    """The card holds, tells the mode, and its file is an ordinary search of one trial of the winner's mechanism."""
    assert tune("verify", CARD, "--json").json["answer"] == "yes"
    card = json.loads(Path(CARD).read_text())
    winner, records = card["winner"], card["records"]
    assert card["training_cap"]["filter"]["kind"] == CAPS.get(mode, "total_steps")
    assert (card["validation_cap"] is not None) == ("protected" in mode)
    if "batch_size" in parameters:
        assert winner["sample_rate"] == parameters["batch_size"] / records["public_size"]
    if "noise_multiplier" in parameters:
        assert winner["noise_multiplier"] == parameters["noise_multiplier"]
    if "users" in mode:
        assert (records["records_per_user"], card["claim"]["adjacency"]) == (4, "add_or_remove_one_user")
        assert winner["sample_rate"] == 20 / records["public_size"]
    plan = tune("plan", "exports/tiny/experiment.yaml", "--json", "--no-timing").json
    assert (plan["trials"], plan["accounting"], plan["cap"]) == (1, "composition", "total_steps")
    assert (plan["sample_rate"], plan["noise_multiplier"]) == (winner["sample_rate"], winner["noise_multiplier"])
    assert plan["unit"] == ("user" if "users" in mode else "record")
    if mode == "protected coupon_book":
        written = yaml.safe_load(Path("exports/tiny/experiment.yaml").read_text())
        declared, own = written["dataset"]["validation"]["epsilon"], written["privacy"]["epsilon"]
        assert declared == min(4.0, own), "training again may not spend more on the validation records"
    if "protected" not in mode:
        assert plan["epsilon_at_cap"] == pytest.approx(winner["single_run_epsilon"], rel=1e-6)


@pytest.mark.parametrize(
    "mode",
    [
        "protected coupon_book",
        *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("fixed_order", "protected users")),
    ],
)
def test_one_that_was_cut_off_goes_on_under_its_cap(
    tune: Tune, owned: None, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    counted = Counted(monkeypatch)
    counted.stop_at = 13  # inside the second trial, or the first that is long
    tune("run", tune.write(**MODES[mode]), "--local", "--quiet", code=130)
    check_ledger(tune, counted, slack=15)
    tune("resume", "tiny", "--local", "--quiet")
    state = check_ledger(tune, counted, slack=15)
    assert state.status == "closed"
    _, trials = shown(tune)
    assert all(trial["state"] in ("complete", "pruned") for trial in trials), [t["reason"] for t in trials]
    assert all(state.training.left(mechanism) >= 0 for mechanism in state.training.leased)
    tune("export", "tiny")
    tune("verify", CARD)


def test_a_sweep_that_grows_keeps_its_cap_and_ends_with_it(tune: Tune) -> None:
    tune("run", tune.write(**{**BOOK, "search__trials": 2}), "--local", "--quiet")
    (sweep,) = tune.sweeps
    before = tune.search_state(sweep.name).filter
    tune("resume", "tiny", "--local", "--set", "search.trials=30", code=None)
    after = tune.search_state(sweep.name)
    assert after.filter == before
    assert all(after.training.leased.get(mechanism, 0) <= quota for mechanism, quota in before.quotas)
    assert tune("status", "tiny", "--json").json["sweeps"][0]["state"] == "budget reached"


@pytest.mark.slow
def test_on_ray(tune: Tune) -> None:
    """The charge actor charges each trial by its own mechanism, and each score before it is drawn."""
    changes = {**MODES["protected coupon_book"], "resources__concurrent_trials": 2}
    process = tune.process("run", tune.write(**changes), "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    told = json.loads(out)
    state = tune.search_state(told["sweep"])
    for trial in told["trials"]:
        assert state.training.trials[trial["id"]].leased == trial["step"]
    # The two rungs of a trial are half way and at its end.
    assert state.validation.leased_steps == sum(
        1 if trial["step"] < trial["steps_planned"] else 2 for trial in told["trials"]
    )
    assert all(trial.settled for trial in state.training.trials.values())


@pytest.mark.slow
def test_on_ray_a_search_with_protected_scores_goes_on_after_ctrl_c(tune: Tune) -> None:
    protected = {"dataset__validation": {"protected": True}, "search__trials": 200, "privacy__epsilon": 60.0}
    process = tune.process("run", tune.write(**{**AUTO, **protected, "search__pruner": "none"}))
    until(process, "trial 1 step")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    begun = len(shown(tune)[1])
    process = tune.process("resume", "tiny", "--set", f"search.trials={begun}")
    _, err = process.communicate()
    assert process.returncode == 0, err
    sweep, trials = shown(tune)
    state = tune.search_state(sweep)
    assert [trial["state"] for trial in trials] == ["complete"] * begun
    assert state.training.leased_steps >= 10 * begun
    assert state.validation.leased_steps >= 2 * begun


def test_a_trial_that_would_train_something_else_than_it_reserved_takes_no_step(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the noise is another mechanism, which nobody paid for."""
    import tuner.runner.composition

    real = tuner.runner.composition.training_spec
    counted = Counted(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(
            tuner.runner.composition,
            "training_spec",
            lambda *words, **more: (
                (spec := real(*words, **more)) and replace(spec, noise_multiplier=spec.noise_multiplier / 2)
            ),
        )
        assert "[mechanism-not-reserved]" in tune("run", tune.write(), "--local", code=1).err
    assert counted.steps.total() == 0
