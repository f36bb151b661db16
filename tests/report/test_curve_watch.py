"""The curve of a running unimodal search: its files and tags."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from report_fakes import picture

from tuner.experiment import parse_experiment
from tuner.report.curve_watch import CurveWatch, curves_of_sweep
from tuner.study.types import TrialStatus, TrialView
from tuner.study.unimodal.inference.picture import CurvePicture
from tuner.sweep.winner import Chosen


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
    folder: Path, look: Callable[[], tuple[CurvePicture, ...]], clock: Callable[[], float] = lambda: 0.0, **more: object
) -> tuple[CurveWatch, Recorded]:
    recorder = Recorded()
    sweep = SimpleNamespace(root=folder, id="sweep-1")
    made = CurveWatch(look, sweep, metric="m", recorder=recorder, clock=clock, **more)  # type: ignore[arg-type]
    return made, recorder


def test_the_files_are_written_at_most_every_few_seconds_and_once_more_at_the_end(tmp_path: Path) -> None:
    now, shown = [100.0], [picture(parameter="R/2", near=0.10)]
    watch, recorder = watching(tmp_path, lambda: tuple(shown), lambda: now[0])
    values = tmp_path / "curves" / "R_2.json"

    def seen(seconds: float, near: float) -> float:
        now[0], shown[0] = seconds, picture(parameter="R/2", near=near)
        finished(watch)
        assert watch.line == shown[0].line, "the live line is not late"
        return float(json.loads(values.read_text())["near"])

    with watch:
        assert watch.line == shown[0].line, "before the first trial"
        assert seen(100.0, 0.10) == 0.10
        assert recorder.files == [("curves/R_2.svg", "curves"), ("curves/R_2.json", "curves")]
        assert seen(103.0, 0.20) == 0.10
        assert seen(106.0, 0.20) == 0.20
        finished(watch)
        assert len(recorder.files) == 4, "what did not change is not sent again"
        assert seen(106.0, 0.30) == 0.20
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
        shown[1] = picture(parameter="S", unimodal=False, above=60.0, below=10.0, fallback="median")
        finished(watch)
    assert recorder.tags[1:] == [("unimodal", f"rejected: {shown[1].rejected}")]


def test_the_trial_that_wins_by_the_curve_is_a_tag_and_so_is_why(tmp_path: Path) -> None:
    best = TrialView(id="t0", number=0, state=TrialStatus.COMPLETE)
    chosen = [Chosen(best, "curve")]
    watch, recorder = watching(tmp_path, lambda: (picture(),), choose=lambda: chosen[0])

    def told() -> list[tuple[str, str]]:
        recorder.tags.clear()
        finished(watch)
        return recorder.tags

    with watch:
        assert recorder.tags[-1] == ("best_trial_why", ""), "the recorder tells the best score's"
        chosen[0] = Chosen(TrialView(id="t4", number=4), "curve", "trial 4 by the curve (…)")
        assert told() == [("best_trial", "t4"), ("best_trial_why", "trial 4 by the curve (…)")]
        assert told() == [("best_trial", "t4")], "after each end of a trial, of which the recorder tells first"
        chosen[0] = Chosen(best, "score")
        assert told() == [("best_trial_why", "")]


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
        assert "ValueError" in watch.line
        trouble.clear()
        finished(watch)
        assert watch.line == picture().line
    assert recorder.files == []
    assert "curve" in caplog.text
    assert "0.1234" not in caplog.text + watch.line


def test_of_a_sealed_search_no_curve_is_made_whatever_its_study_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "name: x\ndataset: {name: digits}\ntrainable: {method: dplis}\nprivacy: {epsilon: 8}\n"
    experiment = parse_experiment(text, ["search.sampler=unimodal", "search.space={R: {uniform: [0, 9]}}"])
    privacy = experiment.privacy.model_copy(update={"accounting": "selection"})
    monkeypatch.setattr("tuner.study.unimodal.curves.curves_of", lambda *_args, **_more: (picture(),))
    assert curves_of_sweep(None, experiment) == (picture(),)  # type: ignore[arg-type]
    assert curves_of_sweep(None, experiment.model_copy(update={"privacy": privacy})) == ()  # type: ignore[arg-type]
