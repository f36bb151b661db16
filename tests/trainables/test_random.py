"""The generators and the sampler: laws with negative controls, key erasure, stored streams."""

from __future__ import annotations

import copy
import math
import os
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats
from torch import Tensor

from trainables.engine.random import SecureGenerator, SeededGenerator, WordGenerator
from trainables.engine.sampling import poisson_batch


def keyed(key: int = 1) -> SecureGenerator:
    """A secret generator under a known key, so that a statistical test gives the same verdict every time."""
    generator = SecureGenerator()
    generator.load_state_dict({"key": torch.full((32,), key, dtype=torch.uint8), "draws": 0})
    return generator


GENERATORS: list[Callable[[], WordGenerator]] = [keyed, lambda: SeededGenerator(1)]


# -- Gaussians -------------------------------------------------------------------------------------------------------


def looks_gaussian(numbers: Tensor) -> bool:
    """Kolmogorov-Smirnov, the fourth moment, the tails and the correlation of neighbours, each at about 1e-3."""
    values = numbers.double().numpy()
    size = len(values)
    beyond = int((np.abs(values) > 4).sum())
    expected = size * 2 * stats.norm.sf(4)
    return bool(
        stats.kstest(values, "norm").pvalue > 1e-3
        and abs(stats.kurtosis(values)) < 3.3 * math.sqrt(24 / size)
        and abs(beyond - expected) < 3.5 * math.sqrt(expected)
        and abs(float((values[::2] * values[1::2]).mean())) < 3.3 / math.sqrt(size / 2)
    )


@pytest.mark.parametrize("make", GENERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normals_are_gaussian(make: Callable[[], WordGenerator], dtype: torch.dtype) -> None:
    numbers = make().normal(400_000, dtype)
    assert numbers.dtype == dtype
    assert looks_gaussian(numbers)


def test_the_gaussian_test_can_fail() -> None:
    exact = keyed().normal(400_000, torch.float64)
    uniforms = keyed(2).uniform(12 * 400_000).reshape(12, -1)
    repeated = exact.clone()
    repeated[1::2] = exact[::2]
    for wrong in (1.02 * exact, uniforms.sum(0) - 6.0, repeated, exact.clamp(-3.9, 3.9)):
        assert not looks_gaussian(wrong)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 16_383, 16_384, 16_385, 40_001])
def test_every_number_of_normals_is_made(size: int) -> None:
    numbers = keyed().normal(size)
    assert len(numbers) == size
    assert bool(numbers.isfinite().all())
    assert len(set(numbers.tolist())) >= size - 5 * (size // 10_000)  # float32 may tie a few times


def test_uniforms_are_multiples_of_two_to_the_minus_53() -> None:
    numbers = keyed().uniform(100_000)
    assert numbers.dtype == torch.float64
    assert 0 <= float(numbers.min()) < float(numbers.max()) < 1
    scaled = numbers * 2**53
    assert torch.equal(scaled, scaled.round())
    assert stats.kstest(numbers.numpy(), "uniform").pvalue > 1e-3


# -- the secret generator --------------------------------------------------------------------------------------------


def test_the_stream_is_aes_256_in_counter_mode_with_key_erasure() -> None:
    """Written out by hand: the counter blocks are encrypted one by one; the first two are the next key."""
    key = bytes([1]) * 32
    for _ in range(3):
        block = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
        stream = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(6))
        key, words = stream[:32], stream[32:]
        expected = [(int.from_bytes(words[i : i + 8], "little") >> 11) / 2**53 for i in range(0, 64, 8)]
        if _ == 0:
            generator = keyed()
        assert generator.uniform(8).tolist() == expected
    assert generator.state_dict()["key"].numpy().tobytes() == key


def test_no_two_secret_generators_agree() -> None:
    first, second = SecureGenerator(), SecureGenerator()
    assert not torch.equal(first.uniform(4), second.uniform(4))
    with pytest.raises(TypeError):
        SecureGenerator(0)  # type: ignore[call-arg]


def test_rekeying_leaves_the_stream() -> None:
    first, second = keyed(), keyed()
    second.rekey()
    assert not torch.equal(first.uniform(4), second.uniform(4))


def test_a_forked_child_does_not_repeat_its_parents_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = keyed(), keyed()
    parent = first.uniform(4)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert not torch.equal(parent, second.uniform(4))


@pytest.mark.parametrize("make", GENERATORS)
def test_a_stored_stream_continues(make: Callable[[], WordGenerator]) -> None:
    generator = make()
    generator.normal(5)
    state = generator.state_dict()
    expected = generator.normal(5), generator.uniform(5)
    other = SecureGenerator() if isinstance(generator, SecureGenerator) else SeededGenerator(999)
    other.load_state_dict(state)
    assert torch.equal(other.normal(5), expected[0])
    assert torch.equal(other.uniform(5), expected[1])


def test_a_secret_stream_exists_once() -> None:
    with pytest.raises(TypeError, match="noise would be used twice"):
        copy.deepcopy(SecureGenerator())
    with pytest.raises(TypeError, match="noise would be used twice"):
        pickle.dumps(SecureGenerator())


def test_a_checkpoint_tells_nothing_of_the_number_of_records() -> None:
    few, many = SecureGenerator(), SecureGenerator()
    few.uniform(10)
    many.uniform(10_000)
    assert few.state_dict().keys() == many.state_dict().keys() == {"key"}


# -- Poisson sampling ------------------------------------------------------------------------------------------------

RECORDS, RATE, BATCHES = 200, 0.05, 4000


def looks_poisson(batches: list[Tensor]) -> bool:
    """Chi-square of the sizes against the binomial and of each record's inclusions; joint inclusions of neighbours."""
    sizes = np.bincount([len(batch) for batch in batches], minlength=RECORDS + 1)
    law = stats.binom.pmf(np.arange(RECORDS + 1), RECORDS, RATE) * len(batches)
    common = law >= 5
    observed, expected = np.append(sizes[common], sizes[~common].sum()), np.append(law[common], law[~common].sum())
    included = np.zeros((len(batches), RECORDS))
    for row, batch in zip(included, batches, strict=True):
        row[batch.numpy()] = 1
    counts = included.sum(0)
    spread = ((counts - len(batches) * RATE) ** 2 / (len(batches) * RATE * (1 - RATE))).sum()
    together = (included[:, ::2] * included[:, 1::2]).sum()
    mean = len(batches) * RECORDS / 2 * RATE**2
    return bool(
        stats.chisquare(observed, expected).pvalue > 1e-3
        and 1e-3 < stats.chi2.cdf(spread, RECORDS) < 1 - 1e-3
        and abs(together - mean) < 3.3 * math.sqrt(mean)
    )


def test_batches_follow_the_poisson_sampling_law() -> None:
    generator = keyed()
    assert looks_poisson([poisson_batch(generator, RECORDS, RATE) for _ in range(BATCHES)])


def test_the_sampling_test_can_fail() -> None:
    torch.manual_seed(0)
    size = round(RECORDS * RATE)
    fixed = [torch.randperm(RECORDS)[:size] for _ in range(BATCHES)]
    pairs = [
        torch.cat([2 * half, 2 * half + 1])
        for half in ((torch.rand(RECORDS // 2) < RATE).nonzero().squeeze(1) for _ in range(BATCHES))
    ]
    uneven = [(torch.rand(RECORDS) < torch.linspace(0, 2 * RATE, RECORDS)).nonzero().squeeze(1) for _ in range(BATCHES)]
    more = [(torch.rand(RECORDS) < 1.05 * RATE).nonzero().squeeze(1) for _ in range(BATCHES)]
    for wrong in (fixed, pairs, uneven, more):
        assert not looks_poisson(wrong)


def test_batches_at_the_ends() -> None:
    assert poisson_batch(keyed(), 5, 1.0).tolist() == [0, 1, 2, 3, 4]
    empty = poisson_batch(keyed(), 5, 1e-300)
    assert (empty.tolist(), empty.dtype) == ([], torch.int64)
    assert poisson_batch(keyed(), 0, 0.5).tolist() == []
