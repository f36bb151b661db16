"""Default domains and values from the shipped prior, which knows good settings for the noise and size of a training.

The prior is public, so that it costs no ε. The noise is estimated here, because planning needs the space that this
module fills in. No claim uses the estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import erfc, exp, log1p, sqrt
from statistics import median_low
from typing import Final

from search_spaces import PARAMETERS, DomainError, Fixed, parse_domain
from search_spaces.domains import is_number
from search_spaces.prior import Recommended, Setting, recommend
from trainables.data import info, public_train_size
from trainables.errors import DatasetError
from trainables.model_sizes import dimension_of, family_of
from tuner.experiment.model import Experiment
from tuner.experiment.sections import AUTO

__all__ = ["ONE_RUN", "estimated_noise", "recommended", "with_prior"]

ONE_RUN: Final[Mapping[str, object]] = {"learning_rate": "default", "max_grad_norm": "default"}
"""Space of a file with one trial and no space: one run at the recommended values."""

_FILLED: Final = ("learning_rate", "max_grad_norm")
"""Parameters whose default domain is that of the prior. For the others it was measured too roughly."""

_LEAST_FACTOR: Final = (
    3.0  # a default domain reaches from the median divided by this to the median times this, or wider
)
_SPREADS: Final = 2.0
_RUNS: Final = {"selection": 4.0, "public": 1.0, AUTO: 1.0}  # runs whose composition needs about the noise of this mode


def with_prior(raw: Mapping[str, object], experiment: Experiment) -> dict[str, object]:
    """Return a file's space with the prior's domain in place of each word ``default`` that the prior knows.

    If there is only one trial, the value is the prior's median. Nothing changes where the prior knows too little, for
    example because the data set is unknown, which a gate reports.
    """
    names = {alias: name for name in _FILLED for alias in (name, *PARAMETERS[name].aliases)}
    wanted = [key for key, value in raw.items() if value == "default" and names.get(key) is not None]
    found = recommended(raw, experiment) if wanted else {}
    one = experiment.search.trials == 1
    return {
        key: _value(found[names[key]], one=one) if key in wanted and names[key] in found else value
        for key, value in raw.items()
    }


def recommended(
    raw: Mapping[str, object], experiment: Experiment, *, without: str | None = None
) -> dict[str, Recommended]:
    """Return the prior of an experiment with this space by name, or nothing if its size is not known.

    `without` names a data set of the prior whose measurements are left out, to judge the prior on it.
    """
    try:
        request = experiment.dataset_request()
        size = public_train_size(request)
        batch = _middle(raw, "batch_size", experiment.trainable.batch_size)
        steps = max(1.0, _middle(raw, "epochs", experiment.trainable.epochs) * size / batch)
        shape, classes = _shape(experiment)
        setting = Setting(
            noise_multiplier=_noise(raw, experiment, sample_rate=min(1.0, batch / size), steps=steps),
            batch_size=batch,
            steps=steps,
            train_size=size,
            dimension=None
            if shape is None
            else dimension_of(experiment.trainable.model, input_shape=shape, classes=classes),
            classes=classes,
            family=family_of(experiment.trainable.model),
            method=experiment.trainable.method,
            optimizer=experiment.trainable.optimizer,
        )
        given = {"momentum": experiment.trainable.momentum}
        if "default" not in (raw.get("max_grad_norm"), raw.get("C")):
            given["max_grad_norm"] = _middle(raw, "max_grad_norm", 1.0)
        return recommend(setting, given=given, without=without)
    except (DatasetError, DomainError):
        return {}


def estimated_noise(*, epsilon: float, delta: float, sample_rate: float, steps: float) -> float:
    """Return about the noise multiplier of steps that are (ε, δ)-private, within a tenth (Dong et al. 2019).

    No claim uses it. The central limit theorem turns (ε, δ) into μ of Gaussian privacy, and μ into the noise.
    """
    epsilon, low, high = min(max(epsilon, 1e-4), 50.0), 1e-6, 50.0
    for _ in range(60):
        middle = sqrt(low * high)
        found = _tail(epsilon / middle - middle / 2) - exp(epsilon) * _tail(epsilon / middle + middle / 2)
        low, high = (middle, high) if found < delta else (low, middle)
    return 1 / sqrt(log1p((low / sample_rate) ** 2 / steps))


def _tail(value: float) -> float:
    return erfc(value / sqrt(2)) / 2


def _noise(raw: Mapping[str, object], experiment: Experiment, *, sample_rate: float, steps: float) -> float:
    privacy = experiment.privacy
    asked = raw.get("noise_multiplier", privacy.noise_multiplier)
    if asked != "auto":
        return _middle({"noise_multiplier": asked}, "noise_multiplier", 1.0)
    runs = _RUNS.get(privacy.accounting, _composed_runs(experiment))
    return estimated_noise(
        epsilon=privacy.epsilon, delta=privacy.delta, sample_rate=sample_rate, steps=max(1.0, steps * runs)
    )


def _composed_runs(experiment: Experiment) -> float:
    """Return the number of whole runs for which an open search is planned; about the root of the trials for `auto`.

    With a committed run, the prior is about that run, which has the rest of the budget for itself.
    """
    if experiment.search.commit is not None:
        return 1 / (1 - experiment.search.commit.share)
    trials, planned = float(experiment.search.trials), experiment.search.full_runs
    if planned is None:
        return trials
    return sqrt(trials) if isinstance(planned, str) else min(trials, float(planned))


def _shape(experiment: Experiment) -> tuple[tuple[int, ...] | None, int]:
    """Return the shape of an input and the number of classes; without the file of the user, none and 2."""
    try:
        known = info(experiment.dataset_request())
    except DatasetError:
        return None, 2
    return known.input_shape, known.classes


def _middle(raw: Mapping[str, object], name: str, otherwise: float) -> float:
    """Return the fixed value of a parameter or the middle of its domain, whether or not that is what a trial takes."""
    key = next((each for each in (name, *PARAMETERS[name].aliases) if each in raw), None)
    if key is None:
        return otherwise
    domain = PARAMETERS[name].default if raw[key] == "default" else parse_domain(_undeclared(raw[key]))
    values = [float(value) for value in domain.grid(1) if is_number(value)]
    if not values or not PARAMETERS[name].legal.allows(domain.value if isinstance(domain, Fixed) else values[0]):
        raise DomainError("value-illegal", f"{name} must be legal", str(raw[key]))
    return median_low(values)


def _undeclared(value: object) -> object:
    return {key: each for key, each in value.items() if key != "unimodal"} if isinstance(value, Mapping) else value


def _value(found: Recommended, *, one: bool) -> object:
    if one:
        return _rounded(found.value)
    factor = max(_LEAST_FACTOR, exp(_SPREADS * found.spread))
    return {"log_uniform": [_rounded(found.value / factor), _rounded(found.value * factor)]}


def _rounded(value: float) -> float:
    """Return the value with three digits, so that a resolved file is easy to read."""
    return float(f"{value:.3g}")
