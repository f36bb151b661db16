"""The sealed part of a sweep: how many runs there are, what is secret about each, and the one that leaves.

A sealed search is one random choice of a number K that nobody is told, K independent runs, and the best of them
(docs/guarantees.md). Here K and the key of all that is random about a run are drawn from the operating system's
generator, before a record is touched, and kept where only the operator can read; and here the winner is let out.
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
from tuner.study.types import TrialState
from tuner.sweep import folder as sweeps

if TYPE_CHECKING:
    from trainables.spec import TrainingSpec
    from tuner.privacy.accountant.run_laws import RunLaw
    from tuner.study.types import TrialView
    from tuner.sweep.folder import SweepFolder

__all__ = ["WINNER", "SealedRuns", "Winner", "private_files", "read_winner", "release", "require_trained"]

WINNER = "winner"
"""The name of the one run that leaves, in the place of a number or an id, which would tell of the others."""

_RUNS = "runs.json"
_WINNER_FILE = "winner.json"
_WINNER_MODEL = "winner.pt"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_SEED_BITS = 32  # of `Experiment.seed`: the exported file trains the winner again


@dataclass(frozen=True, kw_only=True)
class Winner:
    """What leaves a sealed search: the best run, or that there was none.

    Attributes:
        found: False when there was no run at all, or none ended with a score; the rest is then empty.
        metric: what was searched for.
        score: of the run, at its end.
        parameters: its flat parameters, fixed ones included.
        seed: of its initialisation; a secret draw until now.
        steps: that it took.
        checkpoint: its state, for the operator alone: it holds the key of the noise.
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
        key: of the seeds and of what breaks ties, 32 bytes.
    """

    count: int
    key: bytes

    @classmethod
    def of(cls, sweep: SweepFolder, *, law: RunLaw, at_most: int, begun: bool) -> SealedRuns:
        """Those of a sweep: drawn when it starts, and the same whenever it goes on.

        Args:
            sweep: the sweep.
            law: of K.
            at_most: where K is cut off.
            begun: whether the ledger says that the search was begun; then nothing is drawn.

        Raises:
            TunerError: they are gone. Drawn again, K would not be independent of what was seen.
        """
        path = sweep.sealed / _RUNS
        if path.exists():
            values = sweeps.read_json(path)
            try:
                return cls(int(str(values["runs"])), bytes.fromhex(str(values["key"])))
            except (KeyError, ValueError) as error:
                raise TunerError(
                    f"{path} must be as this program wrote it, got {type(error).__name__}. Restore it."
                ) from error
        if begun:
            raise TunerError(
                f"a sealed search goes on with the number of runs that it drew, and {path} is gone. Restore it from a "
                "copy; it is never drawn again. What was charged stays charged."
            )
        runs = cls(law.draw(at_most), secrets.token_bytes(32))
        sweeps.write_json(path, {"runs": runs.count, "key": runs.key.hex()})
        return runs

    def seed_of(self, trial: str) -> int:
        """The seed of a run's initialisation: the same when the run is made again."""
        return int.from_bytes(self._draw("seed", trial)) >> (256 - _SEED_BITS)

    def noise_key(self, trial: str) -> bytes:
        """The key of a run's batches and noise: made again after a loss, it is the same run, and not another draw.

        Were it another, what made the first one die (a batch too large for the memory, say) would choose among runs.
        """
        return self._draw("noise", trial)

    def tie_key(self, trial: str) -> bytes:
        """What breaks a tie between runs of one score: the first one seen would tell of the order."""
        return self._draw("tie", trial)

    def _draw(self, purpose: str, trial: str) -> bytes:
        return hmac.digest(self.key, f"{purpose}:{trial}".encode(), hashlib.sha256)


def read_winner(sweep: SweepFolder) -> Winner | None:
    """What was let out of a sealed sweep, or None when it is not over.

    Raises:
        TunerError: the file cannot be read.
    """
    path = sweep.root / _WINNER_FILE
    return _winner(sweep, sweeps.read_json(path)) if path.exists() else None


def release(sweep: SweepFolder, runs: SealedRuns, trials: Iterable[TrialView], *, metric: str, mode: str) -> Winner:
    """Let the best run out: the only thing that leaves. Called when all runs have ended, and safe to call again.

    Args:
        sweep: the sweep.
        runs: its secrets.
        trials: all of its runs, ended.
        metric: what was searched for.
        mode: ``max`` or ``min``.

    Raises:
        TunerError: the best run's model is gone.
    """
    sign = 1.0 if mode == "max" else -1.0
    scored = [
        (sign * trial.last_score, runs.tie_key(trial.id), trial)
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.last_score is not None
    ]
    if not scored:
        return _let_out(sweep, {"schema": 1, "found": False})
    best = max(scored, key=lambda each: each[:2])[2]
    model = checkpoint_path(sweep.sealed, best.id)
    if model is None:
        raise TunerError(f"the best run's model must lie under {sweep.sealed}, and is gone. Restore it from a copy.")
    # Under a name of its own: the name of its folder tells which run it was.
    _copy(model, sweep.sealed / _WINNER_MODEL)
    return _let_out(
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
    """Refuse settings with which a winner's sealed model was not trained, whatever the file of the winner says.

    The model's file has a hash of all that its steps depended on: the parameters, the seed, the steps, the records.

    Args:
        model: the sealed model.
        spec: what the winner is said to have been.

    Raises:
        TunerError: the model cannot be read, or is not of these settings.
    """
    import torch

    from trainables.spec import fingerprint

    try:
        state = torch.load(model, weights_only=True, map_location="cpu")
        own = (state["spec"], state["step"]) == (fingerprint(spec), spec.steps)
    except Exception as error:
        raise TunerError(f"the winner's model must be in {model}, got {type(error).__name__}. Restore it.") from error
    if not own:
        raise TunerError(
            f"{_WINNER_FILE} must have the settings that the winner's model was trained with, and those of {model} are "
            "others. Restore both from a copy."
        )


def _let_out(sweep: SweepFolder, values: dict[str, object]) -> Winner:
    sweeps.write_json(sweep.root / _WINNER_FILE, values)
    return _winner(sweep, values)


def _winner(sweep: SweepFolder, values: Mapping[str, object]) -> Winner:
    if not values.get("found"):
        return Winner(found=False, parameters={})
    parameters = values.get("parameters")
    if not isinstance(parameters, dict):
        raise TunerError(f"{_WINNER_FILE} of {sweep.id} must hold parameters, got {parameters!r}. Restore it.")
    return Winner(
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
    """Whatever is written meanwhile, here and by processes that are started here, is for this account alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_suffix(".tmp")
    with source.open("rb") as old, open(os.open(temporary, _NEW, 0o600), "wb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())
    temporary.replace(target)
