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
    """Specification of one trial; plain and picklable.

    Attributes:
        method: a key of METHODS.
        model: a key of MODELS, or `package.module:function`.
        activation: of the model.
        normalization: of the model.
        optimizer: 'sgd' or 'adam'.
        momentum: of SGD.
        precision: of the forward and backward passes, 'float32' or 'bfloat16'; norms, sums, noise and weights have at
            least float32.
        dataset: which records, and whether a sample is one of them or one user.
        batch_size: expected, in samples.
        steps: of the whole trial.
        noise_multiplier: of the whole search.
        sample_rate: batch_size over the PUBLIC number of samples.
        parameters: values that the search chose, flat; a promoted number has levels and their first steps.
        seed: public, of initialisation and DPLIS' perturbations.
        private: False is a study without a guarantee, where noise may be 0 or seeded.
        noise_seed: of noise and sampling, only when not private.
        replay_key: 32 secret bytes that key the secret generator, so that a repeated run of a sealed search is the same
            run; nobody sees any of it before its end. None: a key of the operating system.
        threads: of torch in this process; None changes nothing.
        device: 'auto', 'cpu' or 'cuda'.
        score_noise: standard deviation s of the noise on a released validation count, which is then protected and
            charged: finite and above 0. None: validation scores are exact.
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
    """Refuse a private run without noise, or with noise that is known.

    Raises:
        GateError: the noise is 0, not finite, or seeded.
    """
    if spec.score_noise is not None and not 0 < spec.score_noise < inf:
        raise GateError(
            "score-noise-invalid",
            f"`score_noise` must be finite and above 0 (got {spec.score_noise!r}). If the validation records need no "
            "protection, declare that in the experiment file.",
        )
    if not spec.private:
        return
    if not 0 < spec.noise_multiplier < inf:
        raise GateError(
            "noise-missing",
            f"`noise_multiplier` must be finite and above 0 (got {spec.noise_multiplier!r}). A study without noise "
            "sets private: false.",
        )
    if spec.noise_seed is not None:
        raise GateError(
            "noise-seed-private", "A private run cannot have a `noise_seed`, which makes the noise known. Remove it."
        )


def spec_fingerprint(spec: TrainingSpec) -> str:
    """Return a hash of everything that a step depends on; devices, paths of files and secrets are not part of it."""
    values = asdict(spec)
    for name in ("threads", "device", "replay_key"):
        del values[name]
    del values["dataset"]["data_dir"]
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()
