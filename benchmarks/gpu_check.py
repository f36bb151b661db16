"""Checks of the engine on a real GPU: what docs/engine.md says of GPUs, which no test without one can confirm.

    python -m benchmarks.gpu_check [--quick]

It prints a line for each check, and last one JSON object. The exit code is 1 if a check fails, and 2 without a GPU.
It reads no records.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.charge import NoCharge
from trainables.data import DatasetRequest
from trainables.engine.accelerator import device_kind, full_float32, repeatable
from trainables.engine.gaussian import from_words
from trainables.engine.layout import Layout
from trainables.engine.objective import Points
from trainables.engine.per_sample import PerSampleSource, pass_samples
from trainables.engine.random import SecureGenerator
from trainables.engine.sources import per_sample_source
from trainables.engine.sums import SMALL, add_weighted_outer, add_weighted_rows
from trainables.models import build
from trainables.spec import TrainingSpec
from trainables.training import PrivateTraining
from trainables.untrained import random_splits

__all__ = ["Outcome", "angles", "block_sums", "check_all", "main", "noise", "replays", "rows", "steps"]

_SHAPE, _CLASSES, _BATCH = (3, 32, 32), 10, 256
_MODELS = ("logistic_regression", "mlp_64", "tutorial_cnn", "four_conv_cnn")
_METHODS: dict[str, dict[str, Any]] = {
    "dp_sgd": {},
    "dplis": {"smoothing_radius": 1.0, "smoothing_samples": 3},
    "dp_lssgd": {"laplacian_sigma": 1.0},
    "dp_weight_decay": {"weight_decay": 0.01, "weight_decay_mode": "before_clipping"},
}


@dataclass(frozen=True)
class Outcome:
    """Result of one check: what was checked, whether it holds, and what was found."""

    check: str
    holds: bool
    found: str


def rows(device: torch.device, model: str, *, batches: Sequence[int], batch: int = _BATCH) -> Outcome:
    """Compare one record's gradient, bit for bit, over batches of these sizes and over positions in them.

    `batch` is the expected batch size, which decides the shape of a pass.
    """
    module = build(model, input_shape=_SHAPE, classes=_CLASSES, seed=0).to(device)
    layout = Layout.of(module)
    example = torch.rand(3, *_SHAPE, generator=_public()).to(device)
    source = per_sample_source(module, layout, example=example, gpu_pass=pass_samples(batch))
    points = Points(centre=layout.flatten(module))
    others = torch.rand(max(batches), *_SHAPE, generator=_public()).to(device)
    labels = (torch.arange(max(batches)) % _CLASSES).to(device)
    record, label = others[:1].clone(), labels[:1].clone()
    found: list[Tensor] = []
    for size in batches:
        for place in sorted({0, size // 2, size - 1}):
            x, y = others[:size].clone(), labels[:size].clone()
            x[place : place + 1], y[place : place + 1] = record, label
            found.append(_gradient_of(source, points, x, y, place))
    different = sum(not torch.equal(each, found[0]) for each in found)
    return Outcome(f"rows.{model}", different == 0, f"{different} of {len(found)} batches and positions differ")


def _gradient_of(source: PerSampleSource, points: Points, x: Tensor, y: Tensor, place: int) -> Tensor:
    """Return the gradient and the norm of the sample at `place`, shape (d + 1,), float64, on the CPU."""
    for chunk in source.chunks(points, x, y):
        norms = chunk.group_norms()
        if place >= norms.shape[1]:
            place -= norms.shape[1]
            continue
        chosen = torch.zeros_like(norms)
        chosen[:, place] = 1.0
        total = torch.zeros_like(points.centre, dtype=torch.float64)
        chunk.add_weighted_sum(total, chosen, finite=norms.isfinite().all(0), block=None)
        return torch.cat([total, norms[:, place].square().sum()[None]]).cpu()
    raise IndexError(place)


def noise(device: torch.device, *, sizes: Sequence[int] = (1001, 32_768, 40_001, 1_048_577)) -> Outcome:
    """Compare the noise of one key with that of the CPU."""
    worst = 0.0
    for size in sizes:
        zeros = torch.zeros(size, dtype=torch.float64)
        expected = SecureGenerator(bytes(32)).add_normal(zeros, 1.0, torch.float64)
        found = SecureGenerator(bytes(32)).add_normal(zeros.to(device), 1.0, torch.float64).cpu()
        worst = max(worst, float((found - expected).abs().max()))
    return Outcome("noise", worst < 1e-12, f"at most {worst:.2g} from the CPU's")


def angles(device: torch.device) -> Outcome:
    """Count the numbers that come from 2048 words whose first 51 bits are equal: all bits of an angle must count."""
    count = 2048
    radii = np.full(count, 1 << 40, dtype=np.uint64)
    words = np.concatenate([radii, (np.arange(count, dtype=np.uint64) << np.uint64(13)) | np.uint64(4096)])
    made = from_words(torch.from_numpy(words.view(np.int64)).to(device), 2 * count).cpu()
    different = len(set(made[1::2].tolist()))
    return Outcome("angles", different > count // 2, f"{different} different numbers from {count} words")


def block_sums(device: torch.device, *, sizes: Sequence[int] = (16, 64, 256, 400)) -> Outcome:
    """Compare sums in float32 blocks with float64. Each may err by half of the slack that the noise covers."""
    full_float32()
    worst = 0.0
    for size in sizes:
        left, right = (torch.randn(size, 1, width, generator=_public()).to(device) for width in (33, 47))
        lengths = left.double().norm(dim=(1, 2)) * right.double().norm(dim=(1, 2))
        flat = (left.mT @ right).flatten(1)
        for add, parts, shape in (
            (add_weighted_outer, (left, right), (33, 47)),
            (add_weighted_rows, (flat,), (33 * 47,)),
        ):
            block, exact = torch.zeros(shape).to(device), torch.zeros(shape, dtype=torch.float64).to(device)
            add(block, 1.0 / lengths, *parts, block=SMALL.rows(size))
            add(exact, 1.0 / lengths, *parts, block=None)
            worst = max(worst, float((block.double() - exact).norm()))
    return Outcome(
        "block_sums", worst <= SMALL.slack / 2, f"at most {worst:.2g} C from float64, {SMALL.slack / 2:g} allowed"
    )


def replays(model: str, *, times: int = 100, device: str = "cuda") -> Outcome:
    """Repeat a training with one key, as a lost run of a sealed search is. Another key must give another result."""
    first, *others = (_trained(_spec("dp_sgd", model, device=device, key=0)) for _ in range(times))
    different = sum(not torch.equal(each, first) for each in others)
    other_key = not torch.equal(first, _trained(_spec("dp_sgd", model, device=device, key=1)))
    found = (
        f"{different} of {len(others)} repetitions differ; another key {'differs' if other_key else 'DOES NOT DIFFER'}"
    )
    return Outcome(f"replays.{model}", different == 0 and other_key, found)


def steps(method: str, model: str) -> Outcome:
    """Compare three steps with those of the CPU, from the same draws."""
    found, expected = (_trained(_spec(method, model, device=device, key=0)) for device in ("cuda", "cpu"))
    worst = float((found - expected).abs().max())
    return Outcome(f"steps.{method}.{model}", worst < 1e-3, f"at most {worst:.2g} from the CPU's")


def _spec(method: str, model: str, *, device: str, key: int) -> TrainingSpec:
    return TrainingSpec(
        method=method,
        model=model,
        dataset=DatasetRequest(name="cifar10"),
        batch_size=48,
        steps=3,
        noise_multiplier=1.0,
        sample_rate=0.25,
        parameters=_METHODS[method],
        replay_key=bytes([key]) * 32,
        device=device,
    )


def _trained(spec: TrainingSpec) -> Tensor:
    """Return θ after the steps of `spec` on random records, shape (d,), on the CPU."""
    training = PrivateTraining(spec, NoCharge(), splits=random_splits(spec, samples=192))
    training.run_to(spec.steps)
    return torch.cat([each.detach().flatten() for each in training.model.parameters()]).cpu()


def _public() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def check_all(device: torch.device, *, quick: bool) -> Iterator[Callable[[], Outcome]]:
    """Yield the checks in order."""
    sizes = (1, 2, 17, 300, 1024) if quick else tuple(range(1, 1025))
    for model in _MODELS:
        yield lambda model=model: rows(device, model, batches=sizes)
    yield lambda: noise(device)
    yield lambda: angles(device)
    yield lambda: block_sums(device)
    for model in ("mlp_64", "tutorial_cnn"):
        yield lambda model=model: replays(model, times=10 if quick else 100)
    for method, model in product(_METHODS, _MODELS):
        yield lambda method=method, model=model: steps(method, model)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer batch sizes and repetitions")
    quick = parser.parse_args(arguments).quick
    if not torch.cuda.is_available():
        print("These checks need a GPU, and torch finds none. Nothing was checked.")
        return 2
    device = torch.device("cuda", 0)
    repeatable(device, strictly=False)
    full_float32()
    outcomes: list[Outcome] = []
    for check in check_all(device, quick=quick):
        try:
            outcomes.append(check())
        except Exception as error:  # noqa: BLE001 - one check that raises must not hide the others
            outcomes.append(
                Outcome(f"check {len(outcomes) + 1}", holds=False, found=f"{type(error).__name__}: {error}")
            )
        print(f"{'holds' if outcomes[-1].holds else 'FAILS'}  {outcomes[-1].check}: {outcomes[-1].found}", flush=True)
    fails = [each.check for each in outcomes if not each.holds]
    print(json.dumps({"device": device_kind(device), "quick": quick, "checks": len(outcomes), "falls_short": fails}))
    return 1 if fails else 0


if __name__ == "__main__":
    sys.exit(main())
