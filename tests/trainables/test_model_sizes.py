"""The sizes of the shipped models, which are known without building them, are those of the built models."""

from __future__ import annotations

import pytest

from trainables.model_names import MODELS
from trainables.model_sizes import dimension_of, family_of
from trainables.models import build


@pytest.mark.parametrize("name", MODELS)
def test_a_size_is_that_of_the_built_model(name: str) -> None:
    of_words = name.startswith("next_word")
    shapes = [(4,)] if of_words else [(1, 28, 28), (3, 32, 32)]
    if family_of(name) != "convolutional" and not of_words:
        shapes.append((30,))
    for shape in shapes:
        model = build(name, input_shape=shape, classes=7, seed=0)
        assert dimension_of(name, input_shape=shape, classes=7) == sum(each.numel() for each in model.parameters())


def test_a_model_without_a_known_size_has_none() -> None:
    assert dimension_of("my.module:build", input_shape=(4,), classes=2) is None
    assert dimension_of("tutorial_cnn", input_shape=(30,), classes=2) is None
    assert dimension_of("tutorial_cnn", input_shape=(1, 8, 8), classes=2) is None
    assert dimension_of("next_word_lstm", input_shape=(1, 8, 8), classes=2) is None
    assert family_of("my.module:build") == "other"
    assert family_of("next_word_lstm") == "recurrent"
