"""A training in a worker of Ray that notes how often its process reads the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainables.data import loading
from trainables.training import PrivateTraining

LOAD_SPLITS = loading.load_splits


def noting_training(file: Path, spec: Any, charge: Any) -> PrivateTraining:  # noqa: ANN401 - as MakeTraining
    def noted(*arguments: Any) -> Any:  # noqa: ANN401 - of load_splits
        with file.open("a") as notes:
            notes.write(".")
        return LOAD_SPLITS(*arguments)

    loading.load_splits = noted
    return PrivateTraining(spec, charge)
