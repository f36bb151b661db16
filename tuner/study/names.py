"""The samplers and pruners by name, with the options each takes; imports no Optuna, so files are checked fast.

The options are those of Optuna's constructors (a test compares them), less what the experiment file sets
itself (`seed`) and what a file cannot hold (callables). `grid`, `bounded` and `unimodal` are our own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "PRUNERS",
    "PRUNER_CLASSES",
    "SAMPLERS",
    "canonical_pruner",
    "canonical_sampler",
    "nearest",
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
"""Name of each sampler and the options it takes."""

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
"""Name of each pruner and the options it takes. Steps are training steps."""

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
"""Optuna's class of each pruner that is Optuna's."""

_REQUIRED: dict[str, tuple[str, ...]] = {"percentile": ("percentile",), "patient": ("patience",)}

_PRUNER_ALIASES: dict[str, str] = {
    "asha": "successive_halving",
    "sha": "successive_halving",
    "nop": "none",
    "unimodalpruner": "unimodal",
    **{class_name.lower(): name for name, class_name in PRUNER_CLASSES.items()},
    **{class_name.lower().removesuffix("pruner"): name for name, class_name in PRUNER_CLASSES.items()},
}

_SAMPLER_ALIASES: dict[str, str] = {
    "tpesampler": "tpe",
    "randomsampler": "random",
    "gridsampler": "grid",
    "gpsampler": "gp",
    "unimodalsampler": "unimodal",
}


def canonical_sampler(name: str) -> str | None:
    """Our name of a sampler (``TPESampler`` → ``tpe``), or None when there is none of that name."""
    low = name.lower()
    return low if low in SAMPLERS else _SAMPLER_ALIASES.get(low)


def canonical_pruner(name: str) -> str | None:
    """Our name of a pruner (``asha``, ``SuccessiveHalvingPruner`` → ``successive_halving``), or None."""
    low = name.lower()
    return low if low in PRUNERS else _PRUNER_ALIASES.get(low)


def nearest(name: str, known: Iterable[str]) -> str:
    """A fix for an unknown name: the nearest known one, else all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."


def sampler_problems(name: str, options: Iterable[str] = ()) -> list[str]:
    """What is wrong with a sampler's name and option names, one sentence each; empty when nothing is."""
    return _problems("sampler", name, canonical_sampler(name), SAMPLERS, options)


def pruner_problems(name: str, options: Iterable[str] = ()) -> list[str]:
    """What is wrong with a pruner's name and option names, one sentence each; empty when nothing is."""
    options = tuple(options)
    canonical = canonical_pruner(name)
    problems = _problems("pruner", name, canonical, PRUNERS, options)
    for option in _REQUIRED.get(canonical or "", ()):
        if option not in options:
            problems.append(f"pruner {name!r} needs the option {option!r}: write {{name: {canonical}, {option}: …}}")
    if canonical == "threshold" and not {"lower", "upper"} & set(options):
        problems.append(f"pruner {name!r} needs the option 'lower' or 'upper'")
    return problems


def _problems(
    kind: str, name: str, canonical: str | None, table: dict[str, tuple[str, ...]], options: Iterable[str]
) -> list[str]:
    if canonical is None:
        return [f"unknown {kind} {name!r}. {nearest(name, table)}"]
    return [
        f"{kind} {name!r} has no option {option!r}. "
        + (nearest(option, table[canonical]) if table[canonical] else "It takes none.")
        for option in options
        if option not in table[canonical]
    ]
