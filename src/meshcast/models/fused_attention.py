"""cuDNN's fused attention as the calls that XLA knows it by, one forward and one backward.

`__cudnn$fmhaSoftmax` and `...Backward`, configured as `jax.nn.dot_product_attention` configures them, so that all
fidelities read them. The call computes the scores in tiles and keeps, for the backward pass, one number per query.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

LARGEST_HEAD = 256  # cuDNN's limit on Hopper; 128 before
# Of each product: contracted dimensions, and those of the batch, of its left and its right side.
_Dims = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
# Heads before lengths.
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


def why_not_fused(query: Any, value: Any) -> str:
    """Why there is no fused call for such heads; empty where there is one."""
    head = query.shape[-1]
    if query.dtype not in (jnp.bfloat16, jnp.float16):
        return f"{query.dtype} is not half precision"
    if query.ndim != 4:
        return f"{query.ndim} dimensions"
    return f"heads of {head}" if head % 8 or head > LARGEST_HEAD or value.shape[-1] % 8 else ""


@partial(jax.custom_vjp, nondiff_argnames=("scale", "causal", "heads_first"))
def fused(query: Any, key: Any, value: Any, scale: float, causal: bool, heads_first: bool) -> Any:
    """Attention of queries over keys and values, `[B, heads, S, D]` or `[B, S, heads, D]`: one forward call.

    Differentiated, the call also yields the softmax's statistics for one backward call.
    """
    return _forward(query, key, value, scale, causal, heads_first, with_statistics=False)[0]


def _forward(
    query: Any, key: Any, value: Any, scale: float, causal: bool, heads_first: bool, *, with_statistics: bool
) -> Any:
    batch, heads, length, _ = _sizes(query, heads_first)
    results = [
        jax.ShapeDtypeStruct((*query.shape[:-1], value.shape[-1]), query.dtype),
        *([jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)] if with_statistics else []),
        jax.ShapeDtypeStruct((0,), jnp.uint8),  # the workspace, whose size XLA fills in
    ]
    return _call("__cudnn$fmhaSoftmax", results, query, key, scale, causal, heads_first)(query, key, value)


def _sizes(heads: Any, heads_first: bool) -> tuple[int, int, int, int]:
    """Batch, heads, length and width."""
    batch, one, other, width = heads.shape
    return (batch, one, other, width) if heads_first else (batch, other, one, width)


def _fused_forward(query: Any, key: Any, value: Any, scale: float, causal: bool, heads_first: bool) -> Any:
    output, statistics, _ = _forward(query, key, value, scale, causal, heads_first, with_statistics=True)
    return output, (query, key, value, statistics, output)


def _fused_backward(scale: float, causal: bool, heads_first: bool, kept: Any, gradient: Any) -> Any:
    query, key, value, statistics, output = kept
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)]
    results.append(jax.ShapeDtypeStruct((0,), jnp.uint8))
    call = _call("__cudnn$fmhaSoftmaxBackward", results, query, key, scale, causal, heads_first)
    return tuple(call(query, key, value, statistics, gradient, output)[:3])


fused.defvjp(_fused_forward, _fused_backward)


def _call(name: str, results: list[Any], query: Any, key: Any, scale: float, causal: bool, heads_first: bool) -> Any:
    config = json.dumps(_config(query, key, scale, causal, heads_first, backward=name.endswith("Backward")))
    return jax.ffi.ffi_call(
        name, results, custom_call_api_version=2, legacy_backend_config=config, vmap_method="sequential"
    )


def _config(query: Any, key: Any, scale: float, causal: bool, heads_first: bool, *, backward: bool) -> dict[str, Any]:
    """The configuration that XLA reads from the call; numbers are texts in this format."""
    batch, heads, length, _ = _sizes(query, heads_first)
    products = _HEADS_FIRST if heads_first else _LENGTHS_FIRST
    kind = {jnp.dtype("bfloat16"): "BF16", jnp.dtype("float16"): "F16"}[query.dtype]
    scores = {
        "element_type": kind,
        "dimensions": [str(size) for size in (batch, heads, length, _sizes(key, heads_first)[2])],
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
        "fmha_scale": scale,
        "intermediate_tensor_shape": scores,
        "is_flash_attention": True,
        "mask_type": "CAUSAL" if causal else "NO_MASK",
        "dropout_rate": 0.0,
        "seed": 42,
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
        **dots,
    }
    return {"operation_queue_id": "0", "cudnn_fmha_backend_config": fmha}
