"""Fused attention over sequences that are split by position, each device's part of it, forward and backward.

Under a causal mask the first positions see little and the last ones much. So that all devices compute the same, a
sequence is cut into 2 c chunks for c devices, and device i holds chunks i and 2 c - 1 - i ("zig-zag", "head and tail":
Dubey 2024, section 3.3.2; Megatron's context parallelism and MaxText's load balance do the same). Whoever feeds tokens does so in
this order (`balanced_positions`); the loss is a mean over positions, whatever their order.

- Ring (Liu 2023): keys and values go round. With chunk size C and local length L = 2 C, a device attends to its own part
  under the mask, L^2 / 2 pairs, and to every other one without: all queries see the first half of an earlier device's keys,
  the second half of the queries sees all of a later device's, L^2 / 2 pairs either way. Parts with outputs o, o' and
  log-sums l, l' are merged by m = log(exp l + exp l'): o exp(l - m) + o' exp(l' - m) (Milakov 2018).
- All-gather: every device gathers all keys, and each of its two chunks attends to those up to its own end. Devices differ
  in where these ends are, so there is a branch for each; all have (2 c + 1) C^2 pairs but for rounding, windows aside.

- Parts: PyTorch's way (`torch.distributed.tensor.experimental._attention`, December 2024). Models repeat keys and values for
  every head of queries before they attend (torchtitan's `repeat_kv`), all of that is gathered, and each device's part attended
  to and merged as in a ring. Gradients of keys and values go round in fp32, a step behind every part's. Compiled, a collective is
  waited for where it is issued (`_maybe_wrap_tensor` of `_functional_collectives.py` when tracing): nothing runs beside it, so
  that the first part too is read from what was gathered.

In the backward pass the kernels take the log-sums and outputs over all keys, so that each gives its keys' share; a ring's
gradients of keys and values travel with them, and gathered ones are reduced into shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshcast.zoo.fused_attention import AttentionCall, backward, forward
from meshcast.zoo.layers.saving import fused_result

AXIS = "context"
_UNSEEN = -1e30  # the log-sum over no keys


def balanced_positions(length: int, shards: int) -> np.ndarray[Any, Any]:
    """The positions of a sequence in the order that shares out causal attention evenly: chunks 0, 2c-1, 1, 2c-2, ..."""
    chunks = np.arange(length).reshape(2 * shards, -1)
    return np.concatenate([chunks[chunk] for chunk in _order(shards)])


def _order(shards: int) -> list[int]:
    return [chunk for device in range(shards) for chunk in (device, 2 * shards - 1 - device)]


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def ring(q: Any, k: Any, v: Any, how: AttentionCall, shards: int) -> Any:
    """One device's part of ring attention over `shards` devices, operands (B, L, heads, D)."""
    return _ring_forward(q, k, v, how, shards)[0]


def _moved(shards: int, *arrays: Any) -> tuple[Any, ...]:
    """From every device to the one before it: after r moves a device has what began r devices further on."""
    onwards = [(source, (source - 1) % shards) for source in range(shards)]
    return tuple(jax.lax.ppermute(x, AXIS, onwards) for x in arrays)


def _round(shards: int, carry: Any, k: Any, v: Any, visit: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """`visit(carry, step, k, v)` with every other device's keys and values, the next ones on their way meanwhile."""
    k, v = _moved(shards, k, v)

    def turn(state: Any, step: Any) -> tuple[Any, None]:
        k, v, carry = state
        following = _moved(shards, k, v)
        return (*following, visit(carry, step, k, v)), None

    state = (k, v, carry)
    if shards > 2:
        state, _ = jax.lax.scan(turn, state, jnp.arange(1, shards - 1))
    k, v, carry = state
    return visit(carry, jnp.int32(shards - 1), k, v)


Going = Callable[[int, Any, Any, Any, Callable[[Any, Any, Any, Any], Any]], Any]
"""How a device meets every other one's keys and values."""


def _from_all(keys: Any, values: Any) -> Going:
    """`visit` as in `_round`, with parts of keys and values that were all gathered before."""

    def going(shards: int, carry: Any, k: Any, v: Any, visit: Callable[[Any, Any, Any, Any], Any]) -> Any:
        def turn(carry: Any, step: Any) -> tuple[Any, None]:
            return visit(carry, step, *_part(keys, values, step, shards)), None

        carry, _ = jax.lax.scan(turn, carry, jnp.arange(1, shards))
        return carry

    return going


def _part(keys: Any, values: Any, step: Any, shards: int) -> tuple[Any, Any]:
    """Keys and values of the device that is so many steps further on."""
    place = (jax.lax.axis_index(AXIS) + step) % shards
    k, v = (jax.lax.dynamic_index_in_dim(x, place, keepdims=False) for x in (keys, values))
    return k, v


def _is_earlier(step: Any, shards: int) -> Any:
    """Whether the keys of a step belong to a device whose first chunk comes before this one's."""
    own = jax.lax.axis_index(AXIS)
    return (own + step) % shards < own


def _ring_forward(q: Any, k: Any, v: Any, how: AttentionCall, shards: int, going: Going = _round) -> Any:
    half = q.shape[1] // 2
    whole = replace(how, causal=False)

    def earlier(k: Any, v: Any) -> tuple[Any, Any]:
        output, logs = forward(q, k[:, :half], v[:, :half], whole)
        return output, logs

    def later(k: Any, v: Any) -> tuple[Any, Any]:
        output, logs = forward(q[:, half:], k, v, whole)
        return _behind(output, 1), _behind(logs, 2, _UNSEEN)

    def visit(carry: Any, step: Any, k: Any, v: Any) -> tuple[Any, Any]:
        output, logs = carry
        if how.causal:
            new, new_logs = jax.lax.cond(_is_earlier(step, shards), earlier, later, k, v)
        else:
            new, new_logs = forward(q, k, v, whole)
        both = jnp.logaddexp(logs, new_logs)
        return output * _share(logs - both) + new.astype(jnp.float32) * _share(new_logs - both), both

    output, logs = forward(q, k, v, how)
    output, logs = going(shards, (output.astype(jnp.float32), logs), k, v, visit)
    output, logs = fused_result(output.astype(q.dtype)), fused_result(logs)
    return output, (q, k, v, logs, output)


def _share(logs: Any) -> Any:
    """Exp of (B, heads, L), to be multiplied with (B, L, heads, D)."""
    return jnp.exp(logs).transpose(0, 2, 1)[..., None]


def _behind(x: Any, axis: int, value: float = 0.0) -> Any:
    """An array that is the second half of one, the first half filled up."""
    return jnp.pad(x, [(x.shape[d] if d == axis else 0, 0) for d in range(x.ndim)], constant_values=value)


def _before(x: Any) -> Any:
    """An array that is the first half of one along positions."""
    return jnp.pad(x, [(0, x.shape[d] if d == 1 else 0) for d in range(x.ndim)])


def _ring_backward(
    how: AttentionCall, shards: int, kept: Any, gradient: Any, going: Going = _round, waited: bool = False
) -> Any:
    """Gradients; those of keys and values go round beside the next part's kernels, or are waited for, in fp32 then."""
    q, k, v, logs, output = kept
    half = q.shape[1] // 2
    whole = replace(how, causal=False)

    def earlier(k: Any, v: Any) -> tuple[Any, Any, Any]:
        dq, dk, dv = backward(q, k[:, :half], v[:, :half], logs, gradient, output, whole)
        return dq, _before(dk), _before(dv)

    def later(k: Any, v: Any) -> tuple[Any, Any, Any]:
        parts = (q[:, half:], k, v, logs[..., half:], gradient[:, half:], output[:, half:])
        dq, dk, dv = backward(*parts, whole)
        return _behind(dq, 1), dk, dv

    def visit(carry: Any, step: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        dq, *gone = carry
        if how.causal:
            new = jax.lax.cond(_is_earlier(step, shards), earlier, later, k, v)
        else:
            new = backward(q, k, v, logs, gradient, output, whole)
        dq = dq + new[0].astype(jnp.float32)
        if waited:
            return dq, *_moved(
                shards, *(old + each.astype(jnp.float32) for old, each in zip(gone, new[1:], strict=True))
            )
        dk, dv = _moved(shards, *gone)
        return dq, dk + new[1], dv + new[2]

    dq, dk, dv = backward(q, k, v, logs, gradient, output, how)
    if waited:
        dk, dv = _moved(shards, *(x.astype(jnp.float32) for x in (dk, dv)))
    dq, dk, dv = going(shards, (dq.astype(jnp.float32), dk, dv), k, v, visit)
    if not waited:
        dk, dv = _moved(shards, dk, dv)  # home
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


ring.defvjp(_ring_forward, _ring_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def parts(q: Any, k: Any, v: Any, how: AttentionCall, shards: int) -> Any:
    """One device's part of attention over gathered keys, part by part; operands (B, L, heads, D), as many keys as queries."""
    return _parts_forward(q, k, v, how, shards)[0]


def _parts_forward(q: Any, k: Any, v: Any, how: AttentionCall, shards: int) -> Any:
    keys, values = (jax.lax.all_gather(x, AXIS) for x in (k, v))
    own = _part(keys, values, 0, shards)
    output, (*_, logs, kept) = _ring_forward(q, *own, how, shards, going=_from_all(keys, values))
    return output, (q, k, v, logs, kept)


def _parts_backward(how: AttentionCall, shards: int, kept: Any, gradient: Any) -> Any:
    q, k, v, logs, output = kept
    keys, values = (jax.lax.all_gather(x, AXIS) for x in (k, v))
    own = _part(keys, values, 0, shards)
    return _ring_backward(how, shards, (q, *own, logs, output), gradient, going=_from_all(keys, values), waited=True)


parts.defvjp(_parts_forward, _parts_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def gathered(q: Any, k: Any, v: Any, how: AttentionCall, shards: int) -> Any:
    """One device's part of attention over gathered keys, operands (B, L, heads, D)."""
    return _gathered_forward(q, k, v, how, shards)[0]


def _in_order(x: Any, shards: int) -> Any:
    """All devices' keys, by position."""
    x = jax.lax.all_gather(x, AXIS, axis=1, tiled=True)
    chunks = jnp.split(x, 2 * shards, axis=1)
    return jnp.concatenate([chunks[_order(shards).index(chunk)] for chunk in range(2 * shards)], axis=1)


def _shared_out(x: Any, shards: int) -> Any:
    """The sum of all devices' gradients of all keys, this one's share: the transpose of `_in_order`."""
    chunks = jnp.split(x, 2 * shards, axis=1)
    x = jnp.concatenate([chunks[chunk] for chunk in _order(shards)], axis=1)
    return jax.lax.psum_scatter(x, AXIS, scatter_dimension=1, tiled=True)


def _spans(device: int, shards: int, size: int, how: AttentionCall) -> list[tuple[slice, slice]]:
    """A device's chunks of queries, each with the keys that it sees any of."""
    found = []
    for place, chunk in enumerate((device, 2 * shards - 1 - device)):
        first = max(0, chunk * size - how.window + 1) if how.window else 0
        found.append((slice(place * size, (place + 1) * size), slice(first, (chunk + 1) * size)))
    return found


def _gathered_forward(q: Any, k: Any, v: Any, how: AttentionCall, shards: int) -> Any:
    def of(device: int, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
        spans = _spans(device, shards, q.shape[1] // 2, how)
        parts = [forward(q[:, own], k[:, seen], v[:, seen], how) for own, seen in spans]
        return jnp.concatenate([o for o, _ in parts], axis=1), jnp.concatenate([logs for _, logs in parts], axis=2)

    if how.causal:
        everything = (q, _in_order(k, shards), _in_order(v, shards))
        branches = [partial(of, device) for device in range(shards)]
        output, logs = jax.lax.switch(jax.lax.axis_index(AXIS), branches, *everything)
    else:
        keys, values = (jax.lax.all_gather(x, AXIS, axis=1, tiled=True) for x in (k, v))
        output, logs = forward(q, keys, values, how)
    output, logs = fused_result(output), fused_result(logs)
    return output, (q, k, v, logs, output)


def _gathered_backward(how: AttentionCall, shards: int, kept: Any, gradient: Any) -> Any:
    q, k, v, logs, output = kept

    def of(device: int, q: Any, k: Any, v: Any, logs: Any, gradient: Any, output: Any) -> tuple[Any, Any, Any]:
        dqs = []
        dk, dv = jnp.zeros_like(k), jnp.zeros_like(v)
        for own, seen in _spans(device, shards, q.shape[1] // 2, how):
            parts = (q[:, own], k[:, seen], v[:, seen], logs[..., own], gradient[:, own], output[:, own])
            dq, new_k, new_v = backward(*parts, how)
            dqs.append(dq)
            dk, dv = dk.at[:, seen].add(new_k), dv.at[:, seen].add(new_v)
        return jnp.concatenate(dqs, axis=1), dk, dv

    if not how.causal:
        k, v = (jax.lax.all_gather(x, AXIS, axis=1, tiled=True) for x in (k, v))
        dq, dk, dv = backward(q, k, v, logs, gradient, output, how)
        dk, dv = (jax.lax.psum_scatter(x, AXIS, scatter_dimension=1, tiled=True) for x in (dk, dv))
        return dq, dk, dv
    everything = (q, _in_order(k, shards), _in_order(v, shards), logs, gradient, output)
    branches = [partial(of, device) for device in range(shards)]
    dq, dk, dv = jax.lax.switch(jax.lax.axis_index(AXIS), branches, *everything)
    return dq, _shared_out(dk, shards), _shared_out(dv, shards)


gathered.defvjp(_gathered_forward, _gathered_backward)
