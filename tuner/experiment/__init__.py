"""Experiment files: the immutable model `Experiment`, and a loader that reports all problems of a file at once."""

from __future__ import annotations

from tuner.experiment.loading import find_file, load_experiment, parse_experiment
from tuner.experiment.model import Experiment
from tuner.experiment.shipped_files import shipped

__all__ = ["Experiment", "find_file", "load_experiment", "parse_experiment", "shipped"]
