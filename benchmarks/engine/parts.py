"""Parts of a step: smoothing, noise, drawing a batch; and cost against K and against the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from matplotlib.figure import Figure

from benchmarks.engine.arena import DPLIS, Arena
from benchmarks.engine.contenders import stages_of
from benchmarks.engine.race import Contender, Line, fit_line
from benchmarks.engine.workloads import LINES, WORKLOADS, Course
from benchmarks.harness import Results, Settings, Table
from trainables.engine.layout import Layout
from trainables.engine.noise import add_noise
from trainables.engine.random import SecureGenerator
from trainables.engine.sampling import poisson_batch
from trainables.engine.sums import LARGE, SMALL

SAMPLES = (1, 2, 5, 10, 20)
BATCHES = (64, 128, 256, 512, 1024)
# Numbers that a step of the MNIST MLP draws.
_NOISE = 468_874


def measure(settings: Settings, results: Results) -> None:
    """Measure noise, and the draw of a batch from records of each shape."""
    course = Course.of(settings)
    measure_noise(course, results)
    for workload in WORKLOADS:
        if workload.name in ("logistic_mnist", "tutorial_cnn_cifar10"):  # one of each shape
            measure_draw(Arena.of(workload, course), course, results)


def measure_smoothing(arena: Arena, course: Course, results: Results) -> None:
    """Measure Laplacian smoothing with σ = 1 as a share of a private step of the same model."""
    name, layout = arena.workload.name, Layout.of(arena.module())
    gradient = torch.randn(layout.dimension, generator=arena.draw).to(course.device)
    contenders: dict[str, Contender] = {"step": arena.step_of_ours()}
    for scope in ("layer", "model"):
        parameters: dict[str, object] = {"laplacian_sigma": 1.0, "laplacian_scope": scope}
        smoothing = stages_of("dp_lssgd", parameters, layout, batch_size=course.batch).postprocess
        contenders[scope] = lambda smoothing=smoothing: smoothing(gradient)  # type: ignore[misc]
    timed = course.race(contenders, results, f"laplacian_*.{name}")
    if timed is not None:
        for scope in ("layer", "model"):
            results.figures[f"laplacian_{scope}_share.{name}"] = timed.ratio(scope, "step")
            results.figures[f"laplacian_{scope}_ms.{name}"] = timed.milliseconds(scope)


def measure_noise(course: Course, results: Results) -> None:
    """Measure the secret Gaussians against torch.normal, as a step adds them to a sum in float32 and in float64."""
    secret, public = SecureGenerator(), torch.Generator(course.device).manual_seed(course.seed)
    single, total = (torch.zeros(_NOISE, dtype=dtype, device=course.device) for dtype in (torch.float32, torch.float64))
    contenders: dict[str, Contender] = {
        "secure float32": lambda: add_noise(single, standard_deviation=1.0, generator=secret, dtype=torch.float32),
        "secure float64": lambda: add_noise(total, standard_deviation=1.0, generator=secret, dtype=torch.float32),
        "torch float32": lambda: _torch_normal(torch.float32, public),
        "torch float64": lambda: _torch_normal(torch.float64, public),
    }
    timed = course.race(contenders, results, "secure_noise_*")
    if timed is None:
        return
    for dtype in ("float32", "float64"):
        results.figures[f"secure_noise_over_torch.{dtype}"] = timed.ratio(f"secure {dtype}", f"torch {dtype}")
    note = "no bar: secret float64 noise, added to the sum, against plain float32"
    results.figures["noise_of_a_step_over_torch_float32"] = timed.ratio("secure float64", "torch float32", note=note)


def _torch_normal(dtype: torch.dtype, public: torch.Generator) -> torch.Tensor:
    return torch.empty(_NOISE, dtype=dtype, device=public.device).normal_(generator=public)


def measure_draw(arena: Arena, course: Course, results: Results) -> None:
    """Measure a Poisson batch from the secret generator, and its gather from all records in memory."""
    name = f"draw_and_gather_ms.{arena.workload.name.rpartition('_')[2]}"
    secret, rate = SecureGenerator(), arena.mechanism.sample_rate

    def draw_and_gather() -> object:
        batch = poisson_batch(secret, len(arena.inputs), rate).to(course.device)
        return arena.inputs.index_select(0, batch), arena.targets.index_select(0, batch)

    timed = course.race({"both": draw_and_gather}, results, name)
    if timed is not None:
        results.figures[name] = timed.milliseconds("both")


def measure_lines(settings: Settings, results: Results) -> None:
    """Measure the cost of a step against K and against the batch, with the best line; `--plots` draws both."""
    course = Course.of(settings)
    by_samples: dict[str, Line] = {}
    by_batch: dict[str, Line] = {}
    for workload in course.workloads:
        if workload.name not in LINES:
            continue
        arena = Arena.of(workload, course)
        samples = {k: arena.step_of_ours("dplis", {**DPLIS, "smoothing_samples": k}) for k in SAMPLES}
        sizes = {size: replace(arena, batch=size).step_of_ours() for size in BATCHES if size <= len(arena.inputs)}
        _line("k", workload.name, samples, course, results, by_samples)
        _line("batch", workload.name, sizes, course, results, by_batch)
    if settings.own.plots is not None:
        _plot(settings.own.plots / "engine_cost_k.svg", "K, perturbed points a step", by_samples)
        sums = f"sums in float32 up to {SMALL.largest_batch} (small models) or {LARGE.largest_batch} (large)"
        _plot(settings.own.plots / "engine_cost_batch.svg", f"expected batch size\n{sums}; above, float64", by_batch)


def _line(
    what: str, name: str, contenders: Mapping[int, Contender], course: Course, results: Results, lines: dict[str, Line]
) -> None:
    timed = course.race({str(x): each for x, each in contenders.items()}, results, f"linear_in_{what}.{name}.*")
    if timed is None:
        return
    line = fit_line([(float(x), 1e3 * median(timed.cpu[str(x)])) for x in contenders])
    lines[name] = line
    results.count(f"linear_in_{what}.{name}.r_squared", line.r_squared)
    results.count(f"linear_in_{what}.{name}.deviation", line.deviation)
    results.tables[f"Cost against {what}: {name}"] = Table((what, "ms"), line.points)


def _plot(path: Path, label: str, lines: Mapping[str, Line]) -> None:
    """Draw the measured points and their lines, both axes from 0."""
    picture = Figure(figsize=(6, 4.5), layout="constrained")
    axes = picture.subplots()
    axes.set(xlabel=label, ylabel="milliseconds a step")
    for place, (name, line) in enumerate(lines.items()):
        words = f"{name}: R² = {line.r_squared:.4f}, farthest point {100 * line.deviation:.0f} %"
        axes.plot(*zip(*line.points, strict=True), "o", color=f"C{place}", label=words)
        axes.axline((0, line.intercept), slope=line.slope, color=f"C{place}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path)
