"""The generators: laws with negative controls, resolution, key erasure, stored streams."""

from __future__ import annotations

import copy
import math
import os
import pickle
from collections.abc import Callable
from itertools import islice, product

import mpmath
import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats
from torch import Tensor
from training_fakes import keyed, normals

from trainables.engine import chacha20
from trainables.engine.chacha20 import KeyStream
from trainables.engine.gaussian import _CHUNK as CHUNK
from trainables.engine.gaussian import LONGEST, BoxMuller, Words, from_words, needs_more_bits, random_words, word_count
from trainables.engine.noise import add_noise
from trainables.engine.random import Generator, SecureGenerator, SeededGenerator

GENERATORS: list[Callable[[], Generator]] = [keyed, lambda: SeededGenerator(1)]


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
def test_normals_are_gaussian(make: Callable[[], Generator], dtype: torch.dtype) -> None:
    numbers = normals(make(), 400_000, dtype)
    assert numbers.dtype == dtype
    assert looks_gaussian(numbers)


def test_the_gaussian_test_can_fail() -> None:
    exact = normals(keyed(), 400_000, torch.float64)
    uniforms = keyed(2).uniform(12 * 400_000).reshape(12, -1)
    repeated = exact.clone()
    repeated[1::2] = exact[::2]
    for wrong in (1.02 * exact, uniforms.sum(0) - 6.0, repeated, exact.clamp(-3.9, 3.9)):
        assert not looks_gaussian(wrong)


@pytest.mark.parametrize("size", [0, 1, 2, 3, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 1, 2 * CHUNK + 2])
def test_every_number_of_normals_is_made(size: int) -> None:
    numbers = normals(keyed(), size, torch.float32)
    assert len(numbers) == size
    assert bool(numbers.isfinite().all())
    assert len(set(numbers.tolist())) >= size - 5 * (size // 10_000)  # float32 may tie a few times


def given_words(words: list[int]) -> Callable[[Words], None]:
    """A source that hands out these words, and zeros when they have run out."""
    left = list(words)

    def fill(array: Words) -> None:
        array[:] = [left.pop(0) if left else 0 for _ in array]

    return fill


def gaussians(words: list[int], size: int, scale: float = 1.0) -> list[float]:
    return [number for _, made in BoxMuller().chunks(given_words(words), size, scale) for number in made.tolist()]


@pytest.mark.parametrize("scale", [1.0, 0.0, 3.7])
def test_each_pair_is_box_muller_of_its_two_words(scale: float) -> None:
    """In fifty digits: the radius from the top 52 bits of one word, the angle from all bits of the other."""
    edges = [0, 1, 2**12, 2**13 - 1, 2**51 * 8191, 2**63, 2**63 - 1, 2**64 - 1]
    words = [*edges, *edges[::-1], *(int(word) for word in np.random.Philox(5).random_raw(84))]
    pairs = len(words) // 2
    found = gaussians(words, 2 * pairs, scale)
    with mpmath.workdps(50):
        for pair, (first, second) in enumerate(zip(words[:pairs], words[pairs:], strict=True)):
            radius = scale * mpmath.sqrt(-2 * mpmath.log(1 - mpmath.mpf(first >> 12) / 2**52))
            turn = (second % 8192 + mpmath.mpf(second >> 12) / 2**52) / 8192
            expected = radius * mpmath.cospi(2 * turn), radius * mpmath.sinpi(2 * turn)
            # Three operations on a point of the circle, each off by half a unit of the last place.
            for number, reference in zip(found[2 * pair : 2 * pair + 2], expected, strict=True):
                assert abs(number - reference) <= 8e-16 * max(radius, 1e-300)


def test_the_ends_of_the_radius_are_finite_and_far() -> None:
    """Words of ones give the largest radius; the tail beyond six standard deviations is reached."""
    ones = 2**64 - 1
    assert max(map(abs, gaussians([ones, 0, ones], 2))) == pytest.approx(LONGEST, rel=1e-6)
    assert max(map(abs, gaussians([ones, 0], 2))) == pytest.approx(math.sqrt(2 * 52 * math.log(2)), rel=1e-6)
    beyond_six = 2**64 - int(math.exp(-18.5) * 2**64)
    assert max(map(abs, gaussians([beyond_six, 0], 2))) > 6
    assert gaussians([0, 0], 2) == [0.0, 0.0]


def test_the_longest_radii_are_those_of_a_uniform_number_with_more_bits() -> None:
    """In fifty digits, for each radius whose word begins with forty ones, whatever the other radii of its chunk are."""
    edge = 2**64 - 2**24
    radii = [edge - 1, edge, 2**63, 2**64 - 1, 2**64 - 2**13, edge + 2**20]
    rest = [int(word) for word in np.random.Philox(8).random_raw(4)]
    found = gaussians([*radii, *[0] * len(radii), *rest], 2 * len(radii))
    more = dict(zip([radius for radius in radii if radius >= edge], rest, strict=True))
    with mpmath.workdps(50):
        for pair, radius in enumerate(radii):
            less = mpmath.mpf(more.get(radius, 0) >> 12) / 2**104
            expected = mpmath.sqrt(-2 * mpmath.log(1 - mpmath.mpf(radius >> 12) / 2**52 - less))
            assert math.hypot(*found[2 * pair : 2 * pair + 2]) == pytest.approx(float(expected), rel=1e-15)


@pytest.mark.parametrize("size", [1, 2 * CHUNK + 7])
def test_the_longest_radii_are_the_same_on_an_accelerator(size: int) -> None:
    words = np.random.Philox(9).random_raw(size + 16)
    words[:: max(size // 5, 1)] = 2**64 - 1
    expected = torch.tensor(gaussians(words.tolist(), size), dtype=torch.float64)
    drawn, less = random_words(given_words(words.tolist()), size)
    assert less is not None
    found = from_words(torch.from_numpy(drawn.view(np.int64)), size, torch.from_numpy(less))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-14)
    assert float(found.abs().max()) > 8.5


@pytest.mark.parametrize("size", [2, 3, 1000, CHUNK])
def test_words_on_an_accelerator_become_the_same_numbers(size: int) -> None:
    words = np.random.Philox(6).random_raw(size + size % 2)
    expected = torch.tensor(gaussians([int(word) for word in words], size), dtype=torch.float64)
    found = from_words(torch.from_numpy(words.view(np.int64)), size)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-14)


def test_both_numbers_of_a_pair_are_independent() -> None:
    """Also in their squares, where a radius that is shared wrongly would show."""
    first, second = normals(keyed(3), 400_000, torch.float64).numpy().reshape(-1, 2).T
    bound = 3.5 / math.sqrt(len(first))
    for one, other in ((first, second), (first**2, second**2), (np.abs(first), second), (first, second**2)):
        assert abs(np.corrcoef(one, other)[0, 1]) < bound
    uniform_radius = np.sqrt(first**2 + second**2).clip(max=2)
    wrong = uniform_radius * first, uniform_radius * second
    assert abs(np.corrcoef(wrong[0] ** 2, wrong[1] ** 2)[0, 1]) > bound  # the control


def last_bits_are_free(numbers: Tensor) -> bool:
    """Whether the eight last bits of the float64 significands are uniform, at about 1e-3."""
    bits = numbers.double().numpy().view(np.uint64) & np.uint64(255)
    return bool(stats.chisquare(np.bincount(bits.astype(np.int64), minlength=256)).pvalue > 1e-3)


@pytest.mark.parametrize("make", GENERATORS)
def test_noise_has_the_resolution_of_float64(make: Callable[[], Generator]) -> None:
    numbers = normals(make(), 200_000, torch.float64)
    assert last_bits_are_free(numbers)
    assert len(set(numbers.tolist())) == 200_000
    assert not last_bits_are_free(numbers.float())  # the controls: noise on a grid
    assert not last_bits_are_free((numbers * 2**40).round() / 2**40)


# -- noise on a sum --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", GENERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 1001, 2 * CHUNK + 5])
def test_noise_is_the_sum_plus_scaled_normals(make: Callable[[], Generator], dtype: torch.dtype, size: int) -> None:
    total = torch.linspace(-3, 3, size, dtype=dtype)
    before = total.clone()
    noised = add_noise(total, standard_deviation=2.5, generator=make(), dtype=total.dtype)
    exact = before.double() + 2.5 * normals(make(), size, torch.float64)
    assert noised.dtype == dtype
    torch.testing.assert_close(noised.double(), exact, rtol=0.0, atol=1e-14 if dtype == torch.float64 else 1e-6)
    assert torch.equal(total, before)


def test_no_noise_draws_as_much_as_noise() -> None:
    total = torch.linspace(-3, 3, 1001, dtype=torch.float64)
    for make in GENERATORS:
        silent, loud = make(), make()
        assert torch.equal(add_noise(total, standard_deviation=0.0, generator=silent, dtype=total.dtype), total)
        assert not torch.equal(add_noise(total, standard_deviation=1.0, generator=loud, dtype=total.dtype), total)
        assert torch.equal(silent.uniform(4), loud.uniform(4))


# -- uniforms --------------------------------------------------------------------------------------------------------


def test_uniforms_are_multiples_of_two_to_the_minus_53() -> None:
    numbers = keyed().uniform(100_000)
    assert numbers.dtype == torch.float64
    assert 0 <= float(numbers.min()) < float(numbers.max()) < 1
    scaled = numbers * 2**53
    assert torch.equal(scaled, scaled.round())
    assert stats.kstest(numbers.numpy(), "uniform").pvalue > 1e-3


# -- the secret generator --------------------------------------------------------------------------------------------


def rfc_block(key: bytes, number: int) -> bytes:
    """RFC 8439 §2.3 with Python's integers, and a nonce of zeros."""
    start = [int.from_bytes(part, "little") for part in batched_bytes(b"expand 32-byte k" + key)] + [number, 0, 0, 0]
    state = list(start)
    columns = [(i, i + 4, i + 8, i + 12) for i in range(4)]
    diagonals = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for a, b, c, d in 10 * (columns + diagonals):
        for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) % 2**32
            turned = state[z] ^ state[x]
            state[z] = (turned << bits | turned >> (32 - bits)) % 2**32
    return b"".join(((x + y) % 2**32).to_bytes(4, "little") for x, y in zip(state, start, strict=True))


def batched_bytes(value: bytes) -> list[bytes]:
    return [value[at : at + 4] for at in range(0, len(value), 4)]


def test_the_stream_is_chacha20_with_key_erasure() -> None:
    """Written out by hand, block by block. The first half of block 0 is the next key."""
    generator, key = keyed(), bytes([1]) * 32
    for _ in range(3):
        words = rfc_block(key, 1) + rfc_block(key, 2)
        expected = [(int.from_bytes(words[i : i + 8], "little") >> 11) / 2**53 for i in range(0, 128, 8)]
        key = rfc_block(key, 0)[:32]
        assert generator.uniform(16).tolist() == expected
    assert generator.state_dict()["key"].numpy().tobytes() == key


@pytest.mark.parametrize("count", [1, 7, 8, 800, 801, 2500])
def test_an_accelerator_computes_the_same_words(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, also in several parts. Fewer rounds are found."""
    key = bytes(range(32))
    expected = np.empty(count, dtype="<u8")
    KeyStream(key)(expected)

    def found() -> list[int]:
        words: list[int] = KeyStream(key).first(count, torch.device("cpu")).numpy().view("<u8").tolist()
        return words

    assert found() == expected.tolist()
    monkeypatch.setattr(chacha20, "_BLOCKS_AT_ONCE", 100)
    assert found() == expected.tolist()
    monkeypatch.setattr(chacha20, "range", lambda *ends: range(*((9,) if ends == (10,) else ends)), raising=False)
    assert found() != expected.tolist()


@pytest.mark.parametrize("size", [3, CHUNK, 2 * CHUNK + 3])
def test_a_radius_that_needs_more_bits_is_found_as_on_a_cpu(size: int) -> None:
    """Radii are the first half of each chunk, of which the last one is shorter."""
    count = word_count(size)
    last = (count - 1) // CHUNK * CHUNK  # where the last chunk starts
    radius, angle = last + (count - last) // 2 - 1, count - 1
    for place, word in product((0, radius, angle), (2**64 - 2**24 - 1, 2**64 - 2**24, 2**64 - 1)):
        words = np.zeros(count + 1, dtype="<u8")  # one more for the bits
        words[place] = word
        stream = iter(words)
        _, less = random_words(lambda into, stream=stream: np.copyto(into, list(islice(stream, into.size))), size)
        assert (less is not None) == (place != angle and word >= 2**64 - 2**24)
        assert needs_more_bits(torch.from_numpy(words[:count].view("<i8")), size) == (less is not None)


@pytest.mark.parametrize("size", [3, 2 * CHUNK + 3])
def test_a_request_has_one_key_however_long_it_is(size: int) -> None:
    """The stream of one key, read in one piece, gives the same numbers and the next key."""
    stream = Cipher(algorithms.ChaCha20(bytes([1]) * 32, bytes(16)), None).encryptor()
    expected_key = stream.update(bytes(64))[:32]
    generator = keyed()
    numbers = normals(generator, size, torch.float64)

    def fill(words: Words) -> None:
        words[:] = np.frombuffer(stream.update(bytes(8 * len(words))), dtype="<u8")

    expected = [number for _, made in BoxMuller().chunks(fill, size) for number in made.tolist()]
    assert numbers.tolist() == expected
    assert generator.state_dict()["key"].numpy().tobytes() == expected_key
    words = Cipher(algorithms.ChaCha20(expected_key, bytes(16)), None).encryptor().update(bytes(64 + 8 * size))
    uniforms = (np.frombuffer(words[64:], dtype="<u8") >> np.uint64(11)) / 2.0**53
    assert torch.equal(generator.uniform(size), torch.from_numpy(uniforms))


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
def test_a_stored_stream_continues(make: Callable[[], Generator]) -> None:
    generator = make()
    normals(generator, 5, torch.float32)
    state = generator.state_dict()
    expected = normals(generator, 5, torch.float32), generator.uniform(5)
    other = SecureGenerator() if isinstance(generator, SecureGenerator) else SeededGenerator(999)
    other.load_state_dict(state)
    assert torch.equal(normals(other, 5, torch.float32), expected[0])
    assert torch.equal(other.uniform(5), expected[1])


def test_a_secret_stream_exists_once() -> None:
    with pytest.raises(TypeError):
        copy.deepcopy(SecureGenerator())
    with pytest.raises(TypeError):
        pickle.dumps(SecureGenerator())


def test_a_checkpoint_tells_nothing_of_the_number_of_records() -> None:
    few, many = SecureGenerator(), SecureGenerator()
    few.uniform(10)
    many.uniform(10_000)
    assert few.state_dict().keys() == many.state_dict().keys() == {"key"}
