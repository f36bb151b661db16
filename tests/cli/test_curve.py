"""A unimodal search as it is seen: live, in its report, by the commands, and in MLflow, also when that was dead."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from command_fakes import TINY, Tune
from sealed_fakes import sealed

from tuner.report.curve_watch import CurveWatch, spent_on
from tuner.report.trial_row import TrialRow
from tuner.study.types import TrialStatus, TrialView
from tuner.study.unimodal.inference.picture import CurvePicture, CurvePoint
from tuner.sweep.winner import Chosen

NOBODY = "http://127.0.0.1:9"
UNIMODAL: dict[str, Any] = {
    "trainable__method": "dplis",
    "search__trials": 3,
    "search__sampler": "unimodal",
    "search__pruner": "unimodal",
    "search__space": {"learning_rate": 1.0, "smoothing_radius": {"uniform": [0, 100]}, "smoothing_samples": 1},
}


def picture(**changes: object) -> CurvePicture:
    values: dict[str, Any] = {
        "parameter": "R/2",
        "low": 0.0,
        "high": 100.0,
        "warp": "log1p",
        "points": (CurvePoint(trial=0, value=10.0, score=0.5, fraction=1.0, state="complete"),),
        "best": 0,
        "near": 0.5,
        "tolerance": 0.002,
        "fallback": "median",
    }
    return CurvePicture(**{**values, **changes})


class Recorded:
    """What the recorder was told."""

    def __init__(self) -> None:
        self.files: list[tuple[str, str]] = []
        self.tags: list[tuple[str, str]] = []

    def artifact(self, path: Path, *, under: str = "") -> None:
        self.files.append((path.as_posix(), under))

    def tag(self, name: str, value: str) -> None:
        self.tags.append((name, value))


def finished(watch: CurveWatch) -> None:
    watch.trial_finished(TrialView(id="t", number=0, state=TrialStatus.COMPLETE))


def watching(
    folder: Path, look: Callable[[], tuple[CurvePicture, ...]], clock: Callable[[], float] = lambda: 0.0
) -> tuple[CurveWatch, Recorded]:
    recorder = Recorded()
    sweep = SimpleNamespace(root=folder, id="sweep-1")
    made = CurveWatch(look, sweep, metric="m", recorder=recorder, clock=clock)  # type: ignore[arg-type]
    return made, recorder


def test_the_files_are_written_at_most_every_few_seconds_and_once_more_at_the_end(tmp_path: Path) -> None:
    now, shown = [100.0], [picture(near=0.10)]
    watch, recorder = watching(tmp_path, lambda: tuple(shown), lambda: now[0])
    values = tmp_path / "curves" / "R_2.json"
    with watch:
        finished(watch)
        assert recorder.files == [("curves/R_2.svg", "curves"), ("curves/R_2.json", "curves")]
        shown[0] = picture(near=0.20)
        now[0] = 103.0
        finished(watch)
        assert json.loads(values.read_text())["near"] == 0.10
        assert watch.line == "R/2: no end excluded yet; trial 0 near the best with 0.20", "the live line is not late"
        now[0] = 106.0
        finished(watch)
        assert json.loads(values.read_text())["near"] == 0.20
        finished(watch)
        assert len(recorder.files) == 4, "what did not change is not sent again"
        shown[0] = picture(near=0.30)
        finished(watch)
    assert json.loads(values.read_text())["near"] == 0.30
    assert len(recorder.files) == 6
    ElementTree.fromstring((tmp_path / "curves" / "R_2.svg").read_text())
    assert sorted(path.name for path in (tmp_path / "curves").iterdir()) == ["R_2.json", "R_2.svg"]


def test_the_verdict_is_a_tag_that_changes_when_it_does(tmp_path: Path) -> None:
    shown: list[CurvePicture] = []
    watch, recorder = watching(tmp_path, lambda: tuple(shown))
    with watch:
        finished(watch)
        assert (recorder.tags, watch.line) == ([], "")
        shown[:] = [picture(), picture(parameter="S")]
        finished(watch)
        finished(watch)
        assert recorder.tags == [("unimodal", "stands")]
        assert watch.line.splitlines() == [each.line for each in shown]
        shown[1] = picture(parameter="S", unimodal=False, above=60.0, below=10.0)
        finished(watch)
    assert recorder.tags[1:] == [("unimodal", f"rejected: {shown[1].rejected}")]
    assert "pruning by median" in recorder.tags[1][1]


def test_the_trial_that_wins_by_the_curve_is_a_tag_and_so_is_why(tmp_path: Path) -> None:
    best, curves = TrialView(id="t0", number=0, state=TrialStatus.COMPLETE), [picture()]
    chosen = [Chosen(best, "curve")]
    recorder, sweep = Recorded(), SimpleNamespace(root=tmp_path, id="sweep-1")
    watch = CurveWatch(
        lambda: tuple(curves),
        sweep,  # type: ignore[arg-type]
        metric="m",
        recorder=recorder,  # type: ignore[arg-type]
        choose=lambda: chosen[0],
    )
    with watch:
        finished(watch)
        assert recorder.tags == [("unimodal", "stands"), ("best_trial_why", "")], "the recorder tells the best score's"
        recorder.tags.clear()
        chosen[0] = Chosen(TrialView(id="t4", number=4), "curve", "trial 4 by the curve (…)")
        finished(watch)
        finished(watch)
        told, why = ("best_trial", "t4"), ("best_trial_why", "trial 4 by the curve (…)")
        assert recorder.tags == [told, why, told], "after each end of a trial, of which the recorder tells first"
        recorder.tags.clear()
        chosen[0] = Chosen(best, "score")
        finished(watch)
    assert recorder.tags == [("best_trial_why", "")]
    curves.clear()
    recorder.tags.clear()
    with watch:
        assert recorder.tags == [], "nothing of a search without a curve"


def test_what_goes_wrong_with_a_curve_is_told_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trouble: list[Exception] = [ValueError("a private number: 0.1234")]

    def look() -> tuple[CurvePicture, ...]:
        if trouble:
            raise trouble[0]
        return (picture(),)

    (tmp_path / "curves").write_text("in the way")
    watch, recorder = watching(tmp_path, look)
    with caplog.at_level(logging.WARNING), watch:
        finished(watch)
        assert watch.line == "the curve cannot be computed now (ValueError)"
        trouble.clear()
        finished(watch)
        assert watch.line == picture().line
    assert recorder.files == []
    assert "the curve cannot be written" in caplog.text
    assert "0.1234" not in caplog.text


def test_a_sweep_that_goes_on_shows_what_is_known_before_its_first_trial(tmp_path: Path) -> None:
    watch, _ = watching(tmp_path, lambda: (picture(),))
    with watch:
        assert watch.line == picture().line


class Budget:
    """A search's budget in which a step costs 0.01."""

    def __init__(self, charged: dict[str, int], *, knows_all: bool = True) -> None:
        self.charged, self.knows_all = charged, knows_all

    def view(self) -> SimpleNamespace:
        return SimpleNamespace(
            spent_steps=sum(self.charged.values()), epsilon_spent=0.5, epsilon_cap=8.0, delta=1e-5, validation=None
        )

    def charged_steps(self, trial: str) -> int:
        return self.charged[trial]

    def steps_epsilon(self, steps: dict[str, int]) -> float:
        from tuner.errors import LedgerError

        if not self.knows_all and set(steps) - set(self.charged):
            raise LedgerError("mechanism-not-single", "one mechanism")
        return 0.01 * sum(steps.values())


def test_epsilon_is_the_ledgers_and_at_the_end_the_odometers_own() -> None:
    rows = [
        TrialRow(number=0, id="a", state="complete", step=50, steps_planned=50, score=0.5),
        TrialRow(number=1, id="b", state="pruned", step=10, steps_planned=50, score=0.4),
    ]
    charged = {"a": 50, "b": 20}
    found = spent_on(rows, mode="max", budget=Budget(charged), excluded=1, whole=50)  # type: ignore[arg-type]
    assert found is not None
    assert [row.epsilon for row in found.rows] == pytest.approx([0.5, 0.5]), "the last is that of the view"
    assert [row.whole_epsilon for row in found.rows] == pytest.approx([0.5, 1.5])
    unknown = Budget(charged, knows_all=False)
    found = spent_on(rows, mode="max", budget=unknown, excluded=1, whole=50)  # type: ignore[arg-type]
    assert found is not None
    assert not found.with_epsilon, "the noise of what never started is in no ledger"
    assert spent_on(rows, mode="max", budget=None).with_epsilon is False  # type: ignore[union-attr]


def test_a_unimodal_search_from_end_to_end_with_a_dead_tracking_server(tune: Tune) -> None:
    said = tune("run", tune.write(**UNIMODAL, tracking__uri=NOBODY), "--local")
    assert "smoothing_radius: " in said.text, "the live line"
    (sweep,) = tune.sweeps
    numbers = json.loads((sweep / "curves" / "smoothing_radius.json").read_text())
    trials = tune("show", "tiny", "--json").json
    assert [point["value"] for point in numbers["points"]] == pytest.approx(
        [trial["parameters"]["smoothing_radius"] for trial in trials["trials"]]
    )
    assert [point["score"] for point in numbers["points"]] == pytest.approx([row["score"] for row in trials["trials"]])
    assert trials["curves"][0]["sentences"] == numbers["sentences"], "the file is of the end"
    assert numbers["sentences"][0] in tune("show", "tiny").text
    (line,) = tune("status", "tiny", "--json").json["sweeps"][0]["curves"]
    assert line in tune("status", "tiny").text
    tune("report", "tiny")
    page = (sweep / "report.html").read_text()
    assert "<h2>Curve of smoothing_radius</h2>" in page
    assert "ε spent against the best validation_accuracy" in page
    status = tune("status", "tiny", "--json").json["sweeps"][0]
    spent = status["budget"]["epsilon_spent"]
    assert f"Spent so far: {status['budget']['spent_steps']} steps, ε {spent:.4g}." in page

    tune("sync", "tiny", "--uri", "sqlite:///runs/mlflow.db")
    from tuner.recorder.mlflow_store import connect

    (parent,) = (run for run in tune.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-")
    assert parent.data.tags["unimodal"] == "stands"
    client = connect(f"sqlite:///{tune.folder / 'runs' / 'mlflow.db'}")
    files = [item.path for item in client.list_artifacts(parent.info.run_id, "curves")]
    assert sorted(files) == ["curves/smoothing_radius.json", "curves/smoothing_radius.svg"]


def test_without_privacy_steps_are_shown_and_json_has_the_curve(tune: Tune) -> None:
    name = tune.write(**{**UNIMODAL, "privacy__private": False, "search__trials": 2})
    told = tune("run", name, "--local", "--json").json
    assert told["curves"][0]["parameter"] == "smoothing_radius"
    tune("report", "tiny")
    page = (tune.sweeps[0] / "report.html").read_text()
    assert "Steps spent against the best validation_accuracy" in page
    assert "run whole" in page
    assert "ε, run whole" not in page


def test_other_searches_have_no_curve(look: Tune) -> None:
    assert TINY["search"]["sampler"] == "random"
    assert look("status", "tiny", "--json").json["sweeps"][0]["curves"] == []
    assert look("show", "tiny", "--json").json["curves"] == []
    assert not (look.sweeps[0] / "curves").exists()
    (parent,) = (run for run in look.mlflow_runs() if run.data.tags["dp_tuner.trial"] == "-")
    assert "unimodal" not in parent.data.tags


def test_a_sealed_search_has_none_of_it(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adaptive search is refused there; and whatever its study holds, no curve is made of it."""
    name = tune.write(**UNIMODAL, privacy__accounting="selection")
    assert tune("validate", name, code=2).code == 2
    from tuner.experiment import load_experiment
    from tuner.report import curve_watch as curve_view

    experiment = load_experiment(Path(tune.write("open.yaml", **UNIMODAL)))
    sealed = experiment.model_copy(
        update={"privacy": experiment.privacy.model_copy(update={"accounting": "selection"})}
    )
    monkeypatch.setattr("tuner.study.unimodal.curves.curves_of", lambda *_args, **_more: (picture(),))
    assert curve_view.curves_of_sweep(None, experiment) == (picture(),)  # type: ignore[arg-type]
    assert curve_view.curves_of_sweep(None, sealed) == ()  # type: ignore[arg-type]


def test_every_searchs_report_shows_what_was_spent(look: Tune, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    look("report", "tiny", "--out", str(page))
    assert "ε spent against the best validation_accuracy" in page.read_text()
    assert "Curve of" not in page.read_text()


def test_a_sealed_searchs_report_shows_nothing_of_it(tune: Tune, tmp_path: Path) -> None:
    sealed(tune, 2, "--quiet")
    page = tmp_path / "page.html"
    tune("report", "tiny", "--out", str(page))
    assert "The winner" in page.read_text()
    assert "spent against" not in page.read_text()
