"""Names, options and aliases of samplers and pruners.

This module does not import Optuna, so that experiment files can be checked quickly.

The options of Optuna's samplers and pruners are the parameters of Optuna's constructors. Parameters that take functions
are omitted. `seed` is omitted too, because the experiment file sets it for the whole search. A test compares the
options with those of Optuna. The samplers `grid`, `bounded`, `unimodal` and `surrogate` and the pruner
`unimodal` are our own.

To add a sampler NAME, write the module `tuner.study.samplers.NAME` with a function `build`, and add an entry here. To
add a pruner of our own, do the same in `tuner.study.pruners`. A pruner of Optuna needs only an entry here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "PRUNERS",
    "PRUNER_CLASSES",
    "SAMPLERS",
    "SECRET_SAMPLERS",
    "canonical_pruner",
    "canonical_sampler",
    "pruner_problems",
    "sampler_problems",
]

SAMPLERS: dict[str, tuple[str, ...]] = {
    "tpe": ("n_startup_trials", "n_ei_candidates", "multivariate", "group", "constant_liar"),
    "random": (),
    "grid": ("points",),
    "gp": ("n_startup_trials", "deterministic_objective"),
    "bounded": ("explore", "ratio"),
    "unimodal": ("tolerance", "others", "sure", "at_once"),
    "surrogate": ("starts",),
}
"""Option names of each sampler, with the sampler's name as key."""

SECRET_SAMPLERS = ("random", "bounded")
"""Samplers that a sealed search may use, because they can take all their randomness from its secret key."""

PRUNERS: dict[str, tuple[str, ...]] = {
    "none": (),
    "median": ("n_startup_trials", "n_warmup_steps", "interval_steps", "n_min_trials"),
    "percentile": ("percentile", "n_startup_trials", "n_warmup_steps", "interval_steps", "n_min_trials"),
    "successive_halving": ("min_resource", "reduction_factor", "min_early_stopping_rate", "bootstrap_count"),
    "hyperband": ("min_resource", "max_resource", "reduction_factor", "bootstrap_count"),
    "patient": ("wrapped_pruner", "patience", "min_delta"),
    "threshold": ("lower", "upper", "n_warmup_steps", "interval_steps"),
    "wilcoxon": ("p_threshold", "n_startup_steps"),
    "unimodal": ("tolerance", "risk", "strict", "fallback"),
}
"""Option names of each pruner, with its name as key. All step counts in options are numbers of training steps."""

PRUNER_CLASSES: dict[str, str] = {
    "none": "NopPruner",
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "successive_halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
    "patient": "PatientPruner",
    "threshold": "ThresholdPruner",
    "wilcoxon": "WilcoxonPruner",
}
"""Class names of Optuna's pruners, with our names of the pruners as keys."""

_REQUIRED: dict[str, tuple[str, ...]] = {"percentile": ("percentile",), "patient": ("patience",)}

_PRUNER_ALIASES: dict[str, str] = {
    "asha": "successive_halving",
    "sha": "successive_halving",
    **{class_name.lower().removesuffix("pruner"): name for name, class_name in PRUNER_CLASSES.items()},
}


def canonical_sampler(name: str) -> str | None:
    """Return our name for a sampler (``TPESampler`` → ``tpe``), or None if the sampler is unknown."""
    low = name.lower().removesuffix("sampler")
    return low if low in SAMPLERS else None


def canonical_pruner(name: str) -> str | None:
    """Return our name for a pruner (``asha`` → ``successive_halving``), or None if the pruner is unknown."""
    low = name.lower().removesuffix("pruner")
    return low if low in PRUNERS else _PRUNER_ALIASES.get(low)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the most similar known name or, without a similar name, all known names."""
    known = sorted(known)
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."


def sampler_problems(name: str, options: Iterable[str] = ()) -> list[str]:
    """Check a sampler's name and option names, and return one sentence for each problem."""
    return _problems("sampler", name, canonical_sampler(name), SAMPLERS, options)


def pruner_problems(name: str, options: Iterable[str] = ()) -> list[str]:
    """Check a pruner's name and option names, and return one sentence for each problem."""
    options = tuple(options)
    canonical = canonical_pruner(name)
    problems = _problems("pruner", name, canonical, PRUNERS, options)
    for option in _REQUIRED.get(canonical or "", ()):
        if option not in options:
            problems.append(
                f"The pruner {name!r} needs the option {option!r}. Write {{name: {canonical}, {option}: …}}."
            )
    if canonical == "threshold" and not {"lower", "upper"} & set(options):
        problems.append(
            f"The pruner {name!r} needs the option 'lower' or 'upper'. Write for example "
            f"{{name: {canonical}, lower: 0.5}}."
        )
    return problems


def _problems(
    kind: str, name: str, canonical: str | None, table: dict[str, tuple[str, ...]], options: Iterable[str]
) -> list[str]:
    if canonical is None:
        return [f"No {kind} is named {name!r}. {_did_you_mean(name, table)}"]
    return [
        f"The {kind} {name!r} has no option {option!r}. "
        + (_did_you_mean(option, table[canonical]) if table[canonical] else "It has no options.")
        for option in options
        if option not in table[canonical]
    ]
