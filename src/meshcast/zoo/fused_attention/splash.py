"""Pallas' splash attention on TPUs: `tpu_custom_call` under the names that JAX gives its kernels.

The backward pass is two kernels (dkv and dq), as MaxText configures it, and each computes the scores again. A call says in
its frontend attributes what it computes; the kernel's Mosaic code is not in it, so that a TPU's real compiler refuses it.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.zoo.attention_note import ATTENTION_NOTE, CAUSAL, HEADS_FIRST, WINDOW
from meshcast.zoo.fused_attention.asked import AttentionCall, forward_results, same_as


def forward(query: Any, key: Any, value: Any, *, how: AttentionCall, statistics: bool) -> list[Any]:
    """Splash attention's forward kernel."""
    name = "splash_mha_fwd_residuals" if statistics else "splash_mha_fwd_no_residuals"
    return list(_splash(name, forward_results(query, value, how, statistics), how)(query, key, value))


def backward(
    query: Any, key: Any, value: Any, statistics: Any, gradient: Any, output: Any, *, how: AttentionCall
) -> list[Any]:
    """Splash attention's two backward kernels, and before them the sums over a query's outputs that both take."""
    sums = jnp.sum(gradient.astype(jnp.float32) * output.astype(jnp.float32), axis=-1)
    sums = sums if how.heads_first else sums.transpose(0, 2, 1)
    operands = (query, key, value, statistics, gradient, sums)
    dk, dv = _splash("splash_mha_dkv_no_residuals", same_as(key, value), how)(*operands)
    (dq,) = _splash("splash_mha_dq_no_residuals", same_as(query), how)(*operands)
    return [dq, dk, dv]


def _splash(name: str, results: list[Any], how: AttentionCall) -> Any:
    from jax.experimental.xla_metadata import set_xla_metadata

    note = {
        CAUSAL: how.causal, WINDOW: how.window, HEADS_FIRST: how.heads_first, "soft_cap": how.cap, "scale": how.scale,
    }  # fmt: skip
    call = jax.ffi.ffi_call("tpu_custom_call", results, custom_call_api_version=1)

    def noted(*operands: Any) -> Any:
        with set_xla_metadata(kernel_name=name, **{ATTENTION_NOTE: json.dumps(note)}):
            return call(*operands)

    return noted
