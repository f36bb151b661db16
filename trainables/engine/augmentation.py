"""Random views of each image. The gradients of the views are averaged before the clip (De et al. 2022).

The views must come from the SECRET generator. Random numbers are used in the order of the batch, so an added record
shifts the numbers of all later records. If the numbers were public, up to B gradients would change at once, each by up
to 2C, but the noise is scaled to C. Secret numbers are independent draws. So the analysis may assume that every other
record gets the same numbers in both neighbouring batches. Then these batches differ in one record only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from trainables.engine.random import Generator

__all__ = ["PADDING", "RandomViews", "random_views"]

PADDING: Final = 4  # reflected pixels on each side before a crop


@dataclass(frozen=True, kw_only=True)
class RandomViews:
    """Random crops and horizontal flips of images, drawn independently for each view.

    A crop has the size of the image and a uniformly random position in the padded image, as in De et al. If an
    image has at most PADDING pixels in a direction, the padding in this direction is one
    pixel less than the image's size. A view depends only on its image and its random numbers. How many random
    numbers are drawn depends only on B and M.

    Attributes:
        crop: whether a view is a random crop.
        flip: whether each view is mirrored left to right with probability 1/2.
        copies: M, the number of views of an image.
    """

    crop: bool
    flip: bool
    copies: int = 1

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Return M views of each image, shape (B·M, channels, height, width). Views of one image are consecutive.

        Args:
            inputs: images of shape (B, channels, height, width); B may be 0.
            generator: secret generator.
        """
        return self.views(inputs, self.draw(len(inputs), generator))

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Return the numbers that decide the views of `count` images, shape (3, count, M), in one request."""
        return generator.uniform(3 * count * self.copies).view(3, count, self.copies)

    def views(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Return the views of images of shape (B, channels, height, width) that `draws`, shape (3, B, M), decide."""
        count, channels, height, width = inputs.shape
        top, left = (min(PADDING, size - 1) if self.crop else 0 for size in (height, width))
        # A mirrored crop is a crop of the mirrored image. So every view is a crop of the image or its mirror image.
        sides = torch.stack([inputs, inputs.flip(3)], 1) if self.flip else inputs[:, None]
        padded = nn.functional.pad(sides.flatten(0, 1), (left, left, top, top), mode="reflect")
        crops = padded.view(count, sides.shape[1], channels, height + 2 * top, width + 2 * left)
        crops = crops.unfold(3, height, 1).unfold(4, width, 1)  # (B, sides, channels, tops, lefts, height, width)
        # The numbers of the side, the first row and the first column of every view.
        side, first_row, first_column = (
            _place(draw, places)
            for draw, places in zip(draws.to(inputs.device), (sides.shape[1], 2 * top + 1, 2 * left + 1), strict=True)
        )
        sample = torch.arange(count, device=inputs.device)[:, None]
        return crops[sample, side, :, first_row, first_column].flatten(0, 1)


def random_views(kind: str, *, copies: int) -> RandomViews | None:
    """Return the random views of the kind 'flip', 'crop' or 'crop_flip', with M = `copies`; None for 'none'."""
    if kind == "none":
        return None
    return RandomViews(crop=kind in ("crop", "crop_flip"), flip=kind in ("flip", "crop_flip"), copies=copies)


def _place(uniform: Tensor, places: int) -> Tensor:
    """Convert each number in [0, 1) to an integer from 0 to places - 1."""
    return (uniform * places).long().clamp_(max=places - 1)  # the product may be rounded up to `places`
