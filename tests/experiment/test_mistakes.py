"""Mistakes in the experiment file: each is one problem with its line, its key and its code, and all come at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from experiment_files import GOOD
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import ExperimentError, Problem
from tuner.experiment import Experiment, load_experiment, parse_experiment

ELSEWHERE = ""
"""The code of another package, whose own tests assert it."""


def problems_of(text: str, *overrides: str) -> tuple[Problem, ...]:
    with pytest.raises(ExperimentError) as caught:
        parse_experiment(text, overrides, source="e.yaml")
    assert caught.value.exit_code == 2
    return caught.value.problems


def with_line(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


# the line of the file, its replacement, and the line, key and code of the one problem
WRONG: list[tuple[str, str, int, str, str]] = [
    ("epsilon: 8", "epsilon: .nan", 13, "privacy.epsilon", "value-not-finite"),
    ("epsilon: 8", "epsilon: nan", 13, "privacy.epsilon", "value-wrong-type"),
    ("epsilon: 8", "epsilon: -1", 13, "privacy.epsilon", "value-out-of-range"),
    ("epsilon: 8", "epsilon: 1e999", 13, "privacy.epsilon", "value-not-finite"),
    ("epsilon: 8", "epsilon: " + "9" * 5000, 13, "privacy.epsilon", "value-wrong-type"),
    ("epsilon: 8\n", "accounting: composition\n", 12, "privacy.epsilon", "key-missing"),
    ("delta: 1e-5", "delta: .NaN", 14, "privacy.delta", "value-not-finite"),
    ("delta: 1e-5", "noise_multiplier: {choice: [1, .nan]}", 14, "privacy.noise_multiplier", ELSEWHERE),
    ("delta: 1e-5", "accounting: compositoin", 14, "privacy.accounting", "value-not-allowed"),
    ("delta: 1e-5", "order: 1", 14, "privacy.order", "value-not-allowed"),
    ("delta: 1e-5", "adjacency: replace_one", 14, "privacy.adjacency", "adjacency-unsupported"),
    ("delta: 1e-5", "private: yes", 14, "privacy.private", "value-wrong-type"),
    ("seed: 3", "sede: 3", 3, "sede", "key-unknown"),
    ("fraction: 0.2", "fracton: 0.2", 6, "dataset.validation.fracton", "key-unknown"),
    ("seed: 3", "3: 3", 3, "3", "key-unknown"),
    ("name: digits", "name: digit", 5, "dataset.name", "dataset-unknown"),
    ("  name: digits\n", "  path: x.npz\n", 4, "dataset.name", "key-missing"),
    ("  name: digits", "  name: digits\n  path: x.npz", 6, "dataset.path", "dataset-name-taken"),
    ("  name: digits", "  name: mine\n  path: x.npz", 4, "dataset.public_size", "public-size-missing"),
    ("  name: digits", "  name: digits\n  public_size: 9", 6, "dataset.public_size", "public-size-known"),
    ("method: dplis", "method: dpils", 8, "trainable.method", "method-unknown"),
    ("model: mlp_64", "model: mlp_46", 9, "trainable.model", "model-unknown"),
    ("model: mlp_64", "normalization: BatchNorm", 9, "trainable.normalization", "batch-norm-refused"),
    ("model: mlp_64", "optimizer: sdg", 9, "trainable.optimizer", "value-not-allowed"),
    ("model: mlp_64", "momentum: {uniform: [0, 1]}", 9, "trainable.momentum", "value-wrong-type"),
    ("batch_size: 128", "batch_size: 12.5", 10, "trainable.batch_size", "value-wrong-type"),
    ("batch_size: 128", "batch_size: {choice: [64, 128]}", 10, "trainable.batch_size", "domain-outside-space"),
    ("trials: 4", "trials: 0", 16, "search.trials", "value-out-of-range"),
    ("sampler: tpe", "sampler: {name: unimodal, tolerence: 1}", 17, "search.sampler.tolerence", "option-unknown"),
    ("sampler: tpe", "sampler: 3", 17, "search.sampler", "value-wrong-type"),
    ("pruner: {name: median, n_startup_trials: 3}", "pruner: medain", 18, "search.pruner", "pruner-unknown"),
    ("n_startup_trials: 3", "n_startup_trials: .nan", 18, "search.pruner.n_startup_trials", "value-not-finite"),
    ("rungs: [0.5, 1.0]", "rungs: [1.0, 0.5]", 19, "search.rungs", "rungs-invalid"),
    ("rungs: [0.5, 1.0]", "rungs: [.nan, 1.0]", 19, "search.rungs", "rungs-invalid"),
    ("R: {log_uniform: [1, 40]}", "schedule: {step: {factr: 1}}", 21, "search.space.schedule.step.factr", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "schedule: gen", 20, "search.space", "nothing-searched"),  # at the rate of the prior
    (
        "R: {log_uniform: [1, 40]}",
        "schedule: {choice: [gen, cosine]}",
        22,
        "search.space.learning_rate",
        "gen-with-searched-rate",
    ),
    ("name: validation_accuracy", "name: test_accuracy", 23, "search.metric.name", "metric-not-validation"),
    ("name: validation_accuracy", "name: accuracy", 23, "search.metric.name", "metric-unknown"),
    ("mode: max", "mode: min", 23, "search.metric.mode", "metric-direction"),
    ("concurrent_trials: 2", "workers_per_trial: 0", 24, "resources.workers_per_trial", "value-out-of-range"),
    ("concurrent_trials: 2", "gpus_per_trial: 1.5", 24, "resources.gpus_per_trial", "gpus-not-whole"),
    (
        "concurrent_trials: 2",
        "workers_per_trial: 2, gpus_per_trial: 1",
        24,
        "resources.gpus_per_trial",
        "gpus-not-whole",
    ),
    ("schema: 1", "schema: 2", 1, "schema", "value-not-allowed"),
    ("name: a-search", "name: 3", 2, "name", "value-wrong-type"),
    ("name: a-search\n", "", 1, "name", "key-missing"),
    ("seed: 3", "seed: -1", 3, "seed", "value-out-of-range"),
    ("seed: 3", "storage: ''", 3, "storage", "value-empty"),
    ("resources: {concurrent_trials: 2}", "search: {}", 24, "search", "key-duplicate"),
    ("seed: 3", "storage: !!python/name:os.system x", 3, "storage", "yaml-unsupported"),
]


@pytest.mark.parametrize(("old", "new", "line", "key", "code"), WRONG, ids=[f"{n[:45]}" for _, n, *_ in WRONG])
def test_each_mistake_is_one_problem_with_line_key_and_code(old: str, new: str, line: int, key: str, code: str) -> None:
    (problem,) = problems_of(with_line(old, new))
    assert (problem.where, problem.key) == (f"e.yaml:{line}", key)
    assert problem.code == (code or problem.code)
    assert "placeholder" not in str(problem)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("seed: 3", "sede: 3", "'seed'"),
        ("seed: 3", "epsilon: 3", "privacy.epsilon"),
        ("name: digits", "name: digit", "'digits'"),
        ("sampler: tpe", "sampler: {name: tpe, n_startup: 3}", "'n_startup_trials'"),
        ("learning_rate: default", "learning_rte: default", "'learning_rate'"),
        ("epsilon: 8", "epsilon: -1", "epsilon: 8.0"),
        ("batch_size: 128", "batch_size: {choice: [64, 128]}", "search.space.batch_size: {choice: [64, 128]}"),
    ],
)
def test_the_fix_names_the_nearest_word_or_an_example(old: str, new: str, word: str) -> None:
    (problem,) = problems_of(with_line(old, new))
    assert word in problem.fix


BROKEN: list[tuple[str, int, str]] = [
    ("", 1, "file-not-sections"),
    ("just words", 1, "file-not-sections"),
    ("name: x\n\tdataset: y\n", 2, "yaml-invalid"),
    ("name: [x\n", 2, "yaml-invalid"),
    ("a: &x 1\nb: *x\n", 1, "yaml-unsupported"),
    ("a: 1\n---\nb: 2\n", 2, "yaml-unsupported"),
    ("a: " + "[" * 60 + "]" * 60, 1, "yaml-unsupported"),
    ("a: 1\nb: \x07\n", 2, "yaml-invalid"),
    ("? [a, b]\n: 1\n", 1, "yaml-unsupported"),
]


@pytest.mark.parametrize(("text", "line", "code"), BROKEN, ids=[repr(text[:25]) for text, *_ in BROKEN])
def test_a_file_of_another_kind_is_refused_at_its_line(text: str, line: int, code: str) -> None:
    first, *_ = problems_of(text)
    assert (first.where, first.key, first.code) == (f"e.yaml:{line}", "file", code)


def test_a_missing_file_a_folder_and_bytes_are_one_clear_error_each(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "latin.yaml"):
        with pytest.raises(ExperimentError) as caught:
            load_experiment(path)
        (problem,) = caught.value.problems
        assert (problem.where, problem.code) == (str(path), "file-unreadable")


def test_all_problems_come_at_once_in_file_order_with_options_last() -> None:
    text = GOOD.replace("name: a-search", "name: A").replace("dplis", "dpils").replace("epsilon: 8", "epsilon: -1")
    text = text.replace("trials: 4", "trails: 4").replace("mode: max", "mode: min")
    found = problems_of(text, "privacy.accountant=gdp", "resources.cpus_per_trial=no")
    assert [each.where for each in found] == [
        "e.yaml:2",
        "e.yaml:8",
        "e.yaml:13",
        "e.yaml:16",
        "e.yaml:23",
        "--set privacy.accountant=gdp",
        "--set resources.cpus_per_trial=no",
    ]


def test_all_missing_sections_are_named_at_once() -> None:
    found = problems_of("seed: 1\n")
    assert [each.key for each in found] == ["name", "dataset", "trainable", "privacy"]
    assert {each.code for each in found} == {"key-missing"}


SETS: list[tuple[str, str, str]] = [
    ("privacy.epsilon", "override-invalid", "--set"),
    ("privacy..epsilon=3", "override-invalid", "--set"),
    ("exported_from=null", "override-invalid", "exported_from"),
    ("exported_from.ledger=other", "override-invalid", "exported_from.ledger"),
    ("privacy.epsilon=.nan", "value-not-finite", "privacy.epsilon"),
    ("privacy.epsilon=", "value-wrong-type", "privacy.epsilon"),
    ("privacy.epsilno=3", "key-unknown", "privacy.epsilno"),
    ("privcy.epsilon.value=1", "key-unknown", "privcy"),
    ("search.space={K: {choice: [3]}, schedule: {choice: [cosine]}}", "nothing-searched", "search.space"),
    ("search.space={R: [", "yaml-invalid", "search.space"),
    ("search.space.lambda=3", ELSEWHERE, "search.space.lambda"),
    ("privacy.epsilon.x=3", "override-invalid", "privacy.epsilon.x"),
]


@pytest.mark.parametrize(("option", "code", "key"), SETS, ids=[option for option, *_ in SETS])
def test_a_wrong_override_is_named_as_it_was_typed(option: str, code: str, key: str) -> None:
    (problem,) = problems_of(GOOD, option)
    assert (problem.where, problem.key, problem.code) == (f"--set {option}", key, code or problem.code)


def test_one_override_of_a_section_does_not_hide_where_the_rest_of_it_is_wrong() -> None:
    text = GOOD.replace("  epsilon: 8\n", "").replace("fraction: 0.2", "fraction: 2")
    found = problems_of(text, "privacy.delta=1e-6", "dataset.validation.split_seed=3")
    assert [(each.where, each.key) for each in found] == [
        ("e.yaml:6", "dataset.validation.fraction"),
        ("e.yaml:12", "privacy.epsilon"),
    ]


@pytest.mark.parametrize("method", ["  method: dpils\n", ""])
def test_a_space_is_read_without_a_known_method(method: str) -> None:
    text = GOOD.replace("  method: dplis\n", method).replace("learning_rate:", "learning_rat:")
    text = text.replace("R: {log_uniform: [1, 40]}", "sigma: {uniform: [3, 1]}")
    found = problems_of(text)
    keys = ["trainable.method", "search.space.sigma", "search.space.learning_rat"]
    assert [each.key for each in found] == keys


def test_an_override_fixes_a_mistake_of_the_file() -> None:
    assert parse_experiment(with_line("epsilon: 8", "epsilon: -1"), ["privacy.epsilon=8"]) == parse_experiment(GOOD)


MUTATIONS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
PLACES = ["name", "dataset", "dataset.name", "dataset.validation", "trainable", "trainable.epochs", "privacy"]
PLACES += ["privacy.epsilon", "privacy.noise_multiplier", "search", "search.sampler", "search.pruner", "search.rungs"]
PLACES += ["search.space", "search.space.R", "search.space.schedule", "search.metric", "resources", "tracking"]


@given(st.sampled_from(PLACES), MUTATIONS)
def test_any_value_anywhere_loads_or_is_a_problem(place: str, value: Any) -> None:  # noqa: ANN401
    data: dict[str, Any] = yaml.safe_load(GOOD.replace("1e-5", "0.00001"))
    at = data
    *above, last = place.split(".")
    for key in above:
        at = at[key]
    at[last] = value
    try:
        experiment = parse_experiment(yaml.safe_dump(data))
    except ExperimentError as error:
        said = str(error)
    else:
        assert isinstance(experiment, Experiment)
        assert parse_experiment(experiment.to_yaml()) == experiment
        said = "experiment: nothing"
    assert said.startswith("experiment:")
    assert "placeholder" not in said
