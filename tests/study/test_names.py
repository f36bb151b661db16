"""The tables of names and options say what Optuna's constructors take, and load without Optuna."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import optuna
import pytest

from tuner.study import names
from tuner.study.unimodal.inference.beliefs import Rules
from tuner.study.unimodal.options import DEFAULT_FALLBACK, DEFAULT_OTHERS, TOLERANCES


def test_the_tables_follow_optunas_constructors() -> None:
    """An option or a pruner that a new version of Optuna adds or removes is noticed."""
    for name, pruner in names.PRUNER_CLASSES.items():
        assert set(names.PRUNERS[name]) == set(inspect.signature(getattr(optuna.pruners, pruner)).parameters)
    assert set(names.PRUNER_CLASSES.values()) == set(optuna.pruners.__all__) - {"BasePruner"}
    for name, sampler in {"tpe": "TPESampler", "random": "RandomSampler", "gp": "GPSampler"}.items():
        constructor = inspect.signature(getattr(optuna.samplers, sampler))
        assert set(names.SAMPLERS[name]) <= set(constructor.parameters) - {"seed"}


def test_the_options_of_our_own_are_rules_or_are_taken_apart_where_they_are_made() -> None:
    rules = {field.name for field in fields(Rules)}
    assert set(names.SAMPLERS["unimodal"]) - rules == {"others"}
    assert set(names.PRUNERS["unimodal"]) - rules == {"fallback"}


def test_a_pruner_is_found_by_name_alias_or_class() -> None:
    for given in ("asha", "ASHA", "SuccessiveHalvingPruner", "SuccessiveHalving", "successive_halving"):
        assert names.canonical_pruner(given) == "successive_halving"
    others = {"NopPruner": "none", "Hyperband": "hyperband", "UnimodalPruner": "unimodal", "nothing": None}
    assert {given: names.canonical_pruner(given) for given in others} == others


def test_a_sampler_is_found_by_name_or_class() -> None:
    wanted = {"TPESampler": "tpe", "Grid": "grid", "UnimodalSampler": "unimodal", "sobol": None}
    assert {given: names.canonical_sampler(given) for given in wanted} == wanted


@pytest.mark.parametrize(
    ("problems", "word"),
    [
        (names.pruner_problems("mediann"), "'median'"),
        (names.pruner_problems("median", ["n_startup_trial"]), "'n_startup_trials'"),
        (names.pruner_problems("none", ["patience"]), "patience"),
        (names.pruner_problems("percentile"), "'percentile'"),
        (names.pruner_problems("threshold", ["interval_steps"]), "'lower'"),
        (names.sampler_problems("tpee"), "'tpe'"),
        (names.sampler_problems("grid", ["seed"]), "'seed'"),
    ],
)
def test_each_problem_names_the_option_or_the_nearest_name(problems: list[str], word: str) -> None:
    assert len(problems) == 1
    assert word in problems[0]
    assert names.pruner_problems("threshold", ["upper"]) == names.sampler_problems("tpe", ["n_startup_trials"]) == []


def test_names_and_types_load_without_the_heavy_libraries() -> None:
    code = (
        "import sys, tuner.study.names, tuner.study.types, tuner.study.driver, tuner.study.views, "
        "tuner.study.unimodal.options, tuner.study.surrogate.stored;"
        "print({'optuna', 'ray', 'torch', 'mlflow', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_documented_defaults_are_those_of_the_rules() -> None:
    text = (Path(__file__).parents[2] / "docs" / "unimodal.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    told = {row[0].strip("`"): row[1].strip("`") for row in rows if len(row) == 3}
    rules = {field.name: field.default for field in fields(Rules)}
    assert set(told) == {*names.SAMPLERS["unimodal"], *names.PRUNERS["unimodal"]}
    assert told["others"] == DEFAULT_OTHERS
    assert told["fallback"] == DEFAULT_FALLBACK
    for name in ("sure", "at_once", "risk", "strict"):
        assert told[name] == str(rules[name]).lower(), name
    assert all(f"{value} with `{metric}`" in text for metric, value in TOLERANCES.items())
