"""The debiased loss: its float64 reference, unbiasedness by enumeration, and its limit without a response."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainables.release.draw import Randomiser
from trainables.release.loss import debiased_accuracy, debiased_cross_entropy, label_weights


def reference(logits: np.ndarray, reported: np.ndarray, response: np.ndarray) -> float:
    """Mean of Σ_c (P⁻¹)[ỹ, c] times the cross-entropy of class c, by a loop."""
    inverse = np.linalg.inv(response)
    total = 0.0
    for z, label in zip(logits, reported, strict=True):
        losses = [np.log(np.exp(z - z.max()).sum()) + z.max() - z[c] for c in range(len(z))]
        total += sum(inverse[label, c] * losses[c] for c in range(len(z)))
    return total / len(logits)


def response_matrix(kept: float, classes: int) -> np.ndarray:
    response = np.full((classes, classes), (1 - kept) / (classes - 1))
    np.fill_diagonal(response, kept)
    return response


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 0.1), (3, 1.0), (10, 4.0)])
def test_it_equals_the_reference_and_is_unbiased(classes: int, epsilon: float) -> None:
    kept = Randomiser(clip=1.0, noise=1.0, label_epsilon=epsilon, classes=classes).kept
    response = response_matrix(kept, classes)
    generator = np.random.default_rng(1)
    logits, labels = generator.normal(size=(7, classes)) * 3, generator.integers(0, classes, 7)
    weights = label_weights(kept, classes, dtype=torch.float64)
    assert np.allclose(weights.numpy(), np.linalg.inv(response), rtol=1e-10)
    found = float(debiased_cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels), weights))
    assert found == pytest.approx(reference(logits, labels, response), rel=1e-12, abs=1e-12)
    # E over the reported label is the loss of the true label, row by row.
    for z, label in zip(logits, labels, strict=True):
        row = torch.from_numpy(z).reshape(1, -1)
        per_report = [float(debiased_cross_entropy(row, torch.tensor([each]), weights)) for each in range(classes)]
        right = [float(debiased_accuracy(row, torch.tensor([each]), weights)) for each in range(classes)]
        true = float(torch.nn.functional.cross_entropy(row, torch.tensor([int(label)])))
        assert float(np.dot(response[label], per_report)) == pytest.approx(true, rel=1e-9)
        assert float(np.dot(response[label], right)) == pytest.approx(float(z.argmax() == label), abs=1e-9)


def test_with_all_labels_kept_it_is_the_cross_entropy() -> None:
    logits, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 3, 1, 1, 2])
    found = debiased_cross_entropy(logits, labels, label_weights(1.0, 4))
    assert torch.allclose(found, torch.nn.functional.cross_entropy(logits, labels), rtol=1e-6)


def test_without_the_weights_it_is_biased() -> None:
    """Control: the plain loss of the reported label is not that of the true one."""
    kept, logits = 0.6, torch.tensor([[2.0, -1.0]], dtype=torch.float64)
    plain = [float(torch.nn.functional.cross_entropy(logits, torch.tensor([each]))) for each in (0, 1)]
    assert abs(np.dot(response_matrix(kept, 2)[0], plain) - plain[0]) > 0.5
