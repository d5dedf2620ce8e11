"""The dense part of recommenders whose tables are somewhere else: pooled rows come in as a value, and their gradient goes out.

DLRM (Naumov 2019) takes the dot products of every pair of features; DCNv2 (Wang 2021, arXiv:2008.13535) crosses all
features by layers of low rank, `x = x0 * (W (V x) + b) + x`, as MLPerf's recommender does. Two towers are dense layers over the
first half of the tables and over the others, whose results are multiplied and summed up (torchrec, examples/retrieval).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UnsupportedError
from meshcast.zoo.architectures.dlrm import interact, mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLayers:
    """Layers below, between and above: `cross` layers of rank `rank`, or dot products where there are none.

    With `towers` there are these instead, of such widths, one over each half of the tables.
    """

    features: int
    dim: int
    dense: int = 13
    bottom: tuple[int, ...] = (512, 256, 128)
    top: tuple[int, ...] = (1024, 1024, 512, 256, 1)
    cross: int = 0
    rank: int = 512
    towers: tuple[int, ...] = ()

    @property
    def halves(self) -> tuple[int, int]:
        """Tables of the first tower and of the second."""
        return self.features // 2, self.features - self.features // 2

    @property
    def read(self) -> int:
        """Width of what the top layers read."""
        n = self.features + 1
        return n * self.dim if self.cross else self.dim + n * (n - 1) // 2

    def shapes(self, dtype: DTypeLike) -> dict[str, Any]:
        """Every parameter as a shape."""

        def layer(n: int, m: int) -> dict[str, Any]:
            return {"kernel": jax.ShapeDtypeStruct((n, m), dtype), "bias": jax.ShapeDtypeStruct((m,), dtype)}

        def stack(*widths: int) -> list[dict[str, Any]]:
            return [layer(n, m) for n, m in pairwise(widths)]

        if self.towers:
            query, candidate = (stack(count * self.dim, *self.towers) for count in self.halves)
            return {"query": query, "candidate": candidate}
        crossing = [
            {"v": jax.ShapeDtypeStruct((self.read, self.rank), dtype), "w": layer(self.rank, self.read)}
            for _ in range(self.cross)
        ]
        return {"bottom": stack(self.dense, *self.bottom), "cross": crossing, "top": stack(self.read, *self.top)}


def crossed(x: jax.Array, layers: list[dict[str, Any]]) -> jax.Array:
    """DCNv2's cross layers."""
    first = x
    for layer in layers:
        x = first * (x @ layer["v"] @ layer["w"]["kernel"] + layer["w"]["bias"]) + x
    return x


def dense_programs(
    layers: DenseLayers, batch: int, dtype: DTypeLike = "float32"
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Programs of the parts: the bottom layers forwards, and with gradients; all, with gradients, with Adagrad besides."""
    if layers.towers:
        raise UnsupportedError(
            "two towers are predicted as eager PyTorch runs them", where="--dense-stack", fix="leave it out"
        )
    params = layers.shapes(dtype)
    x = jax.ShapeDtypeStruct((batch, layers.dense), dtype)
    pooled = jax.ShapeDtypeStruct((batch, layers.features, layers.dim), dtype)
    labels = jax.ShapeDtypeStruct((batch,), dtype)
    below = partial(mlp, last=jax.nn.relu)

    def loss(params: Any, pooled: jax.Array, x: jax.Array, labels: jax.Array) -> jax.Array:
        bottom = below(x, params["bottom"])
        if layers.cross:
            every = jnp.concatenate([bottom[:, None], pooled], axis=1).reshape(batch, -1)
            read = crossed(every, params["cross"])
        else:
            read = interact(bottom, pooled)
        click = mlp(read, params["top"], last=partial(jnp.squeeze, axis=-1))
        return jnp.mean(jax.nn.softplus(click) - labels * click)

    def bottom_step(params: Any, x: jax.Array, gradient: jax.Array) -> Any:
        y, back = jax.vjp(lambda p: below(x, p), params)
        return y, back(gradient)

    def train(params: Any, state: Any, *args: Any) -> Any:
        value, (grads, row_grads) = jax.value_and_grad(loss, (0, 1))(params, *args)
        state = jax.tree.map(lambda s, g: s + g * g, state, grads)
        new = jax.tree.map(lambda p, s, g: p - 0.01 * g / (jnp.sqrt(s) + 1e-8), params, state, grads)
        return new, state, row_grads, value

    whole = (params, pooled, x, labels)
    return {
        "bottom": (below, (x, params["bottom"])),
        "bottom_step": (bottom_step, (params["bottom"], x, jax.ShapeDtypeStruct((batch, layers.bottom[-1]), dtype))),
        "forward": (loss, whole),
        "step": (jax.value_and_grad(loss, (0, 1)), whole),
        "train": (train, (params, params, *whole[1:])),
    }
