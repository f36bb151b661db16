"""The models: names, shapes, public initialisation, and the gate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from errors_helper import raises_code
from gradient_checks import Net
from torch import Tensor, nn

from trainables import model_names
from trainables.errors import GateError, HyperparameterError
from trainables.model_gate import check_domain, check_logits, check_private, hostile_inputs
from trainables.models import build

# Counted by hand from the layers; 26 010 is also what the TF-privacy tutorial prints.
PARAMETERS = {
    "logistic_regression": 784 * 10 + 10,
    "mlp_64": 784 * 64 + 64 + 64 * 10 + 10,
    "mlp_256": 784 * 256 + 256 + 256 * 10 + 10,
    "mlp_input": 784 * 784 + 784 + 784 * 10 + 10,
    "mlp_256_256": 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10,
    "mlp_512_128": 784 * 512 + 512 + 512 * 128 + 128 + 128 * 10 + 10,
    "mlp_1536_128": 784 * 1536 + 1536 + 1536 * 128 + 128 + 128 * 10 + 10,
    "tutorial_cnn": 26_010,
    "next_word_mlp": 10 * 256 + (4 * 256 + 1) * 500 + 501 * 250 + 251 * 50 + 51 * 10,
    "next_word_lstm": 10 * 256 + 4 * 96 * (256 + 96 + 2) + 97 * 10,
    "four_conv_cnn": (9 + 1) * 32 + (32 * 9 + 1) * 64 + (64 * 9 + 1) * 64 + (64 * 9 + 1) * 128 + 128 * 10 + 10,
}


OF_WORDS = ("next_word_mlp", "next_word_lstm")


@pytest.mark.parametrize("name", model_names.MODELS)
def test_models_by_name(name: str) -> None:
    state = torch.get_rng_state()
    shape = (4,) if name in OF_WORDS else (1, 28, 28)
    model, twin, other = (build(name, input_shape=shape, classes=10, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]
    inputs = 9 * torch.rand(2, *shape)
    assert model(inputs).shape == (2, 10)
    assert torch.equal(model(inputs), twin(inputs))
    assert not torch.equal(model(inputs), other(inputs))


@pytest.mark.parametrize("name", sorted(set(model_names.MODELS) - {"logistic_regression", *OF_WORDS}))
def test_options(name: str) -> None:
    layers = list(build(name, input_shape=(3, 32, 32), classes=7, activation="tanh", normalization="group", seed=0))
    assert any(isinstance(layer, nn.GroupNorm) for layer in layers)
    assert any(isinstance(layer, nn.Tanh) for layer in layers)
    assert not any(isinstance(layer, nn.ReLU) for layer in layers)


@pytest.mark.parametrize(
    ("name", "shape", "options", "code"),
    [
        ("mlp_265", (4,), {}, "model-unknown"),
        ("mlp_64", (4,), {"activation": "gelu"}, "model-option-unknown"),
        ("mlp_64", (4,), {"normalization": "layer"}, "model-option-unknown"),
        ("logistic_regression", (4,), {"normalization": "group"}, "model-option-unknown"),
        ("tutorial_cnn", (4,), {}, "model-shape-mismatch"),
        ("tutorial_cnn", (1, 8, 8), {}, "model-shape-mismatch"),
        ("next_word_mlp", (1, 8, 8), {}, "model-shape-mismatch"),
        ("next_word_lstm", (1, 8, 8), {}, "model-shape-mismatch"),
        ("next_word_mlp", (4,), {"normalization": "group"}, "model-option-unknown"),
        ("next_word_lstm", (4,), {"normalization": "group"}, "model-option-unknown"),
        ("no.such:thing", (4,), {}, "model-not-importable"),
    ],
)
def test_bad_models(name: str, shape: tuple[int, ...], options: dict[str, str], code: str) -> None:
    with raises_code(HyperparameterError, code):
        build(name, input_shape=shape, classes=2, seed=0, **options)


@pytest.mark.parametrize("name", OF_WORDS)
def test_what_is_no_number_of_a_word_is_taken_for_the_nearest(name: str) -> None:
    """No record may make a model raise: that trials fail is shown."""
    model = build(name, input_shape=(4,), classes=10, seed=0)
    odd = torch.tensor([[-3.0, 1e30, float("nan"), 2.7], [-float("inf"), float("inf"), -0.5, 9.9]])
    near = torch.tensor([[0.0, 9.0, 0.0, 2.0], [0.0, 9.0, 0.0, 9.0]])
    assert torch.equal(model(odd), model(near))
    assert not torch.equal(model(near[:1]), model(near[1:]))


def centred() -> nn.Module:
    """Mixes samples with no layer that anyone could know by name."""
    return Net(lambda net, x: net.last(x - x.mean(0)), last=nn.Linear(4, 2))


def looked_up(rows: int, *, mixed: bool) -> nn.Module:
    """Looks up rows of a table by numbers, and may mix what the samples have found."""

    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        found = net.table(x.long()).sum(1)
        return found - found.mean(0) if mixed else found

    return Net(run, table=nn.Embedding(rows, 2))


@pytest.mark.parametrize("rows", [2, 3, 17])
def test_the_gate_sees_rows_that_meet(rows: int) -> None:
    """Of inputs in [0, 1) alone all samples would be the same, and their mean as well."""
    torch.manual_seed(0)
    check_private(looked_up(rows, mixed=False), input_shape=(8,))
    with raises_code(GateError, "samples-mixed"):
        check_private(looked_up(rows, mixed=True), input_shape=(8,))


def in_company(meet: Callable[[Tensor], Tensor]) -> nn.Module:
    """Adds to every row of logits what `meet` makes of the batch."""
    return Net(lambda net, x: net.last(x) + meet(x), last=nn.Linear(4, 2))


MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "copies of a row": lambda x: (x[:, None] == x[None]).all(2).sum(1, keepdim=True),
    "equal first values": lambda x: (x[:, :1] == x[None, :, 0]).sum(1, keepdim=True),
    "rows of zeros": lambda x: (x == 0).all(1).sum(),
    "rows of ones": lambda x: (x == 1).all(1).sum(),
    "integers": lambda x: (x == x.round()).all(1).sum(),
    "negative rows": lambda x: (x < 0).any(1).sum(),
}


@pytest.mark.parametrize("meeting", MIXING)
def test_the_gate_sees_rows_that_meet_in_company(meeting: str) -> None:
    with raises_code(GateError, "samples-mixed"):
        check_private(in_company(MIXING[meeting]), input_shape=(4,))


def within(x: Tensor) -> Tensor:
    return x.nan_to_num().clamp(-5, 5)


def residual(run: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    """A residual branch that `run` mixes into and whose last layer starts at zero, as in many networks."""
    branch = nn.Linear(4, 4)
    nn.init.zeros_(branch.weight)
    nn.init.zeros_(branch.bias)
    return Net(lambda net, x: net.last(x + net.branch(run(net, x))), branch=branch, last=nn.Linear(4, 2))


def test_the_gate_sees_what_zeros_hide_at_the_initial_weights() -> None:
    mixing = residual(lambda _net, x: within(x) - within(x).mean(0))
    initial = {name: value.clone() for name, value in mixing.state_dict().items()}
    check_private(mixing, input_shape=(4,))  # the control: nothing shows at these weights
    with raises_code(GateError, "samples-mixed"):
        check_private(mixing, input_shape=(4,), own=True)
    check_private(residual(lambda _net, x: within(x)), input_shape=(4,), own=True)
    assert all(torch.equal(value, initial[name]) for name, value in mixing.state_dict().items())


def test_the_gate_sees_a_limit_on_the_samples_of_a_batch() -> None:
    first_eight = in_company(lambda x: 1.0 * (torch.arange(len(x)) < 8)[:, None])
    with raises_code(GateError, "samples-mixed"):
        check_private(first_eight, input_shape=(4,), own=True)


def leaking(x: Tensor, kept: Tensor, *, always: bool) -> Tensor:
    """Keeps a mean of the batch, at least while gradients are computed."""
    if always or torch.is_grad_enabled():
        with torch.no_grad():
            kept.lerp_(within(x).mean(0), 0.1)
    return x


def test_the_gate_sees_a_buffer_that_is_not_there_before() -> None:
    def run(net: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        if torch.is_grad_enabled():
            net.late = within(x).mean(0).detach()
        return net.last(x)

    module = Net(run, last=nn.Linear(4, 2))
    module.register_buffer("late", None)
    with raises_code(GateError, "samples-mixed"):
        check_private(module, input_shape=(4,))


def test_sines_of_a_high_frequency_pass_at_other_weights() -> None:
    """Their rounding grows with the size of the weights, which therefore stays that of the initial ones."""
    torch.manual_seed(0)
    sines = Net(lambda net, x: net.last(torch.sin(30 * net.one(torch.sin(30 * net.first(x))))),
                first=nn.Linear(4, 32), one=nn.Linear(32, 32), last=nn.Linear(32, 2))  # fmt: skip
    with torch.no_grad():
        sines.first.weight.uniform_(-1 / 4, 1 / 4)
        sines.one.weight.uniform_(-((6 / 32) ** 0.5) / 30, (6 / 32) ** 0.5 / 30)
    check_private(sines, input_shape=(4,), own=True)


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_the_gate_sees_a_model_that_keeps_something_of_a_batch(*, frozen: bool, always: bool) -> None:
    module = Net(lambda net, x: net.last(leaking(x, net.kept, always=always)), last=nn.Linear(4, 2))
    if frozen:
        module.kept = nn.Parameter(torch.zeros(4), requires_grad=False)
    else:
        module.register_buffer("kept", torch.zeros(4))
    with raises_code(GateError, "samples-mixed"):
        check_private(module, input_shape=(4,))


def test_a_layer_that_mixes_is_refused_by_its_type() -> None:
    """Also where no sample meets another when it is tried, as in evaluation."""
    with raises_code(GateError, "samples-mixed"):
        check_private(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval())


def test_no_gate_sees_a_trigger_on_one_value() -> None:
    """Therefore the card says of a user's own model that it is assumed."""
    check_private(in_company(lambda x: 1000 * (x == 3.25).sum()), input_shape=(4,))


RAISING: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "an index": lambda net, x: net.table(x.long()).sum(1),
    "a limit": lambda net, x: net.table((x * 0).long()).sum(1) if bool((x < 1e38).all()) else net.missing,
    "an exit": lambda net, x: net.table((x * 0).long()).sum(1) if bool((x > -1e3).all()) else exit(3),
    "a wrong shape": lambda net, x: net.table((x * 0).long()).sum(1)[(x[:, 0] != 255)],
    "denormals": lambda net, x: net.table((x * 0).long()).sum(1) if not bool((x == 2**-149).any()) else net.missing,
}


@pytest.mark.parametrize("case", RAISING)
def test_a_model_that_raises_for_one_input_of_its_domain_is_refused(case: str) -> None:
    module = Net(RAISING[case], table=nn.Embedding(1000, 2))
    check_logits(module, input_shape=(8,), classes=2)
    with raises_code(GateError, "model-raises") as caught:
        check_domain(module, input_shape=(8,), classes=2)
    assert "clamp(0, 999)" in str(caught.value)


def test_hostile_inputs_are_finite_and_the_clamped_example_takes_them() -> None:
    """The example is that of docs/experiment.md."""
    for shape in ((1,), (8,), (3, 5, 5)):
        inputs = hostile_inputs(shape)
        assert bool(inputs.isfinite().all())
        assert len(inputs.flatten(1).unique(dim=0)) >= 20
    clamped = Net(lambda net, x: net.table(x.clamp(0, 999).long()).sum(1), table=nn.Embedding(1000, 2))
    check_domain(clamped, input_shape=(8,), classes=2)
    check_private(clamped, input_shape=(8,))


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "samples-mixed"),
        (nn.Sequential(nn.SyncBatchNorm(4)), "samples-mixed"),
        (nn.Sequential(nn.InstanceNorm1d(4, affine=True, track_running_stats=True)), "running-statistics"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), "layer-draws-random"),
        (centred(), "samples-mixed"),
        (nn.Flatten(), "model-not-trainable"),
        (nn.LSTM(4, 4, num_layers=2, dropout=0.5), "layer-draws-random"),
        (nn.MultiheadAttention(4, 2, dropout=0.5), "layer-draws-random"),
        (nn.TransformerEncoderLayer(4, 2, dropout=0.5), "layer-draws-random"),
    ],
)
def test_the_gate(module: nn.Module, code: str) -> None:
    with raises_code(GateError, code):
        check_private(module, input_shape=(4,))


@pytest.mark.filterwarnings("ignore:dropout option adds dropout after all but last")
def test_dropout_that_drops_nothing_is_no_problem() -> None:
    """A single layer has no place between layers, and a probability of 0 draws nothing that matters."""
    check_private(nn.ModuleList([nn.LSTM(4, 4, dropout=0.5), nn.Linear(4, 4), nn.Dropout(0.0)]))


def giving(change: Callable[[Tensor], object], outputs: int = 5) -> nn.Module:
    """Whatever it is told to give, of a linear layer's outputs."""
    return Net(lambda net, x: change(net.last(x)), last=nn.Linear(4, outputs))


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (giving(lambda x: x[:, None].expand(-1, 8, -1)), "model-output-shape"),
        (giving(lambda x: x, outputs=7), "model-output-shape"),
        (giving(lambda x: x[:, 0]), "model-output-shape"),
        (giving(lambda x: (x, x)), "model-output-shape"),
        (giving(lambda x: x / 0), "model-output-not-finite"),
        (giving(lambda x: x * torch.tensor([1.0, 1.0, torch.inf, 1.0, 1.0])), "model-output-not-finite"),
        (giving(lambda x: x.softmax(1)), "model-output-probabilities"),
    ],
)
def test_outputs_that_are_no_logits_are_refused(module: nn.Module, code: str) -> None:
    torch.manual_seed(0)
    with raises_code(HyperparameterError, code):
        check_logits(module, input_shape=(4,), classes=5)
    for change in (lambda x: x, lambda x: x.log_softmax(1), lambda x: x.sigmoid()):
        check_logits(giving(change), input_shape=(4,), classes=5)


def test_a_users_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_models.py").write_text(
        "import random\nimport torch\nfrom torch import nn\n"
        "def good(*, input_shape, classes):\n    return nn.Linear(input_shape[0], classes)\n"
        "def bad(*, input_shape, classes):\n    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, classes))\n"
        "def none(*, input_shape, classes):\n    return None\n"
        "def wide(*, input_shape, classes):\n    return nn.Linear(4, classes + 3)\n"
        "def lazy(*, input_shape, classes):\n    return nn.LazyLinear(classes)\n"
        "COUNT = []\n"
        "def grows(*, input_shape, classes):\n    model = nn.Linear(4, classes)\n    COUNT.append(1)\n"
        "    model.register_buffer(f'b{len(COUNT)}', torch.zeros(1))\n    return model\n"
        "def partly(*, input_shape, classes):\n    model = nn.Linear(4, classes)\n"
        "    model.register_buffer('scale', torch.tensor([1e3, random.random()]))\n    return model\n"
        "def other(*, input_shape, classes):\n    model = nn.Linear(4, classes)\n"
        "    model.register_buffer('scale', torch.tensor(random.random()))\n    return model\n"
        "def buffered(make):\n    def of(*, input_shape, classes):\n        model = nn.Linear(4, classes)\n"
        "        model.register_buffer('held', make(model))\n        return model\n    return of\n"
        "def beside_weight(model):\n    flat = torch.randn(model.weight.numel() + 3)\n"
        "    model.weight = nn.Parameter(flat[:-3].view_as(model.weight))\n    return flat[-3:]\n"
        "view = buffered(lambda model: model.weight.detach()[0])\n"
        "beside = buffered(beside_weight)\n"
        "copied = buffered(lambda model: model.weight.detach().clone())\n"
        "graded = buffered(lambda model: torch.zeros(2, requires_grad=True))\n"
        "sparse = buffered(lambda model: torch.eye(2).to_sparse())\n"
        "def unused(*, input_shape, classes):\n    model = nn.Linear(4, classes)\n"
        "    model.extra = nn.LazyLinear(3)\n    return model\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert build("their_models:good", input_shape=(4,), classes=2, seed=0)(torch.ones(1, 4)).shape == (1, 2)
    for name in ("copied", "beside"):
        build(f"their_models:{name}", input_shape=(4,), classes=2, seed=0)
    build("their_models:view", input_shape=(4,), classes=2, seed=0, freeze=["weight"])
    with raises_code(GateError, "samples-mixed"):
        build("their_models:bad", input_shape=(4,), classes=2, seed=0)
    lazy = [build("their_models:lazy", input_shape=(4,), classes=2, seed=0).weight for _ in range(2)]
    assert torch.equal(*lazy)
    codes = {
        "grows": "model-not-repeatable",
        "partly": "model-not-repeatable",
        "none": "model-not-module",
        "wide": "model-output-shape",
        "other": "model-not-repeatable",
        "view": "model-buffer-not-fixed",
        "graded": "model-buffer-not-fixed",
        "sparse": "model-buffer-not-fixed",
        "unused": "model-lazy-unused",
    }
    for name, code in codes.items():
        with raises_code(HyperparameterError, code):
            build(f"their_models:{name}", input_shape=(4,), classes=2, seed=0)
