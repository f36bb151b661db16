"""What a worker needs to train one trial, the gates that it must pass, and what tells two such requests apart."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from math import inf

from trainables.data import DatasetRequest
from trainables.errors import GateError

__all__ = ["TrainingSpec", "check_privacy", "fingerprint"]


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """All that a worker needs to train one trial; plain and picklable.

    Attributes:
        method: a key of HYPERPARAMETERS.
        model: a key of MODELS, or `package.module:function`.
        activation: of the model.
        normalization: of the model.
        optimizer: 'sgd' or 'adam'.
        momentum: of SGD.
        precision: of the forward and backward passes, 'float32' or 'bfloat16'; norms, sums, noise and weights are
            never less than float32.
        dataset: which records, and whether a sample is one of them or one user.
        batch_size: expected, in samples.
        steps: of the whole trial.
        noise_multiplier: of the whole search.
        sample_rate: batch_size over the PUBLIC number of samples.
        parameters: what the search chose, flat; of a promoted number its levels and the steps from which they hold.
        seed: public: initialisation and DPLIS' perturbations.
        private: False is a study without a guarantee, and the only case in which noise may be 0 or seeded.
        noise_seed: of noise and sampling, only when not private.
        replay_key: 32 secret bytes from which the secret generator is keyed, so that a run of a sealed search that is
            made again is the same run; nobody sees any of it before its end. None: keyed by the operating system.
        threads: of torch in this process; None leaves them as they are.
        device: 'auto', 'cpu' or 'cuda'.
        score_noise: standard deviation s of the noise on a released validation count, which is then protected and
            charged: finite and above 0. None: scores of validation records are told as they are.
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
        """Whom the guarantee protects, 'record' or 'user'."""
        return self.dataset.unit


def check_privacy(spec: TrainingSpec) -> None:
    """The gates of a private run.

    Raises:
        GateError: the noise is none, or known.
    """
    if spec.score_noise is not None and not 0 < spec.score_noise < inf:
        raise GateError(
            f"score_noise must be finite and greater than 0; got {spec.score_noise!r}: validation records that need no "
            "protection are said to be so in the experiment"
        )
    if not spec.private:
        return
    if not 0 < spec.noise_multiplier < inf:
        raise GateError(
            f"noise_multiplier must be finite and greater than 0; got {spec.noise_multiplier!r}: "
            "a study without noise says private: false"
        )
    if spec.noise_seed is not None:
        raise GateError("noise_seed makes the noise known, so it needs private: false; leave it out of a private run")


def fingerprint(spec: TrainingSpec) -> str:
    """Of all that a step depends on. Where it runs, where the files lie, and secrets are not part of it."""
    values = asdict(spec)
    for name in ("threads", "device", "replay_key"):
        del values[name]
    del values["dataset"]["data_dir"]
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()
