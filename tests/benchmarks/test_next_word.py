"""The public start: which words it learns from, that it fits the model and the records, and what it does not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.next_word import starts
from trainables.data import text
from trainables.data.registry import CONTEXT
from trainables.models import build
from trainables.start import read_start

CLASSES = 7


def sentences(seed: int, length: int = 400) -> torch.Tensor:
    """A text in which each word decides the next but for a tenth of them."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, CLASSES, (length,), generator=generator)
    kept = torch.rand(length, generator=generator) < 0.9
    return torch.where(kept, torch.arange(length) % CLASSES, noise).int()


def test_windows_hold_each_place_once_and_end_with_their_text() -> None:
    texts = [torch.arange(50), torch.arange(100, 100 + CONTEXT), torch.arange(200, 230)]
    rows = starts.cut(texts, stride=CONTEXT, offset=3)
    assert rows[:, 0].tolist() == [3, 23, 203], "a text that is too short has none"
    assert torch.equal(rows[0], torch.arange(3, 3 + CONTEXT + 1))
    ends = starts.cut(texts, stride=CONTEXT)
    assert torch.equal(ends[0, -1], ends[1, 0]), "each word but the first of a text is predicted once"


def test_no_document_trains_and_chooses() -> None:
    texts = [torch.full((30,), number) for number in range(200)]
    trained, held = starts.split(texts)
    numbers = [{int(each[0]) for each in part} for part in (trained, held)]
    assert not numbers[0] & numbers[1]
    assert len(numbers[0] | numbers[1]) == 200
    assert 8 <= len(held) <= 34


@pytest.mark.parametrize("name", ["next_word_lstm", "next_word_mlp"])
def test_the_loss_of_the_last_word_is_that_of_the_model(name: str) -> None:
    model = build(name, input_shape=(CONTEXT,), classes=CLASSES, seed=0)
    rows = starts.cut([sentences(0)], stride=CONTEXT)
    found = starts.losses(model, rows).detach()
    last = found.view(len(rows), -1)[:, -1]
    expected = torch.nn.functional.cross_entropy(model(rows[:, :-1].float()), rows[:, -1].long(), reduction="none")
    torch.testing.assert_close(last, expected.detach())
    assert len(found) == len(rows) * (CONTEXT if name == "next_word_lstm" else 1)
    assert starts.perplexity(model, rows) == pytest.approx(float(expected.detach().mean().exp()), rel=1e-5)


def test_a_start_learns_the_text_and_is_one_for_the_model(tmp_path: Path) -> None:
    made = list(starts.train("next_word_lstm", [sentences(0, 4000)], [sentences(1)], classes=CLASSES, epochs=2, seed=0))
    assert made[-1][0] < 0.8 * CLASSES, "a model that knows nothing has the number of words"
    sha256 = starts.write(made[-1][1], tmp_path / "s" / "start.safetensors")
    read = read_start(str(tmp_path / "s" / "start.safetensors"), sha256=sha256)
    model = build("next_word_lstm", input_shape=(CONTEXT,), classes=CLASSES, seed=5, weights=read.weights)
    assert starts.perplexity(model, starts.cut([sentences(1)], stride=CONTEXT + 1)) == pytest.approx(made[-1][0])


def test_documents_are_numbered_by_the_same_rule_as_the_addresses(tmp_path: Path) -> None:
    words = ["The", "state", ",", "co-operation", "x"]
    vocab = np.frombuffer("\n".join(words).encode(), np.uint8)
    ids = np.array([0, 1, 2, 3, 0, 1, 4, 0], np.uint16)
    np.savez(tmp_path / "c.npz", ids=ids, vocab=vocab, doc=np.array([0, 0, 0, 0, 0, 1, 1, 1], np.uint16))
    vocabulary = text.public_vocabulary(tmp_path / "c.npz", least=2)
    assert vocabulary == {"the": 1, "state": 2}
    assert [each.tolist() for each in text.documents(tmp_path / "c.npz", vocabulary)] == [[1, 2, 0, 0, 0, 1], [2, 0, 1]]
