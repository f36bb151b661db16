"""Parameters that every method has. Only those in `PRICED` affect ε."""

from __future__ import annotations

from search_spaces.domains import Categorical, Integer, LogUniform
from search_spaces.parameter import Limits, Parameter, Words

__all__ = ["AVERAGED", "CHOSEN", "PARAMETERS", "PRICED"]

AVERAGED = 0.9999
"""`ema_decay` if an experiment file does not set it. Below 90 000 steps, the average is over about the last quarter."""

CHOSEN = "chosen"
"""`extrapolation` if an experiment file does not set it: the factor is chosen on the validation records."""

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="learning_rate",
        aliases=("lr", "eta"),
        default=LogUniform(0.01, 2.0),
        legal=Limits(low_open=True),
        usual=True,
        source="published: 0.001 with Adam (DP-LSSGD), 0.1024 to 0.15 with SGD (DPLIS, DP-LSSGD); 0.5 was best in our "
        "first runs; the range is wide enough to tune the baseline, DP-SGD, well",
    ),
    Parameter(
        name="max_grad_norm",
        aliases=("C",),
        default=LogUniform(0.1, 10.0),
        legal=Limits(low=1e-6, high=1e6),
        source="published: C = 1 (DPLIS), 1 and 3 (DP-LSSGD), 3 and 10 (weight decay), 0.1 (a study of clipping)",
    ),
    Parameter(
        name="clipping",
        default=Categorical(("flat", "automatic", "per_layer")),
        legal=Words(
            ("flat", "automatic", "per_layer"),
            refused=dict.fromkeys(
                ("batch_mean", "batch", "mean"),
                "clipping must bound the gradient of each record, because one record can dominate a batch's mean",
            ),
        ),
        source="flat: Abadi et al. 2016; automatic: Bu et al. 2022; per_layer: McMahan et al. 2018",
    ),
    Parameter(
        name="augmentation",
        default=Categorical(("flip", "crop", "crop_flip")),
        legal=Words(("none", "flip", "crop", "crop_flip")),
        source="De et al. 2022 crop and flip CIFAR-10 images; `none` is not in the default domain, because without "
        "augmentation only one view of an image is allowed",
    ),
    Parameter(
        name="augmentation_multiplicity",
        aliases=("M",),
        default=Integer(1, 16, log=True),
        legal=Limits(low=1, integer=True),
        source="De et al. 2022 use 16 views; fewer views help too; a step with M views takes M times the work",
    ),
    Parameter(
        name="ema_decay",
        default=Categorical((0.0, 0.9, 0.99, AVERAGED)),
        legal=Limits(high=1.0, high_open=True),
        source="De et al. 2022: 0.9999 for long trainings; at the start of a training, the average covers fewer steps",
    ),
    Parameter(
        name="extrapolation",
        default=Categorical((0.0, 0.5, 1.0, 2.0)),
        legal=Limits(words=(CHOSEN,)),
        source="0.5 to 1 were best in our first runs of networks, 0 to 2 in those of linear models",
    ),
)

PRICED: tuple[Parameter, ...] = (
    Parameter(
        name="batch_size",
        aliases=("b",),
        default=Categorical((64, 128, 256, 512, 1024, 2048, 4096)),
        legal=Limits(low=1, integer=True),
        priced=True,
        source="published: 64 (DPLIS, Reddit), 128 (DP-LSSGD), 256 (DPLIS); 4096 in our first runs on MNIST",
    ),
    Parameter(
        name="noise_multiplier",
        default=LogUniform(0.5, 10.0),
        legal=Limits(low_open=True),
        priced=True,
        source="published: 1.1 to 3 (DPLIS), 1.3 and 1.5 (weight decay), 2 to 10 (DP-LSSGD)",
    ),
    Parameter(
        name="epochs",
        default=LogUniform(1.0, 100.0),
        legal=Limits(low_open=True),
        priced=True,
        source="published: 50 (DP-LSSGD, weight decay)",
    ),
)
