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

SAMPLER_CLASSES = {"tpe": "TPESampler", "random": "RandomSampler", "gp": "GPSampler"}


@pytest.mark.parametrize("name", names.PRUNER_CLASSES)
def test_the_options_of_a_pruner_are_its_constructors(name: str) -> None:
    constructor = inspect.signature(getattr(optuna.pruners, names.PRUNER_CLASSES[name]))
    assert set(names.PRUNERS[name]) == set(constructor.parameters)


def test_every_pruner_of_optuna_has_a_name() -> None:
    public = {name for name in optuna.pruners.__all__ if name != "BasePruner"}
    assert set(names.PRUNER_CLASSES.values()) == public
    assert set(names.PRUNERS) >= set(names.PRUNER_CLASSES)


def test_the_options_of_our_own_are_rules_or_are_taken_apart_where_they_are_made() -> None:
    rules = {field.name for field in fields(Rules)}
    assert set(names.SAMPLERS["unimodal"]) - rules == {"others"}
    assert set(names.PRUNERS["unimodal"]) - rules == {"fallback"}


@pytest.mark.parametrize(("name", "class_name"), SAMPLER_CLASSES.items())
def test_the_options_of_a_sampler_are_in_its_constructor(name: str, class_name: str) -> None:
    constructor = inspect.signature(getattr(optuna.samplers, class_name))
    assert set(names.SAMPLERS[name]) <= set(constructor.parameters) - {"seed"}


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("asha", "successive_halving"),
        ("ASHA", "successive_halving"),
        ("SuccessiveHalvingPruner", "successive_halving"),
        ("SuccessiveHalving", "successive_halving"),
        ("successive_halving", "successive_halving"),
        ("NopPruner", "none"),
        ("MedianPruner", "median"),
        ("Hyperband", "hyperband"),
        ("UnimodalPruner", "unimodal"),
        ("Unimodal", "unimodal"),
        ("nothing", None),
    ],
)
def test_a_pruner_is_found_by_name_alias_or_class(given: str, canonical: str | None) -> None:
    assert names.canonical_pruner(given) == canonical


@pytest.mark.parametrize(
    ("given", "canonical"), [("TPESampler", "tpe"), ("Grid", "grid"), ("UnimodalSampler", "unimodal"), ("sobol", None)]
)
def test_a_sampler_is_found_by_name_or_class(given: str, canonical: str | None) -> None:
    assert names.canonical_sampler(given) == canonical


@pytest.mark.parametrize(
    ("problems", "words"),
    [
        (names.pruner_problems("mediann"), "'median'"),
        (names.pruner_problems("median", ["n_startup_trial"]), "'n_startup_trials'"),
        (names.pruner_problems("none", ["patience"]), "It has no options"),
        (names.pruner_problems("percentile"), "needs the option 'percentile'"),
        (names.pruner_problems("patient"), "needs the option 'patience'"),
        (names.pruner_problems("threshold", ["interval_steps"]), "'lower' or 'upper'"),
        (names.sampler_problems("tpee"), "'tpe'"),
        (names.sampler_problems("grid", ["seed"]), "no option 'seed'"),
    ],
)
def test_a_problem_names_the_rule_and_the_mend(problems: list[str], words: str) -> None:
    assert len(problems) == 1
    assert words in problems[0]


def test_right_names_and_options_have_no_problem() -> None:
    assert names.pruner_problems("threshold", ["upper"]) == []
    assert names.sampler_problems("tpe", ["n_startup_trials"]) == []


def test_names_and_types_load_without_the_heavy_libraries() -> None:
    code = (
        "import sys, tuner.study.names, tuner.study.types, tuner.study.driver, tuner.study.views, "
        "tuner.study.unimodal.options;"
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
    for name in ("sure", "at_once", "stagger", "audits", "risk", "strict", "runs"):
        assert told[name] == str(rules[name]).lower(), name
    assert all(f"{value} with `{metric}`" in text for metric, value in TOLERANCES.items())
