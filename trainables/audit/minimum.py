"""Audit of a perturbed minimum: many runs on two data sets that differ by one record, and hostile records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch
from scipy.special import ndtri
from torch import Tensor

from trainables.audit.bound import CONFIDENCE
from trainables.audit.hostile import hostile_samples, random_inputs
from trainables.convex.logistic import Problem, minimum, problem_of
from trainables.convex.noise import TOLERANCE, gradient_norm, objective_noise
from trainables.convex.step import MinimumStep
from trainables.engine.random import Generator, SecureGenerator
from trainables.engine.step import Mechanism
from trainables.methods.objective_perturbation import ObjectivePerturbation
from trainables.methods.output_perturbation import OutputPerturbation
from trainables.model_gate import public_inputs

__all__ = ["GradientMoved", "MinimumAudit", "audit_minimum", "probe_gradient"]

_CLIP: Final = 100.0  # so that the constant 1 hardly counts
_LONG: Final = 10.0  # norm of the records before the clip, in units of C, so that a clip that does nothing is found
_OTHERS: Final = {True: 200, False: 30}  # records of both data sets, for objective perturbation and for the other
_ALIGNED: Final = 0.2
_REGULARISER: Final = {True: 8.0, False: 2.0}  # λm/(C² + 1)
_RANDOM_RECORDS: Final = 40


@dataclass(frozen=True, kw_only=True)
class MinimumAudit:
    """Result of an audit.

    Attributes:
        runs: number of runs on both data sets together.
        right: number of runs whose data set an observer identified correctly.
        mu_at_least: lower bound of μ, if the runs are told apart as Gaussian mechanisms with this μ are; 0 if they show
            nothing. It is above the true μ with a probability of at most 1 − CONFIDENCE.
    """

    runs: int
    right: int
    mu_at_least: float


@dataclass(frozen=True, kw_only=True)
class GradientMoved:
    """Largest gradient of a record, in units of what the noise covers.

    Attributes:
        samples: number of records that were tried.
        largest_ratio: the largest norm divided by G; infinite if a gradient is not finite.
        record: name of the record with the largest norm.
    """

    samples: int
    largest_ratio: float
    record: str


def audit_minimum(
    settings: OutputPerturbation, *, noise_multiplier: float, runs: int, generator: Generator | None = None
) -> MinimumAudit:
    """Return a lower bound of μ from `runs` runs on each of two made-up data sets.

    The record that they do not share has another label than all records that are like it, so that its gradient is
    nearly as long as it can be. The observer knows everything but whether this record is in the data set. The threshold
    is fixed before the runs, so the bound follows from two binomial intervals (Clopper & Pearson 1934; Nasr et al.
    2023).
    """
    tilted = isinstance(settings, ObjectivePerturbation)
    x, y = _records(tilted=tilted)
    size, decay = len(y) - 1, _REGULARISER[tilted] * (_CLIP**2 + 1) / (len(y) - 1)
    step = MinimumStep(
        replace(settings, weight_decay=decay, feature_clip=_CLIP),
        mechanism=Mechanism(
            sample_rate=1.0, noise_multiplier=noise_multiplier, max_grad_norm=1.0, expected_batch_size=size
        ),
        model="logistic_regression",
        unit="record",
        classes=2,
        outputs=2,
        secret=SecureGenerator() if generator is None else generator,
    )
    theta = torch.zeros(2 * (x.shape[1] + 1), dtype=torch.float64)
    without, with_it = (_problem(x[:n], y[:n], size, decay) for n in (size, size + 1))
    if tilted:
        used = objective_noise(
            clip=_CLIP, classes=2, normaliser=size, weight_decay=decay, noise_multiplier=noise_multiplier,
            tolerance=TOLERANCE,
        ).weight_decay  # fmt: skip
        seen = _problem(x[:size], y[:size], size, used)
        middle = minimum(seen, tolerance=TOLERANCE)
        gradient = (_problem(x, y, size, used).gradient(middle) - seen.gradient(middle)) * size
        cut = float(gradient.norm()) / 2

        def statistic(found: Tensor) -> float:
            return -float(seen.gradient(found) @ gradient) * size / float(gradient.norm())
    else:
        ends = [minimum(each, tolerance=TOLERANCE) for each in (without, with_it)]
        along = (ends[1] - ends[0]) / (ends[1] - ends[0]).norm()
        cut = float((ends[0] + ends[1]) @ along) / 2

        def statistic(found: Tensor) -> float:
            return float(found @ along)

    told = [
        sum(statistic(_rows(step.take(theta, x[:n], y[:n], learning_rate=0.0))) > cut for _ in range(runs))
        for n in (size, size + 1)
    ]
    return MinimumAudit(runs=2 * runs, right=told[1] + runs - told[0], mu_at_least=_bound(told[1], told[0], runs))


def probe_gradient(settings: OutputPerturbation, *, input_shape: tuple[int, ...], classes: int) -> GradientMoved:
    """Add hostile records to public ones, at several θ, and return by how much the gradient moved at most."""
    company = torch.stack(public_inputs(input_shape).unbind())
    named = list(hostile_samples(input_shape, company))
    named += random_inputs(input_shape, _RANDOM_RECORDS, generator=torch.Generator().manual_seed(0))
    clip, ratios = settings.feature_clip, []
    points = torch.randn(3, classes * (company[0].numel() + 1), generator=torch.Generator().manual_seed(1)).double()
    for name, record in named:
        for scale, theta in zip((0.0, 1.0, 30.0), points, strict=True):
            alone, joined = (
                problem_of(rows, torch.arange(len(rows)) % classes, classes=classes, clip=clip, normaliser=1,
                           weight_decay=1.0).gradient(scale * theta)
                for rows in (company, torch.cat([company, record.reshape(1, *input_shape).to(company)]))
            )  # fmt: skip
            moved = float((joined - alone).norm()) / gradient_norm(clip)
            ratios.append((moved if moved == moved else float("inf"), name))
    largest, name = max(ratios)
    return GradientMoved(samples=len(named), largest_ratio=largest, record=name)


def _records(*, tilted: bool) -> tuple[Tensor, Tensor]:
    """Return inputs and labels. The last record is the one that one of the two data sets lacks.

    For objective perturbation, the others are its mirror images. A minimum moves less where they curve the loss, so for
    output perturbation each of them is along the record for a part only, and otherwise in a direction of its own.
    """
    others = _OTHERS[tilted]
    if tilted:
        x = torch.ones(others + 1, 1)
    else:
        x = torch.cat([torch.full((others, 1), _ALIGNED), (1 - _ALIGNED**2) ** 0.5 * torch.eye(others)], 1)
        x = torch.cat([x, torch.eye(1, others + 1)])
    return _LONG * _CLIP * x, torch.tensor([1] * others + [0])


def _problem(x: Tensor, y: Tensor, size: int, decay: float) -> Problem:
    """Return the problem whose inputs are C long, whatever the clip of the audited step does."""
    return problem_of(x / _LONG, y, classes=2, clip=_CLIP, normaliser=size, weight_decay=decay)


def _rows(layer: Tensor) -> Tensor:
    """Return θ of a problem from the parameters of a linear layer with two outputs."""
    size = len(layer) // 2 - 1
    return torch.cat([layer[: 2 * size].reshape(2, size), layer[2 * size :].reshape(2, 1)], 1).reshape(-1)


def _bound(caught: int, wrong: int, runs: int) -> float:
    from scipy.stats import beta

    alpha = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(alpha, caught, runs - caught + 1)) if caught else 0.0
    high = float(beta.ppf(1 - alpha, wrong + 1, runs - wrong)) if wrong < runs else 1.0
    return max(float(ndtri(low) - ndtri(high)), 0.0) if low > 0 and high < 1 else 0.0
