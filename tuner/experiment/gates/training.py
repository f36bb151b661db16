"""Gates for the method, the model, the batches and the workers."""

from __future__ import annotations

from collections.abc import Iterator

from trainables.methods import METHODS
from trainables.model_names import ACTIVATIONS, MODELS, NORMALIZATIONS
from tuner.experiment.gates.finding import OWN_CODE, Draft, Gate, GateFinding, gate
from tuner.experiment.wording import nearest

__all__ = ["TRAINING_GATES"]


@gate("trainable.method", "trainable.model", "trainable.activation")
def names(draft: Draft) -> Iterator[GateFinding]:
    """Require a known method, model and activation."""
    trainable = draft.experiment.trainable
    if draft.method is None:
        fix = nearest(trainable.method, METHODS) + " Write your own method as package.module:function."
        yield GateFinding("method-unknown", "trainable.method", "unknown method", fix)
    if trainable.model not in MODELS and not OWN_CODE.match(trainable.model):
        fix = nearest(trainable.model, MODELS) + " Write your own model as package.module:function."
        yield GateFinding("model-unknown", "trainable.model", "unknown model", fix)
    if trainable.activation not in ACTIVATIONS:
        rule = f"must be one of {', '.join(ACTIVATIONS)}"
        yield GateFinding("value-not-allowed", "trainable.activation", rule, nearest(trainable.activation, ACTIVATIONS))


@gate("trainable.normalization")
def normalization(draft: Draft) -> Iterator[GateFinding]:
    """Refuse layers that mix the records of a batch."""
    key, word = "trainable.normalization", draft.experiment.trainable.normalization
    allowed = [name for name in NORMALIZATIONS if name != "batch"]
    if word.lower().replace("_", "") in ("batch", "batchnorm"):
        rule = "BatchNorm is not allowed, because it mixes the records of a batch before clipping"
        yield GateFinding("batch-norm-refused", key, rule, f"Use {' or '.join(reversed(allowed))}.")
    elif word not in allowed:
        yield GateFinding("value-not-allowed", key, f"must be one of {', '.join(allowed)}", nearest(word, allowed))


@gate("trainable.sampling")
def sampling(draft: Draft) -> Iterator[GateFinding]:
    """Require batches that are Poisson samples."""
    if draft.experiment.trainable.sampling != "poisson":
        rule = "must be poisson, because shuffled and fixed-size batches have a weaker guarantee"
        fix = (
            "For one epoch of 195 steps at noise multiplier 1.1, ε is at least 3.08 with shuffled batches and 0.35 "
            "with Poisson batches. Remove the key, or write poisson."
        )
        yield GateFinding("batches-not-poisson", "trainable.sampling", rule, fix)


@gate("trainable.optimizer", "trainable.momentum")
def optimizer(draft: Draft) -> Iterator[GateFinding]:
    """Refuse momentum with Adam."""
    trainable = draft.experiment.trainable
    if trainable.optimizer != "sgd" and trainable.momentum != 0:
        rule = f"momentum applies to sgd only, because {trainable.optimizer} has its own momentum"
        yield GateFinding(
            "momentum-with-adam", "trainable.momentum", rule, "Remove the key, or write `optimizer: sgd`."
        )


@gate("trainable.batch_size", "dataset", "search.space", "privacy.unit")
def batch_size(draft: Draft) -> Iterator[GateFinding]:
    """Require a batch size of at most the public number of records (or users), so that the sample rate is at most 1."""
    size = draft.public_size
    if size is None:
        return
    domain, path = draft.priced.get("batch_size", (None, ("trainable", "batch_size")))
    largest = draft.experiment.trainable.batch_size if domain is None else max(domain.grid(2), key=float)
    if not float(largest) <= size:
        who = "users" if draft.experiment.privacy.unit == "user" else "training records"
        rule = f"must be at most {size}, the public number of {who}, because a sample rate is at most 1"
        yield GateFinding("batch-size-too-large", path, rule, "Lower the batch size.")


@gate("trainable.start", "trainable.freeze", "privacy.accounting")
def start(draft: Draft) -> Iterator[GateFinding]:
    """Require weights that are declared public, and refuse them in searches on a release.

    A release has one entry in the ledger, and later searches change nothing of it. So no card could name their weights.
    """
    trainable = draft.experiment.trainable
    if draft.mode.on_release:
        rule = "training on a release cannot use public weights, because the card of a release cannot name them"
        for key, value in (("start", trainable.start), ("freeze", trainable.freeze)):
            if value:
                yield GateFinding("start-with-release", f"trainable.{key}", rule, "Remove the key.")
    named = trainable.start
    if named is not None and not named.public:
        rule = "must be true, because the claim does not cover what the weights already contain about the records"
        fix = "Write public: true only if no record of this search was used for the weights. Else leave `start` out."
        yield GateFinding("start-not-declared", "trainable.start.public", rule, fix)


@gate("resources.workers_per_trial", "resources.gpus_per_trial")
def workers(draft: Draft) -> Iterator[GateFinding]:
    """Refuse several workers for a method without batches, and a worker with a GPU and a part of another."""
    resources, kind = draft.experiment.resources, METHODS.get(draft.method or "")
    if resources.workers_per_trial > 1 and kind is not None and (kind.on_release or kind.at_once):
        rule = f"must be 1, because the workers of a trial share its batches, and {draft.method} has no batches"
        fix = "To run more trials at once, raise concurrent_trials instead."
        yield GateFinding("workers-unsupported", "resources.workers_per_trial", rule, fix)
    each = resources.gpus_per_trial / resources.workers_per_trial
    if not each.is_integer() and (each > 1 or resources.workers_per_trial > 1):
        rule = f"gives each worker {each:g} GPUs, but only a trial with one worker can have a part of one GPU"
        fix = "Write a multiple of workers_per_trial, or with one worker a fraction below 1."
        yield GateFinding("gpus-not-whole", "resources.gpus_per_trial", rule, fix)


TRAINING_GATES: tuple[Gate, ...] = (names, normalization, sampling, optimizer, batch_size, start, workers)
