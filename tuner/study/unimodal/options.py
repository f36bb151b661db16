"""Options of the unimodal sampler and pruner, and the facts about a search that they need; imports no Optuna."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

from search_spaces import Categorical, Domain, Fixed, SearchSpace
from search_spaces.domains import as_yaml, is_number
from tuner.errors import InputError
from tuner.study import names

__all__ = [
    "BY_ITSELF",
    "DEFAULT_FALLBACK",
    "DEFAULT_OTHERS",
    "OTHERS",
    "TOLERANCES",
    "Along",
    "OptionProblem",
    "Unimodality",
    "assumed",
    "check_options",
    "component",
    "option_problems",
    "unimodal_parameters",
    "usual_tolerance",
]

TOLERANCES: Final[Mapping[str, float]] = {"validation_accuracy": 0.002, "validation_loss": 0.01}
"""Default tolerance of each metric: how much better a score must be to matter."""

OTHERS: Final = ("tpe", "random", "gp")
"""Samplers that can propose all other parameters."""

DEFAULT_OTHERS: Final = "tpe"
DEFAULT_FALLBACK: Final = "median"

BY_ITSELF: Final = "smoothing_radius"
"""Parameter that is unimodal without a declaration."""

_USUAL: Final = (10.0, 30.0)
"""First radii of a search for one; see `inference.beliefs.Rules.starts`."""


@dataclass(frozen=True)
class Along:
    """Parameter along which the score has one top.

    Attributes:
        name: its name.
        scales: names of the searched parameters that multiply it.
        starts: values of the first trials; None for those of a smoothing radius.
    """

    name: str
    scales: tuple[str, ...] = ()
    starts: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Unimodality:
    """Facts about a search that the unimodal sampler and pruner need, besides their options.

    Attributes:
        parameters: in the order in which they are asked for.
        last_step: the nominal step at which trials end.
        tolerance: how much better a score must be to matter, in its own unit, unless an option says otherwise.
        full_from: fraction of the steps up to which trials have fewer smoothing samples than at their end.
    """

    parameters: tuple[Along, ...]
    last_step: int
    tolerance: float
    full_from: float = 0.0


@dataclass(frozen=True, kw_only=True)
class OptionProblem:
    """Value that an option cannot have.

    Attributes:
        option: its name.
        rule: what must hold.
        fix: what to do.
    """

    option: str
    rule: str
    fix: str


def usual_tolerance(metric: str, scored: float | None, blurred: float = 0.0) -> float:
    """Return the default tolerance: how much better a score must be to matter.

    It is at least half of the standard error of an accuracy near one half, because the records cannot show less.

    Args:
        metric: a key of `TOLERANCES`.
        scored: number of validation records; None where it is unknown.
        blurred: standard error of a protected score.
    """
    fine = TOLERANCES[metric]
    of_records = 0.25 / sqrt(scored) if scored and metric == "validation_accuracy" else 0.0
    return max(fine, of_records, 0.5 * blurred)


def assumed(space: SearchSpace) -> SearchSpace:
    """Return the space with its unimodal parameters declared: its own, else a range of smoothing radii."""
    domain = dict(space.parameters).get(BY_ITSELF)
    if space.unimodal or domain is None or isinstance(domain, Fixed | Categorical):
        return space
    return replace(space, unimodal=(BY_ITSELF,))


def unimodal_parameters(space: SearchSpace) -> tuple[Along, ...]:
    """Return the unimodal parameters of a space that declares them."""
    domains = dict(space.parameters)
    ordered = sorted(space.unimodal, key=lambda name: len(space.scales(name)) > 0)
    return tuple(Along(name, space.scales(name), _starts(name, domains[name])) for name in ordered)


def _starts(name: str, domain: Domain) -> tuple[float, ...] | None:
    """Return one third and two thirds of the domain on its own scale; for a usual smoothing radius None."""
    if name == BY_ITSELF and all(map(domain.contains, _USUAL)):
        return None
    thirds = domain.grid(4)
    inner = thirds[1:3] if len(thirds) == 4 else thirds
    return tuple(float(value) for value in inner)


def check_options(kind: str, options: Mapping[str, object]) -> None:
    """Reject values that an option of the unimodal sampler or pruner cannot have.

    Raises:
        InputError: one or more options have such a value.
    """
    found = [
        f"The {kind} 'unimodal': {each.rule} (got {as_yaml(options[each.option])}). {each.fix}".strip()
        for each in option_problems(options)
    ]
    if found:
        raise InputError("option-invalid", " ".join(found))


def option_problems(options: Mapping[str, object]) -> Iterator[OptionProblem]:
    """Return the problems of the options' values, for the sampler and the pruner alike."""
    for option, value in options.items():
        rule, fix = _broken(option, value)
        if rule:
            yield OptionProblem(option=option, rule=rule, fix=fix)


def component(value: object) -> tuple[str, dict[str, object]] | None:
    """Return the name and options of a component written as a name or ``{name: …, options}``; None if neither."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return value["name"], {str(key): entry for key, entry in value.items() if key != "name"}
    return None


def _broken(option: str, value: object) -> tuple[str, str]:
    """Return the rule that a value breaks and the fix, or two empty strings."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    match option:
        case "tolerance" if not (is_number(value) and value > 0):
            return "tolerance must be a number above 0, in the score's own unit", "Write for example 0.002."
        case "risk" | "sure" if not (is_number(value) and 0 < value < 1):
            return f"{option} must be a probability above 0 and below 1", _EXAMPLES[option]
        case "runs" if not (is_number(value) and 0 <= value < 1):
            return "runs must be a probability of at least 0 and below 1", _EXAMPLES[option]
        case "at_once" if not (whole and value >= 1):  # type: ignore[operator]  # `whole` implies a number
            return "at_once must be a whole number of trials, at least 1", _EXAMPLES[option]
        case "stagger" if not (is_number(value) and 0 <= value <= 1):
            return "stagger must be a fraction of a trial's steps, 0 to 1", _EXAMPLES[option]
        case "audits" if not (whole and value >= 0):  # type: ignore[operator]
            return "audits must be a whole number: every n-th trial is an audit, and 0 means none", _EXAMPLES[option]
        case "strict" if not isinstance(value, bool):
            return "strict must be true or false", ""
        case "others" if not (isinstance(value, str) and names.canonical_sampler(value) in OTHERS):
            return f"others must be one of {', '.join(OTHERS)}", f"Write {DEFAULT_OTHERS}, or leave it out."
        case "fallback":
            return _fallback(value)
    return "", ""


_EXAMPLES: Final[Mapping[str, str]] = {
    "risk": "Write for example 0.05.",
    "sure": "Write for example 0.85.",
    "runs": "Write for example 0.1, or 0 to judge configurations alone.",
    "at_once": "Write for example 2.",
    "stagger": "Write for example 0.6, or 0 to start as soon as there is room.",
    "audits": "Write for example 4.",
}


def _fallback(value: object) -> tuple[str, str]:
    named = component(value)
    if named is None:
        return "fallback must be a pruner's name or {name: …, options}", f"Write for example {DEFAULT_FALLBACK}."
    if names.canonical_pruner(named[0]) == "unimodal":
        return (
            "fallback must be another pruner: it is used where the score has several tops",
            "Write for example none.",
        )
    found = names.pruner_problems(*named)
    return (f"fallback: {found[0].rstrip('.')}", "") if found else ("", "")
