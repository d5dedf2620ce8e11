"""`AttentionCall`: what a fused call computes, and what the calls of all backends have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.base import UnsupportedError
from meshcast.zoo.words import LARGEST_HEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """What a fused call computes: softmax(scale q k^T, capped and masked) v.

    Attributes:
        causal: A query sees no later keys; the last query is at the last key's position.
        window: Keys that a query sees at most, its own the last; 0: all.
        cap: Scores are squashed to +-cap by `cap * tanh(score / cap)`; 0: they are not.
        heads_first: `[B, heads, S, D]`, or else `[B, S, heads, D]`.
    """

    scale: float
    causal: bool
    window: int = 0
    cap: float = 0.0
    heads_first: bool = False

    def sizes(self, heads: Any) -> tuple[int, int, int, int]:
        """Batch, heads, length and width of an operand."""
        batch, one, other, width = heads.shape
        return (batch, one, other, width) if self.heads_first else (batch, other, one, width)


def why_not_fused(query: Any, value: Any) -> str:
    """Why GPUs have no fused call for such heads; empty where they have one."""
    head = query.shape[-1]
    if query.dtype not in (jnp.bfloat16, jnp.float16):
        return f"{query.dtype} is not half precision"
    if query.ndim != 4:
        return f"{query.ndim} dimensions"
    return f"heads of {head}" if head % 8 or head > LARGEST_HEAD or value.shape[-1] % 8 else ""


def check(query: Any, value: Any, how: AttentionCall, library: str) -> None:
    """Refuses what a library has no kernel for.

    Raises:
        UnsupportedError: Its precision, its heads, or capped scores.
    """
    reason = why_not_fused(query, value) or (f"scores are capped at {how.cap:g}" if how.cap else "")
    if reason:
        raise UnsupportedError(f"no fused attention by {library} here: {reason}", fix="use attention=plain")


def forward_results(query: Any, value: Any, how: AttentionCall, statistics: bool) -> list[Any]:
    """What a forward call gives: the output and, if asked for, the logarithm of each query's sum."""
    batch, heads, length, _ = how.sizes(query)
    return [
        jax.ShapeDtypeStruct((*query.shape[:-1], value.shape[-1]), query.dtype),
        *([jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)] if statistics else []),
    ]


def workspace() -> Any:
    """The last result of a library's call, whose size it fills in."""
    return jax.ShapeDtypeStruct((0,), jnp.uint8)


def same_as(*arrays: Any) -> list[Any]:
    """Results shaped as some operands are."""
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
