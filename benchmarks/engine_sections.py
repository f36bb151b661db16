"""What the engine benchmark measures of each workload; every figure has the name that a bar knows it by."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.engine_agreement import TOLERANCE, differences
from benchmarks.engine_arena import DPLIS, NAIVE_SAMPLES, Arena
from benchmarks.engine_bars import WORKLOADS, Workload
from benchmarks.engine_measure import Figure, Line, Race, race

__all__ = ["Results", "Settings", "measure_workload"]

_DECAY: dict[str, object] = {"weight_decay": 0.01, "weight_decay_mode": "before_clipping"}
# Samples of the check; the wide MLP writes 20 MB of gradient a sample.
_CHECKED, _CHECKED_WIDE = 32, 8


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured.

    Attributes:
        quick: only what the bars with `quick` need.
        batch: expected size.
        device: 'cpu' or 'cuda'.
        seed: of the records and of the draws that are not secret.
        rounds: of a race, at most.
        seconds: of a race, about.
        deadline: clock (time.perf_counter) after which no race is begun.
        records: in the place of the data sets' own number, for tests.
        workloads: what is measured.
    """

    quick: bool
    batch: int = 256
    device: str = "cpu"
    seed: int = 0
    rounds: int = 15
    seconds: float = 30.0
    deadline: float = float("inf")
    records: int | None = None
    workloads: tuple[Workload, ...] = WORKLOADS

    def arena(self, workload: Workload, *, batch: int | None = None) -> Arena:
        """The workload's records."""
        return Arena.of(workload, batch=batch or self.batch, records=self.records, device=self.device, seed=self.seed)


@dataclass
class Results:
    """What was measured so far.

    Attributes:
        figures: by name.
        lines: cost against K or batch, by name.
        remarks: what a reader must know.
    """

    figures: dict[str, Figure] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def race(self, contenders: Mapping[str, Callable[[], object]], settings: Settings, *, what: str) -> Race | None:
        """A race, or None where the time is up, which is remarked."""
        if time.perf_counter() > settings.deadline:
            self.remarks.append(f"no time was left for {what}")
            return None
        return race(contenders, rounds=settings.rounds, seconds=settings.seconds, device=settings.device)


def measure_workload(workload: Workload, settings: Settings, results: Results) -> None:
    """Checks the contenders of one workload against each other, then races them."""
    if time.perf_counter() > settings.deadline:
        results.remarks.append(f"no time was left for {workload.name}")
        return
    arena = settings.arena(workload)
    rivals = ["ghost"] if workload.wide else ["hooks", "ghost"]
    if not settings.quick and not workload.wide:
        rivals += ["functorch", "ew", "vmap"]
    checked = [*rivals, "naive", "naive_passes"]
    passes = not workload.wide and not (settings.quick and workload.model == "four_conv_cnn")
    agreed = _check(arena, [*checked, "hooks_passes"] if passes else checked, results)
    plain = _plain_steps(arena, [name for name in rivals if name in agreed], settings, results)
    if plain is not None:
        fastest = "non_private_nhwc" if _prefers_channels_last(plain) else "non_private"
        _smoothed_steps(arena, fastest, settings, results)
        if "hooks_passes" in agreed:
            _passes(arena, settings, results)
        _naive(arena, agreed, settings, results)


def _check(arena: Arena, rivals: Sequence[str], results: Results) -> set[str]:
    """Those that agree with us; the others are remarked and not timed."""
    workload = arena.workload
    found: dict[str, float] = {}
    for rival in rivals:
        try:
            found |= differences(arena, [rival], batch=_CHECKED_WIDE if workload.wide else _CHECKED)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            results.remarks.append(f"{rival} cannot take {workload.name}: {str(error).splitlines()[0]}")
    wrong = {name for name, difference in found.items() if not difference <= TOLERANCE}
    results.remarks += [
        f"{name} disagrees with our step on {workload.name} by {found[name]:.1e} and was not timed" for name in wrong
    ]
    if found:
        results.figures[f"largest_difference.{workload.name}"] = Figure(max(found.values()), unit="")
    return set(found) - wrong


def _plain_steps(arena: Arena, rivals: Sequence[str], settings: Settings, results: Results) -> Race | None:
    name = arena.workload.name
    contenders: dict[str, Callable[[], object]] = {"non_private": arena.step_of_non_private()}
    if arena.workload.family == "cnn":
        contenders["non_private_nhwc"] = arena.step_of_non_private(torch.channels_last)
    contenders["step"] = arena.step_of_ours()
    contenders["open_noise"] = arena.step_with_open_noise()
    contenders["weight_decay"] = arena.step_of_ours("dp_weight_decay", _DECAY)
    contenders |= {rival: arena.step_of_rival(rival) for rival in rivals}
    if arena.workload.family == "cnn" and "hooks" in contenders and not settings.quick:
        contenders["hooks_nhwc"] = arena.step_of_rival("hooks_nhwc")
    timed = results.race(contenders, settings, what=f"the steps of {name}")
    if timed is None:
        return None
    # Of the two layouts the faster one is the baseline, so that ours gains nothing from a choice anyone can make.
    non_private = "non_private_nhwc" if _prefers_channels_last(timed) else "non_private"
    results.figures |= {
        f"non_private_ms.{name}": timed.milliseconds(non_private),
        f"step_ms.{name}": timed.milliseconds("step"),
        f"step_over_non_private.{name}": timed.ratio("step", non_private),
        f"weight_decay_over_step.{name}": timed.ratio("weight_decay", "step"),
        f"open_noise_over_non_private.{name}": timed.ratio("open_noise", non_private),
    }
    for rival in (each for each in contenders if each in ("hooks_nhwc", *rivals)):
        results.figures[f"{rival}_over_step.{name}"] = timed.ratio(rival, "step")
    return timed


def _prefers_channels_last(timed: Race) -> bool:
    both = [name for name in ("non_private", "non_private_nhwc") if name in timed.cpu]
    return timed.fastest(both) == "non_private_nhwc"


def _smoothed_steps(arena: Arena, non_private: str, settings: Settings, results: Results) -> None:
    name = arena.workload.name
    memory_format = torch.channels_last if non_private == "non_private_nhwc" else torch.contiguous_format
    contenders = {
        "non_private": arena.step_of_non_private(memory_format),
        "step": arena.step_of_ours(),
        "dplis": arena.step_of_ours("dplis", DPLIS),
    }
    timed = results.race(contenders, settings, what=f"the smoothed steps of {name}")
    if timed is not None:
        results.figures |= {
            f"dplis_ms.{name}": timed.milliseconds("dplis"),
            f"dplis_over_ten_non_private.{name}": timed.ratio("dplis", "non_private", factor=0.1),
            f"dplis_over_step.{name}": timed.ratio("dplis", "step"),
        }


def _passes(arena: Arena, settings: Settings, results: Results) -> None:
    name = arena.workload.name
    contenders = {
        "dplis": arena.step_of_ours("dplis", DPLIS),
        "hooks_passes": arena.step_of_rival("hooks_passes", DPLIS),
    }
    timed = results.race(contenders, settings, what=f"K passes of hooks on {name}")
    if timed is not None:
        results.figures[f"hooks_passes_over_dplis.{name}"] = timed.ratio("hooks_passes", "dplis")


def _naive(arena: Arena, agreed: set[str], settings: Settings, results: Results) -> None:
    """The loop over samples, timed on a few of them and scaled to the batch."""
    name, factor = arena.workload.name, arena.batch / NAIVE_SAMPLES
    note = f"{NAIVE_SAMPLES} samples, scaled to {arena.batch}"
    if "naive" in agreed:
        contenders = {"step": arena.step_of_ours(), "naive": arena.step_of_rival("naive")}
        if (timed := results.race(contenders, settings, what=f"the naive loop on {name}")) is not None:
            results.figures[f"naive_over_step.{name}"] = timed.ratio("naive", "step", factor=factor, note=note)
    if "naive_passes" in agreed and not settings.quick:
        contenders = {"dplis": arena.step_of_ours("dplis", DPLIS), "naive": arena.step_of_rival("naive", DPLIS)}
        if (timed := results.race(contenders, settings, what=f"K naive loops on {name}")) is not None:
            results.figures[f"naive_passes_over_dplis.{name}"] = timed.ratio("naive", "dplis", factor=factor, note=note)
