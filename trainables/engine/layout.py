"""Parameters of a module as ONE flat vector θ, on which the clip, the noise and the update operate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

__all__ = ["Layout", "flat", "untrained"]

_NEAR: Final = 0.3  # of a bias, or of another vector; a matrix gets 1 / √inputs, so that outputs keep their size


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the trainable parameters, in the order of `module.named_parameters()`.

    A tied parameter occurs once. Frozen parameters do not occur.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Return the layout of a module's trainable parameters."""
        named = [(name, parameter.shape) for name, parameter in module.named_parameters() if parameter.requires_grad]
        return cls(names=tuple(name for name, _ in named), shapes=tuple(shape for _, shape in named))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each parameter."""
        return tuple(shape.numel() for shape in self.shapes)

    @property
    def dimension(self) -> int:
        """d, the length of θ."""
        return sum(self.sizes)

    @property
    def groups(self) -> tuple[str, ...]:
        """Name of each parameter's module. In per-layer clipping, all parameters of a module form one group."""
        return tuple(name.rpartition(".")[0] for name in self.names)

    def flatten(self, module: nn.Module) -> Tensor:
        """Return a copy of the module's parameters, shape (d,)."""
        named = dict(module.named_parameters())
        return flat([named[name].detach() for name in self.names])

    def views(self, theta: Tensor) -> dict[str, Tensor]:
        """Return each parameter by name, as a view of `theta`, shape (d,)."""
        parts = torch.split(theta, list(self.sizes))
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def elsewhere(self, theta: Tensor, *, seed: int) -> Tensor:
        """Return `theta` plus PUBLIC random numbers of the size of usual initial weights, shape (d,).

        Checks of a model are repeated there. At its initial weights, zeros may hide what its layers do to a batch.
        """
        public = torch.Generator().manual_seed(seed)
        sizes = [_NEAR if len(shape) < 2 else shape[1:].numel() ** -0.5 for shape in self.shapes]
        return theta + flat(
            [size * torch.randn(shape, generator=public) for size, shape in zip(sizes, self.shapes, strict=True)]
        ).to(theta)

    def write(self, theta: Tensor, module: nn.Module) -> None:
        """Copy `theta`, shape (d,), into the module's parameters."""
        named = dict(module.named_parameters())
        with torch.no_grad():
            for name, view in self.views(theta).items():
                named[name].copy_(view)


def flat(parts: Iterable[Tensor]) -> Tensor:
    """Return the entries of all parts as one vector."""
    return torch.cat([part.reshape(-1) for part in parts])


def untrained(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's buffers and frozen parameters by name."""
    frozen = {name: each.detach() for name, each in module.named_parameters() if not each.requires_grad}
    return {**frozen, **dict(module.named_buffers())}
