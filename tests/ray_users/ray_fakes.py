"""What workers of Ray need of these tests: trainables that count their noise draws, and one that skips its lease."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import trainables.engine.step as engine
from trainables.charge import NoCharge
from tuner.privacy.ledger.ledger import Ledger
from tuner.ray_users.trainable import DPTrainable

ADD_NOISE = engine.add_noise


class Centred(torch.nn.Linear):
    """Subtracts the mean of the batch, so that each sample depends on the others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(1) - x.flatten(1).mean(0))


def centred(*, input_shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    return Centred(math.prod(input_shape), classes)


def counted(trainable: type[DPTrainable], folder: Path, *, hangs_at: int | None = None) -> type[DPTrainable]:
    """The trainable, with one byte for every draw of noise in a file named after the Ray trial.

    The first trial to draw noise `hangs_at` times hangs, and leaves the file `hung` next to the folder.
    """

    class Counted(trainable):  # type: ignore[misc,valid-type]
        def setup(self, config: dict[str, object]) -> None:
            super().setup(config)
            file, hung = folder / self.trial_id, folder.parent / "hung"

            def add_noise(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - of the engine
                with file.open("ab") as counts:
                    counts.write(b".")
                if file.stat().st_size == hangs_at and not hung.exists():
                    os.close(os.open(hung, os.O_CREAT | os.O_EXCL))
                    time.sleep(600)
                return ADD_NOISE(*arguments, **named)

            engine.add_noise = add_noise

    Counted.__name__ = trainable.__name__
    return Counted


def skipping(trainable: type[DPTrainable]) -> type[DPTrainable]:
    """The planted fault: it trains, but asks another charge than the ledger's."""

    class Skipping(trainable):  # type: ignore[misc,valid-type]
        def _started(self) -> Any:  # noqa: ANN401 - a training
            training = super()._started()
            training._charge = NoCharge()
            return training

    return Skipping


def draws(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in folder.iterdir()}


def leased(url: str, search: str) -> dict[str, int]:
    """Leased steps of every Ray trial, over all its runs."""
    found: Counter[str] = Counter()
    for run, account in Ledger.open(url, create=False).search_state(search).trials.items():
        found[run.rpartition(".")[0]] += account.leased
    return {name: steps for name, steps in found.items() if steps}
