"""Steps of every method by one process and by two ranks. As a script, this file is the second rank.

Both processes walk through `cases()` in the same order, so nothing but the ranks' own messages passes between them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import test_reference as reference  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from trainables.engine.batches import BatchSum  # noqa: E402
from trainables.engine.gen import LossProbes  # noqa: E402
from trainables.engine.layout import Layout  # noqa: E402
from trainables.engine.losses import LossPasses  # noqa: E402
from trainables.engine.objective import Points  # noqa: E402
from trainables.engine.random import Generator, SeededGenerator  # noqa: E402
from trainables.engine.ranks import NoGenerator, RankedStep, Ranks  # noqa: E402
from trainables.engine.sources import per_sample_source  # noqa: E402
from trainables.engine.step import Mechanism, PrivateStep, noise_variance  # noqa: E402
from trainables.engine.torch_ranks import TorchRanks, joined, opened  # noqa: E402
from trainables.methods import from_parameters  # noqa: E402

HOST, CPU = "127.0.0.1", torch.device("cpu")
STEPS = 3
GEN = {"schedule": "gen", "clipping": "automatic"}


class Case(NamedTuple):
    method: str
    kind: str
    dtype: torch.dtype
    choice: dict[str, Any]
    by_user: bool = False


def cases() -> list[Case]:
    """The cases of the reference test: every method with every option, over records and over users, and probes."""
    merged = reference.merged
    of_methods = [Case(*each[:3], merged(*each[3:])) for each in reference.CASES]
    of_users = [
        Case("composed", each[0], each[1], merged(*each[3:]), by_user=True)
        for each in reference.PER_USER
        if not each[2]
    ]
    of_gen = [
        Case(method, "linear", dtype, {**GEN, **more}, by_user)
        for dtype in reference.DTYPES
        for method, more, by_user in (
            ("dp_sgd", {}, False),
            ("dp_weight_decay", {"weight_decay": 0.05, "weight_decay_mode": "decoupled"}, False),
            ("dp_lssgd", {"laplacian_sigma": 1.5}, True),
        )
    ]
    own = [
        Case(f"{reference.__name__}:own_stages", "convolution", torch.float64, {"own.power": 0.25}),
        Case(f"{__name__}:strided", "linear", torch.float64, dict(GEN)),
    ]
    return [*of_methods, *of_users, *of_gen, *own]


def strided(_layout: object) -> dict[str, Any]:
    """A method of the user's own that returns a view with gaps between its numbers."""
    return {"after_noise": lambda gradient: torch.stack([gradient, -gradient], 1)[:, 0]}


def make(case: Case, ranks: Ranks | None, kind: type[RankedStep] = RankedStep) -> tuple[PrivateStep, Tensor, Any]:
    """Return the step of a case, θ and the arguments of `take`: for one process, or as one of the ranks."""
    rate = 0.05 if "adam" in case.choice.get("optimizer", "") else 0.5
    parameters = {"learning_rate": rate, "max_grad_norm": reference.CLIP, **case.choice}
    settings = from_parameters(
        case.method, parameters, batch_size=reference.BATCH, steps=STEPS, noise_multiplier=reference.NOISE
    )
    model: nn.Module = reference.make_model(case.kind).to(case.dtype)
    layout = Layout.of(model)
    theta, stages = layout.flatten(model), settings.stages(layout)
    inputs, targets = reference.make_records(case.kind)
    mechanism = Mechanism(
        sample_rate=reference.SAMPLE_RATE,
        noise_multiplier=reference.NOISE,
        max_grad_norm=reference.CLIP,
        expected_batch_size=reference.BATCH,
        clipping=settings.clipping,
        probe_share=settings.schedule.probe_share,
    )
    helps = ranks is not None and ranks.rank > 0
    secret: Generator = NoGenerator() if helps else SeededGenerator(reference.SECRET_SEED)
    passes = LossPasses(module=model, layout=layout, expected_batch_size=reference.BATCH)
    probes = (
        None
        if mechanism.noise.probe is None
        else LossProbes(
            passes=passes,
            noise_multiplier=mechanism.noise.probe,
            expected_batch_size=reference.BATCH,
            rate=settings.learning_rate,
            secret=secret,
        )
    )
    step: dict[str, Any] = {
        "mechanism": mechanism,
        "stages": stages,
        "source": per_sample_source(model, layout, example=torch.rand(3, *inputs.shape[1:], dtype=case.dtype)),
        "update": settings.update(theta, variance=lambda: noise_variance(mechanism, stages, like=theta)),
        "secret": secret,
        "public": torch.Generator().manual_seed(reference.PUBLIC_SEED),
        "probes": probes,
    }
    rows = [[*mine, *[-1] * (reference.MOST - len(mine))] for mine in reference.USERS]
    users = torch.tensor(rows) if case.by_user else None
    made = PrivateStep(**step) if ranks is None else kind(ranks=ranks, **step)
    return made, theta, {"inputs": inputs.to(case.dtype), "targets": targets, "users": users}


class AddsNoise(RankedStep):
    """A second rank that adds the step's noise too."""

    def _share(self, *work: Any) -> Tensor:  # noqa: ANN401
        noise = torch.randn(work[-1].centre.numel(), generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        return super()._share(*work) + reference.NOISE * reference.CLIP * noise


class Forgets(RankedStep):
    """A second rank that forgets its share."""

    def _share(self, *work: Any) -> Tensor:  # noqa: ANN401
        return torch.zeros_like(super()._share(*work))


class TakesAll(RankedStep):
    """A second rank that clips the samples of the first one too."""

    def _mine(self, owner: Tensor) -> Tensor:
        return torch.ones_like(owner, dtype=torch.bool)


class Dies(RankedStep):
    """A second rank that dies in the second step."""

    steps = 0

    def _share(self, *work: Any) -> Tensor:  # noqa: ANN401
        self.steps += 1
        if self.steps == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._share(*work)


class Broken(RankedStep):
    """A second rank whose machine fails on public inputs."""

    def _sum(self, points: Points) -> BatchSum:
        raise MemoryError


FAULTY = {"adds noise": AddsNoise, "forgets": Forgets, "takes all": TakesAll}
SECOND = {"sound": RankedStep, **FAULTY, "dies": Dies, "broken": Broken}


@contextmanager
def two_ranks(second: str, *, to_the_end: bool = True) -> Iterator[Ranks]:
    """Rank 0 of two; the other one runs in a process of its own, and is sound or has a fault."""
    store, port = opened(HOST)
    with subprocess.Popen([sys.executable, __file__, str(port), second], stderr=subprocess.PIPE, text=True) as other:
        try:
            yield TorchRanks(store, rank=0, size=2, host=HOST, device=CPU)
            if to_the_end:
                _, errors = other.communicate(timeout=60)
                assert other.returncode == 0, errors
        finally:
            other.kill()


def main(port: int, second: str) -> None:
    torch.set_num_threads(1)
    ranks = TorchRanks(joined(HOST, port), rank=1, size=2, host=HOST, device=CPU)
    for case in cases():
        step, theta, records = make(case, ranks, SECOND[second])
        assert isinstance(step, RankedStep)
        step.help(theta, **records)
        assert step.noise_draws == 0


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
