"""Audit of a release: many rows of two records that are as far apart as can be, and hostile records before the clip."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np
import torch
from torch import Tensor

from trainables.audit.bound import CONFIDENCE
from trainables.audit.hostile import hostile_samples, random_inputs
from trainables.audit.one_run import AuditResult
from trainables.model_gate import public_inputs
from trainables.release import draw
from trainables.release.draw import Randomiser

__all__ = ["ReleaseMoved", "audit_release", "probe_clip", "separated"]

_LONG: Final = 1e3  # norm of the two records before the clip, in units of C
_RANDOM_RECORDS: Final = 40


@dataclass(frozen=True, kw_only=True)
class ReleaseMoved:
    """Largest norm of a clipped record, in units of C.

    Attributes:
        samples: number of records that were tried.
        largest_ratio: the largest norm divided by C; infinite if a clipped record is not finite.
        record: name of the record with the largest norm.
    """

    samples: int
    largest_ratio: float
    record: str


def audit_release(randomiser: Randomiser, *, size: int, rows: int, delta: float) -> AuditResult:
    """Return a lower bound of ε from `rows` rows of each of two records, opposite in features and unlike in label.

    The records are much longer than C, so that a clip that does nothing is found too. An observer computes the
    likelihood ratio of a row. Its threshold is chosen on one half of the rows and judged on the other, so the bound
    (Clopper & Pearson 1934) is above the true ε with a probability of at most 1 − CONFIDENCE.
    """
    direction = torch.zeros(size)
    direction[0] = _LONG * randomiser.clip
    one = _statistic(direction, 0, randomiser, rows)
    other = _statistic(-direction, 1, randomiser, rows)
    found, caught, wrong = separated(one, other, delta)
    return AuditResult(
        canaries=2 * rows,
        guesses=caught + wrong,
        right=caught,
        delta=delta,
        confidence=CONFIDENCE,
        epsilon_at_least=found,
        unexplained=None,
    )


def separated(one: np.ndarray, other: np.ndarray, delta: float) -> tuple[float, int, int]:
    """Return a lower bound of ε, and how many of the second half of `one` and of `other` are above the threshold.

    Both have the shape (n,). The threshold is chosen on the first half.
    """
    half = len(one) // 2
    candidates = np.quantile(other[:half], 1 - np.geomspace(4 / half, 0.5, 30))
    found = [_bound(one[:half] > cut, other[:half] > cut, delta) for cut in candidates]
    cut = candidates[int(np.argmax(found))]
    caught, wrong = one[half:] > cut, other[half:] > cut
    return max(_bound(caught, wrong, delta), 0.0), int(caught.sum()), int(wrong.sum())


def probe_clip(randomiser: Randomiser, *, input_shape: tuple[int, ...]) -> ReleaseMoved:
    """Clip hostile records, and return the largest norm."""
    a, b, c = public_inputs(input_shape)
    company = torch.stack([a, b, c])
    named = list(hostile_samples(input_shape, company))
    named += random_inputs(input_shape, _RANDOM_RECORDS, generator=torch.Generator().manual_seed(0))
    ratios = []
    for name, record in named:
        norm = float(draw.clipped_rows(record.reshape(1, -1), randomiser.clip).norm())
        ratios.append((norm / randomiser.clip if norm == norm else float("inf"), name))
    largest, name = max(ratios)
    return ReleaseMoved(samples=len(ratios), largest_ratio=largest, record=name)


def _statistic(record: Tensor, label: int, randomiser: Randomiser, rows: int) -> np.ndarray:
    """Return the log-likelihood ratio of each of `rows` rows, for the first record against the second."""
    release = draw.noisy_rows(record.repeat(rows, 1), torch.full((rows,), label), randomiser, rows=rows)
    along = release.x[:, 0].double().numpy() * 2 * randomiser.clip / randomiser.noise**2
    epsilon = randomiser.label_epsilon or 0.0
    labels = release.y.numpy()
    return np.asarray(along + epsilon * ((labels == 0).astype(float) - (labels == 1)))


def _bound(caught: np.ndarray, wrong: np.ndarray, delta: float) -> float:
    from scipy.stats import beta

    alpha = (1 - CONFIDENCE) / 2
    hits, misses, n = int(caught.sum()), int(wrong.sum()), len(caught)
    low = float(beta.ppf(alpha, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - alpha, misses + 1, n - misses)) if misses < n else 1.0
    return log((low - delta) / high) if low > delta else 0.0
