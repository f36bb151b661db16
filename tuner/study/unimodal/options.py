"""Options of the unimodal sampler and pruner, and the facts about a search that both need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Final

from search_spaces import Categorical, Domain, Fixed, SearchSpace
from search_spaces.domains import as_yaml, is_number
from tuner.errors import InputError
from tuner.study import names

__all__ = [
    "BY_ITSELF",
    "DEFAULT_FALLBACK",
    "DEFAULT_OTHERS",
    "PERTURBATIONS",
    "TOLERANCES",
    "Along",
    "Unimodality",
    "assumed",
    "checked_facts",
    "component",
    "option_problems",
    "unimodal_parameters",
    "usual_tolerance",
]

TOLERANCES: Final[Mapping[str, float]] = {
    "validation_accuracy": 0.002,
    "validation_loss": 0.01,
    "validation_perplexity": 1.0,
    "validation_balanced_accuracy": 0.002,
    "validation_auc": 0.002,
}
"""Default tolerance of each metric. The tolerance is the smallest difference between scores that matters."""

_OTHERS: Final = ("tpe", "random", "gp")
"""Samplers that may propose the parameters that are not unimodal."""

DEFAULT_OTHERS: Final = "tpe"
DEFAULT_FALLBACK: Final = "median"

BY_ITSELF: Final = "smoothing_radius"
"""Parameter that is assumed to be unimodal if the search space declares no unimodal parameter."""

PERTURBATIONS: Final = (0.0066, 0.0198)
"""Smoothing of the first trials, as the standard deviation that it adds to each weight: R · η · σ · C / b.

The two values are R = 10 and R = 30 at the learning rate of 0.1536, the noise multiplier of 1.1 and the batch size of
256 of the DPLIS paper, with a clipping norm of 1. The best values of the paper start between them. R alone says little:
at twice the learning rate and twice the noise, the same R smooths four times as much.
"""


@dataclass(frozen=True)
class Along:
    """Parameter along which the score has one maximum.

    Attributes:
        name: name of the parameter.
        scales: names of other searched parameters that multiply this parameter. The curve is a function of the product.
        starts: values of the parameter in the first trials. None means the default of `inference.beliefs.Rules`.
    """

    name: str
    scales: tuple[str, ...] = ()
    starts: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Unimodality:
    """Facts about a search that the unimodal sampler and pruner need in addition to their options.

    Attributes:
        parameters: unimodal parameters. Parameters with `scales` come last.
        last_step: last step of the longest trial.
        tolerance: default of the option `tolerance`, in the unit of the score.
        full_from: fraction of a trial's steps after which the trial uses its full number of smoothing samples.
    """

    parameters: tuple[Along, ...]
    last_step: int
    tolerance: float
    full_from: float = 0.0

    def arguments(self, along: Along, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `along.AlongParameter` for the sampler or pruner of one parameter."""
        facts: dict[str, Any] = {"tolerance": self.tolerance, "last_step": self.last_step, "scales": along.scales}
        return facts | dict(options) | ({} if along.starts is None else {"starts": along.starts})


def usual_tolerance(metric: str, scored: float | None, blurred: float = 0.0) -> float:
    """Return the default tolerance, which is the smallest difference between scores that matters.

    The tolerance is at least half the standard error of a score, because the scores cannot show a smaller difference.
    The standard error of an accuracy is computed for an accuracy of one half.

    Args:
        metric: a key of `TOLERANCES`.
        scored: number of validation records, or None if unknown.
        blurred: standard deviation of the noise that is added to a protected score, or 0 without noise.
    """
    fine = TOLERANCES[metric]
    of_records = 0.25 / sqrt(scored) if scored and metric == "validation_accuracy" else 0.0
    return max(fine, of_records, 0.5 * blurred)


def assumed(space: SearchSpace) -> SearchSpace:
    """Return the search space. If it declares no unimodal parameter, declare the smoothing radius unimodal.

    A smoothing radius that is not searched over a range is not declared unimodal.
    """
    domain = dict(space.parameters).get(BY_ITSELF)
    if space.unimodal or domain is None or isinstance(domain, Fixed | Categorical):
        return space
    return replace(space, unimodal=(BY_ITSELF,))


def unimodal_parameters(space: SearchSpace, unit: float | None = None) -> tuple[Along, ...]:
    """Return the parameters that a space declares unimodal. Parameters with `Along.scales` come last.

    Args:
        space: search space.
        unit: standard deviation that a smoothing radius of 1 adds to each weight, or None if unknown.
    """
    domains = dict(space.parameters)
    ordered = sorted(space.unimodal, key=lambda name: len(space.scales(name)) > 0)
    return tuple(
        Along(name, space.scales(name), _starts(domains[name], unit) if name == BY_ITSELF else None) for name in ordered
    )


def _starts(domain: Domain, unit: float | None) -> tuple[float, ...] | None:
    """Return the first smoothing radii, or None if the domain lacks one of them."""
    values = tuple(size / unit for size in PERTURBATIONS) if unit else ()
    return values if values and all(map(domain.contains, values)) else None


def checked_facts(kind: str, options: Mapping[str, object], facts: Unimodality | None) -> Unimodality:
    """Check the options of the unimodal sampler or pruner, and return `facts` if there is a unimodal parameter.

    Raises:
        InputError: an option has a wrong value, or there is no unimodal parameter.
    """
    problems = [
        f"For the {kind} 'unimodal', {rule} (got {as_yaml(options[option])}). {fix}".strip()
        for option, rule, fix in option_problems(options)
    ]
    if problems:
        raise InputError("option-invalid", " ".join(problems))
    if facts is None or not facts.parameters:
        raise InputError(
            "unimodal-parameter-missing",
            f"The {kind} 'unimodal' needs a parameter that is declared unimodal, but there is none. Declare one in the "
            f"search space. Inside the options of another {kind}, 'unimodal' is not supported.",
        )
    return facts


def option_problems(options: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield (option, broken rule, fix) for every wrong value of an option of the unimodal sampler or pruner."""
    for option, value in options.items():
        rule, fix = _broken(option, value)
        if rule:
            yield option, rule, fix


def component(value: object) -> tuple[str, dict[str, object]] | None:
    """Return the name and the options of a sampler or pruner in an experiment file.

    Return None unless `value` is a name or a mapping with a name and options.
    """
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return value["name"], {str(key): entry for key, entry in value.items() if key != "name"}
    return None


def _broken(option: str, value: object) -> tuple[str, str]:
    """Return the rule that an option's value breaks, and a fix. Return two empty strings if the value is valid."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    match option:
        case "tolerance" if not (is_number(value) and value > 0):
            return "`tolerance` must be a number above 0, in the unit of the score", "Write for example 0.002."
        case "risk" | "sure" if not (is_number(value) and 0 < value < 1):
            example = "0.02" if option == "risk" else "0.98"
            return f"`{option}` must be a probability above 0 and below 1", f"Write for example {example}."
        case "at_once" if not (whole and value >= 1):  # type: ignore[operator]  # `whole` implies a number
            return "`at_once` must be a whole number of trials, at least 1", "Write for example 2."
        case "strict" if not isinstance(value, bool):
            return "`strict` must be true or false", ""
        case "others" if not (isinstance(value, str) and names.canonical_sampler(value) in _OTHERS):
            return f"`others` must be one of {', '.join(_OTHERS)}", f"Write {DEFAULT_OTHERS}, or remove the option."
        case "fallback":
            return _fallback(value)
    return "", ""


def _fallback(value: object) -> tuple[str, str]:
    named = component(value)
    if named is None:
        rule = "`fallback` must be a pruner's name, or a mapping with a name and options"
        return rule, f"Write for example {DEFAULT_FALLBACK}."
    if names.canonical_pruner(named[0]) == "unimodal":
        return "`fallback` must be a pruner other than `unimodal`", "Write for example none."
    found = names.pruner_problems(*named)
    return (f"fallback: {found[0].rstrip('.')}", "") if found else ("", "")
