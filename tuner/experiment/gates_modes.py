"""Gates of the accounting modes, of protected validation and of the unit: what each of them cannot go together with."""

from __future__ import annotations

from collections.abc import Iterator

from trainables.data import DATASETS, public_train_size, public_validation_size
from trainables.errors import DatasetError
from tuner.errors import InputError
from tuner.experiment.findings import Finding, Gate
from tuner.experiment.model import Experiment
from tuner.experiment.wording import nearest
from tuner.experiment.yamlfile import Path
from tuner.privacy.accountant.run_laws import LAWS, RunLaw
from tuner.study.names import canonical_pruner, canonical_sampler

__all__ = ["MODE_GATES"]

_MODES = ("composition", "selection", "public")
_SEALED_SAMPLERS = ("random", "bounded")


def _accounting(experiment: Experiment) -> Iterator[Finding]:
    word = experiment.privacy.accounting
    if word not in _MODES:
        yield Finding(
            path=("privacy", "accounting"), rule=f"must be one of {', '.join(_MODES)}", fix=nearest(word, _MODES)
        )


def _sealed_search(experiment: Experiment) -> Iterator[Finding]:
    if experiment.privacy.accounting != "selection":
        return
    search = experiment.search
    sampler, pruner = canonical_sampler(search.sampler.name), canonical_pruner(search.pruner.name)
    if sampler is not None and sampler not in _SEALED_SAMPLERS:
        rule = (
            "selection needs candidates drawn independently from one fixed prior, and "
            f"{search.sampler.name} {'walks through a list' if sampler == 'grid' else 'follows the scores'}"
        )
        fix = "Write random, or bounded: it follows the scores within a ratio, and the plan shows what that costs."
        yield Finding(path=("search", "sampler"), rule=rule, fix=fix, value=search.sampler.name)
    if pruner is not None and pruner != "none":
        rule = (
            "selection releases the best of independent runs, and a pruner ends a run by what others scored"
            if pruner != "threshold"
            else "stopping a run by its own scores is not in this version of selection"
        )
        yield Finding(path=("search", "pruner"), rule=rule, fix="Write none.", value=search.pruner.name)
    if experiment.dataset.validation.protected:
        yield Finding(
            path=("dataset", "validation", "protected"),
            rule="protected scores count their releases in the open, and a sealed search hides how many runs it made",
            fix="Write false (the scores are then outside the guarantee), or accounting: composition.",
        )
    if not experiment.privacy.private:
        rule = "a sealed search hides its runs to be charged less, and with private: false nothing is charged"
        yield Finding(path=("privacy", "private"), rule=rule, fix="Write true, or accounting: composition.")


def _runs(experiment: Experiment) -> Iterator[Finding]:
    runs, trials = experiment.privacy.runs, experiment.search.trials
    path: Path = ("privacy", "runs")
    if experiment.privacy.accounting != "selection":
        if runs != type(runs)():
            rule = (
                f"the law of the number of runs is of selection, and the accounting is {experiment.privacy.accounting}"
            )
            yield Finding(path=path, rule=rule, fix="Leave it out, or write accounting: selection.")
        return
    if runs.law not in LAWS:
        rule = f"must be one of {', '.join(LAWS)}"
        yield Finding(path=(*path, "law"), rule=rule, fix=nearest(runs.law, LAWS))
        return
    if runs.law == "poisson" and canonical_sampler(experiment.search.sampler.name) == "bounded":
        rule = "the price of a sampler that follows the scores is not proved for a poisson number of runs"
        yield Finding(path=(*path, "law"), rule=rule, fix="Write geometric, or sampler: random.")
        return
    try:
        RunLaw(name=runs.law, mean=float(trials), shape=runs.shape)
    except InputError as error:
        rule, _, fix = str(error).partition(". ")
        yield Finding(path=path, rule=rule, fix=fix, value=f"{runs.law} with a mean of {trials} trials")


def _sealed_at_most(experiment: Experiment) -> Iterator[Finding]:
    runs, trials = experiment.privacy.runs, experiment.search.trials
    if runs.at_most != "auto" and runs.at_most < trials:
        rule = f"must be at least the mean number of runs, search.trials = {trials}"
        yield Finding(path=("privacy", "runs", "at_most"), rule=rule, fix="Write auto, or raise it.")


def _public(experiment: Experiment) -> Iterator[Finding]:
    public, accounting = experiment.search.public, experiment.privacy.accounting
    path: Path = ("search", "public")
    if accounting != "public":
        if public is not None:
            rule = f"a public data set is searched on with accounting: public, and the accounting is {accounting}"
            yield Finding(path=path, rule=rule, fix="Write accounting: public, or leave it out.", value=public.name)
        return
    if public is None:
        fix = "Write search.public: {name: fashion_mnist}; whoever writes it declares those records public."
        rule = "accounting: public needs a public data set to search on"
        yield Finding(path=path, rule=rule, fix=fix, value="nothing")
        return
    if not experiment.privacy.private:
        rule = "a search on public records ends with one charged run, and with private: false nothing is charged"
        yield Finding(path=("privacy", "private"), rule=rule, fix="Write true, or accounting: composition.")
    if experiment.privacy.unit == "user":
        rule = "a search on public records tunes steps that average records, and with unit: user they average users"
        yield Finding(path=("privacy", "unit"), rule=rule, fix="Write unit: record, or another accounting.")
    yield from _public_records(experiment)


def _public_records(experiment: Experiment) -> Iterator[Finding]:
    public, private = experiment.search.public, experiment.dataset
    if public is None:
        return
    at: Path = ("search", "public", "name")
    if public.path is None and public.name not in DATASETS:
        fix = nearest(public.name, DATASETS) + " Your own data need search.public.path and search.public.public_size."
        yield Finding(path=at, rule="unknown data set", fix=fix)
        return
    if public.path is not None and (public.name in DATASETS or public.public_size is None):
        rule = "records of your own need a name of their own, a path and a public_size"
        yield Finding(path=("search", "public"), rule=rule, fix="Write {name: …, path: …, public_size: …}.")
        return
    owners = [DATASETS[name].budget_owner or name if name in DATASETS else name for name in (public.name, private.name)]
    if owners[0] == owners[1] or (public.path is not None and public.path == private.path):
        rule = f"the public records must be others than the private ones of {private.name}: the search would read those"
        yield Finding(path=at, rule=rule, fix="Name a data set that anyone may see.")
        return
    shapes = [
        (DATASETS[name].input_shape, DATASETS[name].classes) if name in DATASETS else None
        for name in (public.name, private.name)
    ]
    if None not in shapes and shapes[0] != shapes[1]:
        rule = "the public records must have the inputs and the classes of the private ones: one model trains on both"
        each = zip(("public", "private"), filter(None, shapes), strict=True)
        found = " and ".join(f"{shape} in {classes} classes ({whose})" for whose, (shape, classes) in each)
        yield Finding(path=at, rule=rule, fix="Name a data set of the same shape.", value=found)
        return
    try:
        size = public_train_size(experiment.public_request())
    except DatasetError:
        return
    if experiment.trainable.batch_size > size:
        rule = f"must be at most the {size} training records of {public.name} too, on which the search trains"
        yield Finding(path=("trainable", "batch_size"), rule=rule, fix="Lower it.")


def _protected(experiment: Experiment) -> Iterator[Finding]:
    validation, privacy, metric = experiment.dataset.validation, experiment.privacy, experiment.search.metric
    path: Path = ("dataset", "validation")
    if not validation.protected:
        for name in ("epsilon", "delta", "noise"):
            if getattr(validation, name) not in (None, "auto"):
                rule = f"{name} is of protected scores, and protected is false: these are outside the guarantee"
                yield Finding(path=(*path, name), rule=rule, fix="Write protected: true, or leave it out.")
        return
    for name in ("epsilon", "delta"):
        own, whole = getattr(validation, name), getattr(privacy, name)
        if own is not None and own > whole:
            rule = f"must be at most privacy.{name} = {whole:g}: what is claimed covers both sets of records"
            yield Finding(path=(*path, name), rule=rule, fix=f"Lower it, or raise privacy.{name}.")
    if metric.name != "validation_accuracy":
        rule = "a protected score is a count of right answers: one record can change a mean loss by any amount"
        yield Finding(path=("search", "metric", "name"), rule=rule, fix="Write validation_accuracy.")
    try:
        size = public_validation_size(experiment.dataset_request())
    except DatasetError:
        return
    if size < 1:
        rule = "protected scores need at least one public validation record"
        yield Finding(path=(*path, "fraction"), rule=rule, fix="Raise it.")


def _unit(experiment: Experiment) -> Iterator[Finding]:
    dataset, path = experiment.dataset, ("privacy", "unit")
    own = dataset.path is not None
    users = dataset.public_users if own else DATASETS[dataset.name].users if dataset.name in DATASETS else None
    if not own and dataset.public_users is not None:
        rule = f"the public number of users of {dataset.name} is known and not set, or it has none"
        yield Finding(path=("dataset", "public_users"), rule=rule, fix="Leave it out.")
    if experiment.privacy.unit == "record":
        if dataset.records_per_user != type(dataset).model_fields["records_per_user"].default:
            rule = "a bound on the records of a user is of privacy.unit: user, and the unit is record"
            yield Finding(path=("dataset", "records_per_user"), rule=rule, fix="Write unit: user, or leave it out.")
        return
    if own and users is None:
        rule = "your own data need a PUBLIC number of users for unit: user, and user_train in their file"
        yield Finding(path=("dataset", "public_users"), rule=rule, fix="Write one that may be known.", value="nothing")
    elif not own and dataset.name in DATASETS and users is None:
        known = ", ".join(name for name, about in DATASETS.items() if about.users is not None)
        rule = f"unit: user needs records that say whose they are, and those of {dataset.name} do not"
        yield Finding(path=path, rule=rule, fix=f"Write unit: record, or take {known}.")


_DATA: tuple[Path, ...] = (("dataset",), ("privacy", "unit"))
_RUNS: tuple[Path, ...] = (("privacy", "runs"), ("privacy", "accounting"), ("search", "trials"))

MODE_GATES: tuple[tuple[Gate, tuple[Path, ...]], ...] = (
    (_accounting, (("privacy", "accounting"),)),
    (
        _sealed_search,
        (
            ("privacy", "accounting"),
            ("privacy", "private"),
            ("search", "sampler"),
            ("search", "pruner"),
            ("dataset", "validation"),
        ),
    ),
    (_runs, (*_RUNS, ("search", "sampler"))),
    (_sealed_at_most, _RUNS),
    (
        _public,
        (("search", "public"), ("privacy", "accounting"), ("privacy", "private"), ("trainable", "batch_size"), *_DATA),
    ),
    (_protected, (("search", "metric"), ("privacy", "epsilon"), ("privacy", "delta"), *_DATA)),
    (_unit, _DATA),
)
"""Every gate with the keys it looks at."""
