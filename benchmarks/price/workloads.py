"""The workloads of the price of search. All but `price_seeds` was chosen before any run that is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["DELTA", "EPSILONS", "HELD_OUT", "WORKLOADS", "Workload"]

EPSILONS = (0.3, 1.0, 3.0, 8.0)
DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model, its records, and the space in which every arm and the oracle search.

    Attributes:
        title: heading of the tables.
        dataset: name of the shipped data set, or with `own_file` of one that `benchmarks.prior` reads.
        own_file: whether the product gets the records as a file of the user's own.
        proxy: name of the public records of the arm `proxy`; empty if there are none of the same shape.
        method: method of every arm.
        model: shipped model.
        batch_size: expected batch size of every run.
        epochs: epochs of a whole run.
        trials: number of trials of every search.
        space: searched parameters, as in an experiment file.
        middle: the middle of the space.
        grid: the points of each parameter that the oracle tries, all combined.
        fixed: parameters that no arm searches.
        bar: largest price of `auto`, in points, at the ε in `judged`.
        judged: values of ε at which `bar` is judged.
        left_out: arms that are not run.
        price_seeds: number of seeds, larger where the scores differ much between seeds.
        repeats: number of further trainings of the best points of the oracle's grid; the mean score decides.
    """

    title: str
    dataset: str
    own_file: bool = False
    proxy: str = ""
    method: str = "dp_sgd"
    model: str = "logistic_regression"
    batch_size: int
    epochs: float
    trials: int = 12
    space: Mapping[str, object]
    middle: Mapping[str, object]
    grid: Mapping[str, Sequence[object]]
    fixed: Mapping[str, object]
    bar: float
    judged: tuple[float, ...] = EPSILONS
    left_out: tuple[str, ...] = ()
    price_seeds: int = 5
    repeats: int = 3


_RANGE = {"log_uniform": [0.1, 10.0]}
_RATE_AND_CLIP = {"learning_rate": _RANGE, "max_grad_norm": _RANGE}
_ONE = {"learning_rate": 1.0, "max_grad_norm": 1.0}
_GRID = {"learning_rate": [0.1, 0.3, 0.6, 1.2, 2.5, 5.0, 10.0], "max_grad_norm": [0.1, 0.3, 1.0, 3.0]}
_WHOLE_TRIALS = ("composition", "selection", "proxy")

WORKLOADS: Mapping[str, Workload] = {
    "mnist": Workload(
        title="MNIST, logistic regression: rate, clip and σ searched",
        dataset="mnist",
        proxy="fashion_mnist",
        method="dp_lssgd",
        batch_size=4096,
        epochs=10,
        space={**_RATE_AND_CLIP, "laplacian_sigma": {"uniform": [0, 3]}},
        middle={**_ONE, "laplacian_sigma": 1.5},
        grid={**_GRID, "laplacian_sigma": [0.0, 1.0]},
        fixed={},
        bar=0.3,
    ),
    "mnist_wide": Workload(
        title="MNIST, logistic regression: R, K, σ, λ, rate and schedule searched",
        dataset="mnist",
        proxy="fashion_mnist",
        method="composed",
        batch_size=4096,
        epochs=10,
        trials=16,
        space={
            "learning_rate": _RANGE,
            "smoothing_radius": {"uniform": [0, 40]},
            "smoothing_samples": {"log_integer": [1, 4]},
            "laplacian_sigma": {"uniform": [0, 3]},
            "weight_decay": {"log_uniform": [1e-6, 0.1]},
            "schedule": {"choice": ["constant", "cosine", {"inverse_time": {"decay": 3.0}}]},
        },
        middle={
            "learning_rate": 1.0,
            "smoothing_radius": 20.0,
            "smoothing_samples": 2,
            "laplacian_sigma": 1.5,
            "weight_decay": 3e-4,
            "schedule": "cosine",
        },
        grid={
            "learning_rate": [0.6, 1.2, 2.5, 5.0, 10.0],
            "smoothing_radius": [0.0, 10.0],
            "smoothing_samples": [1],
            "laplacian_sigma": [0.0, 1.0],
            "weight_decay": [1e-6],
            "schedule": ["constant", "cosine"],
        },
        fixed={"max_grad_norm": 1.0},
        bar=0.7,
        left_out=(*_WHOLE_TRIALS, "full_runs", "gen"),
    ),
    "fashion_cnn": Workload(
        title="Fashion-MNIST, tutorial CNN: rate and clip searched",
        dataset="fashion_mnist",
        proxy="mnist",
        model="tutorial_cnn",
        batch_size=1024,
        epochs=2,
        trials=8,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid={"learning_rate": [0.1, 0.3, 0.6, 1.2, 2.5, 5.0], "max_grad_norm": [0.1, 0.3, 1.0, 3.0]},
        fixed={},
        bar=0.7,
        left_out=_WHOLE_TRIALS,
        price_seeds=20,
        repeats=1,
    ),
    "adult": Workload(
        title="Adult, logistic regression: rate and clip searched",
        dataset="adult",
        batch_size=2048,
        epochs=10,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=0.7,
    ),
    "digits": Workload(
        title="Digits, logistic regression: rate and clip searched",
        dataset="digits",
        batch_size=256,
        epochs=10,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        price_seeds=15,
    ),
}
"""Workload by name."""

HELD_OUT: Mapping[str, Workload] = {
    "cifar100_features": Workload(
        title="CIFAR-100 features, logistic regression: rate and clip searched",
        dataset="cifar100_features",
        own_file=True,
        batch_size=1024,
        epochs=10,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=_WHOLE_TRIALS,
        repeats=1,
        price_seeds=10,
    ),
    "creditcard": Workload(
        title="Credit card frauds (984 records), logistic regression: rate and clip searched",
        dataset="creditcard_984",
        own_file=True,
        batch_size=128,
        epochs=20,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=_WHOLE_TRIALS,
    ),
    "speakers": Workload(
        title="Who said a paragraph (11 presidents, 2 000 words), logistic regression: rate and clip searched",
        dataset="speakers",
        own_file=True,
        batch_size=256,
        epochs=10,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=_WHOLE_TRIALS,
        repeats=1,
        price_seeds=10,
    ),
    "genres": Workload(
        title="Genre of a passage (15 genres, 2 000 words), logistic regression: rate and clip searched",
        dataset="genres",
        own_file=True,
        batch_size=256,
        epochs=10,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=_WHOLE_TRIALS,
        repeats=1,
        price_seeds=10,
    ),
    "digits_mlp": Workload(
        title="Digits, perceptron with two hidden layers of 256: rate and clip searched",
        dataset="digits",
        model="mlp_256_256",
        batch_size=256,
        epochs=20,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=(*_WHOLE_TRIALS, "full_runs", "gen"),
        repeats=1,
        price_seeds=20,
    ),
    "fashion_mlp": Workload(
        title="Fashion-MNIST, perceptron with 64 hidden units: rate and clip searched",
        dataset="fashion_mnist",
        model="mlp_64",
        batch_size=2048,
        epochs=5,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=(*_WHOLE_TRIALS, "full_runs", "gen"),
        repeats=1,
    ),
    "cifar100_mlp": Workload(
        title="CIFAR-100 features, perceptron with two hidden layers of 256: rate and clip searched",
        dataset="cifar100_features",
        own_file=True,
        model="mlp_256_256",
        batch_size=1024,
        epochs=10,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=(*_WHOLE_TRIALS, "full_runs", "gen"),
        repeats=1,
    ),
    "breast_cancer_mlp": Workload(
        title="Breast cancer (569 records), perceptron with 64 hidden units: rate and clip searched",
        dataset="breast_cancer",
        model="mlp_64",
        batch_size=64,
        epochs=20,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=(*_WHOLE_TRIALS, "full_runs", "gen"),
        price_seeds=20,
    ),
    "cifar10_mlp": Workload(
        title="CIFAR-10, 10 000 records as pixels, perceptron with 64 hidden units: rate and clip searched",
        dataset="cifar10_10k2k",
        model="mlp_64",
        batch_size=1024,
        epochs=10,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=(*_WHOLE_TRIALS, "full_runs", "gen"),
        repeats=1,
    ),
    "adult_mlp": Workload(
        title="Adult, perceptron with 64 hidden units: rate and clip searched",
        dataset="adult",
        model="mlp_64",
        batch_size=1024,
        epochs=5,
        space=_RATE_AND_CLIP,
        middle=_ONE,
        grid=_GRID,
        fixed={},
        bar=1.0,
        judged=(1.0, 3.0, 8.0),
        left_out=(*_WHOLE_TRIALS, "full_runs", "gen"),
        repeats=1,
    ),
}
"""Workloads written down before their first run. All but `genres` and the last three led to other rules."""
