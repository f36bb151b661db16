"""Exception tree of the trainables.

TrainableError
├── HyperparameterError   a hyper-parameter is unknown, not finite or out of range
├── DatasetError          a data set is unknown, missing or does not match its checksum
├── GateError             the request would break the privacy guarantee
├── InfrastructureError   the machine or the model failed on PUBLIC inputs, whatever the records are
└── WalledError           work on the records failed; the cause is only in the operator's log
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
    "release-unreadable": (
        "The file of the charged release (noisy copy of the records, or voted labels) cannot be read, or was changed. "
        "Restore the file from a copy. A new search draws and charges a new release."
    ),
    "convex-not-strong": (
        "Without an L2 term, one record can move the minimum of the loss without limit. Write a `weight_decay` above "
        "0, for example 0.01."
    ),
    "convex-tolerance": (
        "The solver of output and objective perturbation works in double precision, which cannot reach this tolerance. "
        "Ask for a larger tolerance."
    ),
    "convex-unsupported": (
        "The proofs of output and objective perturbation do not cover this setting, or the setting has no effect with "
        "these methods. Remove the key that the message names."
    ),
    "convex-one-step": (
        "Output and objective perturbation take one step on all records. Write `epochs: 1` and the public number of "
        "training records as `batch_size`."
    ),
    "model-not-convex": (
        "Output and objective perturbation need a convex loss. With a network, one record may move the minimum of the "
        "loss without limit. Use logistic_regression, or a method with private steps."
    ),
    "gain-not-linear": (
        "`feature_gain` multiplies the weights of the first layer, which must be linear. Write `feature_gain: 1`, or "
        "use a model with a linear first layer."
    ),
    "release-damaged": (
        "The file of the stored release does not have the form that dp-tuner writes. Start a new search, which charges "
        "a new release."
    ),
    "release-empty": (
        "No input got enough votes to pass the threshold, so there is no label to train on. Lower "
        "`privacy.votes.threshold` or raise `privacy.epsilon`. A new search draws and charges new labels."
    ),
    "votes-missing": "This data set has no votes of teachers. Use a data set with votes, such as mnist_votes.",
    "votes-damaged": (
        "Each row of the file of votes must be whole numbers that add up to the public number of teachers. Correct the "
        "file."
    ),
    "method-not-on-release": (
        "This training needs a method that trains on a release, and the file of a release. Please report this as a bug."
    ),
    "rank-draws": "Only the first worker of a trial draws batches and noise. Please report this as a bug.",
    "workers-not-shared": (
        "The workers of a trial share its batches, but this method has no batches. Write `resources.workers_per_trial: "
        "1`."
    ),
    # hyper-parameters; the explanations of other codes are in search_spaces.errors
    "method-unknown": "There is no training method of this name. Check the spelling. The message suggests a name.",
    "method-not-importable": (
        "Your own method cannot be imported. Write package.module:function, and check that every worker finds the "
        "module on its Python path. A module must not end the program when it is imported."
    ),
    "method-parameters": (
        "`search.space.own` must name parameters of the function of your own method. Parameters without a default "
        "value are required."
    ),
    "method-stages-invalid": (
        "The function of your own method must return a mapping with `before_clip`, `after_noise` or both. Sampling, "
        "clipping, noise and normalisation cannot be replaced, because the guarantee depends on them."
    ),
    "method-output-invalid": (
        "Each stage (`before_clip`, `after_noise`) of your own method must return finite numbers, with the shape and "
        "type of its argument."
    ),
    "method-depends-on-more": (
        "The result of a stage of your own method must depend only on its argument: one sample's gradient for "
        "`before_clip`, the noised gradient for `after_noise`. A stage must not keep values between calls, or draw "
        "random numbers. A checkpoint does not store such values, and clipping does not bound what a stage keeps of a "
        "sample."
    ),
    "method-with-corrected-adam": (
        "`adam_corrected` subtracts the variance of the noise, which is not known after a stage of your own method. "
        "Use adam or sgd."
    ),
    "parameter-priced": (
        "ε depends on this parameter, so a trial cannot choose its value. Set the value in the experiment file."
    ),
    "momentum-with-adam": "Adam has its own averages and takes no momentum. Remove momentum, or use sgd.",
    "augmentation-needs-images": (
        "Only images of shape (channels, height, width) can be flipped or cropped. Set augmentation to none."
    ),
    "optimizer-mismatch": (
        "This parameter belongs to another optimizer. Remove the parameter, or choose that optimizer."
    ),
    "schedule-mismatch": "This parameter belongs to another schedule. Remove the parameter, or choose that schedule.",
    "promotion-malformed": (
        "A promoted parameter rises within a trial. It needs at least two rising levels (values), and the first step "
        "of each level. The last level must start before the trial ends."
    ),
    "step-beyond-end": "A training takes at most the number of steps in its specification. Ask for fewer steps.",
    "probes-not-charged": (
        "With `schedule: gen`, every step also releases noised probes of the loss. The probes must have the noise for "
        "which the step is charged. Take the noise of the step and of its probes from one mechanism."
    ),
    # models
    "model-unknown": (
        "There is no model of this name. Check the spelling, or write your own model as package.module:function."
    ),
    "model-option-unknown": "The model does not have this option. Choose one that the message lists.",
    "model-not-importable": (
        "Your own model cannot be imported. Write package.module:function, and check that every worker finds the "
        "module on its Python path. A module must not end the program when it is imported."
    ),
    "model-not-repeatable": (
        "Your own model differs each time that it is built, so no trial could be repeated. Draw random numbers with "
        "torch, which has the experiment's seed, not with numpy or random."
    ),
    "model-buffer-not-fixed": (
        "A buffer of your own model must be a dense tensor that no training changes. Compute in `forward` what depends "
        "on parameters."
    ),
    "model-lazy-unused": (
        "A lazy layer gets its size when it is first used, but your own model never uses it. Remove the layer."
    ),
    "model-not-module": "The function of your own model must return an nn.Module.",
    "model-shape-mismatch": "The model cannot take inputs of this shape. Choose a model that fits the data set.",
    "model-output-shape": (
        "A model must return one logit for each class and sample, as a tensor of shape (samples, classes). Give its "
        "last layer one output for each class."
    ),
    "model-output-not-finite": (
        "The model returned NaN or infinity for inputs between 0 and 1. Look for a division by zero, the logarithm of "
        "a negative number, or weights that are too large."
    ),
    "model-output-probabilities": (
        "The outputs of the model are probabilities. The loss takes logits, and would compute the softmax of the "
        "probabilities, with which a model learns little. Remove the softmax at the end of the model."
    ),
    "model-not-trainable": "A model needs at least one parameter that requires a gradient.",
    "start-not-declared": (
        "The claim of a search does not cover what its starting weights already know of the records. So "
        "`trainable.start` must declare its weights public: none of the records of this search was used for them. "
        "Write `start: {path: FILE.safetensors, public: true}` only if this is true."
    ),
    "start-unreadable": (
        "The weights of `trainable.start` must be a safetensors file that every worker can read. Pickled files are "
        "refused, because reading one can execute code."
    ),
    "start-changed": (
        "The hash of the file of `trainable.start` is not the declared one, so the file has changed. Restore the file "
        "from a copy, or start a new search."
    ),
    "start-does-not-fit": (
        "Each tensor of `trainable.start` must have the name, the shape and the type of numbers of a parameter of the "
        "model. Remove the other tensors from the file. A parameter that is not in the file starts as usual."
    ),
    "start-not-finite": "A number of `trainable.start` is NaN or infinite in single precision. Use other weights.",
    "start-trained-here": (
        "The weights of `trainable.start` were trained on this data set, as their file or the privacy card next to it "
        "says. So the weights are not public here, and the claim would not cover what they know of the records. Use "
        "other weights."
    ),
    "freeze-unknown": (
        "A name in `trainable.freeze` is neither a layer nor a parameter of the model. The message lists the layers of "
        "the model."
    ),
    # the private step
    "samples-mixed": (
        "The output of the model for one sample depends on other samples, so clipping cannot bound the effect of one "
        "record, or a call changes a buffer or a frozen parameter, which no noise protects. This is tried on public "
        "inputs, also at random weights. Use layers that treat every sample alone, such as GroupNorm, and that store "
        "nothing."
    ),
    "model-raises": (
        "A model must return logits for every finite float32 input of its shape. A record for which the model raises "
        "an error would not be learnt. Clamp inside the model, for example `self.rows(x.clamp(0, 999).long())` for "
        "1000 rows."
    ),
    "running-statistics": "The layer stores statistics of the records without noise. Set track_running_stats=False.",
    "layer-draws-random": "The layer draws random numbers that no checkpoint stores. Set its dropout to 0.",
    "samples-axis-missing": (
        "The layer does not get one row for each sample, so gradients cannot be clipped per sample. Give every sample "
        "its own row of each input."
    ),
    "attention-mask-missing": (
        "`is_causal=True` only says that the mask is causal, and creates no mask. Pass `attn_mask` too."
    ),
    "gradients-not-per-sample": (
        "The per-sample gradients of this model cannot be computed, or differ from those of autograd on random public "
        "inputs. Change the model so that it computes every sample alone, and in the same way at every call."
    ),
    "sensitivity-exceeded": (
        "One made-up record moved the sum of the clipped gradients by more than the clipping norm. dp-tuner tests this "
        "before a search, because the guarantee needs this bound. Change the model or the method so that the other "
        "samples do not affect how a sample is computed."
    ),
    "mixed-precision-unsupported": (
        "dp-tuner cannot compute the per-sample gradients of this model in mixed precision. Use `precision: float32`."
    ),
    "noise-missing": "A private run needs finite noise above 0. For a study without a guarantee, set `private: false`.",
    "noise-seed-private": (
        "Noise from a known seed can be computed again, so it gives no guarantee. Remove `noise_seed`."
    ),
    "score-noise-invalid": (
        "Scores of protected validation records need finite noise above 0. If the records need no protection, write "
        "`dataset.validation.protected: false`."
    ),
    "training-records-scored": "Only validation and test records are scored, never training records.",
    "subsample-claimed": (
        "Sampling amplifies the privacy only of a batch that the private step draws itself. Other batches may be "
        "shuffled or of fixed size. Let take() draw the batch, or use sample_rate 1."
    ),
    "float32-reduced": (
        "The bounds on rounding errors need float32 products of full precision, but torch does not switch TF32 off. "
        "Use the pinned version of torch."
    ),
    "generator-key-invalid": "The key of the secret random generator must be 32 bytes from the operating system.",
    # running a trial
    "device-missing": (
        "The trial asks for a GPU, but torch finds none. Install a torch that fits the GPU's driver, or set "
        "resources.gpus_per_trial to 0."
    ),
    "parameters-unusable": (
        "The model raised an error on public inputs at the parameters that the training has reached. At its initial "
        "parameters, it raises none. Clamp inside the model, or lower the learning rate."
    ),
    "checkpoint-foreign": (
        "The checkpoint was written by another search or with other settings, so its weights may have another privacy "
        "cost. Restore the sweep's folder from a copy, or continue the search that wrote the checkpoint."
    ),
    "checkpoint-name-invalid": "The checkpoints of a trial are named step-<steps>.pt. Remove files with other names.",
    # data sets
    "dataset-unknown": (
        "There is no data set of this name. Check the spelling, or give your own data with dataset.path and "
        "dataset.public_size."
    ),
    "dataset-name-taken": (
        "A shipped data set has this name, and the ledger has one budget for each name. Give your own data another "
        "name."
    ),
    "dataset-not-found": (
        "The files of the data set are not in the data directory. Put them there, or name another directory with "
        "--data-dir or DP_TUNER_DATA."
    ),
    "dataset-checksum": (
        "A file of the data set differs from the published file. Remove the file and download it again."
    ),
    "dataset-damaged": (
        "The file does not have the expected format, so it is damaged or the wrong file. Download it again."
    ),
    "dataset-package-missing": "This data set is part of scikit-learn. Install scikit-learn.",
    "file-unreadable": "The file cannot be read. Check its path and permissions.",
    "unit-unknown": "The guarantee protects either one record or one user. Write `unit: record` or `unit: user`.",
    "public-size-missing": (
        "dp-tuner computes the sample rate from a PUBLIC number of records or users, because the exact number in the "
        "file is private. Declare `dataset.public_size` or `dataset.public_users`."
    ),
    "metric-of-task": (
        "The task does not have this score. A regression has only validation_loss, and an AUC needs two classes. "
        "Choose another `search.metric`."
    ),
    "task-mismatch": (
        "The task of the training must fit the labels of the data set. Write `task: regression` if the labels are "
        "numbers, and `task: classification` if they are classes."
    ),
    "task-of-users": (
        "A regression can protect records, but not users. A user with few records has missing labels. No number can "
        "mark a label as missing, because every number can be a label. Write `unit: record`."
    ),
    "records-per-user-invalid": "dataset.records_per_user must be a whole number of at least 1.",
    "users-missing": (
        "Users can be protected only if every record has a user. Use a data set with users, or a file with the array "
        "`user_train`."
    ),
    "validation-fraction-invalid": "The fraction of records for validation must be at least 0 and below 1.",
    "split-empty": "A split of the data set has no records. Change `dataset.validation.fraction`.",
    "own-file-format": (
        "Your own data must be one npz file with x_train, y_train, x_test and y_test, without pickled objects. Write "
        "it with numpy.savez."
    ),
    "own-file-missing": "There is no file of records at this path. Correct the path.",
    "own-file-arrays": "An array of your own file has a wrong shape, type or value. Do what the message says.",
    "own-file-changed": (
        "Your own file was written to after the command had checked it, for example compared it with the ledger. "
        "Nothing uses records that were not checked. Start or resume again. If the records have changed, restore the "
        "file first, or start a new search."
    ),
    # the loss around a model
    "records-empty": "The loss needs at least one record, and a label for each record.",
    "parameters-not-finite": "The parameters or the loss of the model are NaN or infinite. Measure another model.",
    "audit-number-invalid": (
        "An audit needs a δ and a confidence below 1, and at most as many guesses as canaries. Change the number "
        "that the message names."
    ),
    "filters-missing": (
        "A loss landscape needs a model with a weight of two or more dimensions that is not zero everywhere."
    ),
}
"""Error code → its meaning, the reason, and the fix, in a few sentences. All of these are bad input."""

FAILURES: dict[str, str] = {
    "machine-failed": (
        "The machine failed to load torch, or in a pass over public inputs. No record is the cause. Check the memory, "
        "the installation and the driver of the device, then resume the sweep."
    ),
    "accelerator-failed": (
        "The GPU of a worker no longer computes. Such a CUDA error lasts until the process ends, so the worker stops. "
        "The trial continues from its checkpoint in a new process. If this happens again, check the driver and the "
        "memory of the GPU."
    ),
    "replay-device-changed": (
        "An interrupted run of a sealed search is repeated with the same random numbers. This works only on the same "
        "kind of device, with the same versions of torch, numpy and CUDA. Resume the sweep on machines of the kind "
        "that began the run."
    ),
    "records-failed": (
        "A computation on the records failed. Its cause is only in the operator's log, because an error or a warning "
        "could show a record. See the log that the message names."
    ),
    "operator-log-unwritable": (
        "The operator's log, which gets all warnings and errors about records, cannot be written. Free space, or "
        "change the permissions of its folder."
    ),
    "charge-actor-lost": (
        "The process that charges the trials of a cluster to the ledger died. Ray starts this process again, and the "
        "trials continue from their last checkpoints. You need not do anything. If this happens again, check the "
        "machine on which you started the search."
    ),
    "rank-lost": (
        "A trial lost one of its workers, or its workers did not find each other. The trial continues from its last "
        "checkpoint with new workers. Repeated steps are charged again. If this happens again, check that machine."
    ),
    "checkpoint-unwritable": (
        "A trial could not store its checkpoint, so the trial is lost. Its charges remain, and its other reserved "
        "steps are freed. Free space or fix the disk, then resume the sweep."
    ),
    "checkpoint-damaged": (
        "No checkpoint of a trial can be read, so the trial is lost. (A trial keeps two checkpoints, and continues "
        "from the earlier one if the last is damaged.) Its charges remain. Restore a checkpoint from a copy before you "
        "resume the sweep, or let the sweep continue with other trials."
    ),
}
"""Error code → its explanation, for failures that are not bad input: of the infrastructure, or of work on records."""


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

    It is raised only where no record was touched. It is the same with and without any record, so it may be shown.
    """

    exit_code = 1


class WalledError(TrainableError):
    """An error in work on the records (`trainables.wall`). Its words are the same for every cause, and name none."""

    exit_code = 1
