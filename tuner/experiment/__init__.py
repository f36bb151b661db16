"""The experiment file: `find` it, `load` it with all its problems at once, and have it as a frozen `Experiment`."""

from __future__ import annotations

from tuner.experiment.loading import find, load, loads, shipped
from tuner.experiment.model import (
    Component,
    DatasetSection,
    Experiment,
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
    "find",
    "load",
    "loads",
    "shipped",
]
