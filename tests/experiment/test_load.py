"""The experiment file: what is right, and above all everything that is wrong, each with its line and its fix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from errors_helper import raises_code
from hypothesis import example, given
from hypothesis import strategies as st

from trainables.data import public_train_size
from tuner.errors import ExperimentError, InputError, Problem
from tuner.experiment import Experiment, find_file, load_experiment, parse_experiment, shipped, yamlfile

GOOD = """\
schema: 1
name: a-search
seed: 3
dataset:
  name: digits
  validation: {fraction: 0.2, protected: false}
trainable:
  method: dplis
  model: mlp_64
  batch_size: 128
  epochs: 4
privacy:
  epsilon: 8
  delta: 1e-5
search:
  trials: 4
  sampler: tpe
  pruner: {name: median, n_startup_trials: 3}
  rungs: [0.5, 1.0]
  space:
    R: {log_uniform: [1, 40]}
    learning_rate: default
  metric: {name: validation_accuracy, mode: max}
resources: {concurrent_trials: 2}
"""


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


def test_a_right_file_is_what_it_says_and_defaults_fill_the_rest() -> None:
    experiment = parse_experiment(GOOD)
    assert experiment.seed == 3
    assert experiment.privacy.epsilon == 8
    assert experiment.privacy.delta == 1e-5
    assert experiment.privacy.noise_multiplier == "auto"
    assert experiment.search.pruner.name == "median"
    assert experiment.search.pruner.options == {"n_startup_trials": 3}
    assert experiment.search.rungs == (0.5, 1.0)
    assert experiment.space.free == ("smoothing_radius", "learning_rate")
    assert experiment.search.space["max_grad_norm"] == 1.0, "what the space does not name is written out"
    assert experiment.tracking.experiment == "a-search"
    assert experiment.ledger == "sqlite:///runs/ledger.db"


def test_a_loaded_experiment_and_its_copies_hold_the_space_that_was_parsed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tuner.experiment.gates.finding as gates
    import tuner.experiment.model as model

    calls: list[object] = []
    parse = gates.parse_space

    def counted(raw: Any, *, method: str | None) -> Any:  # noqa: ANN401
        calls.append(raw)
        return parse(raw, method=method)

    for module in (gates, model):
        monkeypatch.setattr(
            module, "parse_space", lambda raw, *, method: calls.append(raw) or parse(raw, method=method)
        )
    experiment = parse_experiment(GOOD)
    assert experiment.with_noise(2.0).space is experiment.space
    assert experiment.priced == {}
    assert len(calls) == 1
    assert parse(experiment.search.space, method="dplis") == experiment.space


def test_four_keys_are_enough() -> None:
    text = "name: x\ndataset: {name: iris}\ntrainable: {method: dp_sgd, batch_size: 32}\nprivacy: {epsilon: 1}\n"
    experiment = parse_experiment(text)
    assert experiment.search.trials == 20
    assert experiment.space.searched == ("learning_rate",)


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_file_loads_and_opens_with_its_command(name: str) -> None:
    path = shipped()[name]
    assert path.read_text().startswith(f"# tune run experiments/{path.name}")
    experiment = load_experiment(path)
    assert experiment.name == name.replace("_", "-")
    assert experiment.space.free
    assert not experiment.space.priced
    assert experiment.trainable.batch_size <= public_train_size(experiment.dataset_request())


@pytest.mark.parametrize("name", shipped())
def test_a_resolved_file_is_the_same_experiment_with_its_space_in_the_same_order(name: str) -> None:
    experiment = load_experiment(shipped()[name])
    again = parse_experiment(experiment.to_yaml())
    assert again == experiment
    assert again.space == experiment.space
    assert again.to_yaml() == experiment.to_yaml()


def test_the_parameters_of_a_schedule_are_in_the_order_of_its_kinds() -> None:
    space = "search.space={schedule.cosine.final: 0.1, schedule.step.every: 0.3, schedule: {choice: [step, cosine]}}"
    experiment = parse_experiment(GOOD, [space])
    names = [name for name, _ in experiment.space.parameters]
    assert names[:4] == ["schedule", "schedule.step.every", "schedule.step.factor", "schedule.cosine.final"]
    assert parse_experiment(experiment.to_yaml()).space == experiment.space


def test_the_files_of_the_issue_are_shipped() -> None:
    wanted = ["adult_weight_decay", "cifar10_composed", "cifar10_dplis", "digits_dplis", "mnist_dplis", "mnist_dplssgd"]
    assert set(wanted) <= set(shipped())


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["privacy.noise_multiplier=1.5", "search.rungs=3", "search.sampler={name: tpe, n_startup_trials: 2}"],
        ["trainable.method=composed"],
        ["search.space={schedule: {choice: [constant, {step: {factor: 0.5, every: default}}]}, warmup: 0.1}"],
        ["name='1e5'"],
        ["name='0x1f'", "tracking.experiment='12:30'"],
        ["tracking.experiment='*odd: {name} #1'", "storage=' '"],
        ["dataset={name: mine, path: mine.npz, public_size: 5000}"],
    ],
)
def test_the_resolved_file_is_itself_valid_and_equal(options: list[str]) -> None:
    experiment = parse_experiment(GOOD, options)
    text = experiment.to_yaml()
    assert parse_experiment(text) == experiment
    assert parse_experiment(text).to_yaml() == text


@example("\x85", 0.25, 1)
@given(st.text(max_size=30), st.floats(1e-6, 0.3), st.integers(1, 10**6))
def test_any_words_and_numbers_survive_the_resolved_file(word: str, momentum: float, trials: int) -> None:
    if not word:
        word = "x"
    search = {"trials": trials}
    # Our own `dump`: PyYAML leaves words such as 0E0 bare, which are numbers in YAML 1.2.
    text = yamlfile.dump({**yaml.safe_load(GOOD.replace("1e-5", "0.00001")), "storage": word, "search": search})
    experiment = parse_experiment(text, [f"trainable.momentum={momentum!r}"])
    assert experiment.storage == word
    assert experiment.trainable.momentum == momentum
    assert parse_experiment(experiment.to_yaml()) == experiment


def test_it_is_frozen_and_noise_is_put_in_by_a_copy() -> None:
    experiment = parse_experiment(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        experiment.name = "other"  # type: ignore[misc]
    noisy = experiment.with_noise(1.25)
    assert noisy.privacy.noise_multiplier == 1.25
    assert experiment.privacy.noise_multiplier == "auto"
    assert parse_experiment(noisy.to_yaml()) == noisy
    with pytest.raises(ValueError, match="finite number"):
        experiment.with_noise(float("nan"))


def test_the_request_for_data_has_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_TUNER_DATA", str(tmp_path))
    experiment = parse_experiment(GOOD, ["dataset={name: mine, path: mine.npz, public_size: 5000}"])
    request = experiment.dataset_request()
    assert request.data_dir == str(tmp_path)
    assert request.path == str(Path("mine.npz").absolute())
    assert experiment.dataset_request("elsewhere").data_dir == str(Path("elsewhere").absolute())


def test_a_large_delta_and_a_study_are_warned_of() -> None:
    assert parse_experiment(GOOD).warnings() == ()
    large = parse_experiment(GOOD, ["privacy.delta=8e-4"])
    assert "n^-1.1" in large.warnings()[0]
    study = parse_experiment(GOOD, ["privacy.private=false", "privacy.noise_multiplier=0", "privacy.noise_seed=4"])
    assert "no guarantee" in study.warnings()[0]


# the line of the file, its replacement, and the line, key and code of the one problem
WRONG: list[tuple[str, str, int, str, str]] = [
    # the budget
    ("epsilon: 8", "epsilon: .nan", 13, "privacy.epsilon", "value-not-finite"),
    ("epsilon: 8", "epsilon: nan", 13, "privacy.epsilon", "value-wrong-type"),
    ("epsilon: 8", "epsilon: -1", 13, "privacy.epsilon", "value-out-of-range"),
    ("epsilon: 8", "epsilon: 0", 13, "privacy.epsilon", "value-out-of-range"),
    ("epsilon: 8", "epsilon: .inf", 13, "privacy.epsilon", "value-not-finite"),
    ("epsilon: 8", "epsilon: 1e999", 13, "privacy.epsilon", "value-not-finite"),
    ("epsilon: 8", "epsilon: abc", 13, "privacy.epsilon", "value-wrong-type"),
    ("epsilon: 8", "epsilon: '8'", 13, "privacy.epsilon", "value-wrong-type"),
    ("epsilon: 8", "epsilon: true", 13, "privacy.epsilon", "value-wrong-type"),
    ("epsilon: 8", "epsilon:", 13, "privacy.epsilon", "value-wrong-type"),
    ("epsilon: 8", "epsilon: " + "9" * 5000, 13, "privacy.epsilon", "value-wrong-type"),
    (
        "epsilon: 8\n",
        "accounting: composition\n",
        12,
        "privacy.epsilon",
        "key-missing",
    ),
    ("delta: 1e-5", "delta: 0", 14, "privacy.delta", "value-out-of-range"),
    ("delta: 1e-5", "delta: 1", 14, "privacy.delta", "value-out-of-range"),
    ("delta: 1e-5", "delta: 0.001", 14, "privacy.delta", "delta-too-large"),
    ("delta: 1e-5", "delta: .NaN", 14, "privacy.delta", "value-not-finite"),
    ("delta: 1e-5", "noise_multiplier: {log_uniform: [0, 2]}", 14, "privacy.noise_multiplier", ELSEWHERE),
    ("delta: 1e-5", "noise_multiplier: {choice: [1, 0]}", 14, "privacy.noise_multiplier", ELSEWHERE),
    ("delta: 1e-5", "noise_multiplier: {choice: [1, .nan]}", 14, "privacy.noise_multiplier", ELSEWHERE),
    ("delta: 1e-5", "noise_multiplier: .inf", 14, "privacy.noise_multiplier", "value-not-allowed"),
    ("delta: 1e-5", "noise_multiplier: -1", 14, "privacy.noise_multiplier", "value-not-allowed"),
    ("delta: 1e-5", "noise_multiplier: 0", 14, "privacy.noise_multiplier", "noise-zero"),
    ("delta: 1e-5", "noise_multiplier: atuo", 14, "privacy.noise_multiplier", "value-not-allowed"),
    ("delta: 1e-5", "noise_seed: 3", 14, "privacy.noise_seed", "noise-seed-private"),
    ("delta: 1e-5", "accounting: compositoin", 14, "privacy.accounting", "value-not-allowed"),
    ("delta: 1e-5", "unit: person", 14, "privacy.unit", "value-not-allowed"),
    ("delta: 1e-5", "cap: coupons", 14, "privacy.cap", "value-not-allowed"),
    ("delta: 1e-5", "order: .nan", 14, "privacy.order", "value-not-allowed"),
    ("delta: 1e-5", "order: 1", 14, "privacy.order", "value-not-allowed"),
    ("delta: 1e-5", "runs: {mean: 3}", 14, "privacy.runs.mean", "key-unknown"),
    ("delta: 1e-5", "runs: {shape: .nan}", 14, "privacy.runs.shape", "value-not-finite"),
    ("delta: 1e-5", "runs: {at_most: 0}", 14, "privacy.runs.at_most", "value-not-allowed"),
    ("delta: 1e-5", "adjacency: replace_one", 14, "privacy.adjacency", "adjacency-unsupported"),
    ("delta: 1e-5", "private: yes", 14, "privacy.private", "value-wrong-type"),
    # unknown keys, at each level
    ("seed: 3", "sede: 3", 3, "sede", "key-unknown"),
    ("seed: 3", "epsilon: 3", 3, "epsilon", "key-unknown"),
    ("  name: digits", "  name: digits\n  nmae: x", 6, "dataset.nmae", "key-unknown"),
    ("fraction: 0.2", "fracton: 0.2", 6, "dataset.validation.fracton", "key-unknown"),
    ("model: mlp_64", "modle: mlp_64", 9, "trainable.modle", "key-unknown"),
    ("delta: 1e-5", "detla: 1e-5", 14, "privacy.detla", "key-unknown"),
    ("trials: 4", "trails: 4", 16, "search.trails", "key-unknown"),
    ("mode: max", "moed: max", 23, "search.metric.moed", "key-unknown"),
    (
        "concurrent_trials: 2",
        "concurent_trials: 2",
        24,
        "resources.concurent_trials",
        "key-unknown",
    ),
    ("seed: 3", "tracking: {url: x}", 3, "tracking.url", "key-unknown"),
    ("seed: 3", "3: 3", 3, "3", "key-unknown"),
    # data
    ("name: digits", "name: digit", 5, "dataset.name", "dataset-unknown"),
    ("name: digits", "name: svhn", 5, "dataset.name", "dataset-unknown"),
    ("  name: digits\n", "  path: x.npz\n", 4, "dataset.name", "key-missing"),
    ("  name: digits", "  name: digits\n  path: x.npz", 6, "dataset.path", "dataset-name-taken"),
    ("  name: digits", "  name: mine\n  path: x.npz", 4, "dataset.public_size", "public-size-missing"),
    ("  name: digits", "  name: digits\n  public_size: 9", 6, "dataset.public_size", "public-size-known"),
    ("fraction: 0.2", "fraction: 0", 6, "dataset.validation.fraction", "value-out-of-range"),
    ("fraction: 0.2", "fraction: 1", 6, "dataset.validation.fraction", "value-out-of-range"),
    ("protected: false", "protected: maybe", 6, "dataset.validation.protected", "value-wrong-type"),
    ("fraction: 0.2", "epsilon: .inf", 6, "dataset.validation.epsilon", "value-not-finite"),
    ("fraction: 0.2", "delta: .nan", 6, "dataset.validation.delta", "value-not-finite"),
    ("fraction: 0.2", "noise: .nan", 6, "dataset.validation.noise", "value-not-allowed"),
    ("fraction: 0.2", "noise: 0", 6, "dataset.validation.noise", "value-not-allowed"),
    # the method and its gates
    ("method: dplis", "method: dpils", 8, "trainable.method", "method-unknown"),
    ("model: mlp_64", "model: mlp_46", 9, "trainable.model", "model-unknown"),
    ("model: mlp_64", "activation: rleu", 9, "trainable.activation", "value-not-allowed"),
    ("model: mlp_64", "normalization: batch", 9, "trainable.normalization", "batch-norm-refused"),
    ("model: mlp_64", "normalization: BatchNorm", 9, "trainable.normalization", "batch-norm-refused"),
    ("model: mlp_64", "normalization: grop", 9, "trainable.normalization", "value-not-allowed"),
    ("model: mlp_64", "sampling: shuffle", 9, "trainable.sampling", "batches-not-poisson"),
    ("model: mlp_64", "sampling: fixed", 9, "trainable.sampling", "batches-not-poisson"),
    ("model: mlp_64", "sampling: posson", 9, "trainable.sampling", "batches-not-poisson"),
    ("model: mlp_64", "optimizer: sdg", 9, "trainable.optimizer", "value-not-allowed"),
    ("model: mlp_64", "momentum: 1", 9, "trainable.momentum", "value-out-of-range"),
    ("model: mlp_64", "momentum: {uniform: [0, 1]}", 9, "trainable.momentum", "value-wrong-type"),
    ("model: mlp_64", "precision: float16", 9, "trainable.precision", "value-not-allowed"),
    ("batch_size: 128", "batch_size: 0", 10, "trainable.batch_size", "value-out-of-range"),
    ("batch_size: 128", "batch_size: 12.5", 10, "trainable.batch_size", "value-wrong-type"),
    ("batch_size: 128", "batch_size: 1122", 10, "trainable.batch_size", "batch-size-too-large"),
    ("batch_size: 128", "batch_size: {choice: [64, 128]}", 10, "trainable.batch_size", "domain-outside-space"),
    ("epochs: 4", "epochs: 0", 11, "trainable.epochs", "value-out-of-range"),
    ("epochs: 4", "epochs: {integer: [1, 2]}", 11, "trainable.epochs", "domain-outside-space"),
    # the search
    ("trials: 4", "trials: 0", 16, "search.trials", "value-out-of-range"),
    ("trials: 4", "trials: 2.5", 16, "search.trials", "value-wrong-type"),
    ("sampler: tpe", "sampler: tpee", 17, "search.sampler", "sampler-unknown"),
    ("sampler: tpe", "sampler: unimodl", 17, "search.sampler", "sampler-unknown"),
    (
        "sampler: tpe",
        "sampler: {name: unimodal, tolerence: 1}",
        17,
        "search.sampler.tolerence",
        "option-unknown",
    ),
    ("sampler: tpe", "sampler: {name: unimodal, tolerance: 0}", 17, "search.sampler.tolerance", "option-invalid"),
    ("sampler: tpe", "sampler: {name: unimodal, tolerance: .inf}", 17, "search.sampler.tolerance", "value-not-finite"),
    ("sampler: tpe", "sampler: {name: unimodal, others: grid}", 17, "search.sampler.others", "option-invalid"),
    ("sampler: tpe", "sampler: {name: unimodal, at_once: 1.5}", 17, "search.sampler.at_once", "option-invalid"),
    ("sampler: tpe", "sampler: {name: tpe, n_startup: 3}", 17, "search.sampler.n_startup", "option-unknown"),
    ("sampler: tpe", "sampler: 3", 17, "search.sampler", "value-wrong-type"),
    ("sampler: tpe", "sampler: ''", 17, "search.sampler", "value-empty"),
    ("pruner: {name: median, n_startup_trials: 3}", "pruner: medain", 18, "search.pruner", "pruner-unknown"),
    (
        "pruner: {name: median, n_startup_trials: 3}",
        "pruner: {name: unimodal, fallback: medain}",
        18,
        "search.pruner.fallback",
        "option-invalid",
    ),
    (
        "pruner: {name: median, n_startup_trials: 3}",
        "pruner: {name: unimodal, strict: 1}",
        18,
        "search.pruner.strict",
        "option-invalid",
    ),
    ("pruner: {name: median, n_startup_trials: 3}", "pruner: percentile", 18, "search.pruner", "option-missing"),
    ("n_startup_trials: 3", "n_startup_trials: .nan", 18, "search.pruner.n_startup_trials", "value-not-finite"),
    ("rungs: [0.5, 1.0]", "rungs: 0", 19, "search.rungs", "rungs-invalid"),
    ("rungs: [0.5, 1.0]", "rungs: [0.5]", 19, "search.rungs", "rungs-invalid"),
    ("rungs: [0.5, 1.0]", "rungs: [1.0, 0.5]", 19, "search.rungs", "rungs-invalid"),
    ("rungs: [0.5, 1.0]", "rungs: [.nan, 1.0]", 19, "search.rungs", "rungs-invalid"),
    ("R: {log_uniform: [1, 40]}", "laplacian_sigma: 1", 21, "search.space.laplacian_sigma", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "R: {log_uniform: [0, 40]}", 21, "search.space.R", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "R: {log_unifrom: [1, 40]}", 21, "search.space.R", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "K: 0", 21, "search.space.K", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "smoothing_radios: 3", 21, "search.space.smoothing_radios", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "batch_size: 256", 21, "search.space.batch_size", "priced-value-fixed"),
    ("R: {log_uniform: [1, 40]}", "batch_size: {uniform: [64, 128]}", 21, "search.space.batch_size", ELSEWHERE),
    (
        "R: {log_uniform: [1, 40]}",
        "batch_size: {choice: [64, 2048]}",
        21,
        "search.space.batch_size",
        "batch-size-too-large",
    ),
    ("R: {log_uniform: [1, 40]}", "epochs: {uniform: [0, 9]}", 21, "search.space.epochs", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "momentum: 0.9", 21, "search.space.momentum", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "clipping: layer", 21, "search.space.clipping", ELSEWHERE),
    ("R: {log_uniform: [1, 40]}", "M: 4", 21, "search.space.M", ELSEWHERE),
    (
        "R: {log_uniform: [1, 40]}",
        "schedule: {choice: [constant, {step: {factr: 1}}]}",
        21,
        "search.space.schedule.choice.1.step.factr",
        ELSEWHERE,
    ),
    ("R: {log_uniform: [1, 40]}", "schedule: cosin", 21, "search.space.schedule", ELSEWHERE),
    ("name: validation_accuracy", "name: test_accuracy", 23, "search.metric.name", "metric-not-validation"),
    ("name: validation_accuracy", "name: train_loss", 23, "search.metric.name", "metric-not-validation"),
    ("name: validation_accuracy", "name: accuracy", 23, "search.metric.name", "metric-unknown"),
    ("mode: max", "mode: min", 23, "search.metric.mode", "metric-direction"),
    ("mode: max", "mode: best", 23, "search.metric.mode", "value-not-allowed"),
    ("concurrent_trials: 2", "workers_per_trial: 2", 24, "resources.workers_per_trial", "workers-unsupported"),
    ("concurrent_trials: 2", "cpus_per_trial: 0", 24, "resources.cpus_per_trial", "value-out-of-range"),
    ("concurrent_trials: 2", "gpus_per_trial: -1", 24, "resources.gpus_per_trial", "value-out-of-range"),
    # the top
    ("schema: 1", "schema: 2", 1, "schema", "value-not-allowed"),
    ("name: a-search", "name: A Search", 2, "name", "name-invalid"),
    ("name: a-search", "name: ../x", 2, "name", "name-invalid"),
    ("name: a-search", "name: 3", 2, "name", "value-wrong-type"),
    ("name: a-search\n", "", 1, "name", "key-missing"),
    ("seed: 3", "seed: -1", 3, "seed", "value-out-of-range"),
    ("seed: 3", "storage: ''", 3, "storage", "value-empty"),
    ("resources: {concurrent_trials: 2}", "resources: [1]", 24, "resources", "value-wrong-type"),
    ("resources: {concurrent_trials: 2}", "resources:", 24, "resources", "value-wrong-type"),
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
        ("optimizer: sgd", "optimizer: sdg", "'sgd'"),
        ("sampler: tpe", "sampler: tpee", "'tpe'"),
        ("sampler: tpe", "sampler: {name: tpe, n_startup: 3}", "'n_startup_trials'"),
        ("learning_rate: default", "learning_rte: default", "'learning_rate'"),
        ("epsilon: 8", "epsilon: -1", "epsilon: 8.0"),
        ("batch_size: 128", "batch_size: {choice: [64, 128]}", "search.space.batch_size: {choice: [64, 128]}"),
    ],
)
def test_the_fix_names_the_nearest_word_or_an_example(old: str, new: str, word: str) -> None:
    text = GOOD.replace("model: mlp_64", "optimizer: sgd") if "optimizer" in old else GOOD
    (problem,) = problems_of(text.replace(old, new))
    assert word in problem.fix


@pytest.mark.parametrize("word", ["flip", "default", "{choice: [none, crop]}"])
def test_only_images_are_augmented(word: str) -> None:
    space = f"search.space={{lr: default, augmentation: {word}}}"
    assert parse_experiment(GOOD, [space]).space.free
    (problem,) = problems_of(GOOD, space, "dataset.name=iris", "trainable.batch_size=32", "privacy.delta=1e-4")
    assert problem.where == f"--set {space}"
    assert (problem.key, problem.code) == ("search.space.augmentation", "augmentation-needs-images")
    rest = ["dataset.name=iris", "trainable.batch_size=32", "privacy.delta=1e-4"]
    assert parse_experiment(GOOD, ["search.space={lr: default, augmentation: none}", *rest]).space.free


BROKEN: list[tuple[str, int, str]] = [
    ("", 1, "file-not-sections"),
    ("# only a comment\n", 1, "file-not-sections"),
    ("- a\n- b\n", 1, "file-not-sections"),
    ("just words", 1, "file-not-sections"),
    ("name: x\n\tdataset: y\n", 2, "yaml-invalid"),
    ("name: x\ndataset:\n\tname: digits\n", 3, "yaml-invalid"),
    ("name: [x\n", 2, "yaml-invalid"),
    ("name: x: y\n", 1, "yaml-invalid"),
    ("name: 'x\n", 2, "yaml-invalid"),
    ("a: &x 1\nb: *x\n", 1, "yaml-unsupported"),
    ("a: 1\nb: *x\n", 2, "yaml-unsupported"),
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


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_experiment(path) == parse_experiment(GOOD)


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
    ("=3", "override-invalid", "--set"),
    ("privacy..epsilon=3", "override-invalid", "--set"),
    ("", "override-invalid", "--set"),
    ("privacy.epsilon=nan", "value-wrong-type", "privacy.epsilon"),
    ("privacy.epsilon=.nan", "value-not-finite", "privacy.epsilon"),
    ("privacy.epsilon=", "value-wrong-type", "privacy.epsilon"),
    ("privacy.epsilon=0", "value-out-of-range", "privacy.epsilon"),
    ("privacy.epsilno=3", "key-unknown", "privacy.epsilno"),
    ("foo.bar=1", "key-unknown", "foo"),
    ("privcy.epsilon.value=1", "key-unknown", "privcy"),
    ("search.sapce.K=1", "key-unknown", "search.sapce"),
    ("search.space={K: 3}", "nothing-searched", "search.space"),
    ("search.space={K: {choice: [3]}, schedule: {choice: [cosine]}}", "nothing-searched", "search.space"),
    ("epsilon=3", "key-unknown", "epsilon"),
    ("search.space={R: [", "yaml-invalid", "search.space"),
    ("search.space.lambda=3", ELSEWHERE, "search.space.lambda"),
    ("privacy.epsilon.x=3", "override-invalid", "privacy.epsilon.x"),
    ("trainable=3", "value-wrong-type", "trainable"),
    ("search.rungs=[2, 3]", "rungs-invalid", "search.rungs"),
]


@pytest.mark.parametrize(("option", "code", "key"), SETS, ids=[option for option, *_ in SETS])
def test_a_wrong_override_is_named_as_it_was_typed(option: str, code: str, key: str) -> None:
    (problem,) = problems_of(GOOD, option)
    assert (problem.where, problem.key, problem.code) == (f"--set {option}", key, code or problem.code)


def test_overrides_apply_in_order_and_make_sections_that_were_not_there() -> None:
    options = ["privacy.epsilon=1", "privacy.epsilon=2e-1", "tracking.uri=sqlite:///x.db", "search.space.K=3"]
    experiment = parse_experiment(GOOD, options)
    assert experiment.privacy.epsilon == 0.2
    assert experiment.tracking.uri == "sqlite:///x.db"
    assert dict(experiment.search.space)["smoothing_samples"] == 3


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


def test_a_local_path_goes_before_the_shipped_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_file("digits_dplis.yaml") == (shipped()["digits_dplis"], "shipped")
    assert find_file("digits_dplis") == (shipped()["digits_dplis"], "shipped")
    assert find_file("experiments/digits_dplis.yaml")[1] == "shipped"
    (tmp_path / "digits_dplis.yaml").write_text(GOOD)
    assert find_file("digits_dplis.yaml") == (Path("digits_dplis.yaml"), "local")
    with raises_code(InputError, "experiment-not-found") as caught:
        find_file("digit_dplis.yaml")
    assert "digits_dplis.yaml" in str(caught.value)
    with raises_code(InputError, "experiment-not-found"):
        find_file("/nowhere/digits_dplis.yaml")


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = ["torch", "ray", "mlflow", "optuna", "sklearn", "dp_accounting", "scipy", "PIL"]
    code = f"import sys, tuner.experiment; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
