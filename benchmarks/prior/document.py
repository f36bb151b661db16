"""The file that the product ships: formulas, what they were measured on, and how."""

from __future__ import annotations

import copy
import json
import platform
import statistics
from collections.abc import Mapping
from importlib.metadata import version
from math import exp, isfinite, log, sqrt
from pathlib import Path
from typing import Any

import search_spaces.prior
from benchmarks.prior.distil import Fit, Rows, family_of_rates, fit_adam, fit_sgd, rows_of
from benchmarks.prior.extras import LENGTHS, LEVELS, Gains, LengthCase, Lengths
from benchmarks.prior.many_classes import ClassCase, exponent
from benchmarks.prior.networks import NetCase, NetGrid, family_fits
from benchmarks.prior.records import FITTED, SET_ASIDE, checksums
from benchmarks.prior.situations import Measured, Situation

__all__ = ["PATH", "document", "with_convolutional", "with_many_classes", "write"]

PATH = Path(search_spaces.prior.__file__).parent / "measured.json"

_FROM_PAPERS: Mapping[str, tuple[float, float, str]] = {
    "smoothing_samples": (3.0, 1.0, "not measured here: DPLIS has 10 to 20; a step takes K times the work"),
}
"""Median, spread and source of parameters that are not measured."""


def document(
    measured: Mapping[Situation, Measured],
    gains: Mapping[Situation, Gains],
    lengths: Mapping[LengthCase, Lengths],
) -> dict[str, Any]:
    """Return the content of the file."""
    sgd, adam = rows_of(measured, "sgd"), rows_of(measured, "adam")
    fits = _fits(sgd, adam) | {"others": _others(gains)}
    without = {}
    for name in FITTED:
        kept = _fits(_without(sgd, name), _without(adam, name))
        without[name] = kept | {"others": _others({run: each for run, each in gains.items() if run.dataset != name})}
    dimensions = [found.dimension for found in measured.values()]
    slopes = fits["rate_times_clip"]["coefficients"]
    spread = statistics.stdev(map(log, dimensions)) * abs(slopes["dimension"] + slopes["noise"] / 2)
    return {
        "fits": fits,
        "without": without,
        "median_dimension": statistics.median(dimensions),
        "spread_of_unknown_dimension": spread,
        "lengths": _lengths(lengths),
        "provenance": {
            "command": "python -m benchmarks.prior --write",
            "data_sets": {name: digest for name, digest in checksums().items() if name in FITTED},
            "set_aside": {name: checksums()[name] for name in SET_ASIDE},
            "set_aside_rule": "chosen before the first measurement, never fitted, looked at once at the end",
            "records": "training records only; no test set is read",
            "situations": len(measured),
            "trainings": sum(len(found.accuracies) * found.repeats for found in measured.values()),
            "families": sorted({run.family for run in measured}),
            "seeds": [min(run.seed for run in measured), max(run.seed for run in measured)],
            "measured_range": _ranges(measured),
            "gains": len(gains),
            "lengths": len(lengths),
            "not_measured": {name: source for name, (_, _, source) in _FROM_PAPERS.items()}
            | {"families": "convolutional, recurrent, attention: the formula of linear models with a spread of e¹"},
            "versions": {"python": platform.python_version(), "torch": version("torch"), "numpy": version("numpy")},
        },
    }


def with_convolutional(content: Mapping[str, Any], grids: Mapping[NetCase, NetGrid]) -> dict[str, Any]:
    """Return the content of the file with the family of convolutional models, in all formulas of SGD's rate."""
    found = copy.deepcopy(dict(content))
    for name, fits in (("", found["fits"]), *found["without"].items()):
        own = family_fits({case: grid for case, grid in grids.items() if case.dataset != name})
        formula = fits["rate_times_clip"]
        more = sqrt(max(own["spread"] ** 2 - formula["spread"] ** 2, 0.0))
        formula["families"]["convolutional"] = family_of_rates(most=own["most"], spread=more)
    about = found["provenance"]
    about["families"] = sorted({*about["families"], "convolutional"})
    about["convolutional"] = {
        "command": "python -m benchmarks.prior --only convolutional --write",
        "situations": len(grids),
        "trainings": sum(len(grid.accuracies) for grid in grids.values()),
        "models": sorted({grid.model for grid in grids.values()}),
    }
    about["not_measured"]["families"] = "recurrent, attention: the formula of linear models with a spread of e¹"
    return found


def with_many_classes(content: Mapping[str, Any], grids: Mapping[ClassCase, NetGrid]) -> dict[str, Any]:
    """Return the content of the file with the exponent of the number of classes above ten, in all formulas."""
    found = copy.deepcopy(dict(content))
    for name, fits in (("", found["fits"]), *found["without"].items()):
        fits["many_classes"] = exponent({case: grid for case, grid in grids.items() if case.dataset != name})
    found["provenance"]["many_classes"] = {
        "command": "python -m benchmarks.prior --only classes --write",
        "situations": len(grids),
        "trainings": sum(len(grid.accuracies) for grid in grids.values()),
        "most_classes": max(case.classes for case in grids),
    }
    return found


def write(content: Mapping[str, Any], path: Path = PATH) -> None:
    """Write the file."""
    path.write_text(json.dumps(_rounded(content), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    search_spaces.prior.recommend.__globals__["_measured"].cache_clear()


def _fits(sgd: Rows, adam: Rows) -> dict[str, Fit]:
    product, clip = fit_sgd(sgd)
    return {"rate_times_clip": product, "max_grad_norm": clip, "adam_rate": fit_adam(adam)}


def _without(rows: Rows, dataset: str) -> Rows:
    return rows.only([name != dataset for name in rows.datasets])


def _others(gains: Mapping[Situation, Gains]) -> dict[str, Fit]:
    """Return medians and spreads of the parameters of the methods: of the positive levels, weighted by their gain."""
    found: dict[str, Fit] = {}
    for name, levels in LEVELS.items():
        means = [
            statistics.fmean(getattr(each, name)[place] for each in gains.values()) for place in range(len(levels))
        ]
        positive = [
            (log(level), exp(gain - max(means[1:]))) for level, gain in zip(levels, means, strict=True) if level
        ]
        total = sum(weight for _, weight in positive)
        centre = sum(at * weight for at, weight in positive) / total
        spread = sqrt(sum(weight * (at - centre) ** 2 for at, weight in positive) / total)
        found[name] = {
            "intercept": centre,
            "coefficients": {},
            "spread": max(spread, 0.5),
            "mean_gain_of_levels": dict(zip(map(str, levels), means, strict=True)),
        }
    for name, (median, spread, _) in _FROM_PAPERS.items():
        found[name] = {"intercept": log(median), "coefficients": {}, "spread": spread}
    return found


def _lengths(lengths: Mapping[LengthCase, Lengths]) -> dict[str, float]:
    """Return the sample rate and the epochs that lose least on average, by a weight exp(−loss) of every length."""
    rates, epochs = [], []
    for found in lengths.values():
        known = [(place, value) for place, value in enumerate(found.accuracies) if isfinite(value)]
        best = max(value for _, value in known)
        weights = [exp((value - best) / 2) for _, value in known]
        rates.append([(log(LENGTHS[place][0]), weight) for (place, _), weight in zip(known, weights, strict=True)])
        epochs.append([(log(LENGTHS[place][1]), weight) for (place, _), weight in zip(known, weights, strict=True)])
    (rate, rate_spread), (epoch, epoch_spread) = _moments(rates), _moments(epochs)
    return {
        "sample_rate": exp(rate),
        "sample_rate_spread": rate_spread,
        "epochs": exp(epoch),
        "epochs_spread": epoch_spread,
    }


def _moments(cases: list[list[tuple[float, float]]]) -> tuple[float, float]:
    """Return the mean of the cases' weighted means, and the root of the mean square around it."""
    means = [sum(at * weight for at, weight in case) / sum(weight for _, weight in case) for case in cases]
    mean = statistics.fmean(means)
    squares = [
        sum(weight * (at - mean) ** 2 for at, weight in case) / sum(weight for _, weight in case) for case in cases
    ]
    return mean, sqrt(statistics.fmean(squares))


def _ranges(measured: Mapping[Situation, Measured]) -> dict[str, list[float]]:
    names = ("noise_multiplier", "batch_size", "steps", "train_size", "dimension", "classes")
    values = {name: [float(getattr(found, name)) for found in measured.values()] for name in names}
    return {name: [min(each), max(each)] for name, each in values.items()}


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
