"""Fused attention on AMD's GPUs: Transformer Engine's calls, which run composable-kernel's (or AOTriton's) flash attention.

XLA has no call of its own there. Names and attributes are those of ROCm/TransformerEngine,
`transformer_engine/jax/cpp_extensions/attention.py`; operands that only dropout, biases and ragged batches need are left out.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from meshcast.zoo.fused_attention.asked import AttentionCall, check, forward_results, same_as, workspace

UNMASKED, CAUSAL, CAUSAL_AT_THE_END = 0, 2, 4  # of Transformer Engine's NVTE_Mask_Type; 4 is aligned at the last key


def forward(query: Any, key: Any, value: Any, *, how: AttentionCall, statistics: bool) -> list[Any]:
    """Transformer Engine's forward call."""
    check(query, value, how, "composable-kernel")
    results = forward_results(query, value, how, statistics)
    call = jax.ffi.ffi_call("te_fused_attn_forward_ffi", [*results, workspace()])
    return list(call(query, key, value, **_te_attributes(query, key, value, how))[:-1])


def backward(
    query: Any, key: Any, value: Any, statistics: Any, gradient: Any, output: Any, *, how: AttentionCall
) -> list[Any]:
    """Transformer Engine's backward call."""
    check(query, value, how, "composable-kernel")
    call = jax.ffi.ffi_call("te_fused_attn_backward_ffi", [*same_as(query, key, value), workspace()])
    arguments = (query, key, value, statistics, output, gradient)
    return list(call(*arguments, **_te_attributes(query, key, value, how))[:-1])


def _te_attributes(query: Any, key: Any, value: Any, how: AttentionCall) -> dict[str, Any]:
    batch, heads, length, head = how.sizes(query)
    _, kv_heads, kv_length, _ = how.sizes(key)
    mask = CAUSAL if length == kv_length else CAUSAL_AT_THE_END
    whole = {
        "input_batch": batch, "q_max_seqlen": length, "kv_max_seqlen": kv_length, "attn_heads": heads,
        "num_gqa_groups": kv_heads, "qk_head_dim": head, "v_head_dim": value.shape[-1],
        "mask_type": mask if how.causal else UNMASKED,
        "window_size_left": how.window - 1 if how.window else -1,
    }  # fmt: skip
    numbers = {name: np.int64(size) for name, size in whole.items()}
    return {**numbers, "scaling_factor": np.float32(how.scale)}
