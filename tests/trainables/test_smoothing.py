"""Laplacian smoothing (the post-processing of docs/methods.md): dense float64 references, laws, published constants."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainables.engine.circulant import laplacian_eigenvalues
from trainables.engine.postprocess import LaplacianSmoothing

SIGMAS = [0.0, 1e-300, 0.2, 1.0, 3.0, 50.0, 1e4, 1e9, 1e300]
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-12}
# Above two stretches, and no multiple of a block.
LONG = 2 * 262_144 + 7


def numbers(size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed + size), dtype=torch.float64)


def matrix(size: int, sigma: float) -> Tensor:
    """A_σ by its definition; at size 1 and 2 the two neighbours are one."""
    identity = torch.eye(size, dtype=torch.float64)
    return (1 + 2 * sigma) * identity - sigma * (identity.roll(1, 0) + identity.roll(-1, 0))


def inverse_by_eigenvectors(size: int, sigma: float) -> Tensor:
    """A_σ⁻¹ as the sum over all eigenvectors: keeps its digits at a σ where A_σ is too ill-conditioned to be solved."""
    index = np.arange(size)
    waves = np.cos(2 * np.pi * (np.outer(index, index) % size) / size)
    kernel = waves @ (1 / (1 + 4 * min(sigma, 1e290) * np.sin(np.pi * index / size) ** 2)) / size
    return torch.from_numpy(kernel[(index[:, None] - index) % size])


def laplacian_smoothing(vector: Tensor, sigma: float) -> Tensor:
    return LaplacianSmoothing(sigma=sigma, sizes=(len(vector),))(vector)


def largest(vector: Tensor) -> float:
    return float(vector.abs().max())


# Around the dense limit (128), multiples of the block (16) and what is left over; 1 and 2 fold the circle onto itself.
@pytest.mark.parametrize("size", [1, 2, 3, 10, 127, 128, 129, 143, 144, 145, 700])
def test_it_is_the_inverse_of_the_matrix(size: int) -> None:
    for sigma, (dtype, tolerance) in itertools.product(SIGMAS, TOLERANCES.items()):
        vector = numbers(size).to(dtype)
        smoothed = laplacian_smoothing(vector, sigma)
        assert smoothed.dtype == dtype
        expected = inverse_by_eigenvectors(size, sigma) @ vector.double()
        assert largest(smoothed.double() - expected) <= tolerance * largest(vector), sigma
        if sigma <= 100:
            solved = torch.linalg.solve(matrix(size, sigma), vector.double())
            assert largest(smoothed.double() - solved) <= tolerance * largest(vector), sigma


def test_the_reference_notices_an_end_that_is_not_joined() -> None:
    """The control: the same matrix without its corners, or a kernel that is cut off, is not within the tolerance."""
    size, sigma, vector = 145, 3.0, numbers(145)
    expected = inverse_by_eigenvectors(size, sigma) @ vector
    open_ends = matrix(size, sigma)
    open_ends[0, -1] = open_ends[-1, 0] = 0.0
    distance = (torch.arange(size)[:, None] - torch.arange(size)).abs()
    cut = inverse_by_eigenvectors(size, sigma) * (torch.minimum(distance, size - distance) <= 16)
    for wrong in (torch.linalg.solve(open_ends, vector), cut @ vector):
        assert largest(wrong - expected) > 1e-6 * largest(vector)


@pytest.mark.parametrize(("sigma", "dtype"), [(0.2, torch.float64), (50.0, torch.float32), (1e9, torch.float64)])
def test_a_long_vector_agrees_with_the_fourier_transform(sigma: float, dtype: torch.dtype) -> None:
    vector = numbers(LONG)
    expected = torch.fft.irfft(torch.fft.rfft(vector) / laplacian_eigenvalues(LONG, sigma), n=LONG)
    smoothed = laplacian_smoothing(vector.to(dtype), sigma)
    assert largest(smoothed.double() - expected) <= TOLERANCES[dtype] * largest(vector)


@given(st.integers(1, 600), st.floats(0, 1e6), st.integers(0, 1000), st.integers(0, 600))
def test_laws(size: int, sigma: float, seed: int, shift: int) -> None:
    vector, other = numbers(size, seed), numbers(size, seed + 1)
    smoothed = laplacian_smoothing(vector, sigma)
    scale = largest(vector) + largest(other)
    # Its matrix brings the vector back; what A_σ magnifies by 1 + 4σ is rounding.
    back = (1 + 2 * sigma) * smoothed - sigma * (smoothed.roll(1) + smoothed.roll(-1))
    assert largest(back - vector) <= 1e-12 * (1 + 4 * sigma) * scale
    # Eigenvalues lie in [1 / (1 + 4σ), 1], and the one of the mean is 1.
    norm = float(vector.norm())
    assert norm / (1 + 4 * sigma) * (1 - 1e-9) <= float(smoothed.norm()) <= norm * (1 + 1e-12)
    assert abs(float(smoothed.mean() - vector.mean())) <= 1e-12 * scale
    # A circulant matrix knows no first entry, a symmetric one no direction; both are linear.
    assert largest(laplacian_smoothing(vector.roll(shift), sigma) - smoothed.roll(shift)) <= 1e-12 * scale
    assert largest(laplacian_smoothing(vector.flip(0), sigma) - smoothed.flip(0)) <= 1e-12 * scale
    sum_smoothed = laplacian_smoothing(vector - 2 * other, sigma)
    assert largest(sum_smoothed - smoothed + 2 * laplacian_smoothing(other, sigma)) <= 1e-11 * scale


@pytest.mark.parametrize(("sigma", "gamma", "beta"), [(1, 0.447, 0.268), (3, 0.277, 0.149), (5, 0.218, 0.114)])
def test_published_utility_constants(sigma: int, gamma: float, beta: float) -> None:
    """γ is the diagonal of A_σ⁻¹ and β the squared length of its rows; Tables 3 and 4 of the paper are at d ≥ 1000."""
    size = 1000
    unit = torch.zeros(size, dtype=torch.float64)
    unit[3] = 1.0
    row = laplacian_smoothing(unit, float(sigma))
    # The paper cuts its digits off in one place and rounds them in another.
    assert float(row[3]) == pytest.approx(gamma, abs=1e-3)
    assert float(row.square().sum()) == pytest.approx(beta, abs=1e-3)


def test_layer_scope_smooths_each_segment_by_itself() -> None:
    vector = numbers(1000)
    sizes = (1, 4, 600, 395)
    smoothed = LaplacianSmoothing(sigma=2.0, sizes=sizes)(vector)
    for part, expected in zip(smoothed.split(list(sizes)), vector.split(list(sizes)), strict=True):
        # Where a segment begins in memory may change the order of a sum, and so the last bit.
        assert largest(part - laplacian_smoothing(expected, 2.0)) <= 1e-14 * largest(vector)
    whole = LaplacianSmoothing(sigma=2.0, sizes=(1000,))(vector)
    assert largest(whole - laplacian_smoothing(vector, 2.0)) <= 1e-14 * largest(vector)
    assert not torch.allclose(whole, smoothed)
