"""LoRA (Hu et al. 2021): adapters of a small transformer learn private records, from weights that are public.

    cd examples
    python lora.py          # trains the transformer on printed digits, and writes printed.safetensors
    tune run lora.yaml      # trains adapters and the last layer on handwritten digits, in private

The printed digits are drawn from a font, so no private record was used for the weights. Clip and noise act on the
trained parameters alone: 2 378 of 20 010.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import save_file
from torch import Tensor, nn

WIDTH, BLOCKS, RANK, FILE = 32, 2, 4, "printed.safetensors"


class Adapted(nn.Linear):
    """A frozen linear layer and a trained product of two narrow matrices, which is zero at the start."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.requires_grad_(False)  # noqa: FBT003 - torch's own name for it
        self.down = nn.Linear(inputs, RANK, bias=False)
        self.up = nn.Linear(RANK, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the frozen layer's outputs, plus those of the adapter."""
        return super().forward(x) + self.up(self.down(x))


class Block(nn.Module):
    """Attention among the rows of an image, then a perceptron for each row."""

    def __init__(self, linear: type[nn.Linear]) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (linear(WIDTH, WIDTH) for _ in range(4))
        self.widen, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows, shape (N, rows, WIDTH), after this block."""
        rows = self.before(x)
        seen = nn.functional.scaled_dot_product_attention(self.query(rows), self.key(rows), self.value(rows))
        x = x + self.out(seen)
        return x + self.narrow(nn.functional.relu(self.widen(self.between(x))))


class Transformer(nn.Module):
    """A transformer whose words are the rows of an image."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, linear: type[nn.Linear]) -> None:
        super().__init__()
        _, rows, columns = input_shape
        self.embed = nn.Linear(columns, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(rows, WIDTH))
        self.blocks = nn.Sequential(*(Block(linear) for _ in range(BLOCKS)))
        self.last = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images with one channel, shape (N, classes)."""
        return self.last(self.blocks(self.embed(x[:, 0].clamp(0, 1)) + self.place).mean(1))


def adapted(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the transformer in which only adapters and the last layer are trained (`trainable.model`)."""
    model = Transformer(input_shape, classes, Adapted)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("last.") or ".up." in name or ".down." in name
    return model


def printed_digits(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return images of digits in a font, shape (count, 1, 8, 8) in [0, 1], and their labels."""
    labels = torch.randint(10, (count,), generator=generator)
    draws = torch.rand(count, 5, generator=generator).tolist()
    images = []
    for label, (size, across, down, turn, stroke) in zip(labels.tolist(), draws, strict=True):
        canvas = Image.new("L", (64, 64))
        font = ImageFont.load_default(size=76 + 16 * size)  # digits fill the image, as those of UCI do
        at = (32 + 12 * (across - 0.5), 32 + 8 * (down - 0.5))
        width = round(4 * stroke)
        ImageDraw.Draw(canvas).text(at, str(label), 255, font=font, anchor="mm", stroke_width=width)
        small = canvas.rotate(30 * (turn - 0.5), Image.Resampling.BILINEAR).resize((8, 8), Image.Resampling.BOX)
        images.append(np.asarray(small, np.float32) / 255)
    return torch.from_numpy(np.stack(images))[:, None], labels


def pretrain(steps: int = 1000, images: int = 4000) -> float:
    """Train the whole transformer on printed digits, write its weights, and return its accuracy on new ones."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Transformer((1, 8, 8), 10, nn.Linear)
    inputs, labels = printed_digits(images, generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        rows = torch.randint(len(labels), (64,), generator=generator)
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save_file(model.state_dict(), FILE)
    inputs, labels = printed_digits(images // 4, generator)
    return float((model(inputs).argmax(1) == labels).float().mean())


if __name__ == "__main__":
    print(f"accuracy on new printed digits: {pretrain():.3f}; weights: {FILE}")
