"""The dense part of DLRM-HSTU (Zhai 2024, arXiv:2402.17152): layers over a sequence of rows, whose tables are somewhere else.

A layer has one product for gates, values, queries and keys, `u, v, q, k = silu(norm(x) W)`; attention of pointwise scores,
`a = silu(q k^T) v`, over what came before; and `y = x + [u, a, norm(a) u] W'`. The candidates at the end of the sequence are
judged by two dense layers. Sizes are those of DLRMv3 (meta-recsys/generative-recommenders, generative_recommenders/dlrm_v3/
configs.py, modules/stu.py, modules/dlrm_hstu.py): 5 layers of 512, 4 heads of 128.

Attention is written as the backend's fused kernel, whose products and bytes are the same: a softmax's exponentials are there
for the sigmoids of `silu`, and its running maxima besides. Sequences are as long as the mean: kernels of ragged ones do no
more in all, but end with their longest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.fused_attention.asked import AttentionCall
from meshcast.zoo.fused_attention.primitives import fused_call
from meshcast.zoo.layers.pieces import layer_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceLayers:
    """Layers of width `dim` over sequences of `tokens`, the last `candidates` of which are judged."""

    dim: int
    tokens: int
    candidates: int = 10
    layers: int = 5
    heads: int = 4
    head: int = 128
    judged: int = 512

    def shapes(self, dtype: DTypeLike) -> dict[str, Any]:
        """Every parameter as a shape."""
        wide = self.heads * self.head

        def shape(*sizes: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(sizes, dtype)

        layer = {
            "norm": {"scale": shape(self.dim), "bias": shape(self.dim)}, "uvqk": shape(self.dim, 4 * wide),
            "uvqk_bias": shape(4 * wide), "after": {"scale": shape(wide), "bias": shape(wide)},
            "out": shape(3 * wide, self.dim),
        }  # fmt: skip
        return {
            "layers": [layer] * self.layers,
            "judging": [shape(self.dim, self.judged), shape(self.judged), shape(self.judged, 1), shape(1)],
        }


def transduced(x: jax.Array, layer: dict[str, Any], sizes: SequenceLayers) -> jax.Array:
    """One layer over x (B, S, dim)."""
    batch, length, _ = x.shape
    normed = layer_norm(x, layer["norm"]["scale"], layer["norm"]["bias"])
    u, v, q, k = jnp.split(jax.nn.silu(normed @ layer["uvqk"] + layer["uvqk_bias"]), 4, axis=-1)
    heads = [each.reshape(batch, length, sizes.heads, sizes.head) for each in (q, k, v)]
    how = AttentionCall(scale=sizes.head**-0.5, causal=True)
    seen = fused_call(*heads, how).reshape(batch, length, -1)
    gated = layer_norm(seen, layer["after"]["scale"], layer["after"]["bias"]) * u
    made: jax.Array = x + jnp.concatenate([u, seen, gated], axis=-1) @ layer["out"]
    return made


def sequence_programs(
    sizes: SequenceLayers, batch: int, dtype: DTypeLike = "bfloat16"
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Programs: all forwards, with gradients, with Adagrad besides; parameters are kept in fp32 and cast to `dtype`."""
    params = sizes.shapes("float32")
    rows = jax.ShapeDtypeStruct((batch, sizes.tokens, sizes.dim), dtype)
    labels = jax.ShapeDtypeStruct((batch, sizes.candidates), "float32")

    def loss(params: Any, rows: jax.Array, labels: jax.Array) -> jax.Array:
        used = jax.tree.map(lambda p: p.astype(dtype), params)
        x = rows
        for layer in used["layers"]:
            x = transduced(x, layer, sizes)
        w1, b1, w2, b2 = used["judging"]
        click = (jax.nn.silu(x[:, -sizes.candidates :] @ w1 + b1) @ w2 + b2)[..., 0].astype(jnp.float32)
        return jnp.mean(jax.nn.softplus(click) - labels * click)

    def train(params: Any, state: Any, *args: Any) -> Any:
        value, (grads, row_grads) = jax.value_and_grad(loss, (0, 1))(params, *args)
        state = jax.tree.map(lambda s, g: s + g * g, state, grads)
        new = jax.tree.map(lambda p, s, g: p - 0.01 * g / (jnp.sqrt(s) + 1e-8), params, state, grads)
        return new, state, row_grads, value

    whole = (params, rows, labels)
    return {
        "forward": (loss, whole),
        "step": (jax.value_and_grad(loss, (0, 1)), whole),
        "train": (train, (params, params, rows, labels)),
    }
