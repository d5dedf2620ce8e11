"""Reductions and what is made of them: softmax, losses, norms and their gradients, over rows, columns and all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.families.norms import batch_norm
from meshcast.evidence.calibrate.probe import Indices, ProbeBody, ProbeChoices, Settings
from meshcast.zoo import layer_norm, rms_norm

COUNT = 320
MOST_ELEMENTS = 5e8
Spec = jax.ShapeDtypeStruct


def _cross_entropy(logits: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return -jnp.take_along_axis(logs, labels[:, None], axis=-1).mean()


def _simple(function: Callable[[Any], Any]) -> Callable[[int, int, Any], ProbeBody]:
    return lambda rows, cols, dtype: ProbeBody(function=function, args=(Spec((rows, cols), dtype),))


def _pulled(function: Callable[..., Any], *args: Any) -> ProbeBody:
    """The gradient of a function by all of its arguments, from a cotangent."""
    result = jax.eval_shape(function, *args)

    def gradient(cotangent: Any, *args: Any) -> Any:
        return jax.vjp(function, *args)[1](cotangent)

    return ProbeBody(function=gradient, args=(Spec(result.shape, result.dtype), *args))


def _normed(function: Callable[..., Any], parameters: int, grad: bool) -> Callable[[int, int, Any], ProbeBody]:
    def make(rows: int, cols: int, dtype: Any) -> ProbeBody:
        args = (Spec((rows, cols), dtype), *(Spec((cols,), dtype),) * parameters)
        return _pulled(function, *args) if grad else ProbeBody(function=function, args=args)

    return make


def _loss(grad: bool) -> Callable[[int, int, Any], ProbeBody]:
    def make(rows: int, cols: int, dtype: Any) -> ProbeBody:
        args = (Spec((rows, cols), dtype), Spec((rows,), jnp.int32))
        function = jax.grad(_cross_entropy) if grad else _cross_entropy
        return ProbeBody(function=function, args=args, indices={1: Indices(below=cols)})

    return make


def _middle(function: Callable[..., Any]) -> Callable[[int, int, Any], ProbeBody]:
    """A reduction over the middle axis of (outer, rows, cols), the outer one about a square root of the rows."""

    def make(rows: int, cols: int, dtype: Any) -> ProbeBody:
        outer = max(1, 2 ** (rows.bit_length() // 2))
        return ProbeBody(
            function=lambda x: function(x, axis=1), args=(Spec((outer, max(1, rows // outer), cols), dtype),)
        )

    return make


OPS: dict[str, Callable[[int, int, Any], ProbeBody]] = {
    "softmax": _simple(lambda x: jax.nn.softmax(x, axis=-1)),
    "softmax_column": _simple(lambda x: jax.nn.softmax(x, axis=0)),
    "softmax_grad": lambda rows, cols, dtype: _pulled(lambda x: jax.nn.softmax(x, axis=-1), Spec((rows, cols), dtype)),
    "log_softmax": _simple(lambda x: jax.nn.log_softmax(x, axis=-1)),
    "loss": _loss(False),
    "loss_grad": _loss(True),
    "layer_norm": _normed(layer_norm, 2, False),
    "layer_norm_grad": _normed(layer_norm, 2, True),
    "rms_norm": _normed(rms_norm, 1, False),
    "rms_norm_grad": _normed(rms_norm, 1, True),
    "batch_norm": _normed(batch_norm, 2, False),
    "batch_norm_grad": _normed(batch_norm, 2, True),
    "sum_row": _simple(lambda x: x.sum(-1)),
    "sum_column": _simple(lambda x: x.sum(0)),
    "sum_column_wide": _simple(lambda x: x.astype(jnp.float32).sum(0)),
    "sum_middle": _middle(jnp.sum),
    "max_middle": _middle(jnp.max),
    "sum_all": _simple(lambda x: x.sum()),
    "max_row": _simple(lambda x: x.max(-1)),
    "max_column": _simple(lambda x: x.max(0)),
    "argmax": _simple(lambda x: jnp.argmax(x, axis=-1)),
    "variance": _simple(lambda x: x.astype(jnp.float32).var(-1)),
    "square_norm": _simple(lambda x: (x.astype(jnp.float32) ** 2).sum()),
    "dot_rows": lambda rows, cols, dtype: ProbeBody(
        function=lambda x, y: (x * y).sum(-1), args=(Spec((rows, cols), dtype),) * 2
    ),
}


def build(op: str, rows: int, cols: int, dtype: str) -> ProbeBody:
    """An op of the table above on a matrix."""
    return OPS[op](rows, cols, jnp.dtype(dtype))


def probes() -> Iterator[Settings]:
    """The family's list: every op about as often, shapes log-uniform."""
    draw = ProbeChoices("rows/1")
    names = list(OPS)
    made = 0
    while made < COUNT:
        op = names[made % len(names)]
        cols = draw.pick(
            (
                draw.log_uniform(8, 131072, draw.pick((1, 8, 64))),
                draw.pick((64, 128, 256, 512, 768, 1024, 2048, 4096, 8192)),
            )
        )
        if op.startswith(("loss", "log_softmax", "argmax")) and draw.chance(0.5):
            cols = draw.pick((1000, 32000, 50257, 128256))
        rows = draw.log_uniform(1, 1_000_000, draw.pick((1, 16, 128)))
        if not 256 <= rows * cols <= MOST_ELEMENTS:
            continue
        made += 1
        yield {"op": op, "rows": rows, "cols": cols, "dtype": draw.pick(("bfloat16", "float32"))}
