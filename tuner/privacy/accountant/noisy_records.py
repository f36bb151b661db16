"""ε of one noisy copy of the records: Gaussian noise on clipped features, randomised response on labels.

Formal guarantees:
    A row of the release is the output of one randomiser on one record (x, y) with ‖x‖ ≤ C. For any two values of the
    record, the pair of outputs is dominated by the product of N(0, 1) against N(μ, 1), μ = 2C/s, and of randomised
    response on two different labels. So the hockey-stick divergence of the product is the exact local δ(ε), because
    features and label get independent noise: with p and q the probabilities of the true and of any other label, and δ_G
    the profile of the Gaussian mechanism, δ(ε) = p·δ_G(ε − ε_y) + q·δ_G(ε + ε_y) + (k − 2)·q·δ_G(ε), since the
    log-ratio of the response is ε_y, −ε_y or 0. Opposite features of length C with different labels reach it.

    The release of m rows, m PUBLIC, is (ε, δ)-DP for one record added, removed or changed. Records are in uniformly
    random secret places, a row without a record is that of zeros and a uniform label, and of more than m records, m are
    chosen uniformly. Proof. Couple places and choices. D and D′ become mixtures of rows that differ in one place, where
    one has the row of a record and the other that of no record or of another one, and H_ε is jointly convex.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, inf, isfinite, log, log1p, log10

from tuner.errors import InputError
from tuner.privacy.accountant.mechanism import is_real_number, require_delta, require_steps
from tuner.privacy.accountant.pld import beyond
from tuner.privacy.accountant.rdp import LEAST_NOISE

__all__ = ["MARGIN", "NoisyRecords", "calibrate_release", "gaussian_delta", "smallest_epsilon"]

MARGIN = 1e-13
"""Margin for rounding of a difference of two probabilities, subtracted from δ. Measured rounding: below 1e-15."""
_ROUNDINGS = 200
_MOST_FOR_LABELS = 25.0
"""Largest ε of a label that is claimed. Above, uniform numbers of 53 bits change a label too rarely."""


@dataclass(frozen=True, kw_only=True)
class NoisyRecords:
    """Randomiser of one record: clip, Gaussian noise, k-ary randomised response.

    Attributes:
        clip: C, the largest Euclidean norm of a record's features before noise.
        noise: s, the standard deviation of the noise on each feature.
        label_epsilon: ε of the randomised response on the label.
        classes: k, the public number of classes.
    """

    clip: float
    noise: float
    label_epsilon: float
    classes: int

    def __post_init__(self) -> None:
        require_steps(self.classes, minimum=2, name="classes")
        for name in ("clip", "noise", "label_epsilon"):
            value = getattr(self, name)
            if not (is_real_number(value) and isfinite(value) and value > 0):
                raise InputError(
                    "release-invalid",
                    f"`{name}` of a release must be finite and above 0 (got {value!r}). Correct `privacy.release`.",
                )
            object.__setattr__(self, name, float(value))

    @property
    def shift(self) -> float:
        """μ = 2C/s: the largest distance of two records' clipped features, in standard deviations of the noise."""
        return 2 * self.clip / self.noise

    @property
    def kept(self) -> float:
        """Probability that a label is reported as it is."""
        return 1 / (1 + (self.classes - 1) * exp(-self.label_epsilon))

    @property
    def changed(self) -> float:
        """Probability that a label is reported as one given other label."""
        return exp(-self.label_epsilon) * self.kept

    def delta(self, epsilon: float) -> float:
        """Return the local δ at ε: the hockey-stick divergence of the dominating pair, and the end of the noise."""
        if self.label_epsilon > _MOST_FOR_LABELS:
            return 1.0
        y, rest = self.label_epsilon, self.classes - 2
        found = self.kept * gaussian_delta(epsilon - y, self.shift)
        found += self.changed * (gaussian_delta(epsilon + y, self.shift) + rest * gaussian_delta(epsilon, self.shift))
        return found + beyond(1 / self.shift)

    def epsilon(self, delta: float) -> float:
        """Return ε at `delta`, rounded up; `math.inf` if no finite ε is proved."""
        require_delta(delta)
        return smallest_epsilon(self.delta, delta)

    def divergence(self, order: float) -> float:
        """Return an upper bound of the Rényi divergence of order a > 1 between the outputs of two records."""
        if 1 / self.shift < LEAST_NOISE or self.label_epsilon > _MOST_FOR_LABELS:
            return inf
        y, rest = self.label_epsilon, self.classes - 2
        # log of p^a q^(1−a) + q^a p^(1−a) + (k−2) q, with p = e^y q.
        terms = (log(self.kept) + (order - 1) * y, log(self.changed) - (order - 1) * y)
        largest = terms[0]
        labels = largest + log1p(exp(terms[1] - largest) + rest * self.changed * exp(-largest))
        return order * self.shift**2 / 2 + labels / (order - 1)


def smallest_epsilon(delta_at: Callable[[float], float], delta: float, *, at_most: float = 1e6) -> float:
    """Return ε at which the falling function `delta_at` reaches `delta`, rounded up; `math.inf` above `at_most`."""
    target = delta - MARGIN
    if target <= 0 or delta_at(at_most) > target:
        return inf
    low, high = 0.0, min(1.0, at_most)
    while delta_at(high) > target:
        low, high = high, min(2 * high, at_most)
    for _ in range(_ROUNDINGS):
        middle = (low + high) / 2
        if not low < middle < high or high - low < 1e-12 * high:
            break
        low, high = (middle, high) if delta_at(middle) > target else (low, middle)
    return high


def calibrate_release(*, clip: float, label_share: float, classes: int, epsilon: float, delta: float) -> NoisyRecords:
    """Return the randomiser with the smallest noise, rounded up in the fifth digit, whose ε at `delta` fits.

    `label_share` is the share of ε that the labels use, above 0 and below 1.
    """

    def fits(ratio: float) -> bool:
        return (
            NoisyRecords(clip=clip, noise=2 * clip * ratio, label_epsilon=label_epsilon, classes=classes).epsilon(delta)
            <= epsilon
        )

    label_epsilon = label_share * epsilon
    low, high = 0.0, 1.0
    while not fits(high):
        low, high = high, 2 * high
        if high > 1e9:
            raise InputError(
                "release-invalid",
                f"No noise up to {high:g} times the clipping norm gives ε = {epsilon!r} at δ = {delta!r}. Raise "
                "`privacy.epsilon` or `privacy.delta`, or lower `privacy.release.label_share`.",
            )
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    scale = 10.0 ** (5 - ceil(log10(2 * clip * high)))
    noise = ceil(2 * clip * high * scale) / scale
    return NoisyRecords(clip=clip, noise=noise, label_epsilon=label_epsilon, classes=classes)


def gaussian_delta(epsilon: float, shift: float) -> float:
    """Return the hockey-stick divergence of N(μ, 1) and N(0, 1) at any real ε (Balle & Wang 2018, Theorem 8)."""
    from scipy.special import log_ndtr, ndtr

    first = float(ndtr(shift / 2 - epsilon / shift))
    second = epsilon + float(log_ndtr(-shift / 2 - epsilon / shift))
    return max(first - exp(second), 0.0) if second < 700 else max(first, 0.0)
