"""Multi-head attention with a LinearTap for each product with a parameter. Samples are the first axis at every tap."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from trainables.engine.layers.linear import LinearTap
from trainables.errors import GateError

__all__ = ["UnrolledMultiheadAttention", "attention_taps"]

_Three = tuple[Tensor, Tensor, Tensor]


def attention_taps(layer: nn.MultiheadAttention) -> dict[str, LinearTap]:
    """Return the taps for the projections of query, key and value. `out_proj` needs no tap, as it is an nn.Linear.

    If query, key and value have separate weights, they still share one bias vector. Its tap treats the
    bias as a weight of one column, whose input is 1. The same is done for the learned extra key and value.
    """
    bias_name = None if layer.in_proj_bias is None else "in_proj_bias"
    taps = {}
    if layer.in_proj_weight is not None:
        taps["tap_in"] = LinearTap("in_proj_weight", bias_name)
    else:
        taps |= {f"tap_{part}": LinearTap(f"{part}_proj_weight") for part in "qkv"}
        if bias_name is not None:
            taps["tap_bias"] = LinearTap(bias_name)
    if layer.bias_k is not None:
        taps |= {f"tap_bias_{part}": LinearTap(f"bias_{part}") for part in "kv"}
    return taps


class UnrolledMultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention with the taps of `attention_taps`."""

    tap_in: LinearTap
    tap_q: LinearTap
    tap_k: LinearTap
    tap_v: LinearTap
    tap_bias: LinearTap
    tap_bias_k: LinearTap
    tap_bias_v: LinearTap

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,  # noqa: FBT001, FBT002 - torch's signature
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,  # noqa: FBT001, FBT002
        is_causal: bool = False,  # noqa: FBT001, FBT002
    ) -> tuple[Tensor, Tensor | None]:
        """Return (output, attention weights or None), with the shapes and arguments of torch."""
        if is_causal and attn_mask is None:
            raise GateError(
                "attention-mask-missing", "`attn_mask` must be given if is_causal is true (got None). Pass the mask."
            )
        # Tensors are compared by identity, so that a tensor that is passed twice is projected once.
        batch_first = {id(x): x if self.batch_first else x.transpose(0, 1) for x in (query, key, value)}
        inputs = batch_first[id(query)], batch_first[id(key)], batch_first[id(value)]
        _check_batch(*inputs)
        queries, keys, values = map(self._by_head, self._with_extra_keys(*self._projected(inputs)))
        hint = is_causal and key_padding_mask is None and not need_weights
        mask = None if hint else self._mask(attn_mask, key_padding_mask, inputs[0])
        if need_weights:
            weights = _attention_weights(queries, keys, mask)
            mixed = weights @ values
        else:
            weights = None
            mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, mask, is_causal=hint)
        output = self.out_proj(mixed.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _projected(self, inputs: _Three) -> _Three:
        """Return queries, keys and values, each of shape (B, length, embed_dim)."""
        if self.in_proj_weight is not None:
            # Every different input is multiplied by the whole packed weight. Unused parts get the gradient 0.
            packed: dict[int, tuple[Tensor, ...]] = {}
            for x in inputs:
                if id(x) not in packed:
                    packed[id(x)] = self.tap_in(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=2)
            query, key, value = (packed[id(x)][part] for part, x in enumerate(inputs))
            return query, key, value
        query = self.tap_q(inputs[0], self.q_proj_weight)
        key = self.tap_k(inputs[1], self.k_proj_weight)
        value = self.tap_v(inputs[2], self.v_proj_weight)
        if self.in_proj_bias is None:
            return query, key, value
        shifts = self.tap_bias(_ones(query), self.in_proj_bias[:, None]).chunk(3, dim=2)
        return query + shifts[0], key + shifts[1], value + shifts[2]

    def _with_extra_keys(self, query: Tensor, key: Tensor, value: Tensor) -> _Three:
        """Append the learned extra key and value, then a key and a value of zeros, if the layer has them."""
        if self.bias_k is not None and self.bias_v is not None:
            key = torch.cat([key, self.tap_bias_k(_ones(query), self.bias_k.view(-1, 1))], dim=1)
            value = torch.cat([value, self.tap_bias_v(_ones(query), self.bias_v.view(-1, 1))], dim=1)
        if self.add_zero_attn:
            key, value = nn.functional.pad(key, (0, 0, 0, 1)), nn.functional.pad(value, (0, 0, 0, 1))
        return query, key, value

    def _by_head(self, x: Tensor) -> Tensor:
        """Reshape values from (B, length, embed_dim) to (B, heads, length, head_dim)."""
        return x.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def _mask(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor) -> Tensor | None:
        """Return the mask that is added to the scores, or None. It broadcasts to (B, heads, queries, keys)."""
        masks = []
        if attn_mask is not None:
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.view(len(query), self.num_heads, *attn_mask.shape[1:])
            masks.append(_additive(attn_mask, query.dtype))
        if key_padding_mask is not None:
            masks.append(_additive(key_padding_mask, query.dtype)[:, None, None, :])
        if not masks:
            return None
        extra = int(self.bias_k is not None) + int(self.add_zero_attn)
        return nn.functional.pad(masks[0] if len(masks) == 1 else masks[0] + masks[1], (0, extra))


def _ones(like: Tensor) -> Tensor:
    """Return ones of shape (B, 1, 1). They are the input of a tap that treats a bias as a weight of one column."""
    return like.new_ones((len(like), 1, 1))


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask to add to the scores. A Boolean mask becomes −∞ for true and 0 for false."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))


def _attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = (query / sqrt(query.shape[3])) @ key.transpose(2, 3)
    return torch.softmax(scores if mask is None else scores + mask, dim=3)


def _check_batch(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise GateError for inputs that do not have one row for each sample."""
    shapes = [tuple(x.shape) if not x.is_nested else "nested" for x in (query, key, value)]
    if any(len(shape) != 3 or shape == "nested" for shape in shapes):
        problem = "three axes"
    elif key.shape[:2] != value.shape[:2] or len(query) != len(key):
        problem = "the same batch size, and key and value the same length"
    else:
        return
    raise GateError(
        "samples-axis-missing",
        f"Query, key and value must have {problem} (got the shapes {', '.join(map(str, shapes))} for (batch, length, "
        "features)). Give every sample its own row in each of them, so that its gradient can be clipped.",
    )
