"""The experiment file: `find_file`, `load_experiment` with all problems at once, and the frozen `Experiment`."""

from __future__ import annotations

from tuner.experiment.loading import find_file, load_experiment, parse_experiment, shipped
from tuner.experiment.model import Experiment
from tuner.experiment.sections import (
    Component,
    DatasetSection,
    MetricSection,
    PrivacySection,
    PublicSection,
    ResourcesSection,
    RunsSection,
    SearchSection,
    TrackingSection,
    TrainableSection,
    ValidationSection,
)

__all__ = [
    "Component",
    "DatasetSection",
    "Experiment",
    "MetricSection",
    "PrivacySection",
    "PublicSection",
    "ResourcesSection",
    "RunsSection",
    "SearchSection",
    "TrackingSection",
    "TrainableSection",
    "ValidationSection",
    "find_file",
    "load_experiment",
    "parse_experiment",
    "shipped",
]
