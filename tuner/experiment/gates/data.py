"""Gates for the data set, its public sizes, the unit of privacy and protected scores."""

from __future__ import annotations

from collections.abc import Iterator

from trainables.data import DATASETS, public_validation_size
from trainables.errors import DatasetError
from trainables.tasks import BINARY, CLASSIFICATION, METRICS, REGRESSION
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.wording import nearest

__all__ = ["DATA_GATES"]


@gate("dataset.name", "dataset.path", "dataset.public_size", "privacy.unit")
def dataset(draft: Draft) -> Iterator[GateFinding]:
    """Require a shipped data set, or the user's own data.

    The user's own data need a path, a public size, and a name that no shipped data set has.
    """
    data = draft.experiment.dataset
    if data.path is None:
        if data.name not in DATASETS:
            fix = nearest(data.name, DATASETS) + " Your own data need `dataset.path` and `dataset.public_size`."
            yield GateFinding("dataset-unknown", "dataset.name", "unknown data set", fix)
        elif data.public_size is not None:
            rule = f"the public size of {data.name} is already known and cannot be set"
            yield GateFinding("public-size-known", "dataset.public_size", rule, "Remove the key.")
    elif data.name in DATASETS:
        rule = f"the name {data.name} belongs to a shipped data set, which has no path"
        fix = "Choose another name for your own data. The ledger stores their budget under that name."
        yield GateFinding("dataset-name-taken", "dataset.path", rule, fix)
    elif data.public_size is None and draft.experiment.privacy.unit == "record":
        rule = "your own data need a PUBLIC number of training records"
        fix = (
            "The exact number is private. Write a number that may be published, for example the rounded number of "
            "people who were asked to take part."
        )
        yield GateFinding("public-size-missing", "dataset.public_size", rule, fix, "nothing")


@gate("trainable.task", "dataset", "search.public", "privacy.unit", "privacy.accounting")
def task(draft: Draft) -> Iterator[GateFinding]:
    """Require the task of the data set's labels, and what a task needs. Labels of the user's own are not read here."""
    experiment, key = draft.experiment, "trainable.task"
    chosen, public = experiment.trainable.task, experiment.search.public
    for data in (experiment.dataset, *([] if public is None else [public])):
        known = DATASETS.get(data.name) if data.path is None else None
        if known is None:
            continue
        if (known.task == REGRESSION) != (chosen == REGRESSION):
            what = "numbers" if known.task == REGRESSION else "classes"
            fix = "Write regression." if known.task == REGRESSION else "Write classification or binary."
            yield GateFinding("task-mismatch", key, f"the labels of {data.name} are {what}", fix)
        elif chosen == BINARY and known.classes != 2:
            rule = f"binary needs two classes, but {data.name} has {known.classes}"
            yield GateFinding("task-mismatch", key, rule, "Write classification.")
    if chosen == REGRESSION and experiment.privacy.unit == "user":
        rule = "a regression needs `unit: record`: no number can mark the empty places of a user with few records"
        yield GateFinding("task-of-users", key, rule, "Write `unit: record`.")
    if draft.mode.on_release and chosen != CLASSIFICATION:
        rule = "a release has class labels and is trained with the cross-entropy, so the task must be classification"
        yield GateFinding("task-mismatch", key, rule, "Write classification.")


@gate("dataset", "privacy.unit")
def block(draft: Draft) -> Iterator[GateFinding]:
    """Allow blocks only for the user's own records, and only if the unit is a record."""
    data, privacy = draft.experiment.dataset, draft.experiment.privacy
    if data.path is not None and "/" in data.name:
        rule = "a name must not contain `/`, which separates a table from its block"
        yield GateFinding("block-invalid", "dataset.name", rule, "Use another character, or write `dataset.block`.")
    if data.block is None:
        return
    if data.path is None:
        rule = "a shipped data set has no blocks"
        yield GateFinding("block-invalid", "dataset.block", rule, "Remove the key.")
    if privacy.unit == "user":
        rule = (
            "blocks cannot be used with `privacy.unit: user`: the records of a user may be in several blocks, and then "
            "no block has the total ε of this user"
        )
        fix = "Remove `block`. All records then share one budget for each user."
        yield GateFinding("block-of-users", "dataset.block", rule, fix)


@gate("dataset", "privacy.unit")
def unit(draft: Draft) -> Iterator[GateFinding]:
    """If users are protected, require a data set that assigns each record to a user."""
    data, privacy = draft.experiment.dataset, draft.experiment.privacy
    own = data.path is not None
    users = data.public_users if own else DATASETS[data.name].users if data.name in DATASETS else None
    if not own and data.public_users is not None:
        rule = f"the number of users of the shipped data set {data.name} is already known and cannot be set"
        yield GateFinding("public-size-known", "dataset.public_users", rule, "Remove the key.")
    if data.user_key is not None and (privacy.unit == "record" or not own):
        rule = "a user key is only for your own data, in a search with `privacy.unit: user`"
        yield GateFinding("user-key-unused", "dataset.user_key", rule, "Remove the key.")
    if privacy.unit == "record":
        if data.records_per_user != type(data).model_fields["records_per_user"].default:
            rule = "a bound on records per user needs `privacy.unit: user`, but the unit is record"
            fix = "Write `unit: user`, or remove the key."
            yield GateFinding("records-per-user-unused", "dataset.records_per_user", rule, fix)
        return
    if own and users is None:
        rule = "with `unit: user`, your own data need a PUBLIC number of users"
        fix = "Write a number that may be published. The data file must also contain the array user_train."
        yield GateFinding("public-size-missing", "dataset.public_users", rule, fix, "nothing")
    elif not own and data.name in DATASETS and users is None:
        known = ", ".join(name for name, about in DATASETS.items() if about.users is not None)
        rule = f"`unit: user` needs a data set that assigns each record to a user, but {data.name} does not"
        yield GateFinding("dataset-without-users", "privacy.unit", rule, f"Write `unit: record`, or use {known}.")


@gate("search.metric", "privacy.epsilon", "privacy.delta", "dataset", "privacy.unit")
def protected_scores(draft: Draft) -> Iterator[GateFinding]:
    """Check the budget and the metric of protected scores. Refuse a budget for scores that are not protected."""
    experiment = draft.experiment
    validation, at = experiment.dataset.validation, "dataset.validation"
    if not validation.protected:
        for name in ("epsilon", "delta", "noise"):
            if getattr(validation, name) not in (None, "auto"):
                rule = f"{name} applies to protected scores only, but the scores have `protected: false`"
                fix = "Write `protected: true`, or remove the key."
                yield GateFinding("scores-not-protected", f"{at}.{name}", rule, fix)
        return
    for name in ("epsilon", "delta"):
        own, whole = getattr(validation, name), getattr(experiment.privacy, name)
        if own is not None and own > whole:
            rule = f"must be at most `privacy.{name} = {whole:g}`, the limit of the whole search"
            fix = f"Lower this value, or raise privacy.{name}."
            yield GateFinding("validation-budget-too-large", f"{at}.{name}", rule, fix)
    metric = experiment.search.metric.name
    if metric in METRICS and METRICS[metric].sensitivity is None:
        rule = f"no bound is known for how far one record moves {metric}, so noise cannot protect this score"
        fix = "Write `protected: false`."
        if experiment.trainable.task != REGRESSION:
            fix = "Write validation_accuracy, whose count of right answers moves by at most 1 with one record."
        yield GateFinding("metric-not-protectable", "search.metric.name", rule, fix)
    try:
        size = public_validation_size(experiment.dataset_request())
    except DatasetError:
        return
    if size < 1:
        rule = "the public number of validation records must be at least 1 if scores are protected"
        yield GateFinding("validation-empty", f"{at}.fraction", rule, "Raise the fraction.")


DATA_GATES: tuple[Gate, ...] = (dataset, task, block, unit, protected_scores)
