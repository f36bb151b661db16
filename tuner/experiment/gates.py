"""What an experiment may not ask for although every value is well formed; each refusal says why and what to do.

A gate looks only at values that are well formed themselves, so one mistake is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from search_spaces import SpaceError, parse_space
from search_spaces.domains import is_number
from trainables.data import DATASETS
from trainables.hyperparameters import HYPERPARAMETERS
from trainables.model_names import ACTIVATIONS, MODELS, NORMALIZATIONS
from tuner.errors import InputError
from tuner.experiment.findings import Finding, Gate, priced_domains, public_size, whole_space
from tuner.experiment.gates_modes import MODE_GATES
from tuner.experiment.gates_priced import PRICED_GATES
from tuner.experiment.gates_promotion import PROMOTION_GATES
from tuner.experiment.gates_unimodal import UNIMODAL_GATES
from tuner.experiment.model import Component, Experiment
from tuner.experiment.wording import nearest
from tuner.experiment.yamlfile import Path
from tuner.study.names import PRUNERS, SAMPLERS, canonical_pruner, canonical_sampler, pruner_problems
from tuner.study.ratio import ratio_of

__all__ = ["GATES", "Finding"]


_METRICS = ("validation_accuracy", "validation_loss")
_USER_MODEL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


def _dataset(experiment: Experiment) -> Iterator[Finding]:
    dataset = experiment.dataset
    if dataset.path is None:
        if dataset.name not in DATASETS:
            fix = nearest(dataset.name, DATASETS) + " Your own data need dataset.path and dataset.public_size."
            yield Finding(path=("dataset", "name"), rule="unknown data set", fix=fix)
        elif dataset.public_size is not None:
            rule = f"the public size of {dataset.name} is known and not set"
            yield Finding(path=("dataset", "public_size"), rule=rule, fix="Leave it out.")
    elif dataset.name in DATASETS:
        rule = f"{dataset.name} is the name of a shipped data set, which takes no path"
        fix = "Give your own data a name of their own: the budget is kept under it."
        yield Finding(path=("dataset", "path"), rule=rule, fix=fix)
    elif dataset.public_size is None and experiment.privacy.unit == "record":
        rule = "your own data need a PUBLIC number of training records: their exact number is private"
        fix = "Write a number that may be known, for example the number of people asked, rounded down."
        yield Finding(path=("dataset", "public_size"), rule=rule, fix=fix, value="nothing")


def _names(experiment: Experiment) -> Iterator[Finding]:
    trainable = experiment.trainable
    if trainable.method not in HYPERPARAMETERS:
        yield Finding(
            path=("trainable", "method"), rule="unknown method", fix=nearest(trainable.method, HYPERPARAMETERS)
        )
    if trainable.model not in MODELS and not _USER_MODEL.match(trainable.model):
        fix = nearest(trainable.model, MODELS) + " Your own stands as package.module:function."
        yield Finding(path=("trainable", "model"), rule="unknown model", fix=fix)
    if trainable.activation not in ACTIVATIONS:
        fix = nearest(trainable.activation, ACTIVATIONS)
        yield Finding(path=("trainable", "activation"), rule=f"must be one of {', '.join(ACTIVATIONS)}", fix=fix)


def _normalization(experiment: Experiment) -> Iterator[Finding]:
    path: Path = ("trainable", "normalization")
    word = experiment.trainable.normalization
    allowed = [name for name in NORMALIZATIONS if name != "batch"]
    if word.lower().replace("_", "") in ("batch", "batchnorm"):
        rule = "BatchNorm mixes the samples of a batch before the clip, so no bound on one record's influence holds"
        yield Finding(path=path, rule=rule, fix=f"Use {' or '.join(reversed(allowed))}.")
    elif word not in allowed:
        yield Finding(path=path, rule=f"must be one of {', '.join(allowed)}", fix=nearest(word, allowed))


def _sampling(experiment: Experiment) -> Iterator[Finding]:
    word = experiment.trainable.sampling
    if word != "poisson":
        known = word in ("shuffle", "shuffled", "fixed", "uniform")
        why = (
            ": shuffled or fixed-size batches do not have the amplification that is accounted (one shuffled epoch of "
            "195 steps at noise 1.1 is at least ε=3.08 where Poisson accounting prints 0.35)"
        )
        yield Finding(
            path=("trainable", "sampling"),
            rule=f"must be poisson{why if known else ''}",
            fix="Leave it out or write poisson.",
        )


def _optimizer(experiment: Experiment) -> Iterator[Finding]:
    if experiment.trainable.optimizer == "adam" and experiment.trainable.momentum != 0:
        rule = "momentum belongs to sgd; adam has its own"
        yield Finding(path=("trainable", "momentum"), rule=rule, fix="Leave it out, or take sgd.")


def _batch_size(experiment: Experiment) -> Iterator[Finding]:
    size = public_size(experiment)
    if size is None:
        return
    domain, path = priced_domains(experiment).get("batch_size", (None, ("trainable", "batch_size")))
    largest = experiment.trainable.batch_size if domain is None else max(domain.grid(2), key=float)
    if not float(largest) <= size:
        who = "users" if experiment.privacy.unit == "user" else "training records"
        rule = f"must be at most the {size} public {who}: sample_rate cannot pass 1"
        yield Finding(path=path, rule=rule, fix="Lower it.")


def _delta(experiment: Experiment) -> Iterator[Finding]:
    size = public_size(experiment)
    if size is not None and not experiment.privacy.delta < 1 / size:
        whole, who = ("user", "users") if experiment.privacy.unit == "user" else ("record", "training records")
        rule = (
            f"must be below 1 / n = {1 / size:.3g} for the {size} public {who}: at 1 / n a mechanism that "
            f"publishes one whole {whole} would pass"
        )
        yield Finding(path=("privacy", "delta"), rule=rule, fix=f"Write at most {size**-1.1:.1g}.")


_ACCOUNTANTS = {
    "gdp": "the GDP accountant under-reports: it prints ε = 0.271 where the true value is 0.347",
    "rdp": "RDP is an upper bound too, and a looser one; where it is needed, privacy.cap: fixed_order uses it",
    "prv": "the PRV accountant needs 7 GB at 1.1 million steps, and no bound of its rounding is known here",
}


def _accountant(experiment: Experiment) -> Iterator[Finding]:
    word = experiment.privacy.accountant
    if word != "pld":
        why = _ACCOUNTANTS.get(word.lower().removesuffix("accountant").strip("_-. "))
        rule = f"must be pld{f': {why}' if why else ''}"
        yield Finding(path=("privacy", "accountant"), rule=rule, fix="Leave it out or write pld.")


def _adjacency(experiment: Experiment) -> Iterator[Finding]:
    word = experiment.privacy.adjacency
    if word != "add_or_remove_one":
        known = word in ("replace_one", "substitute", "zero_out")
        rule = f"{word} adjacency is not in this version" if known else "must be add_or_remove_one"
        yield Finding(path=("privacy", "adjacency"), rule=rule, fix="Leave it out or write add_or_remove_one.")


def _noise(experiment: Experiment) -> Iterator[Finding]:
    if experiment.privacy.private and experiment.privacy.noise_multiplier == 0:
        rule = "must be above 0: without noise there is no privacy"
        fix = "Write auto, or private: false for a study."
        yield Finding(path=("privacy", "noise_multiplier"), rule=rule, fix=fix)


def _noise_seed(experiment: Experiment) -> Iterator[Finding]:
    if experiment.privacy.private and experiment.privacy.noise_seed is not None:
        rule = "noise that can be drawn again protects nobody: a fixed noise seed needs private: false"
        fix = "Leave it out; seed: sets the public seed of initialisation and search."
        yield Finding(path=("privacy", "noise_seed"), rule=rule, fix=fix)


def _component(
    kind: str, part: Component, canonical: str | None, table: dict[str, tuple[str, ...]]
) -> Iterator[Finding]:
    path: Path = ("search", kind)
    if canonical is None:
        aliases = ("asha",) if kind == "pruner" else ()
        yield Finding(path=path, rule=f"unknown {kind}", fix=nearest(part.name, (*table, *aliases)), value=part.name)
        return
    for option, value in part.options.items():
        here = (*path, option)
        if option not in table[canonical]:
            fix = nearest(option, table[canonical]) if table[canonical] else "It takes none."
            yield Finding(path=here, rule=f"{kind} {part.name} has no option {option}", fix=fix)
        elif isinstance(value, float) and not is_number(value):
            yield Finding(path=here, rule="must be a finite number")


def _sampler(experiment: Experiment) -> Iterator[Finding]:
    part = experiment.search.sampler
    found = list(_component("sampler", part, canonical_sampler(part.name), SAMPLERS))
    yield from found
    if not found and canonical_sampler(part.name) == "bounded":
        try:
            ratio_of(part.options)
        except InputError as error:
            rule, _, fix = str(error).partition(". ")
            yield Finding(path=("search", "sampler"), rule=rule.partition(", got ")[0], fix=fix)


def _pruner(experiment: Experiment) -> Iterator[Finding]:
    part = experiment.search.pruner
    found = list(_component("pruner", part, canonical_pruner(part.name), PRUNERS))
    yield from found
    if not found:
        for sentence in pruner_problems(part.name, part.options):
            yield Finding(path=("search", "pruner"), rule=sentence)


def _space(experiment: Experiment) -> Iterator[Finding]:
    method = experiment.trainable.method
    at: Path = ("search", "space")
    try:
        parse_space(experiment.search.space, method=method if method in HYPERPARAMETERS else None)
    except SpaceError as error:
        for problem in error.problems:
            yield Finding(path=(*at, *problem.path), rule=problem.rule, value=problem.value, fix=problem.fix)


def _augmentation(experiment: Experiment) -> Iterator[Finding]:
    """Of shipped data only: the shape of the user's own stands in their file, which may not be here yet."""
    dataset, space = experiment.dataset, experiment.search.space
    if "augmentation" not in space or any(_space(experiment)) or dataset.path is not None:
        return
    shape = DATASETS[dataset.name].input_shape if dataset.name in DATASETS else ()
    domain = dict(parse_space({"augmentation": space["augmentation"]}, method=None).parameters)["augmentation"]
    if shape and len(shape) != 3 and any(word != "none" for word in domain.grid(1)):
        yield Finding(
            path=("search", "space", "augmentation"),
            rule=f"only images (channels, height, width) are augmented; inputs of {dataset.name} have shape {shape}",
            fix="Leave it out.",
        )


def _one_configuration(experiment: Experiment) -> Iterator[Finding]:
    search, method = experiment.search, experiment.trainable.method
    # An empty space stands for the method's default one, in which something is searched.
    if search.trials == 1 or not search.space or method not in HYPERPARAMETERS or any(_space(experiment)):
        return
    domains = [domain for _, domain in whole_space(experiment).parameters]
    if all(len(domain.grid(2)) == 1 for domain in domains):
        yield Finding(
            path=("search", "space"),
            rule="something must be searched where search.trials is above 1: identical trials would spend the whole "
            "ε on one configuration",
            value=f"{search.trials} trials of one configuration",
            fix="Search something (for example learning_rate: default), or write trials: 1.",
        )


def _metric(experiment: Experiment) -> Iterator[Finding]:
    metric = experiment.search.metric
    path: Path = ("search", "metric", "name")
    if metric.name.startswith("test"):
        rule = "the test set is touched once, at export: a search that looks at it reports a score that is too good"
        yield Finding(path=path, rule=rule, fix="Use validation_accuracy or validation_loss.")
    elif metric.name.startswith("train"):
        rule = "a score on training records is not charged and would leak them"
        yield Finding(path=path, rule=rule, fix="Use validation_accuracy or validation_loss.")
    elif metric.name not in _METRICS:
        yield Finding(path=path, rule="unknown metric", fix=nearest(metric.name, _METRICS))
    elif (metric.name == "validation_loss") != (metric.mode == "min"):
        better = "min" if metric.name == "validation_loss" else "max"
        rule = f"{metric.name} is better when it is {'smaller' if better == 'min' else 'greater'}"
        yield Finding(path=("search", "metric", "mode"), rule=rule, fix=f"Write {better}.")


def _workers(experiment: Experiment) -> Iterator[Finding]:
    if experiment.resources.workers_per_trial > 1:
        rule = "several workers for one trial are not in this version"
        fix = "Write 1, and raise concurrent_trials instead."
        yield Finding(path=("resources", "workers_per_trial"), rule=rule, fix=fix)


GATES: tuple[tuple[Gate, tuple[Path, ...]], ...] = (
    (_dataset, (("dataset", "name"), ("dataset", "path"), ("dataset", "public_size"), ("privacy", "unit"))),
    (_names, (("trainable", "method"), ("trainable", "model"), ("trainable", "activation"))),
    (_normalization, (("trainable", "normalization"),)),
    (_sampling, (("trainable", "sampling"),)),
    (_optimizer, (("trainable", "optimizer"), ("trainable", "momentum"))),
    (_batch_size, (("trainable", "batch_size"), ("dataset",), ("search", "space"), ("privacy", "unit"))),
    (_delta, (("privacy", "delta"), ("dataset",), ("privacy", "unit"))),
    (_accountant, (("privacy", "accountant"),)),
    (_adjacency, (("privacy", "adjacency"),)),
    (_noise, (("privacy", "noise_multiplier"), ("privacy", "private"))),
    (_noise_seed, (("privacy", "noise_seed"), ("privacy", "private"))),
    (_sampler, (("search", "sampler"),)),
    (_pruner, (("search", "pruner"),)),
    (_space, (("search", "space"),)),
    (_augmentation, (("search", "space"), ("dataset",))),
    (_one_configuration, (("search", "space"), ("search", "trials"), ("trainable", "method"))),
    (_metric, (("search", "metric"),)),
    (_workers, (("resources", "workers_per_trial"),)),
    *PRICED_GATES,
    *PROMOTION_GATES,
    *MODE_GATES,
    *UNIMODAL_GATES,
)
"""Every gate with the keys it looks at: it is asked only when all of these are well formed."""
