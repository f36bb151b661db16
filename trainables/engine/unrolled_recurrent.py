"""LSTM, GRU and RNN with a LinearTap for each product with a parameter. Samples are the first axis at every tap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainables.engine.layers.linear import LinearTap
from trainables.errors import GateError

__all__ = ["UnrolledGRU", "UnrolledLSTM", "UnrolledRNN", "recurrent_taps"]

_Products = Mapping[str, Callable[[Tensor], Tensor]]
"""Kind of weight → product of an input with this weight, computed by its tap, in one layer and direction."""

_State = tuple[Tensor, ...]
"""Hidden state and, in an LSTM, the cell state, each of shape (B, ·)."""


def recurrent_taps(layer: nn.RNNBase) -> dict[str, LinearTap]:
    """Return the taps of each layer and direction, for the input, the hidden state and an LSTM's projection."""
    taps = {}
    for place in _places(layer):
        for kind in _kinds(layer):
            bias_name = f"bias_{kind}{place}" if layer.bias and kind != "hr" else None
            taps[f"tap_{kind}{place}"] = LinearTap(f"weight_{kind}{place}", bias_name)
    return taps


class UnrolledLSTM(nn.LSTM):
    """nn.LSTM with the taps of `recurrent_taps`."""

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> Any:  # type: ignore[override]  # noqa: ANN401 - as torch's
        """Return (output, (h_n, c_n)), in torch's shapes."""
        _check_batch(self, input)
        hidden, cell = self.get_expected_hidden_size(input, None), self.get_expected_cell_size(input, None)
        if hx is None:
            hx = input.new_zeros(hidden), input.new_zeros(cell)
        self.check_hidden_size(hx[0], hidden)
        self.check_hidden_size(hx[1], cell)
        output, (last_hidden, last_cell) = _unroll(self, input, hx, self._step)
        return output, (last_hidden, last_cell)

    def _step(self, products: _Products, gates: Tensor, state: _State) -> _State:
        hidden, cell = state
        write, keep, candidate, show = (gates + products["hh"](hidden)).chunk(4, dim=1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(write) * torch.tanh(candidate)
        hidden = torch.sigmoid(show) * torch.tanh(cell)
        return (products["hr"](hidden) if self.proj_size > 0 else hidden), cell


class UnrolledGRU(nn.GRU):
    """nn.GRU with the taps of `recurrent_taps`."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Any:  # type: ignore[override]  # noqa: ANN401 - as torch's
        """Return (output, h_n), in torch's shapes."""
        return _forward_of_one_state(self, input, hx, self._step)

    def _step(self, products: _Products, gates: Tensor, state: _State) -> _State:
        (hidden,) = state
        reset, update, candidate = gates.chunk(3, dim=1)
        # As in torch, the reset gate also multiplies the bias of the candidate's hidden part.
        reset_h, update_h, candidate_h = products["hh"](hidden).chunk(3, dim=1)
        candidate = torch.tanh(candidate + torch.sigmoid(reset + reset_h) * candidate_h)
        return (candidate + torch.sigmoid(update + update_h) * (hidden - candidate),)


class UnrolledRNN(nn.RNN):
    """nn.RNN with the taps of `recurrent_taps`."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Any:  # type: ignore[override]  # noqa: ANN401 - as torch's
        """Return (output, h_n), in torch's shapes."""
        return _forward_of_one_state(self, input, hx, self._step)

    def _step(self, products: _Products, gates: Tensor, state: _State) -> _State:
        total = gates + products["hh"](state[0])
        return (torch.tanh(total) if self.mode == "RNN_TANH" else torch.relu(total),)


_Step = Callable[[_Products, Tensor, _State], _State]
"""(products, product of the input at one time step with its weight, state before the step) → state after it."""


def _forward_of_one_state(layer: nn.RNNBase, inputs: Tensor, hx: Tensor | None, step: _Step) -> tuple[Tensor, Tensor]:
    _check_batch(layer, inputs)
    shape = layer.get_expected_hidden_size(inputs, None)
    hx = inputs.new_zeros(shape) if hx is None else hx
    layer.check_hidden_size(hx, shape)
    output, (last,) = _unroll(layer, inputs, (hx,), step)
    return output, last


def _unroll(layer: nn.RNNBase, inputs: Tensor, states: _State, step: _Step) -> tuple[Tensor, _State]:
    """Run every layer in every direction over the sequence. Return the last layer's outputs, and the final states.

    Inputs and outputs have the shape (B, T, ·), or (T, B, ·) if the layer is not batch_first. States have the shape
    (layers · directions, B, ·).
    """
    sequence = inputs if layer.batch_first else inputs.transpose(0, 1)
    starts = list(zip(_places(layer), zip(*(state.unbind(0) for state in states), strict=True), strict=True))
    directions = 1 + int(layer.bidirectional)
    last: list[_State] = []
    for number in range(layer.num_layers):
        of_layer = starts[number * directions : (number + 1) * directions]
        done = [_one_direction(layer, place, sequence, state, step) for place, state in of_layer]
        sequence = torch.cat([output for output, _ in done], dim=2)
        last += [state for _, state in done]
    output = sequence if layer.batch_first else sequence.transpose(0, 1)
    return output, tuple(torch.stack(state) for state in zip(*last, strict=True))


def _one_direction(
    layer: nn.RNNBase, place: str, sequence: Tensor, state: _State, step: _Step
) -> tuple[Tensor, _State]:
    products = {kind: _product(layer, kind, place) for kind in _kinds(layer)}
    order = -1 if place.endswith("_reverse") else 1
    # unbind, because the backward pass of T indexing operations would create T tensors of the whole sequence's size.
    gates = products["ih"](sequence).unbind(1)
    outputs = []
    for gate in gates[::order]:
        state = step(products, gate, state)
        outputs.append(state[0])
    return torch.stack(outputs[::order], dim=1), state


def _places(layer: nn.RNNBase) -> Iterator[str]:
    """Yield the suffix of torch's parameter names for each layer and direction, in the order of torch's states."""
    for number in range(layer.num_layers):
        yield f"_l{number}"
        if layer.bidirectional:
            yield f"_l{number}_reverse"


def _kinds(layer: nn.RNNBase) -> tuple[str, ...]:
    """Return the kinds of weights in torch's parameter names: for input, hidden state and an LSTM's projection."""
    return ("ih", "hh", "hr") if layer.proj_size > 0 else ("ih", "hh")


def _product(layer: nn.RNNBase, kind: str, place: str) -> Callable[[Tensor], Tensor]:
    tap = layer.get_submodule(f"tap_{kind}{place}")
    weight, bias = getattr(layer, f"weight_{kind}{place}"), getattr(layer, f"bias_{kind}{place}", None)
    return lambda x: tap(x, weight, bias)


def _check_batch(layer: nn.RNNBase, inputs: object) -> None:
    """Raise GateError for inputs without an axis of samples."""
    if isinstance(inputs, Tensor) and inputs.dim() == 3:
        return
    what = f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
    axes = "(batch, time, features)" if layer.batch_first else "(time, batch, features)"
    raise GateError(
        "samples-axis-missing",
        f"A recurrent layer must get one tensor of shape {axes} (got {what}). Pad the sequences to one length. Give a "
        "single sequence a batch axis of length 1.",
    )
