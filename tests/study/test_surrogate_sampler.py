"""The surrogate sampler: its first trials, what it learns from, and where it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from errors_helper import raises_code
from optuna.trial import TrialState
from response_surfaces import SPACE, Surface

from tuner.errors import InputError
from tuner.experiment import load_experiment
from tuner.plan.plan import make_plan
from tuner.study import views
from tuner.study.samplers.make import make_sampler
from tuner.study.suggest import OptunaSuggest
from tuner.study.surrogate.observations import Prior
from tuner.study.surrogate.setting import SearchSetting
from tuner.study.surrogate.stored import choose_by_proxy, choose_final, observations
from tuner.sweep.sweep_study import search_setting

RUNGS = (25, 50, 100)


class Rate:
    value, spread = 3.0, 0.5


PLAIN = SearchSetting(last_step=RUNGS[-1], noise_of=lambda _parameters: 1.0)


def search(about: SearchSetting, surface: Surface, trials: int, seed: int = 0) -> optuna.Study:
    sampler = make_sampler("surrogate", seed=seed, space=SPACE, setting=about)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    random = np.random.default_rng(seed)
    for _ in range(trials):
        trial = study.ask()
        at, effect = SPACE.sample(OptunaSuggest(trial)), random.normal(0.0, 0.3)
        for step in RUNGS:
            score = surface.score(at, 1.0, about.length * step / RUNGS[-1]) + effect + random.normal(0.0, 0.2)
            trial.report(score, step)
        study.tell(trial, score)
    return study


def test_the_first_trial_is_the_priors_median_and_the_next_ones_are_spread() -> None:
    surface = Surface.drawn(np.random.default_rng(0), 0.5)
    study = search(replace(PLAIN, prior=Prior(recommended={"learning_rate": Rate()})), surface, 4)
    rates = [trial.params["learning_rate"] for trial in study.trials]
    assert rates[0] == pytest.approx(3.0)
    assert len({round(float(np.log(rate)), 1) for rate in rates}) == 4


def test_where_the_final_run_is_another_run_no_trial_follows_the_scores_unless_asked_to() -> None:
    about = replace(PLAIN, length=0.25, final_noise=lambda _parameters: 0.5)

    def proposed(best: float, options: dict[str, object]) -> dict[str, object]:
        """Return the eighth trial after scores that fall with the distance of the log rate from `best`."""
        study = optuna.create_study(
            direction="maximize", sampler=make_sampler("surrogate", options, seed=0, space=SPACE, setting=about)
        )
        for _ in range(7):
            trial = study.ask()
            rate = SPACE.sample(OptunaSuggest(trial))["learning_rate"]
            study.tell(trial, 90.0 - 9.0 * abs(np.log(float(str(rate))) - best))
        return SPACE.sample(OptunaSuggest(study.ask()))

    assert proposed(-2.0, {}) == proposed(2.0, {})
    assert proposed(-2.0, {"starts": 4}) != proposed(2.0, {"starts": 4})  # the control


@pytest.mark.slow
def test_a_search_of_twelve_trials_ends_near_the_best_for_its_own_and_for_another_final_run() -> None:
    """The control is the same number of trials that do not follow the scores."""
    lost: dict[str, list[float]] = {"own": [], "random": [], "final": []}
    for seed in range(6):
        surface = Surface.drawn(np.random.default_rng(seed), 0.5)
        own = search(PLAIN, surface, 12, seed)
        lost["own"].append(min(surface.regret(trial.params, 1.0) for trial in own.trials))
        plain = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        random = [SPACE.sample(OptunaSuggest(plain.ask())) for _ in range(12)]
        lost["random"].append(min(surface.regret(at, 1.0) for at in random))
        about = replace(PLAIN, length=0.25, final_noise=lambda _parameters: 0.5)
        cheap = search(about, surface, 12, seed)
        best = choose_final(cheap, SPACE, about, seed=seed)
        assert best is not None
        lost["final"].append(surface.regret(best.parameters, 0.5))
    assert np.mean(lost["own"]) < np.mean(lost["random"])
    assert np.mean(lost["final"]) < 2.0


def test_the_charged_run_after_a_public_search_is_not_the_luckiest_trial() -> None:
    """The control is the public trial with the best score, which luck of 3 points chose."""
    lost: dict[str, list[float]] = {"surrogate": [], "luckiest": []}
    for seed in range(8):
        surface, random = Surface.drawn(np.random.default_rng(seed), 0.5), np.random.default_rng(seed)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=seed))
        for _ in range(10):
            trial = study.ask()
            study.tell(trial, surface.score(SPACE.sample(OptunaSuggest(trial)), 1.0) + random.normal(0.0, 3.0))
        chosen = choose_by_proxy(study, SPACE, PLAIN)
        assert chosen is not None
        lost["surrogate"].append(surface.regret(chosen.parameters, 1.0))
        lost["luckiest"].append(surface.regret(study.best_params, 1.0))
    assert np.mean(lost["surrogate"]) < 0.8 * np.mean(lost["luckiest"])


def test_the_last_score_of_every_trial_is_observed_with_its_error_and_a_failed_training_as_the_worst() -> None:
    about = replace(PLAIN, length=0.5, records=100, is_accuracy=True, blur=0.01)
    study = optuna.create_study(direction="maximize")
    for state, scores in ((TrialState.COMPLETE, (0.2, 0.5, 0.9)), (TrialState.PRUNED, (0.1,)), (TrialState.FAIL, ())):
        trial = study.ask()
        SPACE.sample(OptunaSuggest(trial))
        for step, score in zip(RUNGS, scores, strict=False):
            trial.report(score, step)
        if state is TrialState.FAIL:
            trial.set_user_attr(views.OUTCOME, "FAILED")
        study.tell(trial, scores[-1] if state is TrialState.COMPLETE else None, state=state)
    study.ask()  # runs, and has no score yet
    seen = observations(study, about)
    assert [(each.trial, each.fraction, each.score) for each in seen] == [
        ("0", 0.5, 0.9), ("1", 0.125, 0.1), ("2", 0.5, 0.1),
    ]  # fmt: skip
    assert seen[0].error == pytest.approx((0.9 * 0.1 / 100 + 0.01**2) ** 0.5)


def test_a_running_trial_is_not_proposed_again() -> None:
    surface = Surface.drawn(np.random.default_rng(1), 0.5)
    study = search(PLAIN, surface, 6)
    running = [SPACE.sample(OptunaSuggest(study.ask())) for _ in range(4)]
    assert len({str(at) for at in running}) == 4


def test_without_a_space_or_with_a_wrong_number_of_starts_it_is_refused() -> None:
    with raises_code(InputError, "sampler-space-missing"):
        make_sampler("surrogate", seed=0)
    for wrong in (0, 1.5, True):
        with raises_code(InputError, "option-invalid"):
            make_sampler("surrogate", {"starts": wrong}, seed=0, space=SPACE)


def test_an_experiment_gives_the_noise_of_a_trial_and_the_shipped_prior(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text(
        "name: search\ndataset: {name: digits}\ntrainable: {method: dp_sgd}\nprivacy: {epsilon: 3.0}\n"
        "search: {sampler: surrogate, space: {learning_rate: {log_uniform: [0.1, 10]}}}\n"
        f"storage: {tmp_path}/runs\nledger: sqlite:///{tmp_path}/ledger.db\n"
    )
    experiment = load_experiment(file, ())
    about = search_setting(experiment, RUNGS, make_plan(experiment, experiment.dataset_request()))
    usual = about.noise_of({})
    assert about.noise_of({"batch_size": 512}) == pytest.approx(usual / 2)
    assert about.is_accuracy
    assert about.records is not None
    assert about.prior is not None
    assert set(about.prior.recommended) <= {"learning_rate", "max_grad_norm"}
    assert "learning_rate" in about.prior.recommended
