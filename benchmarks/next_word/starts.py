"""Public weights for next-word prediction, trained on the Brown corpus without privacy. No address is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from math import exp
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from trainables.data.registry import CONTEXT
from trainables.data.splits import aside
from trainables.models import build

HELD_OUT = 0.1
"""Fraction of the documents of the corpus that choose the number of epochs. A hash of the document's place selects."""

RATE = 2e-3
"""Learning rate of Adam, which falls by half from one epoch to the next."""

_BATCH: Mapping[str, int] = {"next_word_lstm": 128, "next_word_mlp": 512}  # windows in a step
_STRIDE: Mapping[str, int] = {"next_word_lstm": CONTEXT, "next_word_mlp": 4}
# An LSTM learns from each word of a window, so windows follow each other. A perceptron learns from the last word alone.


def split(texts: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the documents to train on, and those that choose the epoch."""
    held = aside(len(texts), fraction=HELD_OUT, key="start:brown")
    return [text for text, out in zip(texts, held, strict=True) if not out], [
        text for text, out in zip(texts, held, strict=True) if out
    ]


def cut(texts: list[Tensor], *, stride: int, offset: int = 0) -> Tensor:
    """Return the windows of CONTEXT + 1 words of all texts that begin at `offset` and every `stride` words after it."""
    long = [text[offset:] for text in texts if len(text) > offset + CONTEXT]
    return torch.cat([text.unfold(0, CONTEXT + 1, stride) for text in long])


def losses(model: nn.Module, rows: Tensor) -> Tensor:
    """Return the cross-entropy of the words of windows: of each word after the first, or of the last word alone."""
    x, y = rows[:, :-1].float(), rows[:, 1:].long()
    layers = list(model.children())
    if not hasattr(layers[2], "lstm"):
        return nn.functional.cross_entropy(model(x), y[:, -1], reduction="none")
    outputs, _ = layers[2].lstm(layers[1](layers[0](x)))
    return nn.functional.cross_entropy(layers[3](outputs).flatten(0, 1), y.flatten(), reduction="none")


@torch.no_grad()
def perplexity(model: nn.Module, rows: Tensor) -> float:
    """Return the perplexity of the last word of windows."""
    total = 0.0
    for part in rows.split(1024):
        logits = model(part[:, :-1].float())
        total += float(nn.functional.cross_entropy(logits, part[:, -1].long(), reduction="sum"))
    return exp(total / len(rows))


def train(
    name: str, texts: list[Tensor], held: list[Tensor], *, classes: int, epochs: int, seed: int
) -> Iterator[tuple[float, dict[str, Tensor]]]:
    """Yield (perplexity of the held-out documents, weights) after each epoch."""
    model = build(name, input_shape=(CONTEXT,), classes=classes, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    scored = cut(held, stride=CONTEXT + 1)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = RATE / 2**epoch
        offset = int(torch.randint(0, _STRIDE[name], (), generator=generator))
        rows = cut(texts, stride=_STRIDE[name], offset=offset)
        rows = rows[torch.randperm(len(rows), generator=generator)]
        for part in rows.split(_BATCH[name]):
            optimizer.zero_grad()
            losses(model, part).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        yield perplexity(model, scored), {key: value.clone() for key, value in model.state_dict().items()}


def write(weights: dict[str, Tensor], path: Path) -> str:
    """Write a safetensors file, and return its SHA-256."""
    raw = save(weights, {"trained_on": "Brown corpus, public"})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return hashlib.sha256(raw).hexdigest()
