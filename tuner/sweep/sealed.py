"""Sealed part of a sweep: the secret number of runs, the secrets of each run, and the release of the winner.

A sealed search draws a random number K, trains K runs, and releases the best of them (docs/guarantees.md).
K and the key of the runs' randomness come from the operating system's random generator, before any record is read. Only
the operator can read them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.rungs import checkpoint_path
from trainables.wall import behind
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
"""Name of the released run. The run's number or id would reveal something about the other runs."""

_RUNS = "runs.json"
_WINNER_FILE = "winner.json"
_WINNER_MODEL = "winner.pt"
_WORST = {"max": 0.0, "min": sys.float_info.max}  # of an accuracy and of a loss, the only scores that are searched
_SEED_BITS = 32  # the range of `Experiment.seed`, because the exported file trains the winner again


@dataclass(frozen=True, kw_only=True)
class SealedWinner:
    """The released result of a sealed search.

    Attributes:
        found: whether a run was made. If not, the other fields are empty.
        trained: whether the run ended with a score. If not, it has the worst score, and its model is its public initial
            model.
        parameters: flat parameters, including fixed ones.
        seed: seed of the initialisation, which is secret until the release.
        checkpoint: file of the run's state. Only the operator may read it, because it contains the key of the noise.
    """

    found: bool
    trained: bool = True
    score: float = 0.0
    parameters: Mapping[str, object]
    seed: int = 0
    checkpoint: Path = Path()


@dataclass(frozen=True)
class SealedRuns:
    """The secrets of a sealed search: the number K of runs, and a 32-byte key of all their randomness.

    The runs are counted from 0 in the order in which they start. All that is random in a run depends on its number and
    the key alone, so every copy of the sweep's folder comes to the same winner on the same kind of CPU or GPU, with the
    same versions of torch and numpy.
    """

    count: int
    key: bytes

    @classmethod
    def of(cls, sweep: SweepFolder, *, law: RunLaw, at_most: int, begun: bool) -> SealedRuns:
        """Return the stored secrets of a sweep. If there are none, generate and store them.

        K has the distribution `law` and is at most `at_most`. If the search has `begun` in the ledger and the secrets
        are missing, a TunerError is raised, because a second draw of K could depend on results.
        """
        path = sweep.sealed / _RUNS
        if path.exists():
            values = sweeps.read_json(path)
            try:
                return cls(int(str(values["runs"])), bytes.fromhex(str(values["key"])))
            except (KeyError, ValueError) as error:
                raise TunerError(
                    "sweep-file-unreadable",
                    f"{path} was damaged ({type(error).__name__}). Restore the file from a copy.",
                ) from error
        if begun:
            raise TunerError(
                "sealed-runs-missing",
                f"{path}, which contains the number of runs of the sealed search, is missing. Restore the file from a "
                "copy, because the number is never drawn again. All charges remain.",
            )
        runs = cls(law.draw(at_most), secrets.token_bytes(32))
        write_json(path, {"runs": runs.count, "key": runs.key.hex()})
        return runs

    @property
    def digest(self) -> str:
        """SHA-256 of the secrets. It reveals nothing of them, because nobody can guess the key."""
        return hashlib.sha256(f"{self.count}:".encode() + self.key).hexdigest()

    def candidates(self, run: int) -> random.Random:
        """Return the source of a run's candidate."""
        return random.Random(self._draw("candidate", run))

    def seed_of(self, run: int) -> int:
        """Return the seed of a run's initialisation. A repeated run has the same seed."""
        return int.from_bytes(self._draw("seed", run)) >> (256 - _SEED_BITS)

    def noise_key(self, run: int) -> bytes:
        """Return the key of a run's batches and noise. A lost run is repeated with the same key.

        Whether a run is lost can depend on its key, for example if a batch takes longer than the machine lives. A new
        key would then select runs by their batches.
        """
        return self._draw("noise", run)

    def tie_key(self, run: int) -> bytes:
        """Return a key that breaks ties between equal scores. Choosing the first run would reveal the order of runs."""
        return self._draw("tie", run)

    def _draw(self, purpose: str, run: int) -> bytes:
        return hmac.digest(self.key, f"{purpose}:{run}".encode(), hashlib.sha256)


def read_winner(sweep: SweepFolder) -> SealedWinner | None:
    """Return the released winner of a sealed sweep, or None before the release."""
    path = sweep.root / _WINNER_FILE
    return _winner(sweep, sweeps.read_json(path)) if path.exists() else None


def release(
    sweep: SweepFolder,
    runs: SealedRuns,
    trials: Sequence[TrialView],
    *,
    metric: str,
    mode: str,
    spec_of: Callable[[TrialView, int], TrainingSpec],
) -> SealedWinner:
    """Release the best run. All runs must have ended. A second call changes nothing.

    A run without a score, because its training raised an error or diverged, has the worst score, and its model is its
    public initial model. So a winner is released whenever a run was made, whatever the records are. `spec_of` returns
    the specification of a run and its number, from which its initial model is built.
    """
    places = {trial.id: run for run, trial in enumerate(sorted(trials, key=lambda trial: trial.number))}

    def tie(trial: TrialView) -> bytes:
        return runs.tie_key(places[trial.id])

    best = scored = best_trial(trials, mode=mode, tie=tie)
    if best is None and trials:
        best = max(trials, key=tie)
    values: dict[str, object] = {"schema": 1, "found": best is not None}
    if best is not None:
        if scored is None:
            initial = partial(_write_initial, sweep.sealed / _WINNER_MODEL, spec_of(best, places[best.id]))
            behind(sweep.operator_log, initial)
        else:
            _copy_model(sweep, scored)
        values |= {
            "metric": metric,
            "trained": scored is not None,
            "score": _WORST[mode] if scored is None else scored.last_score,
            "parameters": dict(best.parameters),
            "seed": runs.seed_of(places[best.id]),
            "steps": 0 if scored is None else scored.step,
            "checkpoint": f"{sweep.sealed.name}/{_WINNER_MODEL}",
        }
    write_json(sweep.root / _WINNER_FILE, values)
    return _winner(sweep, values)


def _copy_model(sweep: SweepFolder, best: TrialView) -> None:
    model = checkpoint_path(sweep.sealed, best.id)
    if model is None:
        raise TunerError(
            "checkpoint-missing",
            f"The model of the best run is missing under {sweep.sealed}. Restore the model from a copy.",
        )
    # The copy has a new name, because the name of the run's folder would reveal which run it was.
    with model.open("rb") as old, replacing(sweep.sealed / _WINNER_MODEL, mode=0o600) as new:
        shutil.copyfileobj(old, new)


def _write_initial(path: Path, spec: TrainingSpec) -> None:
    """Write the checkpoint of a run before its first step. No record is read."""
    from trainables.charge import NoCharge
    from trainables.training import PrivateTraining
    from trainables.untrained import random_splits

    PrivateTraining(spec, NoCharge(), splits=random_splits(spec, samples=1)).save(path)


def require_trained(model: Path, spec: TrainingSpec, *, trained: bool = True) -> None:
    """Raise a TunerError unless the winner's model was trained with the settings of `spec`.

    If `trained` is false, the model must be the initial model of these settings.

    The model's file contains a hash of everything that its steps depend on: parameters, seed, number of steps and
    records. This check is needed because the winner's file outside `sealed/` can be edited.
    """
    from trainables.checkpoint import read_state
    from trainables.spec import spec_fingerprint

    try:
        state = read_state(model)
        own = (state["spec"], state["step"]) == (spec_fingerprint(spec), spec.steps if trained else 0)
    except Exception as error:
        raise TunerError(
            "checkpoint-unreadable",
            f"The winner's model {model} cannot be read ({type(error).__name__}). Restore the file from a copy.",
        ) from error
    if not own:
        raise TunerError(
            "sweep-files-changed",
            f"The model {model} was not trained with the settings in {_WINNER_FILE}. Restore both from a copy.",
        )


def _winner(sweep: SweepFolder, values: Mapping[str, object]) -> SealedWinner:
    if not values.get("found"):
        return SealedWinner(found=False, parameters={})
    parameters = values.get("parameters")
    if not isinstance(parameters, dict):
        raise TunerError(
            "sweep-file-unreadable",
            f"{_WINNER_FILE} of {sweep.id} has no parameters (got {parameters!r}). Restore the file from a copy.",
        )
    return SealedWinner(
        found=True,
        trained=values.get("trained") is not False,
        score=float(str(values["score"])),
        parameters=parameters,
        seed=int(str(values["seed"])),
        checkpoint=sweep.root / str(values["checkpoint"]),
    )


@contextmanager
def private_files() -> Iterator[None]:
    """Make files private: only this account may read what this process and its children write in the ``with`` block."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
