"""`nn.MultiheadAttention` in inference, which PyTorch hands to one operator of its own instead of the calls it is written in.

`_native_multi_head_attention` on CUDA (`ATen/native/transformers/cuda/attention.cu`): attention of a tensor to itself with heads
of a multiple of 8 that a fused kernel takes is a product for queries, keys and values together, whose parts are read where they
lie, the kernel, and a product. Otherwise one kernel adds the biases and sets the three apart, and plain products stand around a
softmax. The module takes this way where it is no longer trained, `batch_first`, of an even number of heads, outside autocast, and
where nothing asks for gradients; Dynamo never does until torch 2.14, since it claims to export (`_is_make_fx_tracing`).

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

_ALIGNED = 8  # elements of a head that fused kernels want a multiple of


def native_self_attention(
    choose: Callable[..., str],
    query: Any, key: Any, value: Any, embed_dim: int, num_head: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
    proj_bias: Any, mask: Any = None, need_weights: bool = True, average_attn_weights: bool = True, mask_type: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """What the operator calls on CUDA: its result, and the softmax where that is asked for.

    All arguments but the first are the operator's own, in its order.

    Args:
        choose: The kernel of `scaled_dot_product_attention` for queries, keys, values, a mask and a dropout.
        query: What queries are projected from, by batch, position and width.
        key: What keys are projected from.
        value: What values are projected from.
        embed_dim: Width of all heads together.
        num_head: How many heads there are.
        qkv_weight: Weights of the three projections, one below the other.
        qkv_bias: Their biases.
        proj_weight: Weights of the output projection.
        proj_bias: Its biases.
        mask: What is hidden; None for nothing.
        need_weights: Whether the softmax is returned.
        average_attn_weights: Whether it is returned as a mean over heads.
        mask_type: What the mask goes by, which the kernels here do not depend on.
    """
    head = embed_dim // num_head

    def by_head(x: Any) -> Any:
        return x.view(x.shape[0], -1, num_head, head).transpose(1, 2)

    itself = query is key and key is value
    if itself and head % _ALIGNED == 0 and not need_weights:
        views = by_head(query), by_head(key), by_head(value)
        if choose(*views, mask, 0.0) != "math":
            parts = map(by_head, F.linear(query, qkv_weight, qkv_bias).chunk(3, -1))
            attended = F.scaled_dot_product_attention(*parts, attn_mask=mask)
            rows = attended.transpose(1, 2).reshape(query.shape[0], -1, embed_dim)
            return F.linear(rows, proj_weight, proj_bias), None
    if itself:
        together = F.linear(query, qkv_weight)
    else:
        three_weights = qkv_weight.chunk(3, 0)
        together = torch.cat([F.linear(x, w) for x, w in zip((query, key, value), three_weights, strict=True)], -1)
    batch, length = query.shape[:2]
    apart = together.view(batch, length, 3, num_head, head).permute(2, 0, 3, 1, 4)
    three = torch.add(apart, qkv_bias.view(3, 1, num_head, 1, head)).contiguous()
    scores = torch.matmul(three[0], three[1].transpose(-1, -2))
    # Tensors of a recording have no values: one addition stands for any mask.
    weights = torch.softmax(scores if mask is None else torch.add(scores, -math.inf), -1)
    attended = torch.matmul(weights, three[2])
    rows = attended.transpose(1, 2).reshape(batch, length, embed_dim)
    told = (weights.mean(1) if average_attn_weights else weights) if need_weights else None
    return F.linear(rows, proj_weight, proj_bias), told
