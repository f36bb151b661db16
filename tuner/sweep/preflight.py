"""Preflight: read, check and plan a search, and refuse what could only fail after it was charged.

No private record is read here.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from trainables.data import DatasetInfo, DatasetRequest, budget_owner, check_present, info
from trainables.errors import TrainableError
from trainables.hyperparameters import check_augmentation
from tuner.errors import InputError
from tuner.experiment import Experiment, find_file, load_experiment, yamlfile
from tuner.plan.plan import Plan, make_plan
from tuner.sweep.sweep_study import check_search

__all__ = [
    "ReadySearch",
    "check_model",
    "check_startable",
    "check_tracking",
    "prepare",
    "prepare_again",
    "running_own_model",
]

_SERVERS = ("http", "https")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


@dataclass(frozen=True, kw_only=True)
class ReadySearch:
    """A search that has passed all checks and can start.

    Attributes:
        path: the experiment file.
        shipped: whether the file comes with the program.
        experiment: the resolved file.
        request: the records to train on.
        about: public facts about the records.
        plan: the plan, with the cost of the search.
        overrides: values given with `--set`.
    """

    path: Path
    shipped: bool
    experiment: Experiment
    request: DatasetRequest
    about: DatasetInfo
    plan: Plan
    overrides: tuple[str, ...] = ()

    @cached_property
    def owner(self) -> str:
        """The name of the records in the ledger; a copy of a shipped data set has the name of that set."""
        return budget_owner(self.request)

    @property
    def source(self) -> str:
        """Where the file was found, as text."""
        return f"{self.path} ({'shipped with the program' if self.shipped else 'a local file'})"


def prepare(file: str, overrides: Sequence[str], *, data_dir: str | None, need_data: bool = True) -> ReadySearch:
    """Find, read, check and plan an experiment.

    Args:
        file: a path, or the name of a shipped file.
        overrides: ``key=value`` each.
        data_dir: folder with the data sets.
        need_data: False to plan without the data; a plan only needs public facts about them.

    Raises:
        InputError: the file has problems (all are reported at once).
        trainables.errors.TrainableError: the data are missing or changed, or would be augmented and are not images.
        BudgetRefusedError: not one trial fits the search's own ε.
    """
    path, where = find_file(file)
    experiment = load_experiment(path, overrides)
    request = experiment.dataset_request(data_dir)
    if need_data:
        check_present(request)
    about = info(request)
    for augmentation in dict(experiment.space.parameters)["augmentation"].grid(1):
        check_augmentation(str(augmentation), about.input_shape)
    return ReadySearch(
        path=path,
        shipped=where == "shipped",
        experiment=experiment,
        request=request,
        about=about,
        plan=make_plan(experiment, request),
        overrides=tuple(overrides),
    )


def prepare_again(path: Path, experiment: Experiment, plan: Plan, *, data_dir: str | None) -> ReadySearch:
    """Return a sweep to resume: its file and plan are fixed, and its data must be available.

    Raises:
        trainables.errors.TrainableError: the data are missing or changed.
    """
    request = experiment.dataset_request(data_dir)
    check_present(request)
    return ReadySearch(path=path, shipped=False, experiment=experiment, request=request, about=info(request), plan=plan)


def check_startable(prepared: ReadySearch) -> None:
    """Refuse what would otherwise fail after the search was charged.

    Raises:
        InputError: an option, an address or a folder cannot be used, or the model cannot be trained privately.
    """
    from tuner.privacy.ledger.ledger import Ledger

    experiment = prepared.experiment
    check_tracking(experiment.tracking.uri)
    Ledger.exists(experiment.ledger)  # refuses what is not the address of a ledger
    check_search(experiment, prepared.plan.rungs)
    check_model(prepared)
    _check_storage(Path(experiment.storage))


def check_tracking(uri: str) -> None:
    """Refuse an address at which MLflow can never answer. A server that is down is no error: records wait on disk.

    Raises:
        InputError: the address is malformed, or of a kind that MLflow does not support.
    """
    from tuner.recorder.mlflow_store import absolute_uri, hide_password

    kind = absolute_uri(uri).partition("://")[0].partition("+")[0]
    fix = "Write sqlite:///runs/mlflow.db or http://HOST:5000."
    if kind not in (*_SERVERS, *_DATABASES):
        raise InputError(
            "tracking-uri-invalid",
            f"`tracking.uri` must begin with one of {', '.join((*_SERVERS, *_DATABASES))} (got "
            f"{hide_password(uri)}). {fix}",
        )
    try:
        parts = urlsplit(uri)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    if kind != "sqlite" and not host:
        raise InputError(
            "tracking-uri-invalid",
            f"`tracking.uri` must name a host and a port in 1..65535 (got {hide_password(uri)}). {fix}",
        )
    if kind == "sqlite" and not uri.startswith("sqlite:///"):
        raise InputError(
            "tracking-uri-invalid", f"`tracking.uri` of an SQLite file must begin with sqlite:/// (got {uri}). {fix}"
        )


def _check_storage(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            "storage-unwritable",
            f"The folder {folder} of `storage` cannot be written ({error.strerror}). Choose another folder.",
        ) from error


def check_model(prepared: ReadySearch) -> None:
    """Build the model once, and refuse one that cannot be trained privately.

    It must return one finite number for each class, must not mix the samples of a batch, and must have gradients. This
    is tried on public random inputs.

    Raises:
        InputError: the model fails, with the place of trainable.model in the file.
    """
    from trainables.engine.layout import Layout
    from trainables.models import build
    from trainables.training import gradient_source

    trainable = prepared.experiment.trainable
    here = str(Path.cwd())
    if ":" in trainable.model and here not in sys.path:
        sys.path.append(
            here
        )  # like `python -m`, but last, so that no file there hides a library; Ray's workers get it too
    try:
        with running_own_model(prepared):
            module = build(
                trainable.model,
                input_shape=prepared.about.input_shape,
                classes=prepared.about.classes,
                activation=trainable.activation,
                normalization=trainable.normalization,
                seed=prepared.experiment.seed,
            )
            gradient_source(module, Layout.of(module), prepared.about.input_shape, precision=trainable.precision)
    except TrainableError as error:
        where = _place_of_model(prepared)
        raise InputError(error.code, "\n".join(f"{where}: {line}" for line in error.message.splitlines())) from error


@contextmanager
def running_own_model(prepared: ReadySearch) -> Iterator[None]:
    """Run the user's model code on public inputs, and report its errors at their place in the experiment file.

    Raises:
        InputError: the code raised an error that is not one of ours.
    """
    try:
        yield
    except TrainableError:
        raise
    except Exception as error:
        if ":" not in prepared.experiment.trainable.model:
            raise
        # The user's code may raise anything. No record has been read yet, so its message may be shown.
        raise InputError(
            "model-code-failed",
            f"{_place_of_model(prepared)}: the model {prepared.experiment.trainable.model} failed on inputs of "
            f"shape (N, {', '.join(map(str, prepared.about.input_shape))}) with {type(error).__name__}: {error}. "
            "It must name a function of input_shape and classes that returns a model; see 'A model of your own' "
            "in docs/experiment.md.",
        ) from error


def _place_of_model(prepared: ReadySearch) -> str:
    """Return ``file:line: trainable.model``, or the option that set the model."""
    try:
        text = prepared.path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # the file was read before and has been removed since
        return f"{prepared.path}: trainable.model"
    document = yamlfile.parse(text, source=str(prepared.path))
    document.override(prepared.overrides)
    return f"{document.where(('trainable', 'model'))}: trainable.model"
