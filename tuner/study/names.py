"""Registry of samplers and pruners: names, options and aliases. Imports no Optuna, so that files are checked fast.

The options are those of Optuna's constructors (a test compares them), without callables and without `seed`, which the
experiment file sets. `grid`, `bounded` and `unimodal` are our own.

The sampler NAME is the module `tuner.study.samplers.NAME` with a function `build`, and an entry here. A pruner of ours
is the same in `tuner.study.pruners`; a pruner of Optuna is only an entry here.
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
    "unimodal": ("tolerance", "others", "sure", "at_once", "stagger", "audits"),
}
"""Name of each sampler, with its options."""

SECRET_SAMPLERS = ("random", "bounded")
"""Samplers for sealed searches: they can take all their randomness from the operating system."""

PRUNERS: dict[str, tuple[str, ...]] = {
    "none": (),
    "median": ("n_startup_trials", "n_warmup_steps", "interval_steps", "n_min_trials"),
    "percentile": ("percentile", "n_startup_trials", "n_warmup_steps", "interval_steps", "n_min_trials"),
    "successive_halving": ("min_resource", "reduction_factor", "min_early_stopping_rate", "bootstrap_count"),
    "hyperband": ("min_resource", "max_resource", "reduction_factor", "bootstrap_count"),
    "patient": ("wrapped_pruner", "patience", "min_delta"),
    "threshold": ("lower", "upper", "n_warmup_steps", "interval_steps"),
    "wilcoxon": ("p_threshold", "n_startup_steps"),
    "unimodal": ("tolerance", "risk", "strict", "runs", "fallback"),
}
"""Name of each pruner, with its options. Steps are training steps."""

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
"""Class names of Optuna's pruners."""

_REQUIRED: dict[str, tuple[str, ...]] = {"percentile": ("percentile",), "patient": ("patience",)}

_PRUNER_ALIASES: dict[str, str] = {
    "asha": "successive_halving",
    "sha": "successive_halving",
    **{class_name.lower().removesuffix("pruner"): name for name, class_name in PRUNER_CLASSES.items()},
}


def canonical_sampler(name: str) -> str | None:
    """Return our name of a sampler (``TPESampler`` → ``tpe``), or None if there is no such sampler."""
    low = name.lower().removesuffix("sampler")
    return low if low in SAMPLERS else None


def canonical_pruner(name: str) -> str | None:
    """Return our name of a pruner (``asha`` → ``successive_halving``), or None if there is no such pruner."""
    low = name.lower().removesuffix("pruner")
    return low if low in PRUNERS else _PRUNER_ALIASES.get(low)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion: the nearest known name, or all known names if none is near."""
    known = sorted(known)
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."


def sampler_problems(name: str, options: Iterable[str] = ()) -> list[str]:
    """Return the problems of a sampler's name and option names, one sentence each."""
    return _problems("sampler", name, canonical_sampler(name), SAMPLERS, options)


def pruner_problems(name: str, options: Iterable[str] = ()) -> list[str]:
    """Return the problems of a pruner's name and option names, one sentence each."""
    options = tuple(options)
    canonical = canonical_pruner(name)
    problems = _problems("pruner", name, canonical, PRUNERS, options)
    for option in _REQUIRED.get(canonical or "", ()):
        if option not in options:
            problems.append(
                f"The pruner {name!r} needs the option {option!r}. Write {{name: {canonical}, {option}: …}}."
            )
    if canonical == "threshold" and not {"lower", "upper"} & set(options):
        problems.append(f"The pruner {name!r} needs the option 'lower' or 'upper'.")
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
