"""Rule for nn.Conv1d and nn.Conv2d as linear maps of patches, for any stride, zero padding, dilation and groups."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from trainables.engine.layers.collecting import OuterCollector
from trainables.engine.layers.common import Work, by_sample
from trainables.engine.layers.outer import Geometry

__all__ = ["convolution", "is_plain_convolution"]


@dataclass(frozen=True, kw_only=True)
class ConvolutionGeometry(Geometry):
    """Geometry of a convolution. A position is a pixel of the output. The channels are the last axis of a patch.

    Attributes:
        kernel: (height, width); a one-dimensional convolution has height 1.
        stride: (vertical, horizontal).
        dilation: (vertical, horizontal).
        padding: number of zeros at the (left, right, top, bottom).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]

    def left(self, values: Tensor, samples: int) -> Tensor:
        """Reshape values from (B·copies, out, ...) to (B, positions, out)."""
        return by_sample(values.movedim(1, -1), samples)

    def prepared(self, inputs: Tensor) -> Tensor:
        """Return the padded inputs as a contiguous tensor, (B·copies, height, width, channels), for `right`."""
        images = inputs if inputs.dim() == 4 else inputs[:, :, None]
        if any(self.padding):
            images = nn.functional.pad(images, self.padding)
        return images.movedim(1, -1).contiguous()

    def right(self, prepared: Tensor, samples: int) -> Tensor:
        """Return the patches, shape (B, positions, groups · height · width · channels of a group)."""
        images = prepared
        batch, height, width, channels = images.shape
        (rows, columns), (down, across), (far, wide) = self.kernel, self.stride, self.dilation
        places = (height - far * (rows - 1) - 1) // down + 1, (width - wide * (columns - 1) - 1) // across + 1
        whole, line, pixel, _ = images.stride()
        patches = images.as_strided(
            (batch, *places, rows, columns, channels),
            (whole, line * down, pixel * across, line * far, pixel * wide, 1),
        )
        if self.groups > 1:
            patches = patches.reshape(*patches.shape[:5], self.groups, channels // self.groups).movedim(-2, 3)
        return by_sample(patches.reshape(batch, places[0] * places[1], -1), samples)

    def columns(self, weight: Tensor) -> Tensor:
        """Reshape the weight to (out, height · width · channels of a group)."""
        return weight.movedim(1, -1).reshape(len(weight), -1)

    def add_columns(self, total: Tensor, columns: Tensor) -> None:
        """Add `columns` to `total`, which has the shape (out, channels of a group, height, width)."""
        total += columns.view(len(columns), *self.kernel, -1).movedim(-1, 1).reshape(total.shape)


def is_plain_convolution(layer: nn.Conv1d | nn.Conv2d) -> bool:
    """Return whether the layer pads with zeros, as the rule requires."""
    return layer.padding_mode == "zeros"


def convolution(layer: nn.Conv1d | nn.Conv2d, work: Work) -> OuterCollector:
    """Return a collector for a convolution that `is_plain_convolution` accepts."""
    dilation, kernel, stride = (_pair(each) for each in (layer.dilation, layer.kernel_size, layer.stride))
    geometry = ConvolutionGeometry(
        bias=None if layer.bias is None else "bias",
        groups=layer.groups,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padding=_padding(layer, kernel, dilation),
    )
    return OuterCollector(geometry, work)


def _pair(sizes: tuple[int, ...]) -> tuple[int, int]:
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _padding(
    layer: nn.Conv1d | nn.Conv2d, kernel: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    if isinstance(layer.padding, str):
        if layer.padding == "valid":
            return 0, 0, 0, 0
        # As in torch, an odd number of zeros has one more zero at the end.
        total = [wide * (size - 1) for size, wide in zip(kernel, dilation, strict=True)]
        top, left = (each // 2 for each in total)
        return left, total[1] - left, top, total[0] - top
    vertical, horizontal = (0, layer.padding[0]) if len(layer.padding) == 1 else layer.padding
    return int(horizontal), int(horizontal), int(vertical), int(vertical)
