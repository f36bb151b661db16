"""The experiment file: what is right, and above all everything that is wrong, each with its line and its fix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from trainables.data import public_train_size
from tuner.errors import ExperimentError, InputError
from tuner.experiment import Experiment, find, load, loads, shipped, yamlfile

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


def problems_of(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        loads(text, overrides, source="e.yaml")
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


def with_line(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_a_right_file_is_what_it_says_and_defaults_fill_the_rest() -> None:
    experiment = loads(GOOD)
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


def test_four_keys_are_enough() -> None:
    text = "name: x\ndataset: {name: iris}\ntrainable: {method: dp_sgd, batch_size: 32}\nprivacy: {epsilon: 1}\n"
    experiment = loads(text)
    assert experiment.search.trials == 20
    assert experiment.space.searched == ("learning_rate",)


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_file_loads_and_opens_with_its_command(name: str) -> None:
    path = shipped()[name]
    assert path.read_text().startswith(f"# tune run experiments/{path.name}")
    experiment = load(path)
    assert experiment.name == name.replace("_", "-")
    assert experiment.space.free
    assert not experiment.space.priced
    assert experiment.trainable.batch_size <= public_train_size(experiment.dataset_request())
    assert loads(experiment.to_yaml()) == experiment


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
    experiment = loads(GOOD, options)
    text = experiment.to_yaml()
    assert loads(text) == experiment
    assert loads(text).to_yaml() == text


@example("\x85", 0.25, 1)
@given(st.text(max_size=30), st.floats(1e-6, 0.3), st.integers(1, 10**6))
def test_any_words_and_numbers_survive_the_resolved_file(word: str, momentum: float, trials: int) -> None:
    if not word:
        word = "x"
    search = {"trials": trials}
    # Our own `dump`: PyYAML leaves words such as 0E0 bare, which are numbers in YAML 1.2.
    text = yamlfile.dump({**yaml.safe_load(GOOD.replace("1e-5", "0.00001")), "storage": word, "search": search})
    experiment = loads(text, [f"trainable.momentum={momentum!r}"])
    assert experiment.storage == word
    assert experiment.trainable.momentum == momentum
    assert loads(experiment.to_yaml()) == experiment


def test_it_is_frozen_and_noise_is_put_in_by_a_copy() -> None:
    experiment = loads(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        experiment.name = "other"  # type: ignore[misc]
    noisy = experiment.with_noise(1.25)
    assert noisy.privacy.noise_multiplier == 1.25
    assert experiment.privacy.noise_multiplier == "auto"
    assert loads(noisy.to_yaml()) == noisy
    with pytest.raises(ValueError, match="finite number"):
        experiment.with_noise(float("nan"))


def test_the_request_for_data_has_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_TUNER_DATA", str(tmp_path))
    experiment = loads(GOOD, ["dataset={name: mine, path: mine.npz, public_size: 5000}"])
    request = experiment.dataset_request()
    assert request.data_dir == str(tmp_path)
    assert request.path == str(Path("mine.npz").absolute())
    assert experiment.dataset_request("elsewhere").data_dir == str(Path("elsewhere").absolute())


def test_a_large_delta_and_a_study_are_warned_of() -> None:
    assert loads(GOOD).warnings() == ()
    large = loads(GOOD, ["privacy.delta=8e-4"])
    assert "n^-1.1" in large.warnings()[0]
    study = loads(GOOD, ["privacy.private=false", "privacy.noise_multiplier=0", "privacy.noise_seed=4"])
    assert "no guarantee" in study.warnings()[0]


# what stands instead of what; the line and the key of the one problem; what it must say
WRONG: list[tuple[str, str, int, str, str]] = [
    # the budget
    ("epsilon: 8", "epsilon: .nan", 13, "privacy.epsilon", "got .nan"),
    ("epsilon: 8", "epsilon: nan", 13, "privacy.epsilon", "must be a number, got nan"),
    ("epsilon: 8", "epsilon: -1", 13, "privacy.epsilon", "greater than 0, got -1. Write for example epsilon: 8.0."),
    ("epsilon: 8", "epsilon: 0", 13, "privacy.epsilon", "greater than 0, got 0"),
    ("epsilon: 8", "epsilon: .inf", 13, "privacy.epsilon", "finite number, got .inf"),
    ("epsilon: 8", "epsilon: 1e999", 13, "privacy.epsilon", "finite number, got 1e999"),
    ("epsilon: 8", "epsilon: abc", 13, "privacy.epsilon", "must be a number, got abc"),
    ("epsilon: 8", "epsilon: '8'", 13, "privacy.epsilon", "must be a number, got '8'"),
    ("epsilon: 8", "epsilon: null", 13, "privacy.epsilon", "must be a number, got null"),
    ("epsilon: 8", "epsilon:", 13, "privacy.epsilon", "got null"),
    ("epsilon: 8", "epsilon: true", 13, "privacy.epsilon", "must be a number, got true"),
    ("epsilon: 8", "epsilon: [8]", 13, "privacy.epsilon", "must be a number, got [8]"),
    (
        "epsilon: 8\n",
        "accounting: composition\n",
        12,
        "privacy.epsilon",
        "is required, got nothing. Write epsilon: 8.0",
    ),
    ("epsilon: 8", "epsilon: " + "9" * 5000, 13, "privacy.epsilon", "must be a number, got 999"),
    ("epsilon: 8", "epsilon: " + "9" * 400, 13, "privacy.epsilon", "got 999"),
    ("delta: 1e-5", "delta: 0", 14, "privacy.delta", "greater than 0"),
    ("delta: 1e-5", "delta: 1", 14, "privacy.delta", "less than 1"),
    ("delta: 1e-5", "delta: 0.001", 14, "privacy.delta", "below 1 / n = 0.000892 for the 1121"),
    ("delta: 1e-5", "delta: .NaN", 14, "privacy.delta", "finite"),
    ("delta: 1e-5", "noise_multiplier: {log_uniform: [0, 2]}", 14, "privacy.noise_multiplier", "above 0"),
    ("delta: 1e-5", "noise_multiplier: {choice: [1, 0]}", 14, "privacy.noise_multiplier", "a number above 0"),
    ("delta: 1e-5", "noise_multiplier: {choice: [1, .nan]}", 14, "privacy.noise_multiplier", "finite number"),
    ("delta: 1e-5", "noise_multiplier: .inf", 14, "privacy.noise_multiplier", "auto or a finite number"),
    ("delta: 1e-5", "noise_multiplier: -1", 14, "privacy.noise_multiplier", "auto or a finite number"),
    ("delta: 1e-5", "noise_multiplier: 0", 14, "privacy.noise_multiplier", "no privacy"),
    ("delta: 1e-5", "noise_multiplier: atuo", 14, "privacy.noise_multiplier", "auto or a finite number"),
    ("delta: 1e-5", "noise_seed: 3", 14, "privacy.noise_seed", "needs private: false"),
    ("delta: 1e-5", "accounting: compositoin", 14, "privacy.accounting", "Did you mean 'composition'"),
    ("delta: 1e-5", "unit: person", 14, "privacy.unit", "must be one of record, user"),
    ("delta: 1e-5", "cap: coupons", 14, "privacy.cap", "must be one of auto, total_steps, coupon_book, fixed_order"),
    ("delta: 1e-5", "order: .nan", 14, "privacy.order", "auto or a number from 1.05 to 1024"),
    ("delta: 1e-5", "order: 1", 14, "privacy.order", "auto or a number from 1.05 to 1024"),
    ("delta: 1e-5", "runs: {mean: 3}", 14, "privacy.runs.mean", "privacy.runs takes law, shape, at_most"),
    ("delta: 1e-5", "runs: {shape: .nan}", 14, "privacy.runs.shape", "finite number"),
    ("delta: 1e-5", "runs: {at_most: 0}", 14, "privacy.runs.at_most", "a whole number of runs"),
    ("delta: 1e-5", "adjacency: replace_one", 14, "privacy.adjacency", "not in this version"),
    ("delta: 1e-5", "private: yes", 14, "privacy.private", "true or false, got yes"),
    # unknown keys, at each level
    ("seed: 3", "sede: 3", 3, "sede", "Did you mean 'seed'"),
    ("seed: 3", "epsilon: 3", 3, "epsilon", "Did you mean privacy.epsilon"),
    ("  name: digits", "  name: digits\n  nmae: x", 6, "dataset.nmae", "Did you mean 'name'"),
    ("fraction: 0.2", "fracton: 0.2", 6, "dataset.validation.fracton", "Did you mean 'fraction'"),
    ("model: mlp_64", "modle: mlp_64", 9, "trainable.modle", "Did you mean 'model'"),
    ("delta: 1e-5", "detla: 1e-5", 14, "privacy.detla", "Did you mean 'delta'"),
    ("trials: 4", "trails: 4", 16, "search.trails", "Did you mean 'trials'"),
    ("mode: max", "moed: max", 23, "search.metric.moed", "Did you mean 'mode'"),
    (
        "concurrent_trials: 2",
        "concurent_trials: 2",
        24,
        "resources.concurent_trials",
        "Did you mean 'concurrent_trials'",
    ),
    ("seed: 3", "tracking: {url: x}", 3, "tracking.url", "Did you mean 'uri'"),
    ("seed: 3", "3: 3", 3, "3", "unknown key"),
    # data
    ("name: digits", "name: digit", 5, "dataset.name", "Did you mean 'digits'"),
    ("name: digits", "name: svhn", 5, "dataset.name", "unknown data set, got svhn"),
    ("  name: digits\n", "  path: x.npz\n", 4, "dataset.name", "is required"),
    ("  name: digits", "  name: digits\n  path: x.npz", 6, "dataset.path", "name of a shipped data set"),
    ("  name: digits", "  name: mine\n  path: x.npz", 4, "dataset.public_size", "PUBLIC number"),
    ("  name: digits", "  name: digits\n  public_size: 9", 6, "dataset.public_size", "is known and not set"),
    ("fraction: 0.2", "fraction: 0", 6, "dataset.validation.fraction", "greater than 0"),
    ("fraction: 0.2", "fraction: 1", 6, "dataset.validation.fraction", "less than 1"),
    ("protected: false", "protected: maybe", 6, "dataset.validation.protected", "true or false"),
    ("fraction: 0.2", "epsilon: .inf", 6, "dataset.validation.epsilon", "finite number"),
    ("fraction: 0.2", "delta: .nan", 6, "dataset.validation.delta", "finite number"),
    ("fraction: 0.2", "noise: .nan", 6, "dataset.validation.noise", "auto or a finite number"),
    ("fraction: 0.2", "noise: 0", 6, "dataset.validation.noise", "auto or a finite number"),
    # the method and its gates
    ("method: dplis", "method: dpils", 8, "trainable.method", "Did you mean 'dplis'"),
    ("model: mlp_64", "model: mlp_46", 9, "trainable.model", "Did you mean 'mlp_64'"),
    ("model: mlp_64", "activation: rleu", 9, "trainable.activation", "Did you mean 'relu'"),
    ("model: mlp_64", "normalization: batch", 9, "trainable.normalization", "BatchNorm mixes"),
    ("model: mlp_64", "normalization: BatchNorm", 9, "trainable.normalization", "BatchNorm mixes"),
    ("model: mlp_64", "normalization: grop", 9, "trainable.normalization", "Did you mean 'group'"),
    ("model: mlp_64", "sampling: shuffle", 9, "trainable.sampling", "do not have the amplification"),
    ("model: mlp_64", "sampling: fixed", 9, "trainable.sampling", "do not have the amplification"),
    ("model: mlp_64", "sampling: posson", 9, "trainable.sampling", "must be poisson"),
    ("model: mlp_64", "optimizer: sdg", 9, "trainable.optimizer", "Did you mean 'sgd'"),
    ("model: mlp_64", "momentum: 1", 9, "trainable.momentum", "less than 1"),
    ("model: mlp_64", "momentum: {uniform: [0, 1]}", 9, "trainable.momentum", "must be a number"),
    ("model: mlp_64", "precision: float16", 9, "trainable.precision", "must be one of float32, bfloat16"),
    ("batch_size: 128", "batch_size: 0", 10, "trainable.batch_size", "at least 1"),
    ("batch_size: 128", "batch_size: 12.5", 10, "trainable.batch_size", "whole number"),
    ("batch_size: 128", "batch_size: 1122", 10, "trainable.batch_size", "at most the 1121"),
    ("batch_size: 128", "batch_size: {choice: [64, 128]}", 10, "trainable.batch_size", "search.space.batch_size"),
    ("epochs: 4", "epochs: 0", 11, "trainable.epochs", "greater than 0"),
    ("epochs: 4", "epochs: {integer: [1, 2]}", 11, "trainable.epochs", "search.space.epochs"),
    # the search
    ("trials: 4", "trials: 0", 16, "search.trials", "at least 1, got 0. Write for example trials: 20."),
    ("trials: 4", "trials: 2.5", 16, "search.trials", "whole number"),
    ("sampler: tpe", "sampler: tpee", 17, "search.sampler", "Did you mean 'tpe'"),
    ("sampler: tpe", "sampler: unimodl", 17, "search.sampler", "Did you mean 'unimodal'"),
    (
        "sampler: tpe",
        "sampler: {name: unimodal, tolerence: 1}",
        17,
        "search.sampler.tolerence",
        "Did you mean 'tolerance'",
    ),
    ("sampler: tpe", "sampler: {name: unimodal, tolerance: 0}", 17, "search.sampler.tolerance", "a number above 0"),
    ("sampler: tpe", "sampler: {name: unimodal, tolerance: .inf}", 17, "search.sampler.tolerance", "finite"),
    ("sampler: tpe", "sampler: {name: unimodal, others: grid}", 17, "search.sampler.others", "one of tpe, random, gp"),
    ("sampler: tpe", "sampler: {name: unimodal, at_once: 1.5}", 17, "search.sampler.at_once", "whole number of trials"),
    ("sampler: tpe", "sampler: {name: tpe, n_startup: 3}", 17, "search.sampler.n_startup", "'n_startup_trials'"),
    ("sampler: tpe", "sampler: 3", 17, "search.sampler", "a name or a name with options"),
    ("sampler: tpe", "sampler: ''", 17, "search.sampler", "must not be empty"),
    ("pruner: {name: median, n_startup_trials: 3}", "pruner: medain", 18, "search.pruner", "Did you mean 'median'"),
    (
        "pruner: {name: median, n_startup_trials: 3}",
        "pruner: {name: unimodal, fallback: medain}",
        18,
        "search.pruner.fallback",
        "Did you mean 'median'",
    ),
    (
        "pruner: {name: median, n_startup_trials: 3}",
        "pruner: {name: unimodal, strict: 1}",
        18,
        "search.pruner.strict",
        "true or false",
    ),
    ("pruner: {name: median, n_startup_trials: 3}", "pruner: percentile", 18, "search.pruner", "percentile"),
    ("n_startup_trials: 3", "n_startup_trials: .nan", 18, "search.pruner.n_startup_trials", "finite"),
    ("rungs: [0.5, 1.0]", "rungs: 0", 19, "search.rungs", "count from 1"),
    ("rungs: [0.5, 1.0]", "rungs: [0.5]", 19, "search.rungs", "end with 1"),
    ("rungs: [0.5, 1.0]", "rungs: [1.0, 0.5]", 19, "search.rungs", "rising"),
    ("rungs: [0.5, 1.0]", "rungs: [.nan, 1.0]", 19, "search.rungs", "rising"),
    ("rungs: [0.5, 1.0]", "rungs: []", 19, "search.rungs", "rising"),
    ("R: {log_uniform: [1, 40]}", "laplacian_sigma: 1", 21, "search.space.laplacian_sigma", "dplis has no parameter"),
    ("R: {log_uniform: [1, 40]}", "R: {log_uniform: [0, 40]}", 21, "search.space.R", "above 0"),
    ("R: {log_uniform: [1, 40]}", "R: {log_unifrom: [1, 40]}", 21, "search.space.R", "Did you mean 'log_uniform'"),
    ("R: {log_uniform: [1, 40]}", "K: 0", 21, "search.space.K", "smoothing_samples: {log_integer: [1, 20]}"),
    ("R: {log_uniform: [1, 40]}", "smoothing_radios: 3", 21, "search.space.smoothing_radios", "'smoothing_radius'"),
    ("R: {log_uniform: [1, 40]}", "batch_size: 256", 21, "search.space.batch_size", "Write trainable.batch_size: 256"),
    ("R: {log_uniform: [1, 40]}", "batch_size: {uniform: [64, 128]}", 21, "search.space.batch_size", "takes integers"),
    (
        "R: {log_uniform: [1, 40]}",
        "batch_size: {choice: [64, 2048]}",
        21,
        "search.space.batch_size",
        "at most the 1121",
    ),
    ("R: {log_uniform: [1, 40]}", "epochs: {uniform: [0, 9]}", 21, "search.space.epochs", "above 0"),
    ("R: {log_uniform: [1, 40]}", "momentum: 0.9", 21, "search.space.momentum", "trainable.momentum"),
    ("R: {log_uniform: [1, 40]}", "clipping: layer", 21, "search.space.clipping", "per_layer"),
    ("R: {log_uniform: [1, 40]}", "M: 4", 21, "search.space.M", "needs an augmentation"),
    (
        "R: {log_uniform: [1, 40]}",
        "schedule: {choice: [constant, {step: {factr: 1}}]}",
        21,
        "search.space.schedule.choice.1.step.factr",
        "'factor'",
    ),
    ("R: {log_uniform: [1, 40]}", "schedule: cosin", 21, "search.space.schedule", "Did you mean 'cosine'"),
    ("name: validation_accuracy", "name: test_accuracy", 23, "search.metric.name", "touched once, at export"),
    ("name: validation_accuracy", "name: train_loss", 23, "search.metric.name", "leak"),
    ("name: validation_accuracy", "name: accuracy", 23, "search.metric.name", "Known: validation_accuracy"),
    ("mode: max", "mode: min", 23, "search.metric.mode", "Write max"),
    ("mode: max", "mode: best", 23, "search.metric.mode", "must be one of"),
    ("concurrent_trials: 2", "workers_per_trial: 2", 24, "resources.workers_per_trial", "not in this version"),
    ("concurrent_trials: 2", "cpus_per_trial: 0", 24, "resources.cpus_per_trial", "greater than 0"),
    ("concurrent_trials: 2", "gpus_per_trial: -1", 24, "resources.gpus_per_trial", "at least 0"),
    # the top
    ("schema: 1", "schema: 2", 1, "schema", "must be 1, got 2"),
    ("name: a-search", "name: A Search", 2, "name", "small letters"),
    ("name: a-search", "name: ../x", 2, "name", "small letters"),
    ("name: a-search", "name: 3", 2, "name", "must be a word"),
    ("name: a-search\n", "", 1, "name", "is required"),
    ("seed: 3", "seed: -1", 3, "seed", "at least 0, got -1. Write for example seed: 0."),
    ("seed: 3", "storage: ''", 3, "storage", "must not be empty"),
    ("resources: {concurrent_trials: 2}", "resources: [1]", 24, "resources", "section of keys"),
    ("resources: {concurrent_trials: 2}", "resources:", 24, "resources", "section of keys, got null"),
    ("resources: {concurrent_trials: 2}", "search: {}", 24, "search", "must stand once"),
    ("seed: 3", "storage: !!python/name:os.system x", 3, "storage", "tags are not allowed"),
]


@pytest.mark.parametrize(("old", "new", "line", "key", "says"), WRONG, ids=[f"{n[:45]}" for _, n, *_ in WRONG])
def test_each_mistake_is_one_problem_with_line_key_and_mend(old: str, new: str, line: int, key: str, says: str) -> None:
    text = with_line(old, new)
    found = problems_of(text)
    assert len(found) == 1, found
    assert found[0].startswith(f"e.yaml:{line}: {key}: "), found[0]
    assert says in found[0]
    assert "placeholder" not in found[0]


@pytest.mark.parametrize("word", ["flip", "default", "{choice: [none, crop]}"])
def test_only_images_are_augmented(word: str) -> None:
    space = f"search.space={{lr: default, augmentation: {word}}}"
    assert loads(GOOD, [space]).space.free
    (problem,) = problems_of(GOOD, space, "dataset.name=iris", "trainable.batch_size=32", "privacy.delta=1e-4")
    assert problem.startswith(f"--set {space}: search.space.augmentation: only images")
    assert "shape (4,), got" in problem
    rest = ["dataset.name=iris", "trainable.batch_size=32", "privacy.delta=1e-4"]
    assert loads(GOOD, ["search.space={lr: default, augmentation: none}", *rest]).space.free


BROKEN: list[tuple[str, int, str]] = [
    ("", 1, "must not be empty"),
    ("# only a comment\n", 1, "must not be empty"),
    ("- a\n- b\n", 1, "got a list"),
    ("just words", 1, "got one value"),
    ("name: x\n\tdataset: y\n", 2, "tab"),
    ("name: x\ndataset:\n\tname: digits\n", 3, "tab"),
    ("name: [x\n", 2, "must be YAML"),
    ("name: x: y\n", 1, "must be YAML"),
    ("name: 'x\n", 2, "must be YAML"),
    ("a: &x 1\nb: *x\n", 1, "anchors"),
    ("a: 1\nb: *x\n", 2, "anchors"),
    ("a: 1\n---\nb: 2\n", 2, "one experiment"),
    ("a: " + "[" * 60 + "]" * 60, 1, "levels"),
    ("a: 1\nb: \x07\n", 2, "control characters"),
    ("? [a, b]\n: 1\n", 1, "a key must be a word"),
]


@pytest.mark.parametrize(("text", "line", "says"), BROKEN, ids=[repr(text[:25]) for text, *_ in BROKEN])
def test_what_is_no_experiment_file_says_so_at_its_line(text: str, line: int, says: str) -> None:
    found = problems_of(text)
    assert found[0].startswith(f"e.yaml:{line}: ")
    assert says in found[0]


def test_a_missing_file_a_folder_and_bytes_are_one_clear_error_each(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "latin.yaml"):
        with pytest.raises(ExperimentError) as caught:
            load(path)
        assert str(path) in str(caught.value)
        assert len(caught.value.problems) == 1


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(path) == loads(GOOD)


def test_all_problems_come_at_once_in_file_order_with_options_last() -> None:
    text = GOOD.replace("name: a-search", "name: A").replace("dplis", "dpils").replace("epsilon: 8", "epsilon: -1")
    text = text.replace("trials: 4", "trails: 4").replace("mode: max", "mode: min")
    found = problems_of(text, "privacy.accountant=gdp", "resources.cpus_per_trial=no")
    assert [each.split(": ")[0] for each in found] == [
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
    assert [each.split(": ")[1] for each in found] == ["name", "dataset", "trainable", "privacy"]
    assert all("is required" in each for each in found)


SETS: list[tuple[str, str]] = [
    ("privacy.epsilon", "path.to.key=value"),
    ("=3", "path.to.key=value"),
    ("privacy..epsilon=3", "path.to.key=value"),
    ("", "path.to.key=value"),
    ("privacy.epsilon=nan", "must be a number, got nan"),
    ("privacy.epsilon=.nan", "finite number, got .nan"),
    ("privacy.epsilon=", "must be a number, got null"),
    ("privacy.epsilon=0", "greater than 0"),
    ("privacy.epsilno=3", "Did you mean 'epsilon'"),
    ("foo.bar=1", "foo: unknown key"),
    ("privcy.epsilon.value=1", "Did you mean 'privacy'"),
    ("search.sapce.K=1", "Did you mean 'space'"),
    ("search.space={K: 3}", "something must be searched"),
    ("search.space={K: {choice: [3]}, schedule: {choice: [cosine]}}", "4 trials of one configuration"),
    ("epsilon=3", "Did you mean privacy.epsilon"),
    ("search.space={R: [", "must be YAML"),
    ("search.space.lambda=3", "dplis has no parameter weight_decay"),
    ("privacy.epsilon.x=3", "privacy.epsilon is a value, not a section"),
    ("trainable=3", "section of keys"),
    ("search.rungs=[2, 3]", "rising"),
]


@pytest.mark.parametrize(("option", "says"), SETS, ids=[option for option, _ in SETS])
def test_a_wrong_override_is_named_as_it_was_typed(option: str, says: str) -> None:
    found = problems_of(GOOD, option)
    assert len(found) == 1
    assert found[0].startswith(f"--set {option}: ")
    assert says in found[0]


def test_overrides_apply_in_order_and_make_sections_that_were_not_there() -> None:
    options = ["privacy.epsilon=1", "privacy.epsilon=2e-1", "tracking.uri=sqlite:///x.db", "search.space.K=3"]
    experiment = loads(GOOD, options)
    assert experiment.privacy.epsilon == 0.2
    assert experiment.tracking.uri == "sqlite:///x.db"
    assert dict(experiment.search.space)["smoothing_samples"] == 3


def test_one_override_of_a_section_does_not_hide_where_the_rest_of_it_is_wrong() -> None:
    text = GOOD.replace("  epsilon: 8\n", "").replace("fraction: 0.2", "fraction: 2")
    found = problems_of(text, "privacy.delta=1e-6", "dataset.validation.split_seed=3")
    assert [each.split(": ")[:2] for each in found] == [
        ["e.yaml:6", "dataset.validation.fraction"],
        ["e.yaml:12", "privacy.epsilon"],
    ]


@pytest.mark.parametrize("method", ["  method: dpils\n", ""])
def test_a_space_is_read_without_a_known_method(method: str) -> None:
    text = GOOD.replace("  method: dplis\n", method).replace("learning_rate:", "learning_rat:")
    text = text.replace("R: {log_uniform: [1, 40]}", "sigma: {uniform: [3, 1]}")
    found = problems_of(text)
    assert ["trainable.method" in each for each in found] == [True, False, False]
    assert "search.space.sigma: the lower bound must lie below" in found[1]
    assert "Did you mean 'learning_rate'" in found[2]


def test_an_override_mends_a_mistake_of_the_file() -> None:
    assert loads(with_line("epsilon: 8", "epsilon: -1"), ["privacy.epsilon=8"]) == loads(GOOD)


MUTATIONS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
PLACES = ["name", "dataset", "dataset.name", "dataset.validation", "trainable", "trainable.epochs", "privacy"]
PLACES += ["privacy.epsilon", "privacy.noise_multiplier", "search", "search.sampler", "search.pruner", "search.rungs"]
PLACES += ["search.space", "search.space.R", "search.space.schedule", "search.metric", "resources", "tracking"]


@given(st.sampled_from(PLACES), MUTATIONS)
def test_whatever_stands_anywhere_it_loads_or_says_why(place: str, value: Any) -> None:  # noqa: ANN401
    data: dict[str, Any] = yaml.safe_load(GOOD.replace("1e-5", "0.00001"))
    at = data
    *above, last = place.split(".")
    for key in above:
        at = at[key]
    at[last] = value
    try:
        experiment = loads(yaml.safe_dump(data))
    except ExperimentError as error:
        said = str(error)
    else:
        assert isinstance(experiment, Experiment)
        assert loads(experiment.to_yaml()) == experiment
        said = "experiment: nothing"
    assert said.startswith("experiment:")
    assert "placeholder" not in said


def test_a_local_path_goes_before_the_shipped_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find("digits_dplis.yaml") == (shipped()["digits_dplis"], "shipped")
    assert find("digits_dplis") == (shipped()["digits_dplis"], "shipped")
    assert find("experiments/digits_dplis.yaml")[1] == "shipped"
    (tmp_path / "digits_dplis.yaml").write_text(GOOD)
    assert find("digits_dplis.yaml") == (Path("digits_dplis.yaml"), "local")
    with pytest.raises(InputError, match=r"Did you mean digits_dplis\.yaml"):
        find("digit_dplis.yaml")
    with pytest.raises(InputError, match="no file there"):
        find("/nowhere/digits_dplis.yaml")


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = ["torch", "ray", "mlflow", "optuna", "sklearn", "dp_accounting", "scipy", "PIL"]
    code = f"import sys, tuner.experiment; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
