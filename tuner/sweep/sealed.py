"""Sealed part of a sweep: the secret number of runs, the secrets of each run, and the release of the winner.

A sealed search draws a random number K, trains K independent runs, and releases the best of them (docs/guarantees.md).
K and the key of all randomness of the runs are drawn from the operating system's generator before a record is read, and
are kept where only the operator can read them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.rungs import checkpoint_path
from tuner.errors import TunerError
from tuner.files import replacing, write_json
from tuner.study.best import best_trial
from tuner.sweep import folder as sweeps

if TYPE_CHECKING:
    from trainables.spec import TrainingSpec
    from tuner.privacy.accountant.run_laws import RunLaw
    from tuner.study.types import TrialView
    from tuner.sweep.folder import SweepFolder

__all__ = ["WINNER", "SealedRuns", "SealedWinner", "private_files", "read_winner", "release", "require_trained"]

WINNER = "winner"
"""Name of the released run. A number or an id would reveal something about the other runs."""

_RUNS = "runs.json"
_WINNER_FILE = "winner.json"
_WINNER_MODEL = "winner.pt"
_SEED_BITS = 32  # the range of `Experiment.seed`: the exported file trains the winner again


@dataclass(frozen=True, kw_only=True)
class SealedWinner:
    """The released result of a sealed search: the best run, or that there was none.

    Attributes:
        found: False when there was no run at all, or none ended with a score; the other fields are then empty.
        metric: the metric that chose the winner.
        score: the run's last score.
        parameters: flat parameters, including fixed ones.
        seed: seed of the initialisation; secret until the release.
        steps: number of steps.
        checkpoint: the run's state, only for the operator because it contains the key of the noise.
    """

    found: bool
    metric: str = ""
    score: float = 0.0
    parameters: Mapping[str, object]
    seed: int = 0
    steps: int = 0
    checkpoint: Path = Path()


@dataclass(frozen=True)
class SealedRuns:
    """The secrets of a sealed search.

    Attributes:
        count: K.
        key: key of the seeds, of the noise and of tie-breaking, 32 bytes.
    """

    count: int
    key: bytes

    @classmethod
    def of(cls, sweep: SweepFolder, *, law: RunLaw, at_most: int, begun: bool) -> SealedRuns:
        """Return the secrets of a sweep: drawn when it starts, and the same whenever it is resumed.

        Args:
            sweep: the sweep.
            law: distribution of K.
            at_most: largest value of K.
            begun: whether the ledger says that the search has started; then nothing is drawn.

        Raises:
            TunerError: the secrets are missing. A second draw of K could depend on what was seen.
        """
        path = sweep.sealed / _RUNS
        if path.exists():
            values = sweeps.read_json(path)
            try:
                return cls(int(str(values["runs"])), bytes.fromhex(str(values["key"])))
            except (KeyError, ValueError) as error:
                raise TunerError(
                    "sweep-file-unreadable", f"{path} was damaged ({type(error).__name__}). Restore it from a copy."
                ) from error
        if begun:
            raise TunerError(
                "sealed-runs-missing",
                f"{path}, which holds the number of runs of the sealed search, is missing. Restore it from a "
                "copy; the number is never drawn again. What was charged stays charged.",
            )
        runs = cls(law.draw(at_most), secrets.token_bytes(32))
        write_json(path, {"runs": runs.count, "key": runs.key.hex()})
        return runs

    def seed_of(self, trial: str) -> int:
        """Return the seed of a run's initialisation, the same whenever the run is repeated."""
        return int.from_bytes(self._draw("seed", trial)) >> (256 - _SEED_BITS)

    def noise_key(self, trial: str) -> bytes:
        """Return the key of a run's batches and noise, so that a lost run is repeated exactly.

        With another key, whatever ended the first attempt (say, a batch too large for the memory) would select runs.
        """
        return self._draw("noise", trial)

    def tie_key(self, trial: str) -> bytes:
        """Return the key that breaks ties between equal scores: preferring the first run would reveal the order."""
        return self._draw("tie", trial)

    def _draw(self, purpose: str, trial: str) -> bytes:
        return hmac.digest(self.key, f"{purpose}:{trial}".encode(), hashlib.sha256)


def read_winner(sweep: SweepFolder) -> SealedWinner | None:
    """Return the released winner of a sealed sweep, or None when it has not ended.

    Raises:
        TunerError: the file cannot be read.
    """
    path = sweep.root / _WINNER_FILE
    return _winner(sweep, sweeps.read_json(path)) if path.exists() else None


def release(
    sweep: SweepFolder, runs: SealedRuns, trials: Iterable[TrialView], *, metric: str, mode: str
) -> SealedWinner:
    """Release the best run, and nothing else. Called when all runs have ended; calling it again changes nothing.

    Args:
        sweep: the sweep.
        runs: its secrets.
        trials: all of its runs, ended.
        metric: the metric that chooses the winner.
        mode: ``max`` or ``min``.

    Raises:
        TunerError: the best run's model is missing.
    """
    best = best_trial(trials, mode=mode, tie=lambda trial: runs.tie_key(trial.id))
    if best is None:
        return _release_values(sweep, {"schema": 1, "found": False})
    model = checkpoint_path(sweep.sealed, best.id)
    if model is None:
        raise TunerError(
            "checkpoint-missing", f"The model of the best run is missing under {sweep.sealed}. Restore it from a copy."
        )
    # Under a new name, because the name of its folder reveals which run it was.
    _copy(model, sweep.sealed / _WINNER_MODEL)
    return _release_values(
        sweep,
        {
            "schema": 1,
            "found": True,
            "metric": metric,
            "score": best.last_score,
            "parameters": dict(best.parameters),
            "seed": runs.seed_of(best.id),
            "steps": best.step,
            "checkpoint": f"{sweep.sealed.name}/{_WINNER_MODEL}",
        },
    )


def require_trained(model: Path, spec: TrainingSpec) -> None:
    """Refuse settings that the winner's sealed model was not trained with, whatever the winner's file says.

    The model's file has a hash of everything its steps depend on: the parameters, the seed, the steps, the records.

    Args:
        model: the sealed model.
        spec: the claimed settings of the winner.

    Raises:
        TunerError: the model cannot be read, or was trained with other settings.
    """
    import torch

    from trainables.spec import spec_fingerprint

    try:
        state = torch.load(model, weights_only=True, map_location="cpu")
        own = (state["spec"], state["step"]) == (spec_fingerprint(spec), spec.steps)
    except Exception as error:
        raise TunerError(
            "checkpoint-unreadable",
            f"The winner's model {model} cannot be read ({type(error).__name__}). Restore it from a copy.",
        ) from error
    if not own:
        raise TunerError(
            "sweep-files-changed",
            f"{_WINNER_FILE} does not have the settings that the model {model} was trained with. Restore both "
            "from a copy.",
        )


def _release_values(sweep: SweepFolder, values: dict[str, object]) -> SealedWinner:
    write_json(sweep.root / _WINNER_FILE, values)
    return _winner(sweep, values)


def _winner(sweep: SweepFolder, values: Mapping[str, object]) -> SealedWinner:
    if not values.get("found"):
        return SealedWinner(found=False, parameters={})
    parameters = values.get("parameters")
    if not isinstance(parameters, dict):
        raise TunerError(
            "sweep-file-unreadable",
            f"{_WINNER_FILE} of {sweep.id} has no parameters (got {parameters!r}). Restore it from a copy.",
        )
    return SealedWinner(
        found=True,
        metric=str(values["metric"]),
        score=float(str(values["score"])),
        parameters=parameters,
        seed=int(str(values["seed"])),
        steps=int(str(values["steps"])),
        checkpoint=sweep.root / str(values["checkpoint"]),
    )


@contextmanager
def private_files() -> Iterator[None]:
    """Make files that this process and its children write in the block readable by this account only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as old, replacing(target, mode=0o600) as new:
        shutil.copyfileobj(old, new)
