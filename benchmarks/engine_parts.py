"""The parts of a step by themselves: smoothing, noise, drawing a batch; and cost against K and against the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch

from benchmarks.engine_arena import DPLIS
from benchmarks.engine_bars import Workload
from benchmarks.engine_contenders import stages_of
from benchmarks.engine_measure import Figure, fit_line
from benchmarks.engine_sections import Results, Settings
from trainables.engine.layout import Layout
from trainables.engine.noise import add_noise
from trainables.engine.random import SecureGenerator
from trainables.engine.sampling import poisson_batch

__all__ = ["measure_draws", "measure_lines", "measure_noise", "measure_smoothing"]

SAMPLES = (1, 2, 5, 10, 20)
BATCHES = (64, 128, 256, 512, 1024)
# Numbers that a step of the MNIST MLP draws.
_NOISE = 468_874


def measure_smoothing(workload: Workload, settings: Settings, results: Results) -> None:
    """Laplacian smoothing with σ = 1 as a share of a private step of the same model."""
    arena = settings.arena(workload)
    layout = Layout.of(arena.module())
    gradient = torch.randn(layout.dimension, generator=arena.draw).to(settings.device)
    contenders: dict[str, Callable[[], object]] = {"step": arena.step_of_ours()}
    for scope in ("layer", "model"):
        parameters: dict[str, object] = {"laplacian_sigma": 1.0, "laplacian_scope": scope}
        smoothing = stages_of("dp_lssgd", parameters, layout, batch_size=settings.batch).postprocess
        contenders[scope] = lambda smoothing=smoothing: smoothing(gradient)  # type: ignore[misc]
    timed = results.race(contenders, settings, what=f"Laplacian smoothing on {workload.name}")
    if timed is not None:
        for scope in ("layer", "model"):
            results.figures[f"laplacian_{scope}_share.{workload.name}"] = timed.ratio(scope, "step")
            results.figures[f"laplacian_{scope}_ms.{workload.name}"] = timed.milliseconds(scope)


def measure_noise(settings: Settings, results: Results, *, count: int = _NOISE) -> None:
    """The secret generator's Gaussians against torch.normal's: as float32, and as a step adds them to a float64 sum."""
    secret, public = SecureGenerator(), torch.Generator(settings.device).manual_seed(settings.seed)
    total = torch.zeros(count, dtype=torch.float64, device=settings.device)
    timed = results.race(
        {
            "secure float32": lambda: secret.normal(count, torch.float32).to(settings.device),
            "secure float64": lambda: add_noise(total, standard_deviation=1.0, generator=secret, dtype=torch.float32),
            "torch float32": lambda: _torch_normal(count, torch.float32, public),
            "torch float64": lambda: _torch_normal(count, torch.float64, public),
        },
        settings,
        what="noise",
    )
    if timed is None:
        return
    note = f"{count} numbers"
    for dtype in ("float32", "float64"):
        results.figures[f"secure_noise_over_torch.{dtype}"] = timed.ratio(f"secure {dtype}", f"torch {dtype}")
        results.figures[f"secure_noise_ms.{dtype}"] = timed.milliseconds(f"secure {dtype}", note=note)
    results.figures["noise_of_a_step_over_torch_float32"] = timed.ratio(
        "secure float64",
        "torch float32",
        note="no bar: float64 noise, secret and added to the sum, against plain float32",
    )


def _torch_normal(count: int, dtype: torch.dtype, public: torch.Generator) -> torch.Tensor:
    return torch.empty(count, dtype=dtype, device=public.device).normal_(generator=public)


def measure_draws(workload: Workload, settings: Settings, results: Results) -> None:
    """A Poisson batch from the secret generator, and its gather from all records in memory."""
    arena = settings.arena(workload)
    secret, rate = SecureGenerator(), arena.mechanism.sample_rate

    def draw_and_gather() -> object:
        batch = poisson_batch(secret, len(arena.inputs), rate).to(settings.device)
        return arena.inputs.index_select(0, batch), arena.targets.index_select(0, batch)

    contenders = {
        "both": draw_and_gather,
        "draw": lambda: poisson_batch(secret, len(arena.inputs), rate),
    }
    timed = results.race(contenders, settings, what=f"drawing a batch of {workload.name}")
    if timed is not None:
        data_set = workload.name.rpartition("_")[2]
        results.figures[f"draw_and_gather_ms.{data_set}"] = timed.milliseconds("both")
        results.figures[f"draw_ms.{data_set}"] = timed.milliseconds("draw")


def measure_lines(workload: Workload, settings: Settings, results: Results) -> None:
    """The cost of a step against K, and against the batch, with the best line through it."""
    arena = settings.arena(workload)
    by_samples: dict[float, Callable[[], object]] = {
        k: arena.step_of_ours("dplis", {**DPLIS, "smoothing_samples": k}) for k in SAMPLES
    }
    _line(f"k.{workload.name}", by_samples, settings, results)
    by_batch: dict[float, Callable[[], object]] = {
        size: replace(arena, batch=size).step_of_ours() for size in BATCHES if size <= len(arena.inputs)
    }
    _line(f"batch.{workload.name}", by_batch, settings, results)


def _line(name: str, contenders: dict[float, Callable[[], object]], settings: Settings, results: Results) -> None:
    timed = results.race({str(x): each for x, each in contenders.items()}, settings, what=f"cost against {name}")
    if timed is None:
        return
    points = [(float(x), 1e3 * median(timed.cpu[str(x)])) for x in contenders]
    line = fit_line(points)
    results.lines[name] = line
    results.figures[f"linear_in_{name}.r_squared"] = Figure(line.r_squared, unit="")
    results.figures[f"linear_in_{name}.deviation"] = Figure(line.deviation, unit="")
