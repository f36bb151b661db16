"""Specification of one trial for a worker, its privacy checks, and its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from trainables.data import DatasetRequest
from trainables.errors import GateError, TrainableError
from trainables.start import StartWeights

__all__ = ["TrainingSpec", "check_privacy", "require_own_state", "spec_fingerprint"]


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """Specification of one trial, which can be pickled. `Hyperparameters` describes the fields that are not listed.

    Attributes:
        method: key of METHODS.
        model: key of MODELS, or `package.module:function`.
        precision: 'float32' or 'bfloat16', used in the forward and backward passes only.
        dataset: request for the records. Its unit says whether a sample is a record or a user.
        sample_rate: batch_size divided by the PUBLIC number of samples.
        parameters: values that the search chose, with flat keys.
        seed: public seed of the initialisation and of DPLIS' perturbations.
        private: whether the run has a guarantee. Without a guarantee, the noise may be 0 or seeded.
        noise_seed: seed of noise and sampling; None if private.
        replay_key: 32 secret bytes with which a lost run of a sealed search is repeated exactly. This is allowed only
            if nobody has seen a result of the lost run. With None, the operating system creates the key of the secret
            generator.
        replay_on: file that holds the kind of device of this run, because only the same kind repeats it exactly. The
            first training of the run writes it. None for a run that is not repeated.
        threads: number of threads of torch in this process; None keeps torch's current number.
        device: 'auto', 'cpu' or 'cuda'.
        score_noise: standard deviation of the noise on the number of right validation answers, finite and above 0. The
            score is then protected and charged. With None, validation scores are exact, and
            they choose the extrapolation of the weights.
        metric: score that the search compares, a key of `trainables.tasks.METRICS`.
        initial: checkpoint of another training, from whose weights this training starts. Its weights must be public or
            charged. None starts from the public initialisation.
        initial_of: `spec_fingerprint` of the training that wrote `initial`.
        release: file of the charged release on which a method with `on_release` trains.
        release_sha256: checksum of this file, which the ledger holds.
        labels_kept: probability with which the release reports a label as it is.
        start: PUBLIC weights of the public initialisation. With None, the seed alone decides it.
        freeze: names of layers that are not trained.
    """

    method: str
    dataset: DatasetRequest
    batch_size: int
    steps: int
    noise_multiplier: float
    sample_rate: float
    model: str = "logistic_regression"
    activation: str = "relu"
    normalization: str = "none"
    optimizer: str = "sgd"
    momentum: float = 0.0
    precision: str = "float32"
    parameters: dict[str, object]
    seed: int = 0
    private: bool = True
    noise_seed: int | None = None
    replay_key: bytes | None = field(default=None, repr=False)
    replay_on: str | None = None
    threads: int | None = None
    device: str = "auto"
    score_noise: float | None = None
    metric: str = "validation_accuracy"
    initial: str | None = None
    initial_of: str = ""
    release: str | None = None
    release_sha256: str = ""
    labels_kept: float = 1.0
    start: StartWeights | None = None
    freeze: tuple[str, ...] = ()


def check_privacy(spec: TrainingSpec) -> None:
    """Raise GateError for a private run without noise or with seeded noise, or for an illegal `score_noise`."""
    if spec.score_noise is not None and not 0 < spec.score_noise < inf:
        raise GateError(
            "score-noise-invalid",
            f"`score_noise` must be finite and above 0, or None for exact scores (got {spec.score_noise!r}).",
        )
    if not spec.private:
        return
    if not 0 < spec.noise_multiplier < inf:
        raise GateError(
            "noise-missing",
            f"`noise_multiplier` must be finite and above 0 in a private run (got {spec.noise_multiplier!r}).",
        )
    if spec.noise_seed is not None:
        raise GateError(
            "noise-seed-private",
            "`noise_seed` must not be set in a private run, whose noise is secret. Remove noise_seed.",
        )


def spec_fingerprint(spec: TrainingSpec) -> str:
    """Return a hash of all fields but threads, device, secret key, `initial`, and paths and checksums of files.

    A checkpoint contains the weights that a training reached from `initial`.
    """
    values = asdict(spec)
    for name in ("threads", "device", "replay_key", "replay_on", "initial", "initial_of", "release"):
        del values[name]
    for name in ("data_dir", "path", "content"):
        del values["dataset"][name]
    if spec.start is not None:
        values["start"] = spec.start.sha256
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()


def require_own_state(path: Path, state: Mapping[str, Any], spec: TrainingSpec) -> None:
    """Raise a TrainableError if a stored state is not that of a training with this spec.

    Its weights would get the claim of another search, which may be smaller than their own.
    """
    if state.get("spec") != spec_fingerprint(spec):
        raise TrainableError(
            "checkpoint-foreign",
            f"The checkpoint {path} was written by a training with other settings, so its weights may have another "
            "privacy cost. Restore the sweep's folder from a copy.",
        )
