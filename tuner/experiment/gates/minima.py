"""Gates for methods that perturb the minimum of a convex loss, whose conditions are those of their proofs."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import MINIMA
from search_spaces.domains import is_number
from trainables.methods.output_perturbation import LEAST_WEIGHT_DECAY
from trainables.tasks import CLASSIFICATION
from tuner.experiment.gates.finding import Draft, Gate, GateFinding, gate
from tuner.study.names import canonical_sampler

__all__ = ["MINIMA_GATES"]


@gate("trainable.method", "trainable.model")
def convex(draft: Draft) -> Iterator[GateFinding]:
    """Require logistic regression, and a strongly convex loss."""
    trainable = draft.experiment.trainable
    if draft.method not in MINIMA:
        return
    if trainable.model != "logistic_regression":
        rule = f"{trainable.method} needs a convex loss, which {trainable.model} does not have"
        fix = "Write logistic_regression, or a method with private steps."
        yield GateFinding("model-not-convex", "trainable.model", rule, fix)
    for name, domain in () if draft.space is None else draft.space.parameters:
        if name == "weight_decay" and min(value for value in domain.grid(2) if is_number(value)) < LEAST_WEIGHT_DECAY:
            rule = (
                f"weight_decay must be at least {LEAST_WEIGHT_DECAY:g}, because it limits how far one record moves the "
                "minimum"
            )
            yield GateFinding("convex-not-strong", "search.space.weight_decay", rule, "Write for example 0.01.")


@gate("trainable.method", "trainable.batch_size", "trainable.epochs", "dataset", "privacy.unit")
def one_step(draft: Draft) -> Iterator[GateFinding]:
    """Require one step on all records."""
    trainable, size = draft.experiment.trainable, draft.public_size
    if draft.method not in MINIMA or size is None:
        return
    rule = f"{trainable.method} takes one step on all records"
    if trainable.batch_size != size:
        fix = f"Write {size}, the public number of training records."
        yield GateFinding("convex-one-step", "trainable.batch_size", rule, fix)
    if trainable.epochs != 1:
        yield GateFinding("convex-one-step", "trainable.epochs", rule, "Write 1.")


@gate("trainable.method", "trainable.task", "trainable.start", "trainable.freeze", "privacy.unit", "search")
def proved(draft: Draft) -> Iterator[GateFinding]:
    """Refuse what the proofs do not cover, and what has no effect on a minimum."""
    experiment = draft.experiment
    if draft.method not in MINIMA:
        return
    trainable, search, method = experiment.trainable, experiment.search, experiment.trainable.method
    refused = {
        "trainable.task": (trainable.task != CLASSIFICATION, "its bound is proved for the softmax loss only"),
        "trainable.start": (trainable.start is not None, "the minimum does not depend on initial weights"),
        "trainable.freeze": (bool(trainable.freeze), "the minimum is over all weights, so none can be frozen"),
        "privacy.unit": (
            experiment.privacy.unit != "record",
            "a user's records move the minimum further than one record",
        ),
        "privacy.accounting": (experiment.is_auto, "auto compares only searches with private steps"),
        "search.public": (
            search.public is not None,
            "it divides by the number of records, which differs between the two data sets",
        ),
        "search.full_runs": (search.full_runs is not None, "a run of one step has no rungs"),
        "search.commit": (search.commit is not None, "a run of one step cannot be made shorter"),
        "search.sampler": (
            canonical_sampler(search.sampler.name) == "surrogate",
            "the prior of the surrogate covers only private steps",
        ),
    }
    for key, (found, why) in refused.items():
        if found:
            yield GateFinding("convex-unsupported", key, f"{method} does not support this: {why}", "Remove the key.")


MINIMA_GATES: tuple[Gate, ...] = (convex, one_step, proved)
