"""The engine on a pretended GPU takes the steps of a CPU. What would break privacy on a GPU is planted and found."""

# ruff: noqa: ANN401 - fakes take anything
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pretended_gpu import GPU, pretended_gpu, real
from torch import Tensor, nn
from training_fakes import CountingCharge, MakeSpec, keyed, step_over

from trainables import data
from trainables.charge import NoCharge
from trainables.data import DatasetInfo, Splits
from trainables.engine import accelerator, clip, gaussian, objective, per_sample, sources
from trainables.engine.chacha20 import KeyStream
from trainables.engine.gaussian import _CHUNK as CHUNK
from trainables.engine.layout import Layout
from trainables.engine.objective import Smoothed
from trainables.engine.sources import per_sample_source
from trainables.engine.step import Stages
from trainables.errors import InfrastructureError
from trainables.training import PrivateTraining

SHAPE, CLASSES = (1, 28, 28), 4
SLACK = 2.0**-8  # of a small model's float32 blocks, which the noise covers


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> Splits:
    generator = torch.Generator().manual_seed(0)

    def part(records: int) -> tuple[Tensor, Tensor]:
        return torch.rand(records, *SHAPE, generator=generator), torch.randint(
            0, CLASSES, (records,), generator=generator
        )

    tensors = [each for records in (96, 20, 17) for each in part(records)]
    names = ("x_train", "y_train", "x_validation", "y_validation", "x_test", "y_test")
    found = Splits(**dict(zip(names, tensors, strict=True)))
    about = DatasetInfo(
        name="fake", public_train_size=120, test_size=17, input_shape=SHAPE, classes=CLASSES, provenance="", licence=""
    )
    monkeypatch.setattr(data, "load_records", lambda _: found)
    monkeypatch.setattr(data, "info", lambda _: about)
    return found


METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("dp_sgd", {}),
    "automatic, Adam, averaged": ("dp_sgd", {"clipping": "automatic", "ema_decay": 0.9, "optimizer": "adam"}),
    "per layer, views": (
        "dp_sgd",
        {"clipping": "per_layer", "augmentation": "crop_flip", "augmentation_multiplicity": 2},
    ),
    "probes": ("dp_sgd", {"schedule": "gen"}),
    "smoothed loss": ("dplis", {"smoothing_radius": 1.0, "smoothing_samples": 3}),
    "smoothed gradient": ("dp_lssgd", {"laplacian_sigma": 1.0}),
    "decay": ("dp_weight_decay", {"weight_decay": 0.01, "weight_decay_mode": "before_clipping"}),
}
MODELS = ("logistic_regression", "mlp_64", "tutorial_cnn")


def trained(spec: Any, steps: int = 3) -> tuple[Tensor, dict[str, float]]:
    training = PrivateTraining(spec, CountingCharge())
    training.run_to(steps)
    return real(training._theta), training.evaluate()


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", METHODS)
def test_a_gpu_takes_the_steps_of_a_cpu(name: str, model: str, make_spec: MakeSpec) -> None:
    method, parameters = METHODS[name]
    values: dict[str, Any] = {"method": method, "model": model, "parameters": parameters, "private": False}
    values |= {"noise_seed": 5, "score_noise": 2.0 if name == "plain" else None}
    expected, scores = trained(make_spec(**values))
    with pretended_gpu():
        found, on_gpu = trained(make_spec(**values, device="cuda"))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert on_gpu == pytest.approx(scores, rel=1e-5)


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("method", ["output_perturbation", "objective_perturbation"])
def test_a_perturbed_minimum_is_that_of_a_cpu(method: str, make_spec: MakeSpec) -> None:
    values: dict[str, Any] = {"method": method, "steps": 1, "sample_rate": 1.0, "batch_size": 120, "private": False}
    values |= {"noise_seed": 5, "parameters": {"weight_decay": 0.1}}
    expected, _ = trained(make_spec(**values), 1)
    with pretended_gpu():
        found, _ = trained(make_spec(**values, device="cuda"), 1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("images")
def test_a_stored_training_continues_bit_for_bit(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(model="mlp_64", private=False, noise_seed=5, device="cuda")
    with pretended_gpu():
        whole, _ = trained(spec, 4)
        first, second = (PrivateTraining(spec, NoCharge()) for _ in range(2))
        first.run_to(2)
        first.save(tmp_path / "state.pt")
        second.load(tmp_path / "state.pt")
        second.run_to(4)
        assert torch.equal(real(second._theta), whole)


# -- what the tool finds ---------------------------------------------------------------------------------------------


def one_step(spec: Any, work: Any) -> None:
    training = PrivateTraining(spec, CountingCharge())
    training.run_to(1)
    work.reset()
    training.run_to(2)


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize(("name", "most"), [("plain", 1), ("smoothed loss", 1), ("smoothed gradient", 1), ("decay", 4)])
def test_a_step_waits_and_copies_no_more_than_before(
    name: str, most: int, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the GPU go the indices of the batch, the random words and the perturbations; nothing comes back."""
    method, parameters = METHODS[name]
    spec = make_spec(model="tutorial_cnn", method=method, parameters=parameters, device="cuda")
    with pretended_gpu() as work:
        one_step(spec, work)
        assert work.all_waits <= most, work.waits
        known = ("step.py:take", "random.py:_normal", "objective.py:stacked")
        assert all(place.endswith(known) for place in work.to_gpu), work.to_gpu
        assert not work.to_host

        def by_way_of_the_host(total: Tensor, **_: Any) -> Tensor:
            return total.cpu().float().to(GPU)

        monkeypatch.setattr("trainables.engine.step.add_noise", by_way_of_the_host)  # the control
        one_step(spec, work)
        assert work.to_host
        assert work.all_waits > 0


class Scaled(nn.Module):
    """A model with a tensor that `.to` does not know."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.scale, self.last = torch.ones(6, device=device), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(x * self.scale)
        return logits


def test_what_does_not_belong_on_a_gpu_is_found() -> None:
    with pretended_gpu():
        x = torch.rand(2, 6).to(GPU)
        assert Scaled(GPU).to(GPU)(x).device == GPU
        with pytest.raises(RuntimeError, match="same device"):
            Scaled(torch.device("cpu")).to(GPU)(x)
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()
        with pytest.raises(RuntimeError, match="own generator"):
            x.normal_()


# -- one shape of pass -----------------------------------------------------------------------------------------------


def moved_by_one_more(make: Callable[[], nn.Module], batch: int) -> float:
    """How far one record more moves the sum of records that all lie on the edge of a ReLU, in units of C."""
    torch.manual_seed(0)
    module = make()
    layout = Layout.of(module)
    with pretended_gpu(rounds_by_shape=True):
        module = module.to(GPU)
        source = per_sample_source(module, layout, gpu_pass=per_sample.pass_samples(batch))
        theta = layout.flatten(module)
        x = torch.full((batch + 1, 1, 1, 6), 0.5).to(GPU)
        y = torch.zeros(batch + 1, dtype=torch.int64).to(GPU)
        step = step_over(source, theta, clip=0.1, size=batch)
        fewer, more = (
            step.private_gradient(theta, x[:count], y[:count], learning_rate=0.1) for count in (batch, batch + 1)
        )
        return float(real(more - fewer).double().norm()) * batch / 0.1


def on_the_edge(first: nn.Module) -> nn.Module:
    """A model whose hidden units are exactly 0 for an input of halves, so that any rounding decides about them."""
    module = nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        weight, bias = (
            next(each for name, each in first.named_parameters() if name.endswith(end)) for end in ("weight", "bias")
        )
        weight.fill_(0.25)
        bias.fill_(-0.75)
    return module


class Another(nn.Linear):
    """A layer for which the stack of linear layers is no rule."""


STACKS: dict[str, Callable[[], nn.Module]] = {
    "stack": lambda: on_the_edge(nn.Linear(6, 8)),
    "hooks": lambda: on_the_edge(nn.Sequential(nn.Linear(6, 8))),
    "torch.func": lambda: on_the_edge(Another(6, 8)),
}


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("batch", [16, 64, 256])
def test_one_record_more_does_not_change_the_rounding_of_others(
    kind: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert moved_by_one_more(STACKS[kind], batch) <= 1.0 + SLACK
    monkeypatch.setattr(per_sample, "filled", lambda inputs, targets, **_: (inputs, targets))  # passes of any length
    assert moved_by_one_more(STACKS[kind], batch) > 1.0 + 2 * SLACK


# -- one noise on every device ---------------------------------------------------------------------------------------


def noise_differs(size: int) -> float:
    zeros = torch.zeros(size, dtype=torch.float64)
    expected = keyed().add_normal(zeros, 1.0, torch.float64)
    with pretended_gpu():
        found = real(keyed().add_normal(zeros.to(GPU), 1.0, torch.float64))
    return float((found - expected).abs().max())


def test_a_gpu_computes_the_words_of_much_noise_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the key goes to it. A radius that needs more bits sends all words again, from the CPU."""
    size = 2 * CHUNK + 5
    monkeypatch.setattr("trainables.engine.random._MANY", size)
    with pretended_gpu() as work:
        zeros = torch.zeros(size, dtype=torch.float64).to(GPU)
        keyed().add_normal(zeros, 1.0, torch.float64)
        work.reset()
        keyed().add_normal(zeros, 1.0, torch.float64)
        assert list(work.to_gpu.values()) == [64], work.to_gpu
        assert work.all_waits == 1, work.waits
        assert not work.to_host
    assert noise_differs(size) < 1e-13
    first = KeyStream.first

    def one_long_radius(self: KeyStream, count: int, device: torch.device) -> Tensor:
        words = first(self, count, device)
        words[CHUNK] = -1
        return words

    monkeypatch.setattr(KeyStream, "first", one_long_radius)
    assert noise_differs(size) < 1e-13
    monkeypatch.setattr("trainables.engine.random.needs_more_bits", lambda *_: False)  # the control
    assert noise_differs(size) > 1.0


def in_one_chunk(words: Tensor, size: int, _: object) -> Tensor:
    """The order of words of the first version."""
    return gaussian._of_chunks(words.view(1, 2, -1), gaussian._middles(words.device))[:size]


def test_one_key_is_one_noise_on_both_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 1001, CHUNK, CHUNK + 1, 2 * CHUNK + 5):
        assert noise_differs(size) < 1e-13
    monkeypatch.setattr("trainables.engine.random.from_words", in_one_chunk)
    assert noise_differs(1001) < 1e-13, "one chunk was always right"
    assert noise_differs(CHUNK + 2) > 1.0


def different_angles() -> int:
    """How many second numbers come from 2048 words that agree in the bits which a float64 of the whole turn keeps."""
    radii, angles = np.full(2048, 1 << 40, dtype=np.uint64), (np.arange(2048, dtype=np.uint64) << np.uint64(13))
    words = torch.from_numpy(np.concatenate([radii, angles | np.uint64(4096)]).view(np.int64))
    with pretended_gpu():
        return len(set(real(gaussian.from_words(words.to(GPU), 4096))[1::2].tolist()))


def as_part_of_a_turn(words: Tensor, middles: Tensor, _: float) -> Tensor:
    """The angle of the first version."""
    del middles
    fractions = ((words >> 12) & (2**52 - 1)).double() * 2.0**-52
    angle = gaussian._SECTOR * (fractions[:, 1] + (words[:, 1] & (gaussian._SECTORS - 1)))
    radius = (-2.0 * torch.log(1.0 - fractions[:, 0])).sqrt()
    return torch.stack([radius * angle.cos(), radius * angle.sin()], -1).flatten()


def test_all_bits_of_an_angle_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert different_angles() > 1000
    monkeypatch.setattr(gaussian, "_of_chunks", as_part_of_a_turn)
    assert different_angles() < 10


def test_perturbations_are_those_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def points(device: torch.device) -> Tensor:
        found = Smoothed(radius=1.0, samples=3).points(
            torch.zeros(100).to(device), noise_scale=1.0, public=torch.Generator().manual_seed(0)
        )
        return real(found.stacked(0, 3))

    with pretended_gpu():
        assert torch.equal(points(GPU), points(torch.device("cpu")))

    def on_the_device(self: objective.Points, start: int, stop: int) -> Tensor:
        return torch.empty(stop - start, *self.centre.shape, device=self.centre.device).normal_()

    monkeypatch.setattr(objective.Points, "stacked", on_the_device)
    with pretended_gpu(), pytest.raises(RuntimeError, match="own generator"):
        points(GPU)


@pytest.mark.usefixtures("images")
def test_a_sealed_run_is_repeated_on_the_same_kind_of_device(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "devices" / "run.pt"
    values: dict[str, Any] = {"replay_key": bytes(32), "replay_on": str(begun)}
    with pretended_gpu():
        for _ in range(2):
            PrivateTraining(make_spec(**values, device="cuda"), CountingCharge())
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert begun.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InfrastructureError) as caught:
        PrivateTraining(make_spec(**values), CountingCharge())
    assert caught.value.code == "replay-device-changed"
    begun.unlink()
    PrivateTraining(make_spec(**values), CountingCharge())
    monkeypatch.setattr("torch.__version__", "0.0")  # it may compute another sum
    with pytest.raises(InfrastructureError):
        PrivateTraining(make_spec(**values), CountingCharge())
    monkeypatch.setattr("trainables.training.device_kind", lambda _: "any")  # the control: every device alike
    begun.unlink()
    with pretended_gpu():
        PrivateTraining(make_spec(**values, device="cuda"), CountingCharge())
    PrivateTraining(make_spec(**values), CountingCharge())


# -- products with all digits ----------------------------------------------------------------------------------------


class Careless(nn.Module):
    """A model that asks for TF32 while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(x.flatten(1))
        torch.set_float32_matmul_precision("high")
        return logits


@pytest.fixture(autouse=True)
def _full_afterwards() -> Iterator[None]:
    yield
    accelerator.full_float32()


def longest_term(*, decay: float = 0.0) -> float:
    """The length of one record's term of the clipped sum, in units of C."""
    torch.manual_seed(0)
    module = Careless()
    layout = Layout.of(module)
    with pretended_gpu():
        module = module.to(GPU)
        source = per_sample_source(module, layout, example=torch.rand(3, 1, 1, 6).to(GPU))
        theta = layout.flatten(module)
        x, y = 40 * torch.rand(1, 1, 1, 6).to(GPU), torch.zeros(1, dtype=torch.int64).to(GPU)
        stages = Stages(weight_decay_before_clipping=decay)
        found = step_over(source, theta, stages=stages).private_gradient(theta, x, y, learning_rate=0.1)
        return float(real(found).double().norm())


def test_a_model_that_asks_for_tf32_does_not_reach_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    assert longest_term() == pytest.approx(1.0, abs=2e-5)
    assert longest_term(decay=1e-3) == pytest.approx(1.0, abs=2e-5)
    for module in (clip, sources):
        monkeypatch.setattr(module, "full_float32", lambda: None)
    monkeypatch.setattr("trainables.engine.bookkeeping.is_full_float32", lambda: True)
    assert abs(longest_term() - 1.0) > 1e-4


ASKED = (
    "torch.set_float32_matmul_precision('medium')",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.cudnn.fp32_precision = 'tf32'",
    "torch.backends.cudnn.conv.fp32_precision = 'tf32'",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cudnn.allow_tf32 = True",
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
)


@pytest.mark.parametrize("asked", ASKED)
def test_no_way_of_asking_for_fewer_digits_lasts(asked: str) -> None:
    accelerator.full_float32()
    before = accelerator.is_full_float32()
    exec(asked)
    accelerator.full_float32()
    assert before
    assert accelerator.is_full_float32()
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.usefixtures("images")
def test_gate_and_scores_are_measured_with_all_digits(make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    forward = nn.Conv2d.forward

    def noting(layer: nn.Conv2d, x: Tensor) -> Tensor:
        seen.append(accelerator.is_full_float32())
        return forward(layer, x)

    monkeypatch.setattr(nn.Conv2d, "forward", noting)
    with pretended_gpu():
        torch.backends.cudnn.allow_tf32 = True  # torch's default in a new process
        training = PrivateTraining(make_spec(model="tutorial_cnn", device="cuda"), CountingCharge())
        torch.backends.cudnn.allow_tf32 = True
        seen_by_gate, seen[:] = list(seen), []
        training.evaluate("test")
    assert all(seen)
    assert seen
    assert seen_by_gate
    assert all(seen_by_gate)
