"""Checks before a search starts (preflight): read, check and plan the search, without reading a private record.

An error that would occur after the charge must be found here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces import Fixed
from search_spaces.spaces import is_own_method
from trainables.data import DatasetInfo, DatasetRequest, as_it_is, check_present, info, is_own, load_records
from trainables.errors import TrainableError
from trainables.hyperparameters import check_augmentation
from trainables.model_names import ACTIVATIONS
from trainables.model_sizes import dimension_of, is_perceptron
from trainables.own_code import place_in_own_code
from trainables.tasks import check_metric
from tuner.errors import InputError
from tuner.experiment import Experiment, find_file, load_experiment
from tuner.experiment.places import Places
from tuner.files import unwritable
from tuner.plan.comparison import Comparison, choose
from tuner.plan.plan import Plan, make_plan
from tuner.privacy.ledger.stores.file_url import file_of
from tuner.sweep.addresses import check_addresses
from tuner.sweep.folder import storage_unwritable
from tuner.sweep.identity import names_in_ledger
from tuner.sweep.own_method import check_method
from tuner.sweep.start_weights import refuse_trained_here, start_file, with_start_hash
from tuner.sweep.sweep_study import check_search

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "ReadySearch",
    "build_model",
    "check_ledger_folder",
    "check_model",
    "check_scores",
    "check_startable",
    "find_own_model",
    "prepare",
    "running_own_model",
]


_SMALL = 10**7
"""Parameters of a model that surely fits the memory."""

_KEYS = {
    "commit-share-too-small": "search.commit",
    "full-runs-too-small": "search.full_runs",
    "promotion-steps": "search.space",
    "split-empty": "dataset.validation.fraction",
}
"""Keys of the file that errors of a plan are about, by their code. The other errors are about the section `search`."""


@dataclass(frozen=True, kw_only=True)
class ReadySearch:
    """A search that has passed the checks and can start.

    Attributes:
        path: the experiment file.
        experiment: the resolved experiment.
        about: public facts about the requested records.
        overrides: values given with `--set`.
        source: path and origin of the file as text; empty for a resumed sweep.
        compared: what `accounting: auto` compared; None with any other accounting.
    """

    path: Path
    experiment: Experiment
    request: DatasetRequest
    about: DatasetInfo
    plan: Plan
    overrides: tuple[str, ...] = ()
    source: str = ""
    compared: Comparison | None = None

    @property
    def owner(self) -> str:
        """The first of `owners`, in which the search has its trials."""
        return self.owners[0]

    @property
    def other_blocks(self) -> tuple[str, ...]:
        """Names in the ledger of the other blocks on which the search counts."""
        return self.owners[1:]

    @cached_property
    def places(self) -> Places:
        """Locations of the keys of the experiment file, for messages."""
        return Places(self.path, self.overrides)

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """Names of the records in the ledger: one for each block of a table, or one.

        A copy of a shipped data set has the name of that data set.
        """
        return names_in_ledger(self.request)


def prepare(
    file: str,
    overrides: Sequence[str],
    *,
    data_dir: str | None,
    need_data: bool = True,
) -> ReadySearch:
    """Find, read, check and plan an experiment. `file` is a path or the name of a shipped file.

    With `need_data=False` the data may be missing, because a plan needs only public facts about them.

    Raises:
        InputError: the file has problems. The error lists all of them.
        trainables.errors.TrainableError: the data are missing or changed, or augmentation is requested for data that
            are not images.
        BudgetRefusedError: not even one trial fits the search's own ε.
    """
    path, where = find_file(file)
    experiment, places = load_experiment(path, overrides), Places(path, overrides)
    with places.at("trainable.start.path"):
        experiment = with_start_hash(experiment)
    request = experiment.dataset_request(data_dir)
    with places.at("dataset.path", "dataset.name"):
        if need_data:
            check_present(request)
            request = as_it_is(request)
        about = info(request)
    plan, compared = None, None
    if experiment.is_auto:
        experiment, plan, compared = choose(experiment, request)
    augmentation = dict(experiment.space.parameters).get("augmentation")  # a perturbed minimum has none
    with places.at("search.space.augmentation"):
        for kind in [] if augmentation is None else augmentation.grid(1):
            check_augmentation(str(kind), about.input_shape)
    with places.at("search.metric.name"):
        check_metric(experiment.search.metric.name, task=about.task, classes=about.classes)
    if plan is None:
        with places.at("search", codes=_KEYS):
            plan = make_plan(experiment, request)
    return ReadySearch(
        path=path,
        source=f"{path} ({'shipped with the program' if where == 'shipped' else 'a local file'})",
        experiment=experiment,
        request=request,
        about=about,
        plan=plan,
        compared=compared,
        overrides=tuple(overrides),
    )


def check_startable(prepared: ReadySearch) -> None:
    """Raise an InputError if an option, an address, a folder or the model would fail later, after the charge."""
    experiment = prepared.experiment
    check_addresses(experiment, prepared.places)
    with prepared.places.at("search"):
        check_search(experiment, prepared.plan.rungs)
    check_model(prepared)
    storage = Path(experiment.storage)
    if (error := unwritable(storage)) is not None:
        with prepared.places.at("storage"):
            raise storage_unwritable(storage, error) from error


def check_ledger_folder(prepared: ReadySearch) -> None:
    """Raise an InputError if a new search needs a new ledger that cannot be created."""
    ledger = file_of(prepared.experiment.ledger) if prepared.plan.private else None
    if ledger is None or ledger.exists():
        return
    if (error := unwritable(ledger.parent)) is not None:
        with prepared.places.at("ledger"):
            raise InputError(
                "ledger-folder-unwritable",
                f"The ledger {ledger} cannot be created ({error.strerror}). Choose a folder that this user may write.",
            ) from error


def check_scores(prepared: ReadySearch) -> None:
    """Raise an InputError if a search that is charged as a whole could score no trial.

    Exact scores have no guarantee, so neither has this answer. Other searches end before the first step of a trial.
    """
    plan = prepared.plan
    whole = plan.mode.on_release or plan.mode.runs_hidden
    if not (plan.private and whole and plan.validation is None and is_own(prepared.request)):
        return
    if not len(load_records(prepared.request).x_validation):
        with prepared.places.at("dataset.validation.fraction"):
            raise InputError(
                "split-empty",
                "the validation split has no usable record, so no trial could be scored. Look at the file with "
                "`tune data check`, or raise dataset.validation.fraction.",
            )


def _gains(experiment: Experiment) -> Sequence[object]:
    """Return gains on the first layer that trials on a release may have."""
    return dict(experiment.space.parameters).get("feature_gain", Fixed(1.0)).grid(2)


def check_model(prepared: ReadySearch) -> None:
    """Build the model. If it cannot be trained privately, raise an InputError with the model's place in the file.

    On public random inputs, the model must return one finite number for each class, keep the samples of a batch
    separate, and have gradients. Each trial makes these checks again before its first step. A small shipped perceptron
    takes every input, so it waits for them, and this process does not load torch.
    """
    if _is_plain_perceptron(prepared):
        return
    from trainables.audit.sensitivity import check_sensitivity
    from trainables.engine.layout import Layout
    from trainables.gradients import gradient_source
    from trainables.release.training import first_linear

    about, precision = prepared.about, prepared.experiment.trainable.precision
    start = start_file(prepared.experiment)
    if start is not None:
        with prepared.places.at("trainable.start.path"):
            refuse_trained_here(prepared.experiment, start, prepared.owners)
    try:
        with running_own_model(prepared), _one_thread():
            for activation in prepared.experiment.activations:
                module = build_model(
                    prepared.experiment,
                    input_shape=about.input_shape,
                    classes=about.outputs,
                    activation=activation,
                    weights=None if start is None else start.weights,
                )
                source = gradient_source(
                    module, Layout.of(module), about.input_shape, precision=precision, task=about.task
                )
                if any(value != 1 for value in _gains(prepared.experiment)):
                    first_linear(module)
                if ":" in prepared.experiment.trainable.model:
                    check_sensitivity(module, source, input_shape=about.input_shape, classes=about.classes)
                if is_own_method(prepared.experiment.trainable.method):
                    check_method(prepared.experiment, about, module, source)
    except TrainableError as error:
        where = prepared.places.of(f"trainable.{'method' if error.code.startswith('method-') else 'model'}")
        raise InputError(error.code, "\n".join(f"{where}: {line}" for line in error.message.splitlines())) from error


def _is_plain_perceptron(prepared: ReadySearch) -> bool:
    """Return whether the model is a shipped perceptron that fits the memory, with no setting that could be refused."""
    experiment, trainable, about = prepared.experiment, prepared.experiment.trainable, prepared.about
    return (
        is_perceptron(trainable.model)
        and (dimension_of(trainable.model, input_shape=about.input_shape, classes=about.outputs) or inf) <= _SMALL
        and set(experiment.activations) <= set(ACTIVATIONS)
        and (trainable.normalization, trainable.precision) == ("none", "float32")
        and not trainable.freeze
        and trainable.start is None
        and not is_own_method(trainable.method)
    )


def build_model(
    experiment: Experiment,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    activation: str | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """Build the experiment's model. The current folder is also searched for the code of a user's own model.

    `classes` is the number of outputs. Without an `activation`, the model has the first one that a trial may have; an
    exported experiment has one. Public weights (`start_file`) are not read here, because an exported model has its own.
    """
    from trainables.models import build

    find_own_model(experiment)
    trainable = experiment.trainable
    return build(
        trainable.model,
        input_shape=input_shape,
        classes=classes,
        activation=activation or experiment.activations[0],
        normalization=trainable.normalization,
        seed=experiment.seed,
        weights=weights,
        freeze=trainable.freeze,
    )


def find_own_model(experiment: Experiment) -> None:
    """Let the code of a user's own model or method be imported from the current folder."""
    here = str(Path.cwd())
    if experiment.runs_own_code and here not in sys.path:
        # The folder is last in the path, so that no file in it hides a library. Ray's workers have it first.
        sys.path.append(here)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread. For a few samples, several threads only wait for each other, at full speed."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def running_own_model(prepared: ReadySearch) -> Iterator[None]:
    """Convert an error of the user's model code to an InputError with the model's place in the experiment file.

    What the code prints goes to standard error, because the answer of a command may be JSON.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (TrainableError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a script's `sys.exit` would end the command, with the exit code of the script
        if ":" not in prepared.experiment.trainable.model:
            raise
        # The user's code may raise anything. No record has been read yet, so its message may be shown.
        raise InputError(
            "model-code-failed",
            f"{prepared.places.of('trainable.model')}: the model {prepared.experiment.trainable.model} failed on "
            f"inputs of shape (N, {', '.join(map(str, prepared.about.input_shape))}) with {type(error).__name__}: "
            f"{str(error).rstrip('.')}{place_in_own_code(error)}. "
            "Name a function that takes input_shape and classes and returns a model; see 'A model of your own' in "
            "docs/experiment.md.",
        ) from error
