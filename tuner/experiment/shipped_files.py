"""Experiment files that are shipped with dp-tuner, and the commented template of `tune init`."""

from __future__ import annotations

import itertools
import re
import textwrap
from pathlib import Path

import tuner
from trainables.suggestions import meant, near
from tuner.errors import InputError

__all__ = ["copy_shipped", "shipped", "shipped_text", "write_template"]

_SENTENCE = re.compile(r".+?\.(?=\s|$)")
_LONGEST = 120  # characters of a description

_TEMPLATE = """\
# tune run {file}
#
# A private search. Only name, dataset.name, trainable.method and privacy.epsilon are required. All other lines are
# examples, which docs/experiment.md explains. `tune plan {file}` shows the cost and runs no trial.
schema: 1
name: my-search
seed: 0                               # PUBLIC seed of initialisation and search, never of the noise
dataset:
  name: digits                        # a shipped data set (mnist, adult, …), or your data's name, always the same:
  # path: my-records.npz              #   x_train, y_train, x_test, y_test
  # public_size: 10000                #   PUBLIC number of training records, not counted in the file
  validation: {{fraction: 0.1, protected: false}}   # false: the guarantee does not cover the scores
trainable:
  method: dp_lssgd                    # dp_sgd, dp_lssgd, dplis, dp_weight_decay, composed
  model: mlp_64
  activation: relu                    # relu, tanh
  optimizer: sgd                      # sgd, adam, adam_corrected
  batch_size: 256                     # EXPECTED size: batches are Poisson samples
  epochs: 10
privacy:
  epsilon: 4.0                        # of the WHOLE search, never exceeded
  delta: 1e-5                         # must be below 1 / number of records
  accounting: auto                    # `tune plan` shows its choice; or composition, selection, public
  noise_multiplier: auto              # the smallest noise with which the trials fit the budget
search:
  trials: 12
  # commit: 0.05                      # with composition: cheap trials, then one run with the rest of the budget
  sampler: tpe                        # surrogate, tpe, random, grid, gp, unimodal
  pruner: none                        # none, median, asha, unimodal, …
  rungs: 3                            # number of reports of a trial, or fractions of its steps
  space:                              # a number, `default`, or {{uniform: [a, b]}}, {{log_uniform: …}}, {{choice: […]}}
    learning_rate: default            # the range that the shipped prior recommends (docs/prior.md)
    max_grad_norm: default
    laplacian_sigma: {{uniform: [0, 3]}}
  metric: {{name: validation_accuracy, mode: max}}
resources: {{concurrent_trials: 2, cpus_per_trial: 1, gpus_per_trial: 0}}
tracking: {{uri: "sqlite:///runs/mlflow.db"}}
storage: runs/
# ledger: postgresql://user@host/database    # budgets of ALL searches; default: a file in your home folder
"""


def shipped() -> dict[str, Path]:
    """Return the paths of the shipped experiment files, by name without ``.yaml``.

    In a checkout the files are in ``experiments/``, and in an installed package they are in ``tuner/shipped``.
    """
    package = Path(tuner.__file__).parent
    checkout = package.parent / "experiments"
    folder = checkout if (package.parent / "pyproject.toml").is_file() and checkout.is_dir() else package / "shipped"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def shipped_text() -> str:
    """Return the list of shipped files. Each line is a file's name and the first sentence of its description."""
    files = shipped().values()
    width = max((len(path.name) for path in files), default=0)
    lines = [f"  {path.name:<{width}}  {_about(path)}" for path in files]
    return "\n".join(["Shipped experiments (tune run NAME, tune cp NAME):", *lines])


def _about(path: Path) -> str:
    """Return the first sentence of a file's description, shortened."""
    # The first comment line is the command; the paragraph after it is the description.
    comments = itertools.takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines()[1:])
    said = " ".join(line.lstrip("# ").strip() for line in comments).strip()
    sentence = _SENTENCE.match(said)
    return textwrap.shorten(sentence[0] if sentence else said, _LONGEST, placeholder=" …")


def copy_shipped(name: str, destination: Path, *, force: bool) -> Path:
    """Copy a shipped file to `destination`, which is a folder or a file name, and return the path of the copy.

    Raises:
        InputError: no shipped file has this name, the copy cannot be written, or a file exists and `force` is False.
    """
    files = shipped()
    source = files.get(name.removesuffix(".yaml"))
    if source is None:
        close = [f"{each}.yaml" for each in near(name.removesuffix(".yaml"), files)]
        found = f"No shipped experiment is named {name!r}.{meant(close)}"
        raise InputError("experiment-not-found", f"{found} `tune ls --shipped` lists them.")
    target = destination / source.name if destination.is_dir() else destination
    _write_new(target, source.read_text("utf-8"), force=force)
    return target


def write_template(path: Path, *, force: bool) -> None:
    """Write the commented template of an experiment file.

    Raises:
        InputError: the file exists and `force` is False, or it cannot be written.
    """
    _write_new(path, _TEMPLATE.format(file=path.name), force=force)


def _write_new(path: Path, text: str, *, force: bool) -> None:
    if path.exists() and not force:
        fix = "Choose another name, or overwrite it with --force."
        raise InputError("file-exists", f"The file {path} exists. {fix}")
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(
            "file-not-writable", f"The file {path} cannot be written: {error.strerror}. Choose another path."
        ) from error
