"""Fused attention of GPUs' libraries as one op, forward and backward: cuDNN's, and Transformer Engine's.

Over the P = B H A scores, with head sizes D of queries and keys and V of values: forward 2 P (D + V), that is
4 B H Sq Skv D when they are equal and nothing is masked; backward 2 P (3 D + 2 V), the five products S, dV, dP, dQ, dK.
The backward pass has neither the scores nor, of its two kernels on TPUs, what the other one made: S is computed again, the
model's own products are dV, dP, dQ and dK.
Softmax adds one exponential per score, and 4 vector FLOPs per score (scale, maximum, subtract, sum) forward or 5
backward (scale, subtract, and dS = P (dP - delta) scaled).

A is the number of pairs of a query and a key that it attends to: Sq Skv without a mask. Under a causal mask the last
query sees all keys (aligned at the bottom right: with a cache, the queries are the newest positions), so query i of Sq
sees v(i) = max(0, Skv - Sq + 1 + i) of them, and a sliding window W caps that:

    A = sum over i of min(v(i), W)

Without a window A / (Sq Skv) = 1 - (Sq - 1) / (2 Skv) for Sq <= Skv: all keys for one query, half of them for many. For
Sq > Skv the first Sq - Skv queries see nothing and A = Skv (Skv + 1) / 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.workload.graph import Attention, Cost, OpKind
from meshcast.workload.rule import OpReading
from meshcast.workload.rules.attributes import text
from meshcast.workload.rules.backend_config import backend_config, dimensions
from meshcast.workload.rules.costs import total_bytes
from meshcast.workload.rules.vendor import without_workspace

_TE_CAUSAL = frozenset(
    {2, 3, 4, 5}
)  # of its NVTE_Mask_Type: with padding or without, aligned at the first or the last key
FORWARD_VECTOR_FLOPS, BACKWARD_VECTOR_FLOPS = 4, 5


def fused_attention(reading: OpReading) -> Cost:
    """The cost of a `__cudnn$fmha*` call; operands 0 to 2 are queries, keys and values in either head layout."""
    config = backend_config(reading.op).get("cudnn_fmha_backend_config", {})
    backward = any(key.startswith("bmm1_grad") for key in config)
    if len(reading.operands) < 3 or any(len(tensor.shape) != 4 for tensor in reading.operands[:3]):
        raise UnsupportedError(
            "a fused attention call needs four-dimensional queries, keys and values",
            where=reading.location or None,
            fix="declare its cost in a `meshcast.cost` attribute",
        )
    query, key, value = reading.operands[:3]
    heads_dim = _heads_dim(config)
    length_dim = 3 - heads_dim  # dimension 0 is the batch and 3 the head, so lengths sit at the other of 1 and 2
    paged = bool(config.get("is_paged_attention"))
    geometry = Attention(
        batch=query.shape[0],
        heads=query.shape[heads_dim],
        kv_heads=key.shape[heads_dim],
        q_len=query.shape[length_dim],
        kv_len=_paged_length(config) if paged else key.shape[length_dim],
        head_dim=query.shape[3],
        dtype=query.dtype,
        causal="CAUSAL" in str(config.get("mask_type", "")),
        backward=backward,
        window=int(config.get("sliding_window_length", 0)),
    )
    again = query.shape[3] if backward else 0
    return attention_cost(reading, geometry, pair_width=_width(geometry, value.shape[3]), again=again)


def transformer_engine_attention(reading: OpReading) -> Cost:
    """The cost of a `te_fused_attn_*_ffi` call, which says its sizes in its attributes (on AMD's GPUs as on NVIDIA's)."""
    config = backend_config(reading.op)
    names = ("input_batch", "q_max_seqlen", "kv_max_seqlen", "attn_heads", "num_gqa_groups", "mask_type")
    head = config.get("qk_head_dim", config.get("head_dim"))
    if head is None or any(name not in config for name in names):
        missing = [name for name in names if name not in config] + ([] if head is not None else ["qk_head_dim"])
        raise UnsupportedError(
            f"a fused attention call of Transformer Engine has no {', '.join(missing)} in its attributes",
            where=reading.location or None,
            fix="declare its cost in a `meshcast.cost` attribute",
        )
    batch, length, kv_length, heads, kv_heads, mask = (int(config[name]) for name in names)
    geometry = Attention(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        q_len=length,
        kv_len=kv_length,
        head_dim=int(head),
        dtype=reading.operands[0].dtype,
        causal=mask in _TE_CAUSAL,
        backward="backward" in text(reading.op, "call_target_name"),
        window=int(config.get("window_size_left", -1)) + 1,
    )
    again = geometry.head_dim if geometry.backward else 0
    width = _width(geometry, int(config.get("v_head_dim", head)))
    return attention_cost(reading, geometry, pair_width=width, again=again)


def _width(shape: Attention, value_head: int) -> int:
    """Multiply-adds of a pair in one kernel that does all of a pass."""
    return 3 * shape.head_dim + 2 * value_head if shape.backward else shape.head_dim + value_head


def attention_cost(reading: OpReading, shape: Attention, *, pair_width: int, again: int) -> Cost:
    """Work over the scores that the masks leave, `pair_width` multiply-adds for each, `again` of them done before."""
    scores = shape.batch * shape.heads * attended(shape)
    return Cost(
        kind=OpKind.CUSTOM,
        dtype=shape.dtype,
        matrix_flops=2 * scores * pair_width,
        recomputed_flops=2 * scores * again,
        vector_flops=scores * (BACKWARD_VECTOR_FLOPS if shape.backward else FORWARD_VECTOR_FLOPS),
        transcendentals=scores,
        operand_bytes=tuple(tensor.bytes for tensor in reading.operands),
        written_bytes=total_bytes(without_workspace(reading.results)),
        geometry=shape,
    )


def attended(shape: Attention) -> int:
    """Pairs of a query and a key that the masks leave, of one head: A above."""
    widest = min(shape.window, shape.kv_len) if shape.window else shape.kv_len
    if not shape.causal:
        return shape.q_len * widest
    fewest = max(1, shape.kv_len - shape.q_len + 1)  # keys seen by the first query that sees any
    growing = range(fewest, widest + 1)  # one more key a query, until the window is full
    capped = shape.kv_len - max(widest, fewest - 1)
    return len(growing) * (fewest + widest) // 2 + capped * widest


def _heads_dim(config: Mapping[str, Any]) -> int:
    """1 for `[batch, heads, length, head]`, 2 for `[batch, length, heads, head]`, which JAX calls BNTH and BTNH."""
    forward = config.get("bmm1_dot_dimension_numbers")
    if forward:
        return dimensions(forward, "lhs_batch_dimensions")[1]
    gradient = config.get("bmm1_grad_gemm1_dot_dimension_numbers")
    return dimensions(gradient, "rhs_batch_dimensions")[1] if gradient else 2


def _paged_length(config: Mapping[str, Any]) -> int:
    """Keys per sequence where operand 1 is a pool of pages: the scores' own shape says it."""
    return dimensions(config["intermediate_tensor_shape"], "dimensions")[3]
