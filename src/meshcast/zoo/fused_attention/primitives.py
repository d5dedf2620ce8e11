"""The two primitives, their lowering for each backend, and a function that is differentiated by them.

A model is written once and does not know what it will be lowered for: CUDA gets cuDNN's calls, ROCm Transformer Engine's, TPUs
splash attention's, and any other backend the same mathematics in plain products.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from meshcast.zoo.fused_attention import cudnn, plain, rocm, splash
from meshcast.zoo.fused_attention.asked import AttentionCall, forward_results, same_as
from meshcast.zoo.words import FUSED_PLATFORMS

BACKENDS: dict[str, ModuleType] = dict(zip(FUSED_PLATFORMS, (cudnn, rocm, splash), strict=True))
_forward_p = Primitive("fused_attention")
_backward_p = Primitive("fused_attention_backward")
PRIMITIVES = (_forward_p.name, _backward_p.name)


def forward(query: Any, key: Any, value: Any, how: AttentionCall, *, statistics: bool = True) -> list[Any]:
    """The output and, if asked for, the logarithms (B, heads, S) of the sums of exponentials of every query's scores."""
    found: list[Any] = _forward_p.bind(query, key, value, how=how, statistics=statistics)
    return found


def backward(
    query: Any, key: Any, value: Any, statistics: Any, gradient: Any, output: Any, how: AttentionCall
) -> tuple[Any, Any, Any]:
    """The gradients of queries, keys and values.

    Statistics and output may be those over more keys than there are here: then these are the keys' shares.
    """
    dq, dk, dv = _backward_p.bind(query, key, value, statistics, gradient, output, how=how)
    return dq, dk, dv


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def fused_call(query: Any, key: Any, value: Any, how: AttentionCall) -> Any:
    """Attention of queries over keys and values: one forward call.

    Differentiated, the call also yields the softmax's statistics for the backward pass.
    """
    return forward(query, key, value, how, statistics=False)[0]


def _fused_forward(query: Any, key: Any, value: Any, how: AttentionCall) -> Any:
    output, statistics = forward(query, key, value, how)
    return output, (query, key, value, statistics, output)


def _fused_backward(how: AttentionCall, kept: Any, gradient: Any) -> Any:
    query, key, value, statistics, output = kept
    return backward(query, key, value, statistics, gradient, output, how)


fused_call.defvjp(_fused_forward, _fused_backward)


def _shaped(structs: list[Any]) -> list[Any]:
    return [jax.core.ShapedArray(struct.shape, struct.dtype) for struct in structs]


def _run(primitive: Any, *arrays: Any, **parameters: Any) -> Any:
    """Outside of `jax.jit`: on whatever is there."""
    return jax.jit(partial(primitive.bind, **parameters))(*arrays)


def _batched(primitive: Any, arrays: Any, at: Any, **parameters: Any) -> Any:
    """Under `jax.vmap`: one more dimension of the batch."""
    size = next(x.shape[d] for x, d in zip(arrays, at, strict=True) if d is not None)
    spread = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(arrays, at, strict=True)
    ]
    found = primitive.bind(*(x.reshape(size * x.shape[1], *x.shape[2:]) for x in spread), **parameters)
    return [x.reshape(size, -1, *x.shape[1:]) for x in found], [0] * len(found)


def _set_up() -> None:
    for primitive in (_forward_p, _backward_p):
        primitive.multiple_results = True
        primitive.def_impl(partial(_run, primitive))
        batching.primitive_batchers[primitive] = partial(_batched, primitive)
    _forward_p.def_abstract_eval(lambda q, k, v, *, how, statistics: _shaped(forward_results(q, v, how, statistics)))
    _backward_p.def_abstract_eval(lambda q, k, v, *_, how: _shaped(same_as(q, k, v)))
    lowered: list[tuple[str | None, ModuleType]] = [(None, plain), *BACKENDS.items()]
    for platform, backend in lowered:
        for primitive, call in ((_forward_p, backend.forward), (_backward_p, backend.backward)):
            mlir.register_lowering(primitive, mlir.lower_fun(call, multiple_results=True), platform=platform)


_set_up()
