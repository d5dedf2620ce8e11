"""cuDNN's fused attention as the calls that XLA knows it by, one forward and one backward.

`__cudnn$fmhaSoftmax` and `...Backward`, configured as `jax.nn.dot_product_attention` configures them, so that all
fidelities read them. The call computes the scores in tiles and keeps, for the backward pass, one number per query.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.zoo.fused_attention.asked import AttentionCall, check, forward_results, same_as, workspace

# Of each product: contracted dimensions, and those of the batch, of its left and its right side.
_Dims = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
_HEADS_FIRST: dict[str, _Dims] = {
    "bmm1": ((3, 3), (0, 1), (0, 1)),
    "bmm2": ((3, 2), (0, 1), (0, 1)),
    "bmm1_grad_gemm1": ((2, 2), (0, 1), (0, 1)),
    "bmm1_grad_gemm2": ((3, 2), (0, 1), (0, 1)),
    "bmm2_grad_gemm1": ((2, 2), (0, 1), (0, 1)),
    "bmm2_grad_gemm2": ((3, 3), (0, 1), (0, 1)),
}
# Lengths before heads, as models have them: no transposes around the call. Scores have their heads first all the same.
_LENGTHS_FIRST: dict[str, _Dims] = {
    "bmm1": ((3, 3), (0, 2), (0, 2)),
    "bmm2": ((3, 1), (0, 1), (0, 2)),
    "bmm1_grad_gemm1": ((2, 1), (0, 1), (0, 2)),
    "bmm1_grad_gemm2": ((3, 1), (0, 1), (0, 2)),
    "bmm2_grad_gemm1": ((2, 1), (0, 1), (0, 2)),
    "bmm2_grad_gemm2": ((3, 3), (0, 2), (0, 2)),
}


def forward(query: Any, key: Any, value: Any, *, how: AttentionCall, statistics: bool) -> list[Any]:
    """CuDNN's forward call: the result and, if asked for, one number a query for the backward pass."""
    check(query, value, how, "cuDNN")
    results = forward_results(query, value, how, statistics)
    return list(_cudnn("__cudnn$fmhaSoftmax", [*results, workspace()], query, key, how)(query, key, value)[:-1])


def backward(
    query: Any, key: Any, value: Any, statistics: Any, gradient: Any, output: Any, *, how: AttentionCall
) -> list[Any]:
    """CuDNN's backward call: the gradients of queries, keys and values."""
    check(query, value, how, "cuDNN")
    call = _cudnn("__cudnn$fmhaSoftmaxBackward", [*same_as(query, key, value), workspace()], query, key, how)
    return list(call(query, key, value, statistics, gradient, output)[:-1])


def _cudnn(name: str, results: list[Any], query: Any, key: Any, how: AttentionCall) -> Any:
    config = json.dumps(_cudnn_config(query, key, how, backward=name.endswith("Backward")))
    return jax.ffi.ffi_call(name, results, custom_call_api_version=2, legacy_backend_config=config)


def _cudnn_config(query: Any, key: Any, how: AttentionCall, *, backward: bool) -> dict[str, Any]:
    """The configuration that XLA reads from the call; numbers are texts in this format."""
    batch, heads, length, _ = how.sizes(query)
    products = _HEADS_FIRST if how.heads_first else _LENGTHS_FIRST
    kind = {jnp.dtype("bfloat16"): "BF16", jnp.dtype("float16"): "F16"}[query.dtype]
    scores = {
        "element_type": kind,
        "dimensions": [str(size) for size in (batch, heads, length, how.sizes(key)[2])],
        "tuple_shapes": [],
        "layout": {"minor_to_major": ["3", "2", "1", "0"]},
        "is_dynamic_dimension": [False] * 4,
    }
    dots = {
        f"{name}_dot_dimension_numbers": {
            "lhs_contracting_dimensions": [str(left)],
            "rhs_contracting_dimensions": [str(right)],
            "lhs_batch_dimensions": [str(dim) for dim in left_batch],
            "rhs_batch_dimensions": [str(dim) for dim in right_batch],
        }
        for name, ((left, right), left_batch, right_batch) in products.items()
        if ("grad" in name) == backward
    }
    algorithm = {
        "algo_id": "0",
        "math_type": "TENSOR_OP_MATH",
        "tuning_knobs": {"17": "1", "24": "0"},
        "is_cudnn_frontend": True,
        "workspace_size": "0",
    }
    fmha = {
        "algorithm": algorithm,
        "fmha_scale": how.scale,
        "intermediate_tensor_shape": scores,
        "is_flash_attention": True,
        "mask_type": "CAUSAL" if how.causal else "NO_MASK",
        "dropout_rate": 0.0,
        "seed": 42,
        "sliding_window_length": how.window,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
        **dots,
    }
    return {"operation_queue_id": "0", "cudnn_fmha_backend_config": fmha}
