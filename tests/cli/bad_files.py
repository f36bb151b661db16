"""Kinds of mistakes in an experiment file, for the formal list of bad input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TEXT = """\
schema: 1
name: tiny
seed: 0
dataset:
  name: digits
  validation: {fraction: 0.2, protected: false}
trainable:
  method: dp_sgd
  model: logistic_regression
  batch_size: 128
  epochs: 1
privacy:
  epsilon: 8.5
  delta: 1e-5
  noise_multiplier: 2.0
search:
  trials: 2
  sampler: random
  pruner: none
  rungs: 2
  space:
    learning_rate: {log_uniform: [0.1, 2.0]}
  metric: {name: validation_accuracy, mode: max}
resources: {concurrent_trials: 1}
"""


@dataclass(frozen=True)
class Bad:
    """One kind of bad input.

    Attributes:
        words: the command.
        code: the error's code.
        says: a text in the message.
        text: the experiment file ``e.yaml``; None without one.
        line: text of the line at which the file is wrong; empty for the first.
        valid: whether the file is right, so that the error is not about it.
        given: what is made in the folder before.
        exit: the exit code.
    """

    words: tuple[str, ...]
    code: str
    says: str = ""
    text: str | None = None
    line: str = ""
    valid: bool = False
    given: Callable[[Path], object] = lambda folder: None
    exit: int = 2


RUN = ("run", "e.yaml", "--local", "--data-dir", "no_data")


def line(old: str, new: str, code: str, *, at: str = "", says: str = "", words: tuple[str, ...] = RUN) -> Bad:
    """A file with one line that is wrong. The error is at the line that replaces `old`, or at the line `at`."""
    assert TEXT.count(old) == 1, old
    return Bad(words, code, says, TEXT.replace(old, new), at or new.strip().splitlines()[0].strip())


def file(text: str, code: str, at: str, says: str = "") -> Bad:
    return Bad(RUN, code, says, text, at)


def arrays(folder: Path, **other: object) -> None:
    x, y = np.zeros((240, 3), np.float32), np.arange(240) % 2
    named = {"x_train": x[:200], "y_train": y[:200], "x_test": x[200:], "y_test": y[200:], **other}
    np.savez(folder / "own.npz", **{name: each for name, each in named.items() if each is not None})  # type: ignore[arg-type]


def own_code(old: str, last: str, code: str, says: str) -> Bad:
    """A model or a method of one's own whose module has this last line."""
    module = f"own_{len(old)}_{len(last)}"  # Python keeps a module by its name
    new = f"{old.partition(':')[0]}: {module}:build"
    text = f"import sys\n{last}\n"
    return Bad(RUN, code, says, TEXT.replace(old, new), new, given=lambda at: (at / f"{module}.py").write_text(text))


OWN = "  name: digits", "  name: own\n  path: own.npz\n  public_size: 200"


def own(code: str, says: str = "", **other: object) -> Bad:
    """A file of one's own in which an array is wrong."""
    text = TEXT.replace(*OWN).replace("delta: 1e-5", "delta: 1e-3")
    return Bad(RUN, code, says, text, "path: own.npz", given=lambda folder: arrays(folder, **other))


S, P, T, D = "search:", "privacy:", "trainable:", "dataset:"
RATE = "learning_rate: {log_uniform: [0.1, 2.0]}"
NOISE, TRIALS, EPSILON = "noise_multiplier: 2.0", "trials: 2", "epsilon: 8.5"

FILES: dict[str, Bad] = {
    # syntax
    "an empty file": file("", "file-not-sections", ""),
    "a file of words": file("only words\n", "file-not-sections", "only words"),
    "a list instead of sections": file("- a\n- b\n", "file-not-sections", "- a"),
    "a tab as indentation": line("  epsilon: 8.5", "\tepsilon: 8.5", "yaml-invalid"),
    "a bracket that is not closed": line(RATE, "learning_rate: {uniform: [1, 2}", "yaml-invalid"),
    "a colon without a space": line(EPSILON, "epsilon:8.5", "yaml-invalid", at="delta: 1e-5"),
    "an anchor": line(EPSILON, "epsilon: &e 8.5", "yaml-unsupported"),
    "a tag": line("seed: 0", "seed: !!int 0", "yaml-unsupported"),
    "two documents": file(TEXT + "---\nname: other\n", "yaml-unsupported", "---"),
    "deep nesting": line("seed: 0", "seed: " + "[" * 60 + "]" * 60, "yaml-unsupported"),
    "a control character": line("name: tiny", "name: ti\x07ny", "yaml-invalid"),
    "a key twice": line("seed: 0", "name: again", "key-duplicate"),
    # keys
    "an unknown section": line("seed: 0", "modell: {a: 1}", "key-unknown"),
    "a misspelt key": line("batch_size: 128", "batch_sise: 128", "key-unknown", says="'batch_size'"),
    "a key in the wrong section": line("seed: 0", "epsilon: 3", "key-unknown", says="privacy.epsilon"),
    "a required key is missing": line("  epsilon: 8.5\n", "", "key-missing", at=P),
    "a required section is missing": file("schema: 1\nname: a\n" + TEXT[TEXT.index(T) :], "key-missing", "schema: 1"),
    "a value instead of a section": line("dataset:\n  name: digits\n  validation: {fraction: 0.2, protected: false}",
        "dataset: digits", "value-wrong-type"),
    "batches that are shuffled": line("epochs: 1", "epochs: 1\n  shuffle: true", "batches-not-poisson",
        at="shuffle: true"),
    "clipping of a mean": line("epochs: 1", "epochs: 1\n  microbatches: 4", "clip-not-per-record",
        at="microbatches: 4"),
    "statistics of the records": line("name: digits", "name: digits\n  standardize: true", "statistics-not-charged",
        at="standardize: true"),
    # types and ranges
    "a word as ε": line(EPSILON, "epsilon: much", "value-wrong-type"),
    "ε is not a number": line(EPSILON, "epsilon: .nan", "value-not-finite"),
    "an infinite ε": line(EPSILON, "epsilon: .inf", "value-not-finite"),
    "a negative ε": line(EPSILON, "epsilon: -1", "value-out-of-range"),
    "a δ of one": line("delta: 1e-5", "delta: 1", "value-out-of-range"),
    "a δ above 1/n": line("delta: 1e-5", "delta: 0.01", "delta-too-large"),
    "no noise": line(NOISE, "noise_multiplier: 0", "noise-zero"),
    "noise as a word": line(NOISE, "noise_multiplier: atuo", "value-not-allowed"),
    "an empty batch": line("batch_size: 128", "batch_size: 0", "value-out-of-range"),
    "half a record in a batch": line("batch_size: 128", "batch_size: 0.5", "value-wrong-type"),
    "a batch of more than all records": line("batch_size: 128", "batch_size: 5000", "batch-size-too-large"),
    "no epoch": line("epochs: 1", "epochs: 0", "value-out-of-range"),
    "no trial": line(TRIALS, "trials: 0", "value-out-of-range"),
    "a negative seed": line("seed: 0", "seed: -1", "value-out-of-range"),
    "rungs that fall": line("rungs: 2", "rungs: [1.0, 0.5]", "rungs-invalid"),
    "a fraction above one": line("fraction: 0.2", "fraction: 1.2", "value-out-of-range",
        at="validation: {fraction: 1.2"),
    "no record left to train on": line("fraction: 0.2", "fraction: 0.99999", "split-empty", at="validation:"),
    "too many steps for the accountant": line("epochs: 1", "epochs: 9999999", "too-many-steps", at=S),
    "yes instead of true": line("delta: 1e-5", "private: yes", "value-wrong-type"),
    "a name with a slash": line("name: tiny", "name: a/b", "name-invalid"),
    "another schema": line("schema: 1", "schema: 2", "value-not-allowed"),
    "an empty text": line("seed: 0", "storage: ''", "value-empty"),
    "one and a half GPUs": line("concurrent_trials: 1", "gpus_per_trial: 1.5", "gpus-not-whole",
        at="resources: {gpus_per_trial: 1.5}"),
    "more CPUs than there are": line("concurrent_trials: 1", "cpus_per_trial: 9999", "resources-too-large",
        at="resources: {cpus_per_trial: 9999}", words=("run", "e.yaml")),
    "a GPU that is not there": line("concurrent_trials: 1", "gpus_per_trial: 1000", "resources-too-large",
        at="resources: {gpus_per_trial: 1000}"),
    "several workers in one process": line("concurrent_trials: 1", "workers_per_trial: 2", "workers-local"),
    # names
    "an unknown data set": line("name: digits", "name: digts", "dataset-unknown", says="'digits'"),
    "an unknown method": line("method: dp_sgd", "method: dp_sdg", "method-unknown", says="dp_sgd"),
    "an unknown model": line("model: logistic_regression", "model: logistic", "model-unknown"),
    "an unknown sampler": line("sampler: random", "sampler: randm", "sampler-unknown", says="'random'"),
    "an unknown pruner": line("pruner: none", "pruner: medain", "pruner-unknown", says="'median'"),
    "an unknown option of a pruner": line("pruner: none", "pruner: {name: median, warmup: 1}", "option-unknown"),
    "a pruner without its option": line("pruner: none", "pruner: threshold", "option-missing"),
    "a word as an option": line("sampler: random", "sampler: {name: tpe, n_startup_trials: x}",
        "search-option-invalid", at=S),
    "an unknown score": line("name: validation_accuracy", "name: accuracy", "metric-unknown",
        at="metric: {name: accuracy"),
    "a score on the test set": line("name: validation_accuracy", "name: test_accuracy", "metric-not-validation",
        at="metric: {name: test_accuracy"),
    "an accuracy that is minimised": line("mode: max", "mode: min", "metric-direction", at="metric: {"),
    "a score that needs two classes": line("name: validation_accuracy", "name: validation_auc", "metric-of-task",
        at="metric: {"),
    "an unknown accounting": line("delta: 1e-5", "accounting: compositoin", "value-not-allowed"),
    "another adjacency": line("delta: 1e-5", "adjacency: replace_one", "adjacency-unsupported"),
    "an unknown optimizer": line("epochs: 1", "optimizer: adamw", "value-not-allowed"),
    "batch normalization": line("epochs: 1", "normalization: BatchNorm", "batch-norm-refused"),
    # domains
    "an unknown kind of range": line(RATE, "learning_rate: {unifrom: [1, 2]}", "domain-unknown", says="'uniform'"),
    "a range upside down": line(RATE, "learning_rate: {uniform: [2, 1]}", "domain-bounds"),
    "a logarithm of zero": line(RATE, "learning_rate: {log_uniform: [0, 1]}", "domain-bounds"),
    "a choice of nothing": line(RATE, "learning_rate: {choice: []}", "choice-invalid"),
    "a parameter that does not exist": line(RATE, "learning_rte: 1", "parameter-unknown", says="'learning_rate'"),
    "a parameter of another method": line(RATE, "smoothing_radius: {uniform: [0, 1]}", "parameter-unknown"),
    "a parameter twice": line(RATE, "lr: 1\n    learning_rate: {uniform: [1, 2]}", "parameter-repeated",
        at="learning_rate:"),
    "a value that no trial may have": line(RATE, "max_grad_norm: {uniform: [-1, 1]}", "value-illegal"),
    "a range at a key for one value": line("epochs: 1", "epochs: {choice: [1, 2]}", "domain-outside-space"),
    "trials that are all alike": line(RATE, "learning_rate: 1", "nothing-searched", at="space:"),
    # contradictions
    "noise given twice": line(RATE, "noise_multiplier: {choice: [1, 2]}", "noise-given-twice"),
    "a sealed search that stops by scores": file(TEXT.replace("delta: 1e-5",
        "accounting: selection").replace("none", "median"),
        "sealed-follows-scores", "pruner: median"),
    "runs without a sealed search": line("delta: 1e-5", "runs: {law: poisson}", "runs-without-selection"),
    "a cap of a sealed search": line("delta: 1e-5", "accounting: selection\n  cap: total_steps",
        "cap-without-composition",
        at="cap: total_steps"),
    "an order without its cap": line("delta: 1e-5", "order: 8", "order-without-cap"),
    "a budget of scores without noise": line("protected: false", "epsilon: 1.0", "scores-not-protected",
        at="validation:"),
    "a protected loss": file(
        TEXT.replace("protected: false", "protected: true").replace("accuracy, mode: max", "loss, mode: min"),
        "metric-not-protectable", "metric:"),
    "two ways to plan one budget": file(
        TEXT.replace(NOISE, "private: true").replace(TRIALS, "trials: 4\n  commit: 0.2\n  full_runs: 2"),
        "commit-with-full-runs", "full_runs: 2"),
    "a committed run with its noise given": line(TRIALS, "trials: 2\n  commit: 0.2", "commit-noise-given", at=NOISE),
    "more whole runs than trials": line(TRIALS, "trials: 2\n  full_runs: 9", "full-runs-above-trials",
        at="full_runs: 9"),
    "too few whole runs": line(TRIALS, "full_runs: 9", "full-runs-too-small"),
    "a public search without public data": line("delta: 1e-5", "accounting: public", "public-data-missing", at=S),
    "public data without a public search": line(TRIALS, "public: {name: iris}", "public-data-unused"),
    "users in a data set without users": line("delta: 1e-5", "unit: user", "dataset-without-users"),
    "a key of users without users": line("name: digits", "name: digits\n  records_per_user: 3",
        "records-per-user-unused",
        at="records_per_user: 3"),
    "a size that is known": line("name: digits", "name: digits\n  public_size: 3", "public-size-known",
        at="public_size: 3"),
    "momentum of adam": line("epochs: 1", "epochs: 1\n  optimizer: adam\n  momentum: 0.9", "momentum-with-adam",
        at="momentum: 0.9"),
    "augmentation of a table": file(
        TEXT.replace("name: digits", "name: breast_cancer").replace(RATE, "augmentation: {choice: [none, crop]}"),
        "augmentation-needs-images", "augmentation:"),
    "an extrapolation without an average": file(
        TEXT.replace(RATE, "learning_rate: default\n    ema_decay: 0\n    extrapolation: 1"), "extrapolation-unused",
        "extrapolation:"),
    "a trial too short for its levels": file(
        TEXT.replace(RATE, "R: {log_uniform: [0.5, 2.0]}\n    K: {promote: [1, 3, 10]}")
        .replace("method: dp_sgd", "method: dplis").replace("rungs: 2", "rungs: 4").replace("epochs: 1", "epochs: 0.3"),
        "promotion-steps", "space:"),
    "a regression with protected scores": file(
        TEXT.replace("name: digits", "name: regression_1d").replace("protected: false", "protected: true")
        .replace("epochs: 1", "epochs: 1\n  task: regression").replace("accuracy, mode: max", "loss, mode: min"),
        "metric-not-protectable", "metric:"),
    "a precision that the model cannot have": file(
        TEXT.replace("model: logistic_regression", "model: own_models:Scaled\n  precision: bfloat16"),
        "mixed-precision-unsupported", "model: own_models"),
    # data
    "records that are not there": line("name: digits", "name: mnist", "dataset-not-found", says="--data-dir"),
    "a file of one's own that is not there": Bad(RUN, "own-file-missing", "", TEXT.replace(*OWN), "path: own.npz"),
    "one's own file without a public size": line("name: digits", "name: own\n  path: own.npz",
        "public-size-missing", at=D),
    "one's own file under a shipped name": line("name: digits", "name: digits\n  path: own.npz", "dataset-name-taken",
        at="path: own.npz"),
    "one's own file is no npz": Bad(RUN, "own-file-format", "", TEXT.replace(*OWN), "path: own.npz",
        given=lambda folder: (folder / "own.npz").write_text("a,b\n")),
    "one's own file lacks an array": own("own-file-format", "y_test", y_test=None),
    "labels that are text": own("own-file-arrays", "y_train", y_train=np.array(["a"] * 200)),
    "fewer labels than records": own("own-file-arrays", "same length", y_train=np.arange(10) % 2),
    "public records that are not there": line(
        TRIALS, "trials: 2\n  public: {name: open, path: open.npz, public_size: 900}", "own-file-missing", at="public:",
        says="open.npz", words=(*RUN, "--dry-run", "--set", "privacy.accounting=public"),
    ),
    "weights that are not there": line("epochs: 1", "epochs: 1\n  start: {path: w.safetensors, public: true}",
        "start-unreadable", at="start:"),
    # models of one's own
    "a module that is not there": line("model: logistic_regression", "model: no_such_module:build",
        "model-not-importable"),
    "a function that is not there": line("model: logistic_regression", "model: own_models:nothing",
        "model-not-importable"),
    "a model that is no module": line("model: logistic_regression", "model: os:getcwd", "model-code-failed"),
    "a model whose code fails": line("model: logistic_regression", "model: own_models:failing", "model-code-failed",
        says="KeyError: 'mine' ("),
    "a model whose code ends the program": line("model: logistic_regression", "model: own_models:ending",
        "model-code-failed", says="SystemExit: 3 ("),
    "a model in a script": own_code("model: logistic_regression", "sys.exit(0)", "model-not-importable", "__main__"),
    "a method in a script": own_code("method: dp_sgd", "sys.exit(0)", "method-not-importable", "__main__"),
    "a model whose code cannot be read": own_code("model: logistic_regression", "def build(", "model-not-importable",
        "SyntaxError"),
    "a model of two inputs": line("model: logistic_regression", "model: own_models:of_two_inputs", "model-code-failed"),
    "a model with BatchNorm": line("model: logistic_regression", "model: own_models:batch_norm", "samples-mixed"),
    "a model that raises for some records": line("model: logistic_regression", "model: own_models:Unclamped",
        "model-raises"),
    "a method that is not there": line("method: dp_sgd", "method: no_such_module:method", "method-not-importable"),
    # addresses
    "a folder for MLflow": line("seed: 0", "tracking: {uri: runs/mlflow}", "tracking-uri-invalid"),
    "a server without a host": line("seed: 0", "tracking: {uri: 'http://'}", "tracking-uri-invalid"),
    "a port that is none": line("seed: 0", "tracking: {uri: 'http://host:99999'}", "tracking-uri-invalid"),
    "a tracking server with a password": line("seed: 0", "tracking: {uri: 'http://me:secret@host:5000'}",
        "tracking-uri-password"),
    "a ledger by its path": line("seed: 0", "ledger: ./my.ledger", "ledger-url", says="sqlite:///my.ledger"),
    "a ledger of another database": line("seed: 0", "ledger: mysql://host/db", "ledger-url"),
    "a ledger in memory": line("seed: 0", "ledger: 'sqlite://'", "ledger-url"),
    "a ledger in a folder that is not there": line("seed: 0", "ledger: sqlite:///no_folder/a.db",
        "ledger-folder-missing"),
    "a ledger with a password": line("seed: 0", "ledger: 'postgresql://me:secret@host/db'", "ledger-url-password"),
    "a storage that is a file": line("seed: 0", "storage: e.yaml", "storage-unwritable"),
    "a storage in an object store": line("seed: 0", "storage: 's3://bucket/runs'", "storage-url"),
}  # fmt: skip
"""Kinds of mistakes in an experiment file. The error names its line."""
