"""Curves of a unimodal search. They appear in the report and the live view, and as files in MLflow."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tuner.files import write_text
from tuner.report.curve_chart import curve_svg
from tuner.study.names import canonical_pruner
from tuner.study.types import Observer, TrialView
from tuner.sweep.winner import Chosen, is_unimodal

if TYPE_CHECKING:
    from optuna.study import Study

    from tuner.experiment import Experiment
    from tuner.recorder.recorder import MLflowRecorder
    from tuner.study.unimodal.inference.picture import CurvePicture
    from tuner.sweep.folder import SweepFolder

__all__ = ["CurveWatch", "curves_of_sweep"]

log = logging.getLogger(__name__)

_FOLDER = "curves"  # in the sweep's folder, and among the artifacts of its MLflow run

# Tags of the parent run in MLflow.
_HOLDS = "unimodal"  # whether the assumption of a single maximum holds
_BEST = "best_trial"  # the winning trial
_WHY = "best_trial_why"  # why another trial than the one with the best score wins

_SECONDS = 5.0  # least time between two updates of the files


def curves_of_sweep(study: Study, experiment: Experiment) -> tuple[CurvePicture, ...]:
    """Return the curves of a unimodal search, or an empty tuple for any other search."""
    if not is_unimodal(experiment):
        return ()  # the imports for curves would slow down every `tune status`
    from tuner.study.unimodal.curves import curves_of

    return curves_of(study, fallback=_fallback(experiment))


class CurveWatch(Observer):
    """Observer that updates the curves and the winner whenever a trial ends. Use it in a ``with`` statement.

    It writes the files at most every few seconds and once more at the end, and records them for MLflow. An error in a
    curve is shown and does not stop the search.

    Args:
        look: returns the current curves.
        sweep: the sweep. The files are written to its folder.
        recorder: records the files, whether unimodality was rejected, and the winning trial.
        choose: returns the current winner. With None, no winner is recorded.
    """

    def __init__(
        self,
        look: Callable[[], tuple[CurvePicture, ...]],
        sweep: SweepFolder,
        *,
        metric: str,
        recorder: MLflowRecorder,
        choose: Callable[[], Chosen | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._root, self._name = look, sweep.root, sweep.id
        self._metric, self._recorder, self._choose, self._clock = metric, recorder, choose, clock
        self._curves: tuple[CurvePicture, ...] = ()
        self._written: dict[str, CurvePicture] = {}
        self._due = -float("inf")
        self._told = ""
        self._told_why: str | None = None
        self.line = ""
        """The findings so far, one line per parameter."""

    def __enter__(self) -> Self:
        self._see()  # a resumed sweep has trials already
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def trial_finished(self, trial: TrialView) -> None:
        """Update the curves, and write them if the last write was some seconds ago."""
        self._see()
        if self._clock() >= self._due:
            self._write()

    def _see(self) -> None:
        try:
            self._curves = self._look()
            chosen = None if self._choose is None else self._choose()
        except Exception as error:  # noqa: BLE001 - the sampler and the pruner will hit the same error, and raise it
            log.warning("the curve cannot be computed: %s", type(error).__name__)
            self.line = f"the curve cannot be computed now ({type(error).__name__})"
            return
        self.line = "\n".join(curve.line for curve in self._curves)
        told = _verdict(self._curves)
        if told and told != self._told:
            self._recorder.tag(_HOLDS, told)
            self._told = told
        if chosen is None:
            return
        if chosen.why:  # each time: when a trial ends, the recorder has just tagged the best score's
            self._recorder.tag(_BEST, chosen.trial.id)
        if chosen.why != self._told_why and (chosen.why or self._curves or self._told_why):
            self._recorder.tag(_WHY, chosen.why)
            self._told_why = chosen.why

    def _write(self) -> None:
        for curve in self._curves:
            if self._written.get(curve.parameter) == curve:
                continue
            files = self._files(curve)
            try:
                (self._root / _FOLDER).mkdir(exist_ok=True)
                for path, text in files.items():
                    write_text(self._root / path, text)
            except OSError as error:
                log.warning("the curve cannot be written: %s", error.strerror)
                continue
            for path in files:
                self._recorder.artifact(path, under=_FOLDER)
            self._written[curve.parameter] = curve
            self._due = self._clock() + _SECONDS

    def _files(self, curve: CurvePicture) -> dict[Path, str]:
        """Return the text of two files, by path in the sweep's folder: the SVG picture, and its numbers as JSON."""
        name = re.sub(r"[^\w.-]", "_", curve.parameter)
        numbers = {"sweep": self._name, "metric": self._metric, **curve.as_dict()}
        return {
            Path(_FOLDER, f"{name}.svg"): curve_svg(curve, self._metric, f"{curve.parameter} in {self._name}"),
            Path(_FOLDER, f"{name}.json"): json.dumps(numbers, ensure_ascii=False, allow_nan=False) + "\n",
        }


def _verdict(curves: Sequence[CurvePicture]) -> str:
    if not curves:
        return ""
    rejected = [curve.rejected for curve in curves if curve.rejected]
    return f"rejected: {' '.join(rejected)}" if rejected else "stands"


def _fallback(experiment: Experiment) -> str:
    """Return the name of the pruner that is used if unimodality is rejected, or an empty text if there is none."""
    from tuner.study.unimodal.options import DEFAULT_FALLBACK, component

    part = experiment.search.pruner
    name = canonical_pruner(part.name) or part.name
    if name == "unimodal":
        named = component(part.options.get("fallback", DEFAULT_FALLBACK))
        name = "" if named is None else canonical_pruner(named[0]) or named[0]
    return "" if name == "none" else name
