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
    "next_word": "an embedding of a few words and one hidden layer, to predict the next word (Bengio et al. 2003)",
    "four_conv_cnn": "four 3x3 convolutions with average pooling, the usual private CIFAR-10 network",
}
ACTIVATIONS: Final = ("relu", "tanh")
NORMALIZATIONS: Final = ("none", "group", "batch")  # 'batch' is listed only to explain its refusal
