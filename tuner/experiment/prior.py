"""Default domains and values from the shipped prior, which knows good settings for the noise and size of a training.

The prior is public, so that it costs no ε. The noise is estimated here, because planning needs the space that this
module fills in. No claim uses the estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erfc, exp, inf, log1p, sqrt
from statistics import median_low
from typing import Final

from search_spaces import MINIMA, PARAMETERS, DomainError, Fixed, parse_domain
from search_spaces.common import AVERAGED
from search_spaces.domains import is_number
from search_spaces.optimizers import NOISE_FLOOR, OPTIMIZER, SGD
from search_spaces.prior import Recommended, Setting, is_measured, largest_step, recommend
from search_spaces.schedules import GEN
from trainables.data import info, public_train_size
from trainables.errors import DatasetError
from trainables.model_sizes import dimension_of, family_of
from trainables.tasks import REGRESSION, outputs_of
from tuner.experiment.model import Experiment
from tuner.experiment.sections import AUTO

__all__ = [
    "ONE_RUN",
    "estimated_noise",
    "largest_rate",
    "optimizers_of",
    "rate_is_measured",
    "recommended",
    "with_prior",
]

ONE_RUN: Final[Mapping[str, object]] = {"learning_rate": "default", "max_grad_norm": "default"}
"""Space of a file with one trial and no space: one run at the recommended values."""

_FILLED: Final = ("learning_rate", "max_grad_norm")
"""Parameters whose default domain is that of the prior. For the others it was measured too roughly."""

_LEAST_FACTOR: Final = (
    3.0  # a default domain reaches from the median divided by this to the median times this, or wider
)
_SPREADS: Final = 2.0
_WIDEST_MEASURED: Final = "mlp_64"
_PUBLISHED: Final = {"sgd": 0.15, "adam": 1e-3}  # rates of the DP-LSSGD paper, for a convolutional network
_RUNS: Final = {"selection": 4.0, "public": 1.0, AUTO: 1.0}  # runs whose composition needs about the noise of this mode


@dataclass(frozen=True)
class _Range:
    """Range of a default domain, and the value of a single trial."""

    low: float
    median: float
    high: float

    @classmethod
    def around(cls, found: Recommended, reached: float | None) -> _Range:
        """Return the range around a recommended value that also contains `reached`."""
        factor = max(_LEAST_FACTOR, exp(_SPREADS * found.spread))
        low, high = found.value / factor, found.value * factor
        return (
            cls(low, found.value, high) if reached is None else cls(min(low, reached), found.value, max(high, reached))
        )


def with_prior(raw: Mapping[str, object], experiment: Experiment) -> dict[str, object]:
    """Return a file's space with the prior's domain in place of each word ``default`` that the prior knows.

    If there is only one trial, the value is the prior's median. Nothing changes where the prior knows too little, for
    example because the data set is unknown, which a gate reports. If the optimizer is searched, the domain contains the
    domains of all its options. The schedule gen, whose rate is not searched, starts at the median.
    """
    names = {alias: name for name in _FILLED for alias in (name, *PARAMETERS[name].aliases)}
    raw = _with_start(raw, experiment)
    wanted = [key for key, value in raw.items() if value == "default" and names.get(key) is not None]
    one = experiment.search.trials == 1
    found = [_found(raw, experiment, each) for each in optimizers_of(raw, experiment)] if wanted else []
    return {
        key: _value([each[names[key]] for each in found], one=one)
        if key in wanted and all(names[key] in each for each in found)
        else value
        for key, value in raw.items()
    }


def _with_start(raw: Mapping[str, object], experiment: Experiment) -> Mapping[str, object]:
    """Return the space with the starting rate of the schedule gen, if the file names none and the prior knows one.

    If gen is one of several schedules, nothing changes.

    Automatic clipping gives each gradient the length C, as flat clipping does if C is small. So the product of rate and
    C is that of the recommended pair.
    """
    asked = raw.get("schedule")
    kinds = list(asked) if isinstance(asked, Mapping) else [asked]
    keys = [key for key in ("learning_rate", *PARAMETERS["learning_rate"].aliases) if key in raw]
    if kinds != [GEN] or any(raw[key] != "default" for key in keys):
        return raw
    automatic = raw.get("clipping") == "automatic"
    known = recommended({**raw, "max_grad_norm": "default"} if automatic else raw, experiment)
    if "learning_rate" not in known:
        return raw
    start = known["learning_rate"].value
    clip = next((key for key in ("max_grad_norm", *PARAMETERS["max_grad_norm"].aliases) if key in raw), None)
    if automatic and (clip is None or raw[clip] != "default") and "max_grad_norm" in known:
        start *= known["max_grad_norm"].value / _middle(raw, "max_grad_norm", 1.0)
    return {**{key: value for key, value in raw.items() if key not in keys}, "learning_rate": _rounded(start)}


def optimizers_of(raw: Mapping[str, object], experiment: Experiment) -> tuple[str, ...]:
    """Return the optimizers that a trial may have. Those that do not exist are left out; a gate reports them."""
    if "optimizer" not in raw:
        return (experiment.trainable.optimizer,)
    try:
        domain = OPTIMIZER.default if raw["optimizer"] == "default" else parse_domain(raw["optimizer"])
        OPTIMIZER.check(domain)
    except DomainError:
        return (experiment.trainable.optimizer,)
    return tuple(str(word) for word in domain.grid(1))


def _found(raw: Mapping[str, object], experiment: Experiment, optimizer: str) -> dict[str, _Range]:
    """Return the ranges of the parameters that the prior fills in, with this optimizer."""
    known = recommended(raw, experiment, optimizer=optimizer)
    linear = family_of(experiment.trainable.model) == "linear"  # it was measured for each optimizer
    reached = {} if linear or optimizer not in _PUBLISHED else {"learning_rate": _PUBLISHED[optimizer]}
    return {name: _Range.around(known[name], reached.get(name)) for name in _FILLED if name in known}


def rate_is_measured(experiment: Experiment, optimizer: str) -> bool:
    """Return whether the rate was measured for such a training: for classes, and not for models of one's own."""
    model, task = experiment.trainable.model, experiment.trainable.task
    return ":" not in model and task != REGRESSION and is_measured(family_of(model), optimizer=optimizer)


def recommended(
    raw: Mapping[str, object], experiment: Experiment, *, optimizer: str | None = None
) -> dict[str, Recommended]:
    """Return the prior of an experiment with this space by name, or nothing if its size is not known.

    `optimizer` is that of the trials; None takes the first one of the space.
    """
    if experiment.mode_or_default.on_release or experiment.trainable.method in MINIMA:
        return {}  # the prior was measured for private steps
    optimizer = optimizer or optimizers_of(raw, experiment)[0]
    usually = {"momentum": experiment.trainable.momentum if optimizer == SGD else 0.0}
    usually |= {"adam_noise_floor": NOISE_FLOOR, "ema_decay": AVERAGED}
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
            dimension=None if shape is None else _dimension(experiment, shape, classes),
            classes=classes,
            family=_family(experiment),
            method=experiment.trainable.method,
            optimizer=optimizer,
        )
        given = {name: _middle(raw, name, usual) for name, usual in usually.items()}
        if "default" not in (raw.get("max_grad_norm"), raw.get("C")):
            given["max_grad_norm"] = _middle(raw, "max_grad_norm", 1.0)
        return recommend(setting, given=given)
    except (DatasetError, DomainError):
        return {}


def largest_rate(parameters: Mapping[str, object], experiment: Experiment, *, steps: int) -> float:
    """Return the largest learning rate that the measured networks bear in a run with these flat parameters.

    Linear models have no limit. For other optimizers than SGD, none was measured.
    """
    if parameters.get("optimizer", experiment.trainable.optimizer) != SGD:
        return inf
    momentum, clip = parameters.get("momentum", experiment.trainable.momentum), parameters.get("max_grad_norm", 1.0)
    lower = (1.0 - momentum) / clip if is_number(momentum) and is_number(clip) else 1.0
    return largest_step(_family(experiment), steps=steps, classes=_shape(experiment)[1]) * lower


def _family(experiment: Experiment) -> str:
    """Return the model's family. A model of one's own may be a network, which bears no longer steps than others."""
    model = experiment.trainable.model
    return "convolutional" if ":" in model else family_of(model)


def _dimension(experiment: Experiment, shape: tuple[int, ...], classes: int) -> int | None:
    """Return the number of trainable parameters that the prior is asked about; None if it is not known.

    A perceptron counts as no wider than the measured ones. For 256 units, the formulas say a rate that is much too low.
    """
    model, outputs = experiment.trainable.model, outputs_of(experiment.trainable.task, classes)
    own = dimension_of(model, input_shape=shape, classes=outputs, frozen=experiment.trainable.freeze)
    if own is None or family_of(model) != "other":
        return own
    return min(own, dimension_of(_WIDEST_MEASURED, input_shape=shape, classes=outputs) or own)


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


def _value(found: Sequence[_Range], *, one: bool) -> object:
    """Return the range from the lowest to the highest end, or one value for one trial."""
    if one:
        return _rounded(found[0].median)
    return {"log_uniform": [_rounded(min(each.low for each in found)), _rounded(max(each.high for each in found))]}


def _rounded(value: float) -> float:
    """Return the value with three digits, so that a resolved file is easy to read."""
    return float(f"{value:.3g}")
