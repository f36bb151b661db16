"""Draw of a release: a fixed number of noisy rows in a secret order. The caller charges it first, and stores it once.

Formal guarantee: see `tuner.privacy.accountant.noisy_records`. Each row is a function of one record (or of no record)
and of fresh secret noise. The number of rows is public.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from math import exp, prod

import numpy as np
import torch

from trainables import data
from trainables.data import DatasetRequest
from trainables.engine.noise import add_noise
from trainables.engine.random import Generator, SecureGenerator
from trainables.errors import TrainableError

__all__ = ["Randomiser", "Release", "clipped_rows", "draw_release", "noisy_rows", "packed", "unpacked"]

_SHRINK = 1 - 2.0**-40
"""Factor of a clipped row, so that rounding in double precision cannot leave a norm above C."""
_CHUNK = 2**22  # numbers that are noised at a time, to save memory


@dataclass(frozen=True, kw_only=True)
class Randomiser:
    """Numbers that the noise of a release follows.

    Attributes:
        clip: C, the largest norm of a record's features before noise.
        noise: s, the standard deviation of the noise on each feature.
        label_epsilon: ε of the randomised response; None reports every label as it is, which protects no label.
        classes: k, the public number of classes.
    """

    clip: float
    noise: float
    label_epsilon: float | None
    classes: int

    @property
    def kept(self) -> float:
        """Probability that a label is reported as it is."""
        if self.label_epsilon is None:
            return 1.0
        return 1 / (1 + (self.classes - 1) * exp(-self.label_epsilon))


@dataclass(frozen=True)
class Release:
    """Noisy rows: features x, float32 of shape (rows, features), and reported labels y, int64 of shape (rows,)."""

    x: torch.Tensor
    y: torch.Tensor


def draw_release(request: DatasetRequest, randomiser: Randomiser, *, rows: int, generator: Generator) -> Release:
    """Draw a release of the training records of `request`, with `rows` rows. It must be charged before this call."""
    splits = data.load_records(request)
    return noisy_rows(splits.x_train, splits.y_train, randomiser, rows=rows, generator=generator)


def noisy_rows(
    x: torch.Tensor, y: torch.Tensor, randomiser: Randomiser, *, rows: int, generator: Generator | None = None
) -> Release:
    """Return `rows` noisy rows of n records, in a secret random order.

    With n < rows, rows without a record are added: zeros, with a uniformly random label, and the same noise. With
    n > rows, a uniformly random choice of the records is used. So the number of rows tells nothing about n.

    Args:
        x: inputs, shape (n, …).
        y: labels in 0 … k − 1, shape (n,).
        randomiser: clipping norm and noise.
        rows: PUBLIC number of rows.
        generator: secret generator; None makes one, whose key is the operating system's.
    """
    generator = SecureGenerator() if generator is None else generator
    features, k = prod(x.shape[1:]), randomiser.classes
    flat = x.reshape(len(x), features)
    count = max(len(flat), rows)
    # Two numbers of 53 random bits each, so that no tie, whose order would not be random, is likely (2⁻¹⁰⁶·count²).
    order = np.lexsort((generator.uniform(count).numpy(), generator.uniform(count).numpy()))
    chosen = torch.from_numpy(order[:rows])
    record = chosen < len(flat)
    index = torch.where(record, chosen, torch.zeros_like(chosen))
    blank = torch.clamp((generator.uniform(rows) * k).long(), max=k - 1)
    labels = blank if not len(flat) else torch.where(record, y.long()[index], blank)
    stays = generator.uniform(rows) < randomiser.kept
    # One of the k − 1 other labels, each with the same probability.
    other = (labels + 1 + torch.clamp((generator.uniform(rows) * (k - 1)).long(), max=k - 2)) % k
    reported = torch.where(stays, labels, other)
    noised = torch.empty(rows, features, dtype=torch.float32)
    each = max(1, _CHUNK // max(features, 1))
    for start in range(0, rows, each):
        part = slice(start, start + each)
        values = torch.zeros(len(chosen[part]), features, dtype=torch.float64)
        if len(flat):
            values[record[part]] = clipped_rows(flat[index[part][record[part]]], randomiser.clip)
        noisy = add_noise(
            values.reshape(-1), standard_deviation=randomiser.noise, generator=generator, dtype=torch.float32
        )
        noised[part] = noisy.reshape(values.shape)
    return Release(noised, reported)


def clipped_rows(x: torch.Tensor, clip: float) -> torch.Tensor:
    """Return each row, scaled to the norm `clip` if it is longer, float64. A row that is not finite becomes zeros."""
    rows = x.to(torch.float64)
    rows = torch.where(rows.isfinite().all(1, keepdim=True), rows, torch.zeros_like(rows))
    largest = rows.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    norms = largest * (rows / largest).norm(dim=1, keepdim=True)  # without overflow or underflow of the squares
    factor = torch.clamp(clip / norms.clamp_min(torch.finfo(torch.float64).tiny), max=1.0)
    return torch.where(factor < 1, rows * factor * _SHRINK, rows * _SHRINK)


def packed(release: Release) -> bytes:
    """Return a release as the bytes of an npz file, without code."""
    buffer = io.BytesIO()
    np.savez(buffer, x=release.x.numpy(), y=release.y.numpy())
    return buffer.getvalue()


def unpacked(content: bytes) -> Release:
    """Return the release of an npz file. Raise TrainableError if the bytes are none."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            x, y = arrays["x"], arrays["y"]
            if x.dtype != np.float32 or y.dtype != np.int64 or x.ndim != 2 or y.shape != x.shape[:1]:
                raise ValueError("arrays of another form")  # noqa: TRY301 - every cause has the same words
            return Release(torch.from_numpy(x), torch.from_numpy(y))
    except Exception as error:
        raise TrainableError(
            "release-damaged",
            "A stored release cannot be read. Start a new search, which draws and charges a new release.",
        ) from error
