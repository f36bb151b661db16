"""The winner of a unimodal search: the model by its score, the configuration of a public search by its curve."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml
from command_fakes import STEPS, Tune
from optuna.distributions import FloatDistribution
from optuna.study import Study
from optuna.trial import TrialState, create_trial

from trainables.training import PrivateTraining
from tuner.experiment import Experiment, load_experiment
from tuner.plan.plan import plan_from
from tuner.report.facts import on_public
from tuner.study import views
from tuner.study.pruners.make import make_pruner
from tuner.study.samplers.make import make_sampler
from tuner.study.unimodal.curves import curves_of
from tuner.study.unimodal.options import Along, Unimodality
from tuner.sweep.folder import SweepFolder
from tuner.sweep.sweep_study import open_sweep_study
from tuner.sweep.winner import Chosen, choose_winner

RADIUS = "smoothing_radius"
CARD = "exports/tiny/privacy_card.json"
UNIMODAL: dict[str, Any] = {
    "trainable__method": "dplis",
    "privacy__epsilon": 20.0,
    "search__space": {"learning_rate": 0.5, RADIUS: {"uniform": [0, 100]}, "smoothing_samples": 1},
}
ABOUT = Unimodality(parameters=(Along(RADIUS),), last_step=STEPS, tolerance=0.02)
NAMES = {"sampler": {"search__sampler": "unimodal"}, "pruner": {"search__sampler": "tpe", "search__pruner": "unimodal"}}
GRID: dict[str, Any] = {  # so that whatever a model proposes, the lucky trial stands between two that show its luck
    "search__trials": 9,
    "search__sampler": {"name": "grid", "points": 9},
    "search__pruner": {"name": "unimodal", "strict": True},
}
LUCKY_RADIUS = 62.5
LAST_SEED = 2**32 - 1


def hill(radius: float) -> float:
    """One top, at R = 25."""
    return float(0.8 - 0.05 * (np.log1p(radius) - np.log1p(25.0)) ** 2)


# -- of a study ------------------------------------------------------------------------------------------------------

KNOWN = [60.0, 20.0, 25.0, 30.0, 55.0, 66.0, 22.0, 28.0, 8.0, 3.0]
LUCK = [0.05, *[0.0] * 9]


def study(
    scores: Sequence[float], radii: Sequence[float] = KNOWN, *, by: str = "sampler", maximize: bool = True
) -> Study:
    """Complete trials as the driver leaves them."""
    made = optuna.create_study(
        direction="maximize" if maximize else "minimize",
        sampler=make_sampler("unimodal" if by == "sampler" else "random", seed=0, unimodality=ABOUT),
        pruner=make_pruner("unimodal" if by == "pruner" else "none", unimodality=ABOUT),
    )
    for number, (radius, score) in enumerate(zip(radii, scores, strict=True)):
        parameters = {RADIUS: radius}
        made.add_trial(
            create_trial(
                state=TrialState.COMPLETE,
                value=score,
                params=parameters,
                distributions={RADIUS: FloatDistribution(0.0, 100.0)},
                intermediate_values={STEPS: score},
                user_attrs={views.TRIAL_ID: f"t{number}", views.PARAMETERS: parameters},
            )
        )
    return made


def chosen(made: Study, experiment: Experiment, **more: Any) -> Chosen | None:  # noqa: ANN401
    trials = views.read_trials(made, mode=experiment.search.metric.mode, steps_planned=STEPS)
    return choose_winner(made, trials, experiment, None, **more)


def experiment_of(tune: Tune, **changes: object) -> Experiment:
    return load_experiment(Path(tune.write(**{**UNIMODAL, **NAMES["sampler"], **changes})))


def lucky_scores(luck: Sequence[float] = LUCK, radii: Sequence[float] = KNOWN) -> list[float]:
    return [hill(radius) + more for radius, more in zip(radii, luck, strict=True)]


@pytest.mark.parametrize("by", NAMES)
def test_the_curve_chooses_and_says_which_trial_scored_higher(bare: Tune, by: str) -> None:
    experiment, scores = experiment_of(bare, **NAMES[by]), lucky_scores()
    assert max(range(10), key=scores.__getitem__) == 0
    found = chosen(study(scores, by=by), experiment, by="curve")
    assert found is not None
    assert (found.trial.number, found.by) != (0, "curve")
    assert 20.0 <= found.trial.parameters[RADIUS] <= 30.0  # type: ignore[operator]
    assert "trial 0 scored higher" in found.why
    (curve,) = curves_of(study(scores, by=by))
    assert curve.best == found.trial.number, "what the picture names"
    model = chosen(study(scores, by=by), experiment)
    assert model is not None
    assert (model.trial.number, model.by) == (0, "score"), "a trial's luck is in its model"
    assert f"the fitted curve prefers trial {found.trial.number}" in model.why
    assert chosen(study(scores, by=by), experiment, by="score") == model


def test_a_loss_scores_lower_and_where_both_agree_nothing_is_said(bare: Tune) -> None:
    loss = experiment_of(bare, search__metric={"name": "validation_loss", "mode": "min"})
    found = chosen(study([1.0 - score for score in lucky_scores()], maximize=False), loss, by="curve")
    assert found is not None
    assert "trial 0 scored lower" in found.why
    steep = [25.0, 0.0, 1.0, 3.0, 70.0, 90.0, 100.0]
    for by in (None, "curve"):
        plain = chosen(study(lucky_scores([0.0] * 7, steep), steep), experiment_of(bare), by=by)
        assert plain is not None
        assert (plain.trial.number, plain.by, plain.why) == (0, by or "score", "")


def test_of_one_configuration_the_best_run_wins(bare: Tune) -> None:
    radii = [10.0, 60.0, 25.0, 25.0, 3.0, 30.0]
    for lucky in (2, 3):
        luck = [0.004 if number == lucky else 0.0 for number in range(6)]
        found = chosen(study(lucky_scores(luck, radii), radii), experiment_of(bare), by="curve")
        assert found is not None
        assert (found.trial.number, found.by, found.why) == (lucky, "curve", "")


def test_where_no_curve_is_believed_the_best_score_decides(bare: Tune) -> None:
    radii = [float(np.expm1(x)) for x in np.linspace(0.1, 4.5, 31)]
    two_tops = [0.7 + 0.1 * float(np.cos(4 * np.pi * number / 30)) for number in range(31)]
    two_tops[2] += 0.04
    made, experiment = study(two_tops, radii), experiment_of(bare)
    (curve,) = curves_of(made)
    assert not curve.unimodal
    assert curve.best != 2, "what is believed of a curve of any shape does not decide"
    for by in (None, "curve"):
        found = chosen(made, experiment, by=by)
        assert found is not None
        assert (found.trial.number, found.by, found.why) == (2, "score", "")
    made = study(lucky_scores())
    sealed = experiment.privacy.model_copy(update={"accounting": "selection"})
    for other in (
        experiment_of(bare, search__sampler="random"),
        experiment.model_copy(update={"privacy": sealed}),  # whatever its study says
    ):
        found = chosen(made, other)
        assert found is not None
        assert (found.trial.number, found.by) == (0, "score")
    assert chosen(study([], []), experiment) is None


# -- from end to end -------------------------------------------------------------------------------------------------


@pytest.fixture
def lucky(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation scores are those of a hill; the best is that of a trial beside its top, by luck alone."""
    real = PrivateTraining.evaluate

    def scored(self: PrivateTraining, split: str = "validation") -> dict[str, float]:
        found = real(self, split)
        if split == "validation":
            radius = float(self.spec.parameters[RADIUS])  # type: ignore[arg-type]
            trained = (self.step / self.spec.steps) ** 0.5
            found["validation_accuracy"] = trained * hill(radius) + 0.05 * (radius == LUCKY_RADIUS)
        return found

    monkeypatch.setattr(PrivateTraining, "evaluate", scored)


def lucky_one(rows: Sequence[dict[str, Any]]) -> int:
    """Number of the trial with the best score, which is where the luck was."""
    best = max(rows, key=lambda row: row["score"])
    assert best["parameters"][RADIUS] == LUCKY_RADIUS
    return int(best["number"])


@pytest.mark.slow
@pytest.mark.usefixtures("lucky")
def test_summary_report_tracking_export_and_card_name_the_same_trial(tune: Tune) -> None:
    said = tune("run", tune.write(**{**UNIMODAL, **GRID, "seed": LAST_SEED}), "--local").text
    (folder,) = tune.sweeps
    rows = tune("show", "tiny", "--json").json["trials"]
    best = lucky_one(rows)
    exported = tune("export", "tiny", "--json").json
    why = exported["chosen"]["why"]
    believed = int(re.search(r"the fitted curve prefers trial (\d+)", why)[1])  # type: ignore[index]
    assert believed != best
    assert (exported["trial"]["number"], exported["chosen"]["by"]) == (best, "score")
    assert exported["scores"]["validation_accuracy"] == rows[best]["score"]
    own = yaml.safe_load(Path("exports/tiny/experiment.yaml").read_text())
    assert own["search"]["space"][RADIUS] == LUCKY_RADIUS
    assert json.loads(Path(CARD).read_text())["winner"]["trial"] == rows[best]["id"]
    assert tune("verify", CARD, "--json").json["answer"] == "yes"
    assert f"chosen {why}" in said
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    own = {name: rows[best][name] for name in ("score", "error", "committed")}
    assert status["best"] == {"trial": best, **own}
    tune("report", "tiny")
    page = (folder / "report.html").read_text()
    assert f"<h2>Best trial: {best}</h2>" in page
    assert f"Chosen: {why}." in page
    (parent,) = (run for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-")
    assert parent.data.tags["best_trial"] == rows[best]["id"]
    assert parent.data.tags["best_trial_why"] == why

    by_curve = ("export", "tiny", "--by", "curve", "--out", "exports/other")
    assert "[test-set-used]" in tune(*by_curve, code=2).err
    assert not Path("exports/other/model.safetensors").exists()
    (folder / "test_scores.json").unlink()
    other = tune(*by_curve, "--json").json
    assert (other["trial"]["number"], other["chosen"]["by"]) == (believed, "curve")
    own = yaml.safe_load(Path("exports/other/experiment.yaml").read_text())
    assert own["search"]["space"][RADIUS] == rows[believed]["parameters"][RADIUS]
    assert own["seed"] == believed - 1, "counted up beyond the last seed, it starts from 0 again"
    assert tune("verify", "exports/other/privacy_card.json", "--json").json["answer"] == "yes"


@pytest.mark.slow
@pytest.mark.usefixtures("lucky")
def test_a_public_search_charges_the_configuration_of_its_curve(tune: Tune, public: dict[str, object]) -> None:
    told = tune("run", tune.write(**{**UNIMODAL, **public, **GRID}), "--local", "--json").json
    search, charged = (SweepFolder(root) for root in sorted(tune.sweeps, key=lambda root: "charged" in root.name))
    rows = tune("show", search.id, "--json").json["trials"]
    best = lucky_one(rows)
    chosen_there = told["public_search"]["chosen"]
    winner = chosen_there["trial"]
    assert winner != best
    assert chosen_there["by"] == "curve"
    assert told["public_search"]["best"]["number"] == winner
    (run,) = tune("show", charged.id, "--json").json["trials"]
    assert run["parameters"] == rows[winner]["parameters"]
    experiment = load_experiment(search.experiment)
    plan = plan_from(json.loads(search.plan.read_text()), trials=experiment.search.trials)
    assert plan.train_size != on_public(plan).train_size
    believed = [curves_of(open_sweep_study(search, experiment, each)) for each in (plan, on_public(plan))]
    assert believed[0] == believed[1], "what is shown of it afterwards is what it ran by"
    page = Path(tune("report", search.id).out.split()[-1]).read_text()
    assert f"<h2>Best trial: {winner}</h2>" in page
    for by in ("curve", "score"):
        assert "[choice-made]" in tune("export", "tiny", "--by", by, code=2).err
    assert tune("export", "tiny", "--json").json["trial"]["parameters"] == rows[winner]["parameters"]


def test_a_curve_is_refused_where_there_is_none(look: Tune) -> None:
    assert "[no-curve]" in look("export", "tiny", "--by", "curve", "--out", "elsewhere", code=2).err
    assert not Path("elsewhere").exists()
