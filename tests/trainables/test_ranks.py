"""Two ranks, two processes connected by gloo, take the steps of one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from errors_helper import raises_code
from ranks_fakes import FAULTY, STEPS, Case, cases, make, two_ranks
from test_reference import OPTIONS
from training_fakes import CountingCharge, MakeSpec

import trainables.training
from trainables.engine.batches import Records
from trainables.engine.ranks import NoGenerator, RankedStep, owners
from trainables.engine.step import PrivateStep
from trainables.errors import GateError, InfrastructureError
from trainables.methods import STEP_METHODS
from trainables.training import PrivateTraining

TOLERANCE = 1e-5


def moves(step: PrivateStep, theta: torch.Tensor, records: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return θ after each step."""
    found = []
    for _ in range(STEPS):
        theta = step.take(theta, **records, learning_rate=0.3)
        found.append(theta)
    return found


def differences(second: str) -> list[tuple[Case, float]]:
    """Return, of each case, how far the ranks' θ is from that of one process, in units of the steps' length."""
    found = []
    with two_ranks(second) as ranks:
        for case in cases():
            alone, theta, records = make(case, None)
            together, _, _ = make(case, ranks)
            assert isinstance(together, RankedStep)
            expected, taken = moves(alone, theta, records), moves(together, theta, records)
            together.end()
            assert together.noise_draws == alone.noise_draws == STEPS
            furthest = max(float((a - b).norm()) for a, b in zip(expected, taken, strict=True))
            found.append((case, furthest / float((expected[-1] - theta).norm())))
    return found


def test_two_ranks_take_the_steps_of_one_process_with_every_method() -> None:
    found = differences("sound")
    assert {case.method for case, _ in found} >= set(STEP_METHODS) == set(OPTIONS)
    assert [(case, far) for case, far in found if not far <= TOLERANCE] == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTY)
def test_the_control_a_second_rank_with_a_fault_is_found_with_every_method(fault: str) -> None:
    assert [(case, far) for case, far in differences(fault) if not far > 100 * TOLERANCE] == []


def test_a_second_rank_that_dies_is_lost_before_the_noise_of_its_step() -> None:
    with two_ranks("dies", to_the_end=False) as ranks:
        step, theta, records = make(cases()[0], ranks)
        theta = step.take(theta, **records, learning_rate=0.3)
        with raises_code(InfrastructureError, "rank-lost"):
            step.take(theta, **records, learning_rate=0.3)
        assert step.noise_draws == 1


@pytest.mark.parametrize("second", ["sound", "broken"])
def test_a_second_rank_that_fails_on_public_inputs_is_told(second: str) -> None:
    with two_ranks(second, to_the_end=False) as ranks:
        step, theta, records = make(cases()[0], ranks)
        public = records["inputs"][:3], records["targets"][:3]
        if second == "sound":
            step.rehearse(theta, *public)
        else:
            with pytest.raises(RuntimeError):
                step.rehearse(theta, *public)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_no_other_record_moves_a_record_to_another_rank(dtype: torch.dtype) -> None:
    """Ranks on unlike machines round differently, so a record that moved would change what it adds."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 200, (300, 2, 3), generator=generator).to(dtype)
    users = torch.tensor([[number, number + 1, -1 if number % 3 else 299 - number] for number in range(0, 298, 2)])
    for by_user in (None, users):
        every = Records(inputs, torch.zeros(300), by_user)
        found = owners(every, 3)
        assert found.shape == (len(every),)
        assert min(torch.bincount(found, minlength=3)) > len(every) / 5
        others = torch.arange(len(every)) != 5
        left = (
            Records(inputs, every.targets, users[others])
            if by_user is not None
            else Records(inputs[others], every.targets[others])
        )
        assert torch.equal(owners(left, 3), found[others])
    assert owners(Records(inputs[:0], torch.zeros(0)), 3).shape == (0,)


class OneRank:
    """Ranks of which only this one exists."""

    def __init__(self, rank: int) -> None:
        self.rank, self.size = rank, 2

        self.sent: list[Mapping[str, Any]] = []

    def send(self, work: Mapping[str, Any]) -> None:
        self.sent.append(work)

    def receive(self) -> Mapping[str, Any]:
        return self.sent.pop(0)


def test_only_rank_0_can_draw(make_spec: MakeSpec, fake_data: object) -> None:
    spec = make_spec(private=True)
    helper = PrivateTraining(spec, CountingCharge(), ranks=OneRank(1))  # type: ignore[arg-type]
    assert isinstance(helper._secret, NoGenerator)
    with raises_code(GateError, "rank-draws"):
        helper._secret.uniform(1)
    with raises_code(GateError, "rank-draws"):
        helper._secret.add_normal(torch.zeros(3), 1.0, torch.float32)
    with raises_code(GateError, "rank-draws"):
        helper._secret.load_state_dict(PrivateTraining(spec, CountingCharge())._secret.state_dict())


def test_every_rank_has_the_fixed_values_of_rank_0(
    make_spec: MakeSpec, fake_data: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recurrent(torch.nn.Module):
        """A model whose gradients come from a copy of it that shares its tensors."""

        def __init__(self, scale: float) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(2, 3, batch_first=True)
            self.register_buffer("scale", torch.tensor(scale))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * self.layer(x.flatten(1).unsqueeze(1))[0][:, -1]

    def built(scale: float, rank: OneRank) -> PrivateTraining:
        model = Recurrent(scale)
        monkeypatch.setattr(trainables.training, "build", lambda *_, **__: model)
        return PrivateTraining(make_spec(private=True), CountingCharge(), ranks=rank)  # type: ignore[arg-type]

    first, second = OneRank(0), OneRank(1)
    payer, helper = built(1.0, first), built(2.0, second)
    with raises_code(InfrastructureError, "machine-failed"):  # a rank that is alone can do no pass
        payer.run_to(1)
    (said, *_) = first.sent
    second.sent = [said]
    with pytest.raises(IndexError):
        helper.help()
    assert float(helper.model.scale) == 1.0
    assert float(helper._private_step._source.module.scale) == 1.0  # type: ignore[union-attr]


def test_a_perturbed_minimum_is_not_shared(make_spec: MakeSpec, fake_data: object) -> None:
    minimum = make_spec(
        method="output_perturbation",
        parameters={"weight_decay": 0.1},
        batch_size=120,
        steps=1,
        sample_rate=1.0,
    )
    with raises_code(GateError, "workers-not-shared"):
        PrivateTraining(minimum, CountingCharge(), ranks=OneRank(0))  # type: ignore[arg-type]
