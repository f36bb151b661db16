"""Among noisy scores, every view names the same winner, its error and the trials within it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import Tune

from trainables.score_error import ScoreError
from trainables.scoring import protected_size
from trainables.training import PrivateTraining

NOISE = 7.0  # standard deviation of a released count
CURVES = {0.1: (0.60, 0.70), 0.2: (0.50, 0.72), 0.3: (0.69, 0.715), 0.4: (0.40, 0.50)}
"""Scores by learning rate. At 0.2, the last is the best, but the one before does not support it."""


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Validation scores are those of `CURVES`. The list gets the public number of validation records."""
    real, sizes = PrivateTraining.evaluate, []

    def scored(self: PrivateTraining, split: str = "validation") -> dict[str, float]:
        found = real(self, split)
        if split == "validation":
            sizes[:] = [protected_size(self.spec)]
            curve = CURVES[float(self.spec.parameters["learning_rate"])]  # type: ignore[arg-type]
            found["validation_accuracy"] = curve[self.step == self.spec.steps]
        return found

    monkeypatch.setattr(PrivateTraining, "evaluate", scored)
    return sizes


@pytest.mark.slow
def test_the_winner_among_noisy_scores_is_the_same_everywhere(tune: Tune, records: list[int]) -> None:
    changes = {
        "dataset__validation": {"protected": True, "noise": NOISE},
        "privacy__epsilon": 20.0,
        "search__trials": 4,
        "search__sampler": {"name": "grid", "points": 4},
        "search__space": {"learning_rate": {"choice": list(CURVES)}},
    }
    said = tune("run", tune.write(**changes), "--local").text
    (folder,) = tune.sweeps
    shown = tune("show", "tiny", "--json").json
    numbers = {row["parameters"]["learning_rate"]: row["number"] for row in shown["trials"]}
    rows = {row["number"]: row for row in shown["trials"]}
    winner, top = numbers[0.3], numbers[0.2]
    error = ScoreError(records[0], NOISE / records[0]).of(0.715)
    assert rows[winner]["error"] == pytest.approx(error)
    assert shown["chosen"] == winner
    assert shown["tied"] == sorted([top, numbers[0.1]])
    assert min(rows[number]["score"] for number in rows) < shown["expected"] < 0.715
    assert f"trial {winner}, validation_accuracy 0.715 ± {error:.2g}" in said
    assert f"chosen trial {winner} by its last two scores" in said
    assert "perhaps as good as the best (within one standard error of the difference): trials" in said

    exported = tune("export", "tiny", "--json").json
    assert exported["trial"]["number"] == winner
    assert exported["errors"]["validation_accuracy"] == pytest.approx(error)
    card = json.loads(Path("exports/tiny/privacy_card.json").read_text())
    assert card["winner"]["trial"] == rows[winner]["id"]
    assert card["scores"]["validation_accuracy_standard_error"] == pytest.approx(error)
    assert tune("verify", "exports/tiny/privacy_card.json", "--json").json["answer"] == "yes"
    (status,) = tune("status", "tiny", "--json").json["sweeps"]
    assert status["best"]["trial"] == winner
    tune("report", "tiny")
    assert f"<h2>Best trial: {winner}</h2>" in (folder / "report.html").read_text()
    (parent,) = (run for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-")
    assert parent.data.tags["best_trial"] == rows[winner]["id"]
    (own,) = (run for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == rows[winner]["id"])
    assert own.data.metrics["validation_accuracy_se"] == pytest.approx(error)
