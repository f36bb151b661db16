"""Exception tree of the trainables.

TrainableError
├── HyperparameterError   a hyper-parameter is unknown, not finite or out of range
├── DatasetError          a data set is unknown, missing or does not match its checksum
├── GateError             the request would break the privacy guarantee
├── InfrastructureError   the machine or the model failed on PUBLIC inputs, whatever the records are
└── WalledError           something failed behind the wall, which says no more
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "EXPLANATIONS",
    "FAILURES",
    "DatasetError",
    "GateError",
    "HyperparameterError",
    "InfrastructureError",
    "TrainableError",
    "WalledError",
]

EXPLANATIONS: dict[str, str] = {
    # releases
    "release-unreadable": "The charged release cannot be read, or is not the one that was charged. Restore the file "
    "from a copy, or start a new search, which draws and charges a new release.",
    "convex-not-strong": "A minimum can be perturbed only if an L2 term bounds how far one record moves it. Write a "
    "`weight_decay` above 0.",
    "convex-tolerance": "The solver of a perturbed minimum works in double precision. Ask for a larger tolerance.",
    "convex-unsupported": (
        "Output and objective perturbation are proved for records of a classification, logistic regression from a "
        "public start, and open or sealed searches of whole runs. Remove the key that the message names."
    ),
    "convex-one-step": (
        "A perturbed minimum is one step on all records. Write `epochs: 1` and the public number of training records "
        "as `batch_size`."
    ),
    "model-not-convex": "The loss of a network is not convex, so one record may move its minimum without limit.",
    "gain-not-linear": "The gain multiplies the weights of a linear first layer. Write `feature_gain: 1`.",
    "release-damaged": "The stored release has another form than dp-tuner writes. Start a new search.",
    "release-empty": "No query passed the threshold, so a student has no label. Lower `privacy.votes.threshold` or "
    "raise `privacy.epsilon`. A new search draws and charges new labels.",
    "votes-missing": "Teachers voted on no input of this data set. Name a data set with votes.",
    "votes-damaged": "Each row of a file of votes has one vote of each teacher, whose public number the data set "
    "states. Correct the file.",
    "method-not-on-release": "A training on a release needs a method for releases and the file of one. Please report "
    "this as a bug.",
    "rank-draws": "Only the first worker of a trial draws batches and noise. Please report this as a bug.",
    "workers-not-shared": (
        "The workers of a trial share its batches. A method without batches trains in one process: write "
        "`resources.workers_per_trial: 1`."
    ),
    # hyper-parameters; the explanations of other codes are in search_spaces.errors
    "method-unknown": "There is no training method of this name. Check the spelling. The message suggests a name.",
    "method-not-importable": (
        "Your own method is a function package.module:function that every worker can import. Check the name and the "
        "Python path."
    ),
    "method-parameters": (
        "The parameters under `search.space.own` must be those of the function of your own method. Those without a "
        "default are required."
    ),
    "method-stages-invalid": (
        "The function of your own method must return a mapping with `before_clip`, `after_noise` or both. Sampling, "
        "clip, noise and normalisation are the engine's, because the guarantee rests on them."
    ),
    "method-output-invalid": (
        "A stage of your own method must return a vector of the shape and type that it gets, with finite numbers."
    ),
    "method-depends-on-more": (
        "A stage of your own method must be a function of its argument: `before_clip` of one sample's gradient, "
        "and `after_noise` of the noised gradient. No checkpoint stores what it keeps between calls or "
        "draws at random, and no clip bounds what it keeps of a sample."
    ),
    "method-with-corrected-adam": (
        "The corrected Adam subtracts the variance of the noise, which is not known after a stage of your own."
    ),
    "parameter-priced": "ε depends on this parameter, so trials do not choose it. Set it in the experiment file.",
    "momentum-with-adam": "Adam has its own averages and takes no momentum. Remove momentum, or use sgd.",
    "augmentation-needs-images": (
        "Only images of shape (channels, height, width) can be flipped or cropped. Set augmentation to none."
    ),
    "optimizer-mismatch": "This parameter belongs to another optimizer. Remove it, or choose its optimizer.",
    "schedule-mismatch": "This parameter belongs to another schedule. Remove it, or choose its schedule.",
    "promotion-malformed": (
        "A number that rises within a trial needs at least two rising levels and the first step of each level. The "
        "last level must start before the last step."
    ),
    "step-beyond-end": "A training takes at most the number of steps in its specification. Ask for fewer steps.",
    "probes-not-charged": (
        "The loss probes of the schedule gen are a second release of every step. Their noise must follow from the "
        "charged noise of the step. Take both from one mechanism."
    ),
    # models
    "model-unknown": (
        "There is no model of this name. Check the spelling, or write your own model as package.module:function."
    ),
    "model-option-unknown": "The model does not have this option. Choose one that the message lists.",
    "model-not-importable": (
        "Your own model is a function package.module:function that every worker can import. Check the name and the "
        "Python path."
    ),
    "model-not-module": "The function of your own model must return an nn.Module.",
    "model-shape-mismatch": "The model cannot take inputs of this shape. Choose a model that fits the data set.",
    "model-output-shape": (
        "A model must return one logit for each class and sample, as a tensor of shape (samples, classes). Give its "
        "last layer one output for each class."
    ),
    "model-output-not-finite": (
        "The model returned NaN or infinity for ordinary inputs. Look for a division by zero, the logarithm of a "
        "negative number, or weights that are too large."
    ),
    "model-not-trainable": "A model needs at least one parameter that requires a gradient.",
    "start-not-declared": (
        "The claim of a search covers only what it learnt from its records itself. So `trainable.start` must say that "
        "its weights are public, which means that none of the records of this search was used for them. Write `start: "
        "{path: FILE.safetensors, public: true}`."
    ),
    "start-unreadable": (
        "The weights of `trainable.start` must be a safetensors file that every worker can read. Pickled files are "
        "refused, because reading one can execute code."
    ),
    "start-changed": (
        "The file of `trainable.start` is not the one with which the search was declared, as its hash shows. Restore "
        "the file from a copy, or start a new search."
    ),
    "start-does-not-fit": (
        "Each tensor of `trainable.start` must have the name, the shape and the kind of numbers of a parameter of the "
        "model. Parameters that the file does not have start as usual, so leave out what does not fit."
    ),
    "start-not-finite": "A number of `trainable.start` is NaN or infinite in single precision. Use other weights.",
    "start-trained-here": (
        "The weights of `trainable.start` were trained on this data set, as their file or the privacy card next to it "
        "says. They are not public: the claim of a search from them would leave out what they know of the records."
    ),
    "freeze-unknown": (
        "`trainable.freeze` names layers of the model, or single parameters. The message lists the layers of the model."
    ),
    # the private step
    "samples-mixed": (
        "The output of the model for one sample depends on other samples, so clipping cannot bound the effect of one "
        "record. Use layers that treat every sample alone, such as GroupNorm."
    ),
    "model-raises": (
        "A model must return logits for every finite float32 input of its shape. A record for which it raises would "
        "not be learnt. Clamp inside the model, for example `self.rows(x.clamp(0, 999).long())` for 1000 rows."
    ),
    "running-statistics": "The layer stores statistics of the records without noise. Set track_running_stats=False.",
    "layer-draws-random": "The layer draws random numbers that no checkpoint stores. Set its dropout to 0.",
    "samples-axis-missing": (
        "The layer does not get one row for each sample, so gradients cannot be clipped per sample. Give every sample "
        "its own row of each input."
    ),
    "attention-mask-missing": "is_causal=True only states that attn_mask is causal. Pass attn_mask too.",
    "gradients-not-per-sample": (
        "The per-sample gradients of this model do not agree with autograd on public random inputs. A model must "
        "compute every sample alone, in the same way at every call."
    ),
    "sensitivity-exceeded": (
        "Before a search, one made-up record is put into a batch, and the sum of the clipped gradients must move by at "
        "most the clipping norm. With this model it moved further. Compute every sample alone, whatever the others are."
    ),
    "mixed-precision-unsupported": (
        "Mixed precision needs layers with a rule for per-sample gradients. Use `precision: float32`."
    ),
    "noise-missing": "A private run needs finite noise above 0. For a study without a guarantee, set `private: false`.",
    "noise-seed-private": "Noise from a seed can be computed again, so it gives no guarantee. Remove noise_seed.",
    "score-noise-invalid": (
        "Scores of protected validation records need finite noise above 0. If the records need no protection, declare "
        "that in the experiment file."
    ),
    "training-records-scored": "Only validation and test records are scored, never training records.",
    "subsample-claimed": (
        "A batch that the step did not draw may be shuffled or of fixed size, so its privacy is not amplified by "
        "sampling. Let take() draw the batch, or use sample_rate 1."
    ),
    "float32-reduced": (
        "The rounding bounds need float32 products with all digits, and torch does not switch TF32 off. Use the pinned "
        "version of torch."
    ),
    "generator-key-invalid": "The key of the secret generator must be 32 bytes from the operating system.",
    # running a trial
    "device-missing": (
        "The trial asks for a GPU, but torch finds none. Install a torch that fits the GPU's driver, or set "
        "resources.gpus_per_trial to 0."
    ),
    "parameters-unusable": (
        "The model raised an error on public inputs, at parameters that the training has reached. It does not raise at "
        "its initial parameters. Clamp inside the model, or lower the learning rate."
    ),
    "checkpoint-without-average": (
        "The checkpoint has no average of the weights, which ema_decay above 0 needs. Resume with the settings of the "
        "checkpoint."
    ),
    "checkpoint-name-invalid": "The checkpoints of a trial are named step-<steps>.pt. Remove files with other names.",
    # data sets
    "dataset-unknown": (
        "There is no data set of this name. Check the spelling, or give your own data with dataset.path and "
        "dataset.public_size."
    ),
    "dataset-name-taken": "The ledger has one budget for each name, so your own data must have a new name.",
    "dataset-not-found": (
        "The files of the data set are not in the data directory. Put them there, or name another directory with "
        "--data-dir or DP_TUNER_DATA."
    ),
    "dataset-checksum": "A file differs from the published file. Remove it and download it again.",
    "dataset-damaged": "The file does not have the expected format. It is damaged or another file. Download it again.",
    "dataset-package-missing": "This data set is part of scikit-learn. Install scikit-learn.",
    "file-unreadable": "The file cannot be read. Check its path and permissions.",
    "unit-unknown": "A guarantee protects a record or a user. Write `unit: record` or `unit: user`.",
    "public-size-missing": (
        "The sample rate needs a PUBLIC number of records or users, because the exact number in the file is private. "
        "Declare dataset.public_size or dataset.public_users."
    ),
    "metric-of-task": (
        "The task has no such score: a regression has only validation_loss, and an AUC needs two classes. Choose "
        "another search.metric."
    ),
    "task-mismatch": (
        "The task of the training must fit the labels of the data set. Write the task that the message names."
    ),
    "task-of-users": (
        "A regression protects records only. A user with few records would have labels that add nothing, and no number "
        "can mark them. Write `unit: record`."
    ),
    "records-per-user-invalid": "dataset.records_per_user must be a whole number of at least 1.",
    "users-missing": (
        "Users can be protected only if every record has a user. Use a data set with users, or a file with user_train."
    ),
    "validation-fraction-invalid": "The fraction of records for validation must be at least 0 and below 1.",
    "split-empty": "A split has no records. Change dataset.validation.fraction.",
    "own-file-format": (
        "Your own data must be one npz file with x_train, y_train, x_test and y_test, without pickled objects. Write "
        "it with numpy.savez."
    ),
    "own-file-missing": "There is no file of records at this path. Correct the path.",
    "own-file-arrays": "An array of your own file has a wrong shape, type or value. Change it as the message says.",
    # the loss around a model
    "records-empty": "The loss needs at least one record, and a label for each record.",
    "parameters-not-finite": "The model has NaN or infinite parameters, or its loss is not finite.",
    "audit-number-invalid": (
        "An audit needs a δ and a confidence below 1, and at most as many guesses as canaries. Change the number "
        "that the message names."
    ),
    "filters-missing": "Filter normalisation needs a weight with two or more dimensions that is not zero everywhere.",
}
"""Error code → its meaning, the reason, and the fix, in one to three sentences. All of these are bad input."""

FAILURES: dict[str, str] = {
    "machine-failed": (
        "The machine failed on public inputs, before any record was read, so no record is the cause. Look at the "
        "memory and the driver of the device, then resume the sweep."
    ),
    "accelerator-failed": (
        "The GPU of a worker no longer computes. Such an error of CUDA lasts until the process ends, so the worker "
        "ends, and the trial continues from its checkpoint in a new one. If it happens again, look at the driver and "
        "the memory of the GPU."
    ),
    "replay-device-changed": (
        "A run of a sealed search is repeated with the same random numbers. It is the same run only on the same kind "
        "of device, with the same versions of torch and CUDA. Resume the sweep on machines of the first kind."
    ),
    "records-failed": (
        "Work on the records failed. What happened is only in the operator's log, because an error or a warning may "
        "depend on a record. The message names the log."
    ),
    "operator-log-unwritable": (
        "Warnings and errors about records go to the operator's log, and it cannot be written. Free space, or change "
        "the permissions of its folder."
    ),
    "charge-actor-lost": (
        "The process that charges the ledger for a cluster's trials died. Ray starts it again, and the trials continue "
        "from their last checkpoints. You need not do anything. If it happens again, check the driver's machine."
    ),
    "rank-lost": (
        "A trial of several workers lost one of them, or one did not answer for ten minutes. The trial continues from "
        "its last checkpoint with new workers, and pays for what it repeats. If it happens again, see that machine."
    ),
    "checkpoint-unwritable": (
        "A trial could not store its checkpoint, so it is lost and what it had not yet used of the budget is given "
        "back. Free space or fix the disk, then resume the sweep."
    ),
    "checkpoint-damaged": (
        "No checkpoint of a trial can be read, so the trial is lost. (A trial keeps two, and continues from the "
        "earlier one if the last is damaged.) Its charges remain. Restore a file from a copy before the sweep is "
        "resumed, or let the sweep continue with other trials."
    ),
}
"""The same for failures that are no bad input: those of the infrastructure, and those behind the wall."""


class TrainableError(Exception):
    """Base class of the errors of this package.

    Args:
        code: stable code, a key of `EXPLANATIONS` or `FAILURES` here, or of `EXPLANATIONS` in `search_spaces.errors`.
        message: text that says what is wrong and how to fix it.
    """

    exit_code = 2  # of a command that ends with this error

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    @classmethod
    def raise_any(cls, found: Iterable[tuple[str, str] | None]) -> None:
        """Raise one error that lists all (code, message) problems, one on each line.

        Its code is that of the last problem. Entries that are None are skipped. Without a problem, no error is raised.
        """
        problems = [problem for problem in found if problem is not None]
        if problems:
            *others, (code, message) = problems
            raise cls(code, "\n".join([*(f"{text} [{each}]" for each, text in others), message]))


class HyperparameterError(TrainableError, ValueError):
    """A hyper-parameter that is unknown, not finite or out of range."""


class DatasetError(TrainableError):
    """A data set that is unknown, missing, or does not match its checksum."""


class GateError(TrainableError):
    """A request that would break the privacy guarantee. Nothing was started."""


class InfrastructureError(TrainableError):
    """A failure of the machine, or of the model on PUBLIC inputs.

    It is raised only where no record was touched, so it is the same with and without any record, and may be shown.
    """

    exit_code = 1


class WalledError(TrainableError):
    """An error behind the wall (`trainables.wall`). It has the same words for every cause, and no history."""

    exit_code = 1
