"""Names of the models and of their options, without importing torch."""

from __future__ import annotations

from typing import Final

__all__ = ["ACTIVATIONS", "MODELS", "NORMALIZATIONS"]

MODELS: Final[dict[str, str]] = {
    "logistic_regression": "one linear layer",
    "mlp_input": "one hidden layer, as wide as the input (input perturbation paper)",
    "mlp_64": "one hidden layer of 64 units, for small tables and digits",
    "mlp_256": "one hidden layer of 256 units",
    "mlp_256_256": "two hidden layers of 256 units, DPLIS' network on features of a public model",
    "mlp_512_128": "two hidden layers, DPLIS' MNIST network",
    "mlp_1536_128": "two hidden layers, DPLIS' CIFAR-10 network",
    "tutorial_cnn": "the two-convolution network of the TF-privacy tutorial",
    "next_word_mlp": "word vectors of 256 and hidden layers of 500, 250 and 50, DPLIS' network for the next word",
    "next_word_lstm": "word vectors of 256 and an LSTM of 96 units, DPLIS' recurrent network for the next word",
    "four_conv_cnn": "four 3x3 convolutions with average pooling, the usual private CIFAR-10 network",
}
ACTIVATIONS: Final = ("relu", "tanh")
NORMALIZATIONS: Final = ("none", "group", "batch")  # 'batch' is listed only to explain its refusal
