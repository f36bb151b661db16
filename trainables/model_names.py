"""Names of the models and of their options, without importing torch."""

from __future__ import annotations

from typing import Final

__all__ = ["ACTIVATIONS", "MODELS", "NORMALIZATIONS"]

MODELS: Final[dict[str, str]] = {
    "logistic_regression": "one linear layer",
    "mlp_input": "one hidden layer, as wide as the input (input perturbation paper)",
    "mlp_64": "one hidden layer of 64 units, for small tables and digits",
    "mlp_256": "one hidden layer of 256 units",
    "mlp_256_256": "two hidden layers of 256 units, the DPLIS network for features of a public model",
    "mlp_512_128": "hidden layers of 512 and 128 units, the DPLIS network for MNIST",
    "mlp_1536_128": "hidden layers of 1536 and 128 units, the DPLIS network for CIFAR-10",
    "tutorial_cnn": "two convolutions, the network of the TensorFlow Privacy tutorial",
    "next_word_mlp": "word vectors of length 256, hidden layers of 500, 250 and 50 units, the DPLIS network for text",
    "next_word_lstm": "word vectors of length 256 and an LSTM of 96 units, the recurrent DPLIS network for text",
    "four_conv_cnn": "four 3x3 convolutions with average pooling, the usual network for private training on CIFAR-10",
}
ACTIVATIONS: Final = ("relu", "tanh")
NORMALIZATIONS: Final = ("none", "group", "batch")  # 'batch' is listed only to explain its refusal
