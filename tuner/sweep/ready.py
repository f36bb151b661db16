"""Everything that is checked before anything starts: the file, the data, the model, the plan. Touches no record."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.data import DatasetInfo, DatasetRequest, budget_owner, check_present, info
from trainables.errors import TrainableError
from trainables.hyperparameters import check_augmentation
from tuner.errors import InputError, TunerError
from tuner.experiment import Experiment, find_file, load_experiment, yamlfile
from tuner.plan.plan import Plan, make_plan
from tuner.study.promotion import with_steps

if TYPE_CHECKING:
    from trainables.training import TrainingSpec

__all__ = ["Prepared", "check_model", "prepare", "prepare_again", "training_spec", "users_code"]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A search that could start now.

    Attributes:
        path: the file it came from.
        shipped: whether that is a file that comes with the program.
        experiment: the file, resolved.
        request: which records.
        about: what is public about them.
        plan: what it will cost.
        overrides: what was said beside the file.
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
        """The name under which the ledger books the records: of a copy of a shipped set, that set's."""
        return budget_owner(self.request)

    @property
    def source(self) -> str:
        """Where the file was found, for people."""
        return f"{self.path} ({'shipped with the program' if self.shipped else 'a local file'})"


def prepare(file: str, overrides: Sequence[str], *, data_dir: str | None, need_data: bool = True) -> Prepared:
    """Find, read, check and plan.

    Args:
        file: a path, else the name of a shipped file.
        overrides: ``key=value`` each.
        data_dir: folder with the data sets.
        need_data: False to plan without the data: what a plan needs of them is public.

    Raises:
        InputError: something is wrong with the file (all problems at once).
        trainables.errors.TrainableError: the data are missing or changed, or are no images and would be augmented.
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
    return Prepared(
        path=path,
        shipped=where == "shipped",
        experiment=experiment,
        request=request,
        about=about,
        plan=make_plan(experiment, request),
        overrides=tuple(overrides),
    )


def prepare_again(path: Path, experiment: Experiment, plan: Plan, *, data_dir: str | None) -> Prepared:
    """A sweep that goes on: its file and its plan are settled, its data must be there.

    Raises:
        trainables.errors.TrainableError: the data are missing or changed.
    """
    request = experiment.dataset_request(data_dir)
    check_present(request)
    return Prepared(path=path, shipped=False, experiment=experiment, request=request, about=info(request), plan=plan)


def check_model(prepared: Prepared) -> None:
    """Build the model once, and refuse one that cannot be trained, or not privately.

    It must give one finite number for each class, keep the samples of a batch apart, and its gradients must be had.
    All of it is tried on public random inputs.

    Raises:
        InputError: it does not, with the place of trainable.model in the file.
    """
    from trainables.engine.layout import Layout
    from trainables.models import build
    from trainables.training import gradient_source

    trainable = prepared.experiment.trainable
    here = str(Path.cwd())
    if ":" in trainable.model and here not in sys.path:
        sys.path.append(here)  # as `python -m` does; last, so that it hides no library; Ray's workers get it too
    try:
        with users_code(prepared):
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
        raise InputError("\n".join(f"{where}: {line}" for line in str(error).splitlines())) from error


@contextmanager
def users_code(prepared: Prepared) -> Iterator[None]:
    """Where a model of the user's own runs on public inputs: what it raises is told as an error of the file.

    Raises:
        InputError: it raised something that is no error of this project.
    """
    try:
        yield
    except TrainableError:
        raise
    except Exception as error:
        if ":" not in prepared.experiment.trainable.model:
            raise
        # The user's code, whatever it raises; no record has been read yet, so its words may be shown.
        raise InputError(
            f"{_place_of_model(prepared)}: must name a function of input_shape and classes whose model takes floats of "
            f"shape (N, {', '.join(map(str, prepared.about.input_shape))}), got {prepared.experiment.trainable.model} "
            f"and {type(error).__name__}: {error}. See 'A model of your own' in docs/experiment.md."
        ) from error


def _place_of_model(prepared: Prepared) -> str:
    """``file:line: trainable.model``, or the option that it came from."""
    try:
        text = prepared.path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # it was read before; whoever took it away since then knows its name
        return f"{prepared.path}: trainable.model"
    document = yamlfile.parse(text, source=str(prepared.path))
    document.override(prepared.overrides)
    return f"{document.where(('trainable', 'model'))}: trainable.model"


def training_spec(
    experiment: Experiment,
    request: DatasetRequest,
    plan: Plan,
    *,
    parameters: dict[str, object],
    number: int,
    seed: int | None = None,
) -> TrainingSpec:
    """What a worker needs for one trial.

    Args:
        experiment: the search.
        request: which records.
        plan: what a trial with these parameters takes.
        parameters: what was chosen for the trial, the priced ones included.
        number: the trial's number; moves the public seed, so that trials differ in initialisation too.
        seed: the public seed itself, in the place of the experiment's and the number. A sealed search draws it
            (`tuner.sweep.sealed`): a seed that is counted up would tell which of its runs won.
    """
    from trainables.training import TrainingSpec

    trainable, privacy, resources = experiment.trainable, experiment.privacy, experiment.resources
    shape = plan.shape_of(parameters)
    return TrainingSpec(
        method=trainable.method,
        model=trainable.model,
        activation=trainable.activation,
        normalization=trainable.normalization,
        optimizer=trainable.optimizer,
        momentum=trainable.momentum,
        precision=trainable.precision,
        dataset=request,
        batch_size=shape.batch_size,
        steps=shape.steps,
        noise_multiplier=_given(shape.noise_multiplier),
        sample_rate=_given(shape.sample_rate),
        parameters=with_steps(
            {name: value for name, value in parameters.items() if name not in plan.priced},
            rungs=plan.rungs,
            steps=shape.steps,
        ),
        # As large as a file may write it, so that an export of the trial can be loaded and trained again.
        seed=(experiment.seed + number) % 2**32 if seed is None else seed,
        private=privacy.private,
        noise_seed=None if privacy.noise_seed is None else (privacy.noise_seed + number) % 2**32,
        threads=max(1, int(resources.cpus_per_trial)),
        device="auto" if resources.gpus_per_trial else "cpu",
        score_noise=plan.score_noise,
    )


def _given(value: float | None) -> float:
    if value is None:
        raise TunerError("a trial must have a sample rate and a noise multiplier, got a shape without one.")
    return value
