"""What `scaled_dot_product_attention` becomes: cuDNN's fused call, whose cost meshcast models, or plain products.

PyTorch picks a fused kernel on NVIDIA GPUs for half-precision heads without an arbitrary mask. The same condition picks
the call here, by the name and configuration under which XLA knows it (`__cudnn$fmhaSoftmax` and `...Backward`, as
`jax.nn.dot_product_attention` emits them), so that all fidelities read it. It computes the scores in tiles and keeps, for
the backward pass, one number per query. Everything else becomes two batched products around a softmax in fp32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.capture.pytorch.options import AttentionKind
from meshcast.errors import UnsupportedError

_LARGEST_HEAD = 256  # cuDNN's limit on Hopper; 128 before
_FORWARD = {"bmm1": ((3, 3), (0, 1)), "bmm2": ((3, 2), (0, 1))}
_BACKWARD = {
    "bmm1_grad_gemm1": ((2, 2), (0, 1)),
    "bmm1_grad_gemm2": ((3, 2), (0, 1)),
    "bmm2_grad_gemm1": ((2, 2), (0, 1)),
    "bmm2_grad_gemm2": ((3, 3), (0, 1)),
}


class Attention:
    """The operator, and how often it became what."""

    def __init__(self, kind: AttentionKind, platform: str) -> None:
        self._kind = kind
        self._platform = platform
        self.note = ""

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        """Attention of queries `[..., heads, S, D]` over keys and values `[..., kv heads, T, D]`."""
        reason = self._unfused(query, key, value, attn_mask, dropout_p)
        if self._kind == "flash" and reason:
            raise UnsupportedError(
                f"no fused attention here: {reason}", fix='give attention="math", or change what stands in the way'
            )
        scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
        if reason:
            self.note = f"attention as plain products: {reason}"
            return plain(query, key, value, attn_mask, is_causal=is_causal, scale=scale, dropout=dropout_p)
        self.note = "attention as cuDNN's fused calls"
        return fused(query, key, value, float(scale), bool(is_causal))

    def _unfused(self, query: Any, key: Any, value: Any, mask: Any, dropout: float) -> str:
        """Why attention is not one fused call; empty where it is."""
        head = query.shape[-1]
        reasons = {
            "asked for": self._kind == "math",
            f"lowered for {self._platform}": self._platform != "cuda",
            f"{query.dtype} is not half precision": query.dtype not in (jnp.bfloat16, jnp.float16),
            "an arbitrary mask": mask is not None,
            "dropout": dropout > 0,
            f"{query.ndim} dimensions": query.ndim != 4,
            f"heads of {head}": head % 8 != 0 or head > _LARGEST_HEAD or value.shape[-1] % 8 != 0,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")


def plain(
    query: Any, key: Any, value: Any, mask: Any = None, *, is_causal: bool, scale: float, dropout: float = 0.0
) -> Any:
    """softmax(scale q k^T + mask) v, the softmax in fp32; query heads share key heads where there are more of them."""
    *lead, length, width = query.shape
    shared = lead[-1] // key.shape[-3] if len(lead) > 0 and key.ndim > 2 else 1
    grouped = query.reshape(*lead[:-1], lead[-1] // shared, shared, length, width) if shared > 1 else query
    keys, values = (x[..., None, :, :] if shared > 1 else x for x in (key, value))
    scores = jnp.einsum("...sd,...td->...st", grouped, keys).astype(jnp.float32) * scale
    if is_causal:
        rows, columns = jnp.arange(length)[:, None], jnp.arange(key.shape[-2])[None, :]
        scores = jnp.where(rows >= columns, scores, jnp.float32(-1e30))
    if mask is not None:
        mask = mask[..., :, None, :, :] if shared > 1 and mask.ndim >= 3 else mask
        scores = jnp.where(mask, scores, jnp.float32(-1e30)) if mask.dtype == jnp.bool_ else scores + mask
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    if dropout > 0:
        kept = jax.random.bernoulli(jax.random.key(0), 1 - dropout, weights.shape)
        weights = jnp.where(kept, weights / (1 - dropout), 0).astype(value.dtype)
    result = jnp.einsum("...st,...td->...sd", weights, values)
    return result.reshape(*lead, length, value.shape[-1])


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def fused(query: Any, key: Any, value: Any, scale: float, causal: bool) -> Any:
    """One forward call; differentiated, the call also yields the softmax's statistics for one backward call."""
    return _forward(query, key, value, scale, causal, with_statistics=False)[0]


def _forward(query: Any, key: Any, value: Any, scale: float, causal: bool, *, with_statistics: bool) -> Any:
    results = [
        jax.ShapeDtypeStruct((*query.shape[:-1], value.shape[-1]), query.dtype),
        *([jax.ShapeDtypeStruct(query.shape[:-1], jnp.float32)] if with_statistics else []),
        jax.ShapeDtypeStruct((0,), jnp.uint8),  # the workspace, whose size XLA fills in
    ]
    return _call("__cudnn$fmhaSoftmax", results, _FORWARD, query, key, scale, causal)(query, key, value)


def _fused_forward(query: Any, key: Any, value: Any, scale: float, causal: bool) -> Any:
    output, statistics, _ = _forward(query, key, value, scale, causal, with_statistics=True)
    return output, (query, key, value, statistics, output)


def _fused_backward(scale: float, causal: bool, kept: Any, gradient: Any) -> Any:
    query, key, value, statistics, output = kept
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)]
    results.append(jax.ShapeDtypeStruct((0,), jnp.uint8))
    call = _call("__cudnn$fmhaSoftmaxBackward", results, _BACKWARD, query, key, scale, causal)
    return tuple(call(query, key, value, statistics, gradient, output)[:3])


fused.defvjp(_fused_forward, _fused_backward)


def _call(
    name: str,
    results: list[Any],
    products: Mapping[str, tuple[tuple[int, int], tuple[int, int]]],
    query: Any,
    key: Any,
    scale: float,
    causal: bool,
) -> Any:
    config = json.dumps(_config(products, query, key, scale, causal))
    return jax.ffi.ffi_call(
        name, results, custom_call_api_version=2, legacy_backend_config=config, vmap_method="sequential"
    )


def _config(products: Any, query: Any, key: Any, scale: float, causal: bool) -> dict[str, Any]:
    """The configuration that XLA reads from the call, heads before lengths; numbers are texts in this format."""
    batch, heads, length, _ = query.shape
    kind = {jnp.dtype("bfloat16"): "BF16", jnp.dtype("float16"): "F16"}[query.dtype]
    scores = {
        "element_type": kind,
        "dimensions": [str(size) for size in (batch, heads, length, key.shape[2])],
        "tuple_shapes": [],
        "layout": {"minor_to_major": ["3", "2", "1", "0"]},
        "is_dynamic_dimension": [False] * 4,
    }
    dots = {
        f"{name}_dot_dimension_numbers": {
            "lhs_contracting_dimensions": [str(left)],
            "rhs_contracting_dimensions": [str(right)],
            "lhs_batch_dimensions": [str(dim) for dim in dims],
            "rhs_batch_dimensions": [str(dim) for dim in dims],
        }
        for name, ((left, right), dims) in products.items()
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
