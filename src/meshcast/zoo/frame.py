"""The frame of models that score a whole batch at once: their training step and their forward pass around one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.typing import DTypeLike

from meshcast.zoo.layers.pieces import cast, cross_entropy
from meshcast.zoo.program import ModelProgram, adamw_program, jit_options, microbatched
from meshcast.zoo.sharding import MeshLayout
from meshcast.zoo.words import AUTO

Score = Callable[[Any, Any], jax.Array]
"""`(params, batch) -> scores`, in the precision of the parameters."""
Fields = Mapping[str, tuple[tuple[int, ...], DTypeLike]]
"""Shape and dtype of every field of a batch, rows first."""


def layout_for_heads(
    mesh: Mapping[str, int] | None, axes: tuple[str, ...], heads: int, attention: str = AUTO, products: str = "plain"
) -> MeshLayout:
    """The layout of a model whose attention heads "tensor" splits, refused where it does not divide them."""
    layout = MeshLayout.of(mesh, axes=axes, attention=attention, products=products)
    layout.require(heads, "tensor", "attention heads")
    return layout


def supervised_program(
    layout: MeshLayout,
    weights: Any,
    score: Score,
    fields: Fields,
    *,
    labels: str,
    accumulate: int,
    zero: int,
    param_dtype: DTypeLike,
    compute_dtype: DTypeLike,
) -> ModelProgram:
    """One AdamW step on the cross-entropy of scores with the field `labels`, products in `compute_dtype`."""

    def loss(params: Any, batch: Any) -> jax.Array:
        return cross_entropy(score(cast(params, compute_dtype), batch), batch[labels])

    data = microbatched(layout, accumulate, **fields)
    return adamw_program(layout, loss, layout.params(weights, param_dtype), data, accumulate=accumulate, zero=zero)


def forward_program(
    layout: MeshLayout,
    weights: Any,
    score: Score,
    fields: Fields,
    result: jax.ShapeDtypeStruct,
    *,
    param_dtype: DTypeLike,
) -> ModelProgram:
    """`(params, batch) -> scores`, nothing kept."""

    def forward(params: Any, batch: Any) -> jax.Array:
        return score(params, batch)

    data = microbatched(layout, 1, **fields)
    return forward, (layout.params(weights, param_dtype), data), jit_options(layout, donate=(), results=result)
