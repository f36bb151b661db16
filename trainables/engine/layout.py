"""Parameters of a module as ONE flat vector θ, on which the clip, the noise and the update operate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

__all__ = ["Layout", "flat", "put_untrained", "untrained"]

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
        """Return `theta` plus PUBLIC random numbers, shape (d,).

        Checks of a model are repeated there. At its initial weights, zeros may hide what its layers do to a batch. The
        numbers have the size of usual initial weights, but are not larger than those of a parameter that is not 0.
        """
        public = torch.Generator().manual_seed(seed)
        parts = []
        for value in self.views(theta).values():
            usual = _NEAR if value.dim() < 2 else max(1, value[0].numel()) ** -0.5
            own = float(value.float().square().mean().sqrt()) if value.numel() else 0.0
            parts.append((min(usual, own) or usual) * torch.randn(value.shape, generator=public))
        return theta + flat(parts).to(theta)

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
    """Return copies of a module's buffers and frozen parameters by name."""
    held = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return {name: each.detach().clone() for name, each in held if not each.requires_grad}


def put_untrained(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give a module the buffers and frozen parameters that `untrained` had found. It loses every other buffer."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        place = f"{prefix}." if prefix else ""
        for name, held in owner._buffers.items():
            public = values.get(place + name)
            if held is not None and (public is None or not torch.equal(held, public)):
                owner._buffers[name] = None if public is None else public.clone()
        for name, parameter in owner._parameters.items():
            if parameter is not None and not parameter.requires_grad:
                public = values[place + name]
                if not torch.equal(parameter, public):
                    parameter.data = public.clone()  # not in place, which some parameters do not allow
