"""A sealed search: the winner leaves, and nothing that could be seen tells how many runs there were."""

from __future__ import annotations

import json
import re
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from command_fakes import Tune, with_mlflow
from safetensors.torch import load_file
from sealed_fakes import SEALED, made, outside, sealed, seen, the_sweep, times, without_chance

from trainables.models import build
from trainables.training import PrivateTraining
from tuner.privacy.ledger.ledger import Ledger
from tuner.privacy.modes import SELECTION
from tuner.recorder.records import Clock
from tuner.study.types import TrialStatus, TrialView
from tuner.sweep import folder as sweeps
from tuner.sweep.folder import SweepFolder
from tuner.sweep.sealed import SealedRuns, read_winner, release

NOW = time.time()

# -- what can be seen ----------------------------------------------------------------------------------------------


@contextmanager
def whole_view(folder: Path, mlflow: Path, runs: int) -> Iterator[tuple[Tune, dict[str, Any]]]:
    """All that can be seen of a sealed search that made so many runs, in a folder whose name is as long as all."""
    tune = with_mlflow(folder, mlflow)
    real = PrivateTraining.evaluate

    def rare(training: PrivateTraining, split: str = "validation") -> dict[str, float]:
        """Scores that no other number is mistaken for, however they are rounded."""
        return {name: round(0.98 * value, 2) + 0.0034567891 for name, value in real(training, split).items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(folder))
        patch.delenv("DP_TUNER_DATA", raising=False)
        patch.setattr(PrivateTraining, "evaluate", rare)
        patch.setitem(Clock.__init__.__kwdefaults__, "now", lambda: NOW)  # two views of different minutes differ
        said = {"run": sealed(tune, runs)}
        hours = times(tune)
        said["export"] = tune("export", "tiny").text
        said["verify"] = tune("verify", "exports/tiny/privacy_card.json").text
        said = {name: without_chance(tune, text) for name, text in said.items()}
        assert made(the_sweep(tune)) == runs
        assert re.fullmatch(r"tiny-\d{8}-000000-[0-9a-f]{6}", the_sweep(tune).id), "the day, and no hour"
        yield tune, {**seen(tune), **said, "times": hours}


@pytest.mark.slow
def test_nothing_that_can_be_seen_tells_how_many_runs_there_were(
    tmp_path_factory: pytest.TempPathFactory, ready_mlflow: Path
) -> None:
    """The planted fault "K revealed": six runs look like one, in every file, table, page and word."""
    with whole_view(tmp_path_factory.mktemp("seen"), ready_mlflow, 1) as (_, one):
        assert len(one) > 15
        assert set(one["times"].values()) == {0}, "the day, and no hour"
    with whole_view(tmp_path_factory.mktemp("seen"), ready_mlflow, 6) as (tune, six):
        for name, value in one.items():
            assert six[name] == value, name
        for name, value in seen(tune).items():
            assert six[name] == value, f"{name}: looking again changes nothing"
        plant_the_count(tune)
        planted = seen(tune)
    different = {name for name, value in planted.items() if value != one[name]}
    assert different >= {"table tags", "files", "ledger"}, "the controls: each plant is noticed"
    assert "ended_runs" in planted["files"]


def plant_the_count(tune: Tune) -> None:
    """Tell of the number of runs: a tag in MLflow, the status, the name of a file, and entries of the ledger."""
    from tuner.recorder.sync import attach, send_unsent

    sweep = the_sweep(tune)
    attach(sweep.root, (), tags={"runs": str(made(sweep))})
    send_unsent(sweep.root)
    sweep.write_status(ended_runs=made(sweep))
    (sweep.root / max((sweep.sealed / "trials").iterdir()).name[:4]).touch()
    ledger = Ledger.open(tune.ledger_url, create=False)
    for _ in range(made(sweep)):
        ledger.record_card(sweep.id, "0" * 64, "a run")


def test_the_winner_alone_is_told_and_the_sealed_part_is_for_its_owner(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PrivateTraining.run_to

    def talks(training: PrivateTraining, step: int) -> None:
        print("a line a rung")
        real(training, step)

    monkeypatch.setattr(PrivateTraining, "run_to", talks)
    assert "a line a rung" not in sealed(tune, 3)
    sweep = the_sweep(tune)
    assert sweep.operator_log.read_text().count("a line a rung") == 6, "what a model prints is for the operator"
    winner = read_winner(sweep)
    assert winner is not None
    runs = {run.data.tags["dp_tuner.trial"]: run for run in tune.mlflow_runs()}
    assert set(runs) == {"-", "winner"}
    metrics = dict(runs["winner"].data.metrics)
    assert metrics.pop("validation_accuracy_se") > 0
    assert metrics == {"validation_accuracy": winner.score, "objective": winner.score}
    assert runs["winner"].data.params == {name: str(value) for name, value in winner.parameters.items()}
    for run in runs.values():
        for moment in (run.info.start_time, run.info.end_time):
            assert moment % 86_400_000 < 10, "midnight, and the order of the records"
    assert stat.S_IMODE(sweep.sealed.stat().st_mode) == 0o700
    inside = list(sweep.sealed.rglob("*"))
    assert {path.name for path in inside} >= {"runs.json", "study.journal", "winner.pt", "operator.log", "trials"}
    assert all(stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700) for path in inside)


# -- the number of runs ----------------------------------------------------------------------------------------------


def test_without_a_run_there_is_no_winner(tune: Tune) -> None:
    said = sealed(tune, 0, code=1, privacy__runs={"law": "poisson"})
    assert "no winner: no run was made" in said
    sweep = the_sweep(tune)
    assert made(sweep) == 0
    assert sweeps.read_json(sweep.root / "winner.json") == {"schema": 1, "found": False}
    assert tune.entries == ["open_search", "begin"], "and it is charged all the same"
    assert {run.data.tags["dp_tuner.trial"] for run in tune.mlflow_runs()} == {"-"}
    assert "no winner" in tune("show", "tiny").text
    assert tune("export", "tiny", code=2).err


@pytest.mark.parametrize("why", ["raises in its first step", "raises after a checkpoint", "diverges"])
def test_no_record_decides_whether_a_winner_is_released(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], why: str
) -> None:
    """A run without a score is one with the worst score, whose model is its public initial model."""
    real = PrivateTraining.run_to

    def breaks(training: PrivateTraining, step: int) -> None:
        if why == "raises after a checkpoint":
            real(training, training.step + 1)
        if why == "diverges":
            training._theta = training._theta * float("nan")
            assert training._average is not None, "a file's default"
            training._average.update(training._theta)
            training.step = step
        elif training.step != 1 or step > 5:
            raise ValueError("record 17 says secret")

    with monkeypatch.context() as patch:
        patch.setattr(PrivateTraining, "run_to", breaks)
        said = sealed(tune, 5)
    assert "secret" not in said + "".join(capfd.readouterr())
    sweep = the_sweep(tune)
    winner = sweeps.read_json(sweep.root / "winner.json")
    assert (winner["found"], winner["trained"], winner["score"], winner["steps"]) == (True, False, 0.0, 0)
    assert "0" in tune("show", "tiny").text
    exported = tune("export", "tiny", "--json").json
    model = load_file(Path(exported["folder"]) / "model.safetensors")
    initial = build("logistic_regression", input_shape=(1, 8, 8), classes=10, seed=winner["seed"])
    assert all(torch.equal(model[name], value) for name, value in initial.state_dict().items())
    assert "yes" in tune("verify", f"{exported['folder']}/privacy_card.json").text
    file = sweep.root / "winner.json"
    file.write_text(file.read_text().replace('"trained": false', '"trained": true'))
    assert "sweep-files-changed" in tune("export", "tiny", code=1).err, "an untrained model is not called trained"


def test_a_run_that_raises_is_not_made_again(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    real, began = PrivateTraining.run_to, []

    def breaks(training: PrivateTraining, step: int) -> None:
        began.append(training.spec.seed)
        if len(set(began)) % 2:
            raise ValueError("record 17 says secret")
        real(training, step)

    monkeypatch.setattr(PrivateTraining, "run_to", breaks)
    said = sealed(tune, 4)
    assert len(set(began)) == 4, "four runs, two of which failed and were not drawn again"
    assert made(the_sweep(tune)) == 2
    assert "secret" not in said
    assert "fail" not in said
    assert "secret" in the_sweep(tune).operator_log.read_text()


def test_seeds_and_candidates_come_from_nowhere_public(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file twice: with public randomness the winner would tell its place in the sequence."""
    trained: list[int] = []
    begin = PrivateTraining.run_to

    def began(training: PrivateTraining, step: int) -> None:
        trained.append(training.spec.seed)
        begin(training, step)

    monkeypatch.setattr(PrivateTraining, "run_to", began)
    for _ in range(2):
        sealed(tune, 3)
    assert len(set(trained)) == 6
    assert not set(trained) & set(range(10)), "the file's seed, counted up"
    first, second = (read_winner(SweepFolder(root)) for root in tune.sweeps)
    assert first is not None
    assert second is not None
    assert first.parameters["learning_rate"] != second.parameters["learning_rate"]
    assert {first.seed, second.seed} <= set(trained), "the winner's own"


def tied(names: str) -> list[TrialView]:
    return [
        TrialView(id=name, number=number, state=TrialStatus.COMPLETE, step=10, last_score=0.5)
        for number, name in enumerate(names)
    ]


def test_a_tie_is_broken_by_a_secret_and_not_by_the_order(tmp_path: Path) -> None:
    sweep = sweeps.create(tmp_path, "tied", mode=SELECTION)
    for name in "abcd":
        place = sweep.trials / name / "checkpoint"
        place.mkdir(parents=True)
        (place / "step-00000010.pt").write_text(name)

    def winner(secret: int, trials: list[TrialView]) -> str:
        runs = SealedRuns(len(trials), secret.to_bytes(32))
        found = release(sweep, runs, trials, metric="m", mode="max", spec_of=lambda *_: pytest.fail("all have a score"))
        return found.checkpoint.read_text()

    trials = tied("abcd")
    counts = Counter(winner(secret, trials) for secret in range(200))
    # Of 200 draws each of four is expected 50 times, with a standard deviation of 6.1: five of these on either side.
    assert all(19 <= counts[name] <= 81 for name in "abcd"), counts
    assert all(winner(secret, trials) == winner(secret, trials[::-1]) for secret in range(20)), "the order is nothing"
    better = [*trials, TrialView(id="d", number=9, state=TrialStatus.COMPLETE, step=10, last_score=0.6)]
    assert all(winner(secret, better) == "d" for secret in range(20))
    failed = [TrialView(id="a", number=0, state=TrialStatus.FAILED, step=10, last_score=0.9), *tied("b")]
    assert winner(0, failed) == "b", "a run that failed has the worst score"


# -- on Ray ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_on_ray_nothing_is_left_outside_the_sealed_part(tune: Tune) -> None:
    file = tune.write(**{**SEALED, "resources__concurrent_trials": 2})
    process = tune.process("run", file)
    out, err = process.communicate()
    assert process.returncode == 0, err
    sweep = the_sweep(tune)
    told = out.partition("releases nothing.")[2]
    assert "winner" in told
    assert "trial" not in told.replace("a trial", "")
    assert err == ""
    assert outside(sweep) == {
        "experiment.yaml", "plan.json", "status.json", "sweep.lock", "winner.json",
        "spool.jsonl", "spool.acknowledged.json", "spool.sender.lock",
    }  # fmt: skip
    assert list(Path("/tmp/ray").glob(f"session_*_{process.pid}")) == [], "where every account may look"
    assert made(sweep) == json.loads((sweep.sealed / "runs.json").read_text())["runs"]
    assert {path.name for path in sweep.sealed.iterdir()} <= {
        "began", "devices", "driver.lock", "ledger_head.jsonl", "operator", "runs.json", "study.journal", "study.lock",
        "trials", "winner.pt",
    }  # fmt: skip
    for path in sweep.sealed.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700), path
