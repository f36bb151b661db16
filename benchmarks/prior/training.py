"""Private training of many learning rates and clipping norms at once, on one sequence of batches and noise.

Every configuration sees the same Poisson batches and the same unit noise, so that chance does not decide between them.
The steps are those of the engine (`tests/benchmarks/test_prior.py` compares them): flat clipping of each record's
gradient, noise of standard deviation noise_multiplier · C on the sum, division by the expected batch size. The
accuracies are those of the averaged and extrapolated weights, as an experiment file has them if it does not say
otherwise. One half of the validation records chooses the extrapolation, and the other half judges it; then in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from search_spaces.common import AVERAGED
from trainables.extrapolation import FACTORS

__all__ = ["Extras", "Network", "Problem", "smoothed", "train"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Records and a model.

    Attributes:
        x: training inputs, float32, shape (n, d).
        y: training labels, int64, shape (n,).
        x_held: validation inputs, shape (m, d).
        y_held: validation labels, shape (m,).
        classes: number of classes.
        hidden: units of the hidden layer; 0 for a linear model.
    """

    x: Tensor
    y: Tensor
    x_held: Tensor
    y_held: Tensor
    classes: int
    hidden: int = 0

    @property
    def dimension(self) -> int:
        """Number of trainable parameters."""
        wide = self.x.shape[1] + 1
        if self.hidden:
            return wide * self.hidden + (self.hidden + 1) * self.classes
        return wide * self.classes


@dataclass(frozen=True, kw_only=True)
class Extras:
    """Settings of the methods, each of shape (G,) or None if no configuration has it; linear models only.

    Attributes:
        weight_decay: λ of every configuration, before the clip.
        laplacian_sigma: σ of the smoothing of the weights and of the bias, each by itself.
        smoothing_radius: R of DPLIS, with the mean over the samples.
        smoothing_samples: K of DPLIS, the same for all configurations.
    """

    weight_decay: Tensor | None = None
    laplacian_sigma: Tensor | None = None
    smoothing_radius: Tensor | None = None
    smoothing_samples: int = 1


class Network:
    """G copies of a linear model or of a perceptron with one hidden layer, all with the same first values."""

    def __init__(self, problem: Problem, copies: int, generator: torch.Generator) -> None:
        self._copies, self._classes = copies, problem.classes
        widths = [problem.x.shape[1], *([problem.hidden] if problem.hidden else []), problem.classes]
        self.weights: list[Tensor] = []  # of each layer, shape (G, inputs + 1, outputs); the bias is the last input
        for inputs, outputs in itertools.pairwise(widths):
            first = (torch.rand(inputs + 1, outputs, generator=generator) * 2 - 1) / inputs**0.5
            self.weights.append(first.expand(copies, -1, -1).clone())

    def forward(self, x: Tensor, weights: Sequence[Tensor] | None = None) -> tuple[list[Tensor], Tensor]:
        """Return the inputs of the layers after the first, (G, B, width + 1), and the logits, (G, B, classes)."""
        weights = self.weights if weights is None else weights
        first = weights[0]
        out = x @ first.permute(1, 0, 2).reshape(first.shape[1], -1)
        out = out.view(len(x), self._copies, first.shape[2]).permute(1, 0, 2)
        inside: list[Tensor] = []
        for layer in weights[1:]:
            inside.append(_with_one(out.relu()))
            out = torch.bmm(inside[-1], layer)
        return inside, out

    def right(self, x: Tensor, y: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Return whether each copy's answer to each record is right, shape (G, n), if it had these weights."""
        parts = torch.arange(len(x)).split(2000)
        return torch.cat([self.forward(x[part], weights)[1].argmax(2) == y[part] for part in parts], 1)

    def accuracy(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the accuracy of each copy in percent, shape (G,)."""
        return 100 * self.right(x, y, self.weights).double().mean(1).float()

    def extrapolated(self, x: Tensor, y: Tensor, average: Sequence[Tensor], half: Sequence[Tensor]) -> Tensor:
        """Return the accuracy of each copy's extrapolated average in percent, shape (G,) (`WeightAverage`)."""
        points = [[a.lerp(h, -factor) for a, h in zip(average, half, strict=True)] for factor in FACTORS]
        right = torch.stack([self.right(x, y, weights) for weights in points])  # (factors, G, n)
        copies, found = torch.arange(self._copies), []
        for fold in (0, 1):
            gain = right[:, :, fold::2].float() - right[:1, :, fold::2].float()
            sure = gain.mean(2) - gain.std(2) / gain.shape[2] ** 0.5  # 0 without extrapolation
            found.append(right[sure.argmax(0), copies, 1 - fold :: 2].float().mean(1))
        return 100 * torch.stack(found).mean(0)

    def clipped_sums(
        self, x: Tensor, residuals: Tensor, inside: list[Tensor], extras: Extras, clip: Tensor
    ) -> list[Tensor]:
        """Return the sums of the clipped gradients of each layer, of the shapes of the weights.

        Args:
            x: batch with a column of ones, (B, d + 1).
            residuals: derivative of each loss by the logits, (G, B, classes).
            inside: inputs of the layers after the first.
            extras: the weight decay is used here.
            clip: clipping norm of each copy, (G,).
        """
        deltas = [residuals]
        for layer, values in zip(reversed(self.weights[1:]), reversed(inside), strict=True):
            below = torch.bmm(deltas[0], layer[:, :-1].transpose(1, 2)) * (values[:, :, :-1] > 0)
            deltas.insert(0, below)
        squares = x.square().sum(1) * deltas[0].square().sum(2)
        for values, delta in zip(inside, deltas[1:], strict=True):
            squares = squares + values.square().sum(2) * delta.square().sum(2)
        decay = extras.weight_decay
        if decay is not None:
            logits = self.forward(x)[1]
            along = (residuals * logits).sum(2)  # of a linear model: ⟨x ⊗ r, W⟩
            length = self.weights[0].square().sum((1, 2))
            squares = squares + 2 * decay[:, None] * along + (decay.square() * length)[:, None]
        factors = (clip[:, None] / squares.clamp_min(1e-24).sqrt()).clamp_max(1.0)
        scaled = [delta * factors[:, :, None] for delta in deltas]
        flat = scaled[0].permute(1, 0, 2).flatten(1)
        sums = [(x.T @ flat).view(x.shape[1], self._copies, self.weights[0].shape[2]).permute(1, 0, 2).contiguous()]
        sums += [torch.bmm(values.transpose(1, 2), delta) for values, delta in zip(inside, scaled[1:], strict=True)]
        if decay is not None:
            sums[0] += (decay * factors.sum(1))[:, None, None] * self.weights[0]
        return sums


def train(
    problem: Problem,
    *,
    rates: Tensor,
    clips: Tensor,
    noise_multiplier: float,
    batch_size: float,
    steps: int,
    optimizer: str = "sgd",
    extras: Extras | None = None,
    seed: int = 0,
    rungs: Sequence[int] = (),
    last: bool = False,
) -> Tensor:
    """Train every configuration; return the accuracies on the validation records in percent, shape (G,).

    With `rungs`, which are increasing numbers of steps, the shape is (rungs, G), as if the training ended there. With
    `last`, it is (2, G): of the averaged and extrapolated weights, and of the last weights.

    Args:
        problem: records and model.
        rates: learning rate of each configuration, shape (G,).
        clips: clipping norm of each configuration, shape (G,).
        noise_multiplier: standard deviation of the noise on the sum, divided by the clipping norm.
        batch_size: expected batch size.
        steps: number of steps.
        optimizer: 'sgd' or 'adam'.
        extras: settings of the methods.
        seed: seed of first values, batches and noise.
        rungs: increasing numbers of steps after which the accuracies are taken, instead of at the end.
        last: whether the last weights are scored too.
    """
    extras = extras or Extras()
    generator, courses = torch.Generator().manual_seed(seed), []
    network = Network(problem, len(rates), generator)
    x_all, n = _with_one(problem.x), len(problem.y)
    means = [torch.zeros_like(weights) for weights in network.weights]
    squares = [torch.zeros_like(weights) for weights in network.weights]
    averages = [weights.clone() for weights in network.weights]
    halves = {0: [weights.clone() for weights in network.weights]}  # the average after half of the steps of each rung
    scored = tuple(rungs) or (steps,)
    held = _with_one(problem.x_held)
    for step in range(1, steps + 1):
        batch = (torch.rand(n, generator=generator) < batch_size / n).nonzero().squeeze(1)
        x, y = x_all[batch], problem.y[batch]
        inside, residuals = _residuals(
            network, x, y, problem, extras, rates, clips, noise_multiplier, batch_size, generator
        )
        sums = network.clipped_sums(x, residuals, inside, extras, clips)
        for place, (weights, total) in enumerate(zip(network.weights, sums, strict=True)):
            unit = torch.randn(weights.shape[1:], generator=generator)
            gradient = (total + (noise_multiplier * clips)[:, None, None] * unit) / batch_size
            if extras.laplacian_sigma is not None:
                gradient = smoothed(gradient, extras.laplacian_sigma)
            if optimizer == "adam":
                means[place].mul_(0.9).add_(gradient, alpha=0.1)
                squares[place].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                scale = (squares[place] / (1 - 0.999**step)).sqrt_().add_(1e-8)
                gradient = means[place] / (1 - 0.9**step) / scale
            weights.sub_(rates[:, None, None] * gradient)
        decay = min(AVERAGED, step / (9 + step))  # of `WeightAverage` in the engine, which counts from 0
        for average, weights in zip(averages, network.weights, strict=True):
            average.lerp_(weights, 1 - decay)
        if any(step == rung // 2 for rung in scored):
            halves[step] = [average.clone() for average in averages]
        if step in scored:
            courses.append(network.extrapolated(held, problem.y_held, averages, halves[step // 2]))
    if last:
        return torch.stack([*courses, network.accuracy(held, problem.y_held)])
    return torch.stack(courses) if rungs else courses[0]


def _residuals(
    network: Network,
    x: Tensor,
    y: Tensor,
    problem: Problem,
    extras: Extras,
    rates: Tensor,
    clips: Tensor,
    noise_multiplier: float,
    batch_size: float,
    generator: torch.Generator,
) -> tuple[list[Tensor], Tensor]:
    radius = extras.smoothing_radius
    if radius is None:
        inside, logits = network.forward(x)
        residuals = logits.softmax(2)
    else:  # of a linear model: the input of the layer is the same at every point, so the residuals are averaged
        inside, total = [], torch.zeros(len(rates), len(x), problem.classes)
        scale = radius * rates / batch_size * noise_multiplier * clips
        for _ in range(extras.smoothing_samples):
            unit = torch.randn(network.weights[0].shape[1:], generator=generator)
            moved = network.weights[0] + scale[:, None, None] * unit
            total += network.forward(x, [moved])[1].softmax(2)
        residuals = total / extras.smoothing_samples
    rows = torch.arange(len(y))
    residuals[:, rows, y] -= 1
    return inside, residuals


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(*x.shape[:-1], 1)], dim=-1)


def smoothed(gradient: Tensor, sigma: Tensor) -> Tensor:
    """Smooth the weights (in the order of `nn.Linear`) and the bias of each copy."""
    copies, wide, classes = gradient.shape
    weight = gradient[:, :-1].transpose(1, 2).reshape(copies, -1)
    parts = [_inverse(weight, sigma).view(copies, classes, wide - 1).transpose(1, 2)]
    return torch.cat([*parts, _inverse(gradient[:, -1], sigma)[:, None]], dim=1)


def _inverse(vector: Tensor, sigma: Tensor) -> Tensor:
    d = vector.shape[1]
    angle = 2 * torch.pi * torch.arange(d // 2 + 1) / d
    return torch.fft.irfft(torch.fft.rfft(vector) / (1 + 2 * sigma[:, None] * (1 - angle.cos())), n=d)
