"""Specification of one trial for a worker, its privacy checks, and its fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from math import inf

from trainables.data import DatasetRequest
from trainables.errors import GateError

__all__ = ["TrainingSpec", "check_privacy", "spec_fingerprint"]


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """Specification of one trial; plain and picklable. `trainables.hyperparameters` has the other fields.

    Attributes:
        method: key of METHODS.
        model: key of MODELS, or `package.module:function`.
        precision: 'float32' or 'bfloat16', of the forward and backward passes only.
        dataset: records, and the unit of a sample.
        sample_rate: batch_size divided by the PUBLIC number of samples.
        parameters: values that the search chose, with flat keys.
        seed: public seed of the initialisation and of DPLIS' perturbations.
        private: False is a study without a guarantee, in which noise may be 0 or seeded.
        noise_seed: seed of noise and sampling, only if not private.
        replay_key: 32 secret bytes for the secret generator, so that a repeated run of a sealed search is the same run,
            of which nobody saw anything. None: a key of the operating system.
        threads: threads of torch in this process; None changes nothing.
        device: 'auto', 'cpu' or 'cuda'.
        score_noise: standard deviation of the noise on a validation count, finite and above 0; the score is then
            protected and charged. None: validation scores are exact.
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
    threads: int | None = None
    device: str = "auto"
    score_noise: float | None = None

    @property
    def unit(self) -> str:
        """Unit of the guarantee, 'record' or 'user'."""
        return self.dataset.unit


def check_privacy(spec: TrainingSpec) -> None:
    """Raise GateError for a private run without noise or with known noise, or for illegal noise of scores."""
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
            "noise-seed-private", "A private run must have no `noise_seed`, which makes the noise known. Remove it."
        )


def spec_fingerprint(spec: TrainingSpec) -> str:
    """Return a hash of everything on which a step depends, without devices, paths of files and secrets."""
    values = asdict(spec)
    for name in ("threads", "device", "replay_key"):
        del values[name]
    del values["dataset"]["data_dir"]
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()
