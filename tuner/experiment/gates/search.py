"""Gates for the sampler, the pruner, the search space and the metric."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import PARAMETERS, SpaceError
from search_spaces.domains import is_number
from trainables.data import DATASETS
from trainables.tasks import METRICS, REGRESSION
from tuner.errors import InputError
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.experiment.sections import Component
from tuner.experiment.wording import nearest
from tuner.privacy.modes import COMPOSITION
from tuner.study.names import PRUNERS, SAMPLERS, canonical_pruner, canonical_sampler, pruner_problems
from tuner.study.samplers.ratio import ratio_of

__all__ = ["SEARCH_GATES"]


def _component(
    kind: str, part: Component, canonical: str | None, table: dict[str, tuple[str, ...]]
) -> Iterator[GateFinding]:
    key = f"search.{kind}"
    if canonical is None:
        aliases = ("asha",) if kind == "pruner" else ()
        yield GateFinding(f"{kind}-unknown", key, f"unknown {kind}", nearest(part.name, (*table, *aliases)), part.name)
        return
    for option, value in part.options.items():
        path = ("search", kind, option)
        if option not in table[canonical]:
            fix = nearest(option, table[canonical]) if table[canonical] else "It has no options."
            yield GateFinding("option-unknown", path, f"{kind} {part.name} has no option {option}", fix)
        elif isinstance(value, float) and not is_number(value):
            yield GateFinding("value-not-finite", path, "must be a finite number")


@gate("search.sampler")
def sampler(draft: Draft) -> Iterator[GateFinding]:
    """Require a known sampler, and only options that this sampler has."""
    part = draft.experiment.search.sampler
    canonical = canonical_sampler(part.name)
    found = list(_component("sampler", part, canonical, SAMPLERS))
    yield from found
    if not found and canonical == "bounded":
        try:
            ratio_of(part.options)
        except InputError as error:
            rule, _, fix = error.message.partition(". ")
            yield GateFinding(error.code, "search.sampler", rule.partition(" (got ")[0], fix)


@gate("search.pruner")
def pruner(draft: Draft) -> Iterator[GateFinding]:
    """Require a known pruner, and only options that this pruner has."""
    part = draft.experiment.search.pruner
    found = list(_component("pruner", part, canonical_pruner(part.name), PRUNERS))
    yield from found
    if not found:
        for sentence in pruner_problems(part.name, part.options):
            rule, _, fix = sentence.partition(". ")
            yield GateFinding("option-missing", "search.pruner", rule, fix)


@gate("search.space")
def space(draft: Draft) -> Iterator[GateFinding]:
    """Require parameters that the method has, with valid domains."""
    if isinstance(draft.parsed, SpaceError):
        for problem in draft.parsed.problems:
            yield GateFinding(
                problem.code, ("search", "space", *problem.path), problem.rule, problem.fix, problem.value
            )


@gate("search.space", "dataset")
def augmentation(draft: Draft) -> Iterator[GateFinding]:
    """Refuse augmentation for a shipped data set without images. The user's own data file is not read here."""
    dataset = draft.experiment.dataset
    if "augmentation" not in draft.experiment.search.space or draft.space is None or dataset.path is not None:
        return
    shape = DATASETS[dataset.name].input_shape if dataset.name in DATASETS else ()
    domain = dict(draft.space.parameters)["augmentation"]
    if shape and len(shape) != 3 and any(word != "none" for word in domain.grid(1)):
        rule = (
            "augmentation needs images of shape (channels, height, width), but the inputs of "
            f"{dataset.name} have shape {shape}"
        )
        yield GateFinding("augmentation-needs-images", "search.space.augmentation", rule, "Remove the key.")


@gate("search.space")
def extrapolation(draft: Draft) -> Iterator[GateFinding]:
    """Refuse an extrapolation of the average of the weights in a space that has no average."""
    found = {} if draft.space is None else dict(draft.space.parameters)
    if not found.keys() >= {"ema_decay", "extrapolation"}:
        return
    if not any(found["ema_decay"].grid(2)) and any(found["extrapolation"].grid(2)):
        rule = "applies to the average of the weights, and with `ema_decay: 0` there is none"
        fix = "Remove the key, or write `ema_decay: 0.9999`."
        yield GateFinding("extrapolation-unused", "search.space.extrapolation", rule, fix)


@gate("search.space", "search.trials", "trainable.method")
def several_configurations(draft: Draft) -> Iterator[GateFinding]:
    """If there are several trials, require a searched parameter. With `accounting: auto`, one run is planned then."""
    trials = draft.experiment.search.trials
    if trials == 1 or draft.method is None or draft.space is None or draft.experiment.is_auto:
        return
    if all(len(domain.grid(2)) == 1 for _, domain in draft.space.parameters):
        yield GateFinding(
            "nothing-searched",
            "search.space",
            "several trials need at least one searched parameter, because identical trials waste the budget",
            "Give a parameter a domain (`learning_rate: default` searches its default range), or write `trials: 1`.",
            f"{trials} trials of one configuration",
        )


@gate("search.metric", "trainable.task", "dataset")
def metric(draft: Draft) -> Iterator[GateFinding]:
    """Require a validation score that the task has as the metric, and its direction (``max`` or ``min``)."""
    name, mode = draft.experiment.search.metric.name, draft.experiment.search.metric.mode
    data, task = draft.experiment.dataset, draft.experiment.trainable.task
    key, fix = "search.metric.name", "Use validation_accuracy or validation_loss."
    if name.startswith("test"):
        rule = "a test score cannot guide a search, because the reported test score would then be too optimistic"
        yield GateFinding("metric-not-validation", key, rule, fix)
    elif name.startswith("train"):
        rule = "a training score cannot guide a search, because it would reveal training records without a charge"
        yield GateFinding("metric-not-validation", key, rule, fix)
    elif name not in METRICS:
        yield GateFinding("metric-unknown", key, "unknown metric", nearest(name, METRICS))
    elif task not in METRICS[name].tasks:
        rule = f"a {task} has no {name.removeprefix('validation_')}"
        fix = "Write `metric: {name: validation_loss, mode: min}`, the mean squared error."
        yield GateFinding("metric-of-task", key, rule, fix if task == REGRESSION else "", name)
    elif METRICS[name].mode != mode:
        rule = f"{name} is better when it is {'lower' if METRICS[name].mode == 'min' else 'higher'}"
        yield GateFinding("metric-direction", "search.metric.mode", rule, f"Write {METRICS[name].mode}.")
    elif METRICS[name].two_classes and data.path is None and data.name in DATASETS and DATASETS[data.name].classes != 2:
        rule = f"{name} needs two classes, but {data.name} has {DATASETS[data.name].classes}"
        yield GateFinding("metric-of-task", key, rule, "Write validation_balanced_accuracy.")


@gate("search.space", "search.rungs", "trainable.method")
def promotion(draft: Draft) -> Iterator[GateFinding]:
    """Require at least one rung for each level of a promoted parameter, which rises during a trial."""
    if draft.space is None:
        return
    search = draft.experiment.search
    reports = search.rungs if isinstance(search.rungs, int) else len(search.rungs)
    for name, levels in draft.space.promoted.items():
        if reports < len(levels):
            key = next(key for key in (name, *PARAMETERS[name].aliases) if key in search.space)
            yield GateFinding(
                "promotion-needs-rungs",
                ("search", "space", key),
                "a parameter with `promote` needs a rung for each level, because each level begins at its own rung",
                f"Write `search.rungs: {len(levels)}` or more, or write fewer levels.",
                f"{len(levels)} levels and {reports} rung{'' if reports == 1 else 's'}",
            )


@gate("search.full_runs", "search.trials", "privacy.accounting", "privacy.private")
def full_runs(draft: Draft) -> Iterator[GateFinding]:
    """Allow `full_runs` only in an open, charged search, and at most as many runs as trials."""
    search, key, remove = (
        draft.experiment.search,
        "search.full_runs",
        "Remove the key, or write `accounting: composition`.",
    )
    if search.full_runs is None:
        return
    if draft.mode.runs_hidden:
        rule = (
            "a sealed search needs complete, independent runs, but with full_runs the scores decide how long runs are"
        )
        yield GateFinding("full-runs-needs-composition", key, rule, remove)
    elif draft.mode is not COMPOSITION:
        rule = "trials of this accounting are not charged one by one, so `full_runs` has no budget to plan"
        yield GateFinding("full-runs-needs-composition", key, rule, remove)
    elif not draft.experiment.privacy.private:
        rule = "a search that is not private charges nothing, so `full_runs` has no budget to plan"
        yield GateFinding("full-runs-needs-composition", key, rule, "Remove the key, or write `private: true`.")
    elif search.full_runs != "auto" and search.full_runs > search.trials:
        rule = f"must be at most `search.trials` = {search.trials}, because no trial trains for more than one whole run"
        yield GateFinding("full-runs-above-trials", key, rule, "Lower full_runs, or write auto.")


SEARCH_GATES: tuple[Gate, ...] = (
    sampler,
    pruner,
    space,
    augmentation,
    extrapolation,
    several_configurations,
    metric,
    promotion,
    full_runs,
)
