"""How long a private step takes here, measured on random numbers: a plan may not touch a record."""

from __future__ import annotations

import time

import torch

from trainables import data
from trainables.engine.layout import Layout
from trainables.engine.linear import per_sample_source
from trainables.engine.random import SecureGenerator
from trainables.engine.step import Mechanism, PrivateStep
from trainables.engine.update import Sgd
from trainables.hyperparameters import from_parameters
from trainables.methods import METHODS
from trainables.models import build
from trainables.training import TrainingSpec

__all__ = ["seconds_per_step"]


def seconds_per_step(spec: TrainingSpec, *, steps: int, at_most: float) -> list[float]:
    """Seconds of each of a few steps of `spec`'s method and model, after one that warms up.

    Args:
        spec: what would be trained; its records are replaced by a few batches of Gaussian inputs of that shape.
        steps: how many steps to time.
        at_most: seconds after which no further step is taken; one is always timed.
    """
    about = data.info(spec.dataset)
    threads = torch.get_num_threads()
    records = 4 * spec.batch_size
    public = torch.Generator().manual_seed(0)
    inputs = torch.randn(records, *about.input_shape, generator=public)
    targets = torch.randint(about.classes, (records,), generator=public)
    hyperparameters = from_parameters(
        spec.method,
        spec.parameters,
        batch_size=spec.batch_size,
        steps=spec.steps,
        noise_multiplier=spec.noise_multiplier,
        optimizer=spec.optimizer,
        momentum=spec.momentum,
    )
    model = build(
        spec.model,
        input_shape=about.input_shape,
        classes=about.classes,
        activation=spec.activation,
        normalization=spec.normalization,
        seed=spec.seed,
    )
    layout = Layout.of(model)
    theta = layout.flatten(model)
    step = PrivateStep(
        mechanism=Mechanism(
            sample_rate=0.25,
            noise_multiplier=spec.noise_multiplier,
            max_grad_norm=hyperparameters.max_grad_norm,
            expected_batch_size=spec.batch_size,
        ),
        stages=METHODS[spec.method](hyperparameters, layout),
        source=per_sample_source(model, layout),
        update=Sgd(theta, momentum=0.0),
        secret=SecureGenerator(),
        public=public,
    )
    seconds: list[float] = []
    started = time.perf_counter()
    try:
        torch.set_num_threads(spec.threads or threads)
        for _ in range(steps + 1):
            before = time.perf_counter()
            theta = step.take(theta, inputs, targets, learning_rate=hyperparameters.learning_rate)
            seconds.append(time.perf_counter() - before)
            if time.perf_counter() - started > at_most:
                break
    finally:
        torch.set_num_threads(threads)
    return seconds[1:] or seconds
