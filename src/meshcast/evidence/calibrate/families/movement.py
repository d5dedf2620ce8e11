"""Movement: permutations, slices, joins, pads, updates in place, stacked weights, broadcasts, windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshcast.evidence.calibrate.probe import Indices, ProbeBody, ProbeChoices, Settings

COUNT = 150
MOST_ELEMENTS = 4e8
Spec = jax.ShapeDtypeStruct
START = Spec((), jnp.int32)


def _pool(x: Any, largest: bool) -> Any:
    """Windows of 3 by stride 2 over the middle axes of (N, H, W, C)."""
    window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
    start, combine = (-np.inf, jax.lax.max) if largest else (0, jax.lax.add)
    return jax.lax.reduce_window(x, np.asarray(start, x.dtype), combine, window, strides, "SAME")


def _pool_grad(x: Any, cotangent: Any) -> Any:
    return jax.vjp(lambda y: _pool(y, True), x)[1](cotangent)[0]


def _update(cache: Any, part: Any, at: Any) -> Any:
    return (jax.lax.dynamic_update_slice_in_dim(cache, part, at, axis=1),)


def _shaped(function: Callable[..., Any]) -> Callable[[tuple[int, ...], Any], ProbeBody]:
    return lambda shape, dtype: ProbeBody(function=function, args=(Spec(shape, dtype),))


def _half(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], -(-shape[1] // 2), -(-shape[2] // 2), shape[3])


# On shapes of four dimensions.
OPS: dict[str, Callable[[tuple[int, ...], Any], ProbeBody]] = {
    "slice_rows": _shaped(lambda x: x[:, x.shape[1] // 4 : -(x.shape[1] // 4) or None] * 2),
    "slice_last": _shaped(lambda x: x[..., : max(1, x.shape[-1] // 3)] * 2),
    "slice_stride": _shaped(lambda x: x[:, ::2] + 1),
    "split_heads": _shaped(lambda x: tuple(part + 1 for part in jnp.array_split(x, 2, axis=-1))),
    "concat_last": lambda shape, dtype: ProbeBody(
        function=lambda a, b: jnp.concatenate([a, b], -1), args=(Spec(shape, dtype),) * 2
    ),
    "concat_first": lambda shape, dtype: ProbeBody(
        function=lambda a, b, c: jnp.concatenate([a, b, c], 0), args=(Spec(shape, dtype),) * 3
    ),
    "concat_middle": lambda shape, dtype: ProbeBody(
        function=lambda a, b: jnp.concatenate([a, b * 2], 1), args=(Spec(shape, dtype),) * 2
    ),
    "stack": lambda shape, dtype: ProbeBody(
        function=lambda a, b: jnp.stack([a, b], axis=-2), args=(Spec(shape, dtype),) * 2
    ),
    "pad_spatial": _shaped(lambda x: jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))),
    "pad_last": _shaped(lambda x: jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 8)))),
    "reverse": _shaped(lambda x: x[:, ::-1]),
    "reverse_last": _shaped(lambda x: x[..., ::-1]),
    "roll": _shaped(lambda x: jnp.roll(x, 3, axis=1)),
    "roll_last": _shaped(lambda x: jnp.roll(x, 1, axis=-1)),
    "update_cache": lambda shape, dtype: ProbeBody(
        function=_update,
        args=(Spec(shape, dtype), Spec((shape[0], 1, *shape[2:]), dtype), START),
        donate=(0,),
        indices={2: Indices(below=shape[1])},
    ),
    "update_block": lambda shape, dtype: ProbeBody(
        function=_update,
        args=(Spec(shape, dtype), Spec((shape[0], max(1, shape[1] // 4), *shape[2:]), dtype), START),
        donate=(0,),
        indices={2: Indices(below=shape[1])},
    ),
    "copy_update": lambda shape, dtype: ProbeBody(
        function=_update,
        args=(Spec(shape, dtype), Spec((shape[0], 1, *shape[2:]), dtype), START),
        indices={2: Indices(below=shape[1])},
    ),
    "take_layer": lambda shape, dtype: ProbeBody(
        function=lambda x, i: jax.lax.dynamic_index_in_dim(x, i, 0, keepdims=False),
        args=(Spec(shape, dtype), START),
        indices={1: Indices(below=shape[0])},
    ),
    "repeat_heads": _shaped(lambda x: jnp.repeat(x, 4, axis=2)),
    "broadcast": lambda shape, dtype: ProbeBody(
        function=lambda x: jnp.broadcast_to(x[:, None], shape) + 0, args=(Spec((shape[0], *shape[2:]), dtype),)
    ),
    "iota": lambda shape, dtype: ProbeBody(
        function=lambda x: (jax.lax.iota(jnp.int32, math.prod(shape)) * x).reshape(shape),
        args=(START,),
        indices={0: Indices(below=7)},
    ),
    "tile": _shaped(lambda x: jnp.tile(x, (1, 2, 1, 1))),
    "max_pool": _shaped(lambda x: _pool(x, True)),
    "average_pool": _shaped(lambda x: _pool(x, False)),
    "max_pool_grad": lambda shape, dtype: ProbeBody(
        function=_pool_grad, args=(Spec(shape, dtype), Spec(_half(shape), dtype))
    ),
    "cumsum": _shaped(lambda x: jnp.cumsum(x.reshape(-1, x.shape[-1] * x.shape[-2]), axis=-1)),
    "space_to_depth": _shaped(
        lambda x: (
            x[:, : x.shape[1] // 2 * 2].reshape(x.shape[0], x.shape[1] // 2, 2, *x.shape[2:]).transpose(0, 1, 3, 2, 4)
        )
    ),
}


def build(op: str, shape: str, dtype: str, order: str = "") -> ProbeBody:
    """An op of the table on a shape such as `8x512x12x64`, or `transpose` with its order, such as `0-2-1-3`."""
    sizes = tuple(int(size) for size in shape.split("x"))
    kind = jnp.dtype(dtype)
    if op == "transpose":
        return ProbeBody(
            function=lambda x: jnp.transpose(x, tuple(map(int, order.split("-")))), args=(Spec(sizes, kind),)
        )
    return OPS[op](sizes, kind)


def draw_heads(draw: ProbeChoices) -> tuple[int, ...]:
    """(B, S, H, D) of attention."""
    return (
        draw.pick((1, 2, 4, 8, 16, 32, 64)),
        draw.pick((16, 128, 197, 512, 1024, 2048, 4096)),
        draw.pick((4, 8, 12, 16, 32)),
        draw.pick((32, 64, 64, 80, 128)),
    )


def draw_image(draw: ProbeChoices) -> tuple[int, ...]:
    """(N, H, W, C) of vision."""
    side = draw.pick((7, 14, 28, 32, 56, 112, 224))
    return draw.pick((1, 4, 16, 32, 64, 128)), side, side, draw.pick((3, 16, 64, 96, 128, 256, 512, 1024))


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("movement/1")
    names = list(OPS)
    made = 0
    while made < COUNT:
        op = names[made % len(names)]
        image = "pool" in op or op == "pad_spatial" or (op not in ("update_cache", "repeat_heads") and draw.chance(0.4))
        shape = draw_image(draw) if image else draw_heads(draw)
        if not 1024 <= math.prod(shape) <= MOST_ELEMENTS * (0.25 if op == "cumsum" or "pool" in op else 1):
            continue
        made += 1
        yield {"op": op, "shape": "x".join(map(str, shape)), "dtype": draw.pick(("bfloat16", "bfloat16", "float32"))}
