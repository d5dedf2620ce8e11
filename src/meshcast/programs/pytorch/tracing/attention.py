"""What `scaled_dot_product_attention` becomes: cuDNN's fused call, whose cost meshcast models, or plain products.

PyTorch picks a fused kernel on NVIDIA GPUs for half-precision heads without an arbitrary mask. The same condition picks
the call here (`zoo.fused_attention`). Everything else becomes two batched products around a softmax in fp32.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.base import UnsupportedError
from meshcast.programs.pytorch.options import AttentionKind
from meshcast.zoo import AttentionCall, fused_call, why_not_fused


class AttentionOperator:
    """The operator, and how often it became what."""

    def __init__(self, kind: AttentionKind, platform: str) -> None:
        self._kind = kind
        self._platform = platform
        self.note = ""
        self.kinds: dict[str, None] = {}  # what it became, as models call it

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
            self.kinds["plain"] = None
            return plain(query, key, value, attn_mask, is_causal=is_causal, scale=scale, dropout=dropout_p)
        self.note = "attention as cuDNN's fused calls"
        self.kinds["flash"] = None
        return fused_call(
            query, key, value, AttentionCall(scale=float(scale), causal=bool(is_causal), heads_first=True)
        )

    def _unfused(self, query: Any, key: Any, value: Any, mask: Any, dropout: float) -> str:
        """Why attention is not one fused call; empty where it is."""
        reasons = {
            "asked for": self._kind == "math",
            f"lowered for {self._platform}": self._platform != "cuda",
            "an arbitrary mask": mask is not None,
            "dropout": dropout > 0,
        }
        found = next((reason for reason, holds in reasons.items() if holds), "")
        return found or why_not_fused(query, value)


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
