"""Fused attention's primitives: what a CPU computes for them is plain attention; what backends get are their calls."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast.zoo.fused_attention import AttentionCall, fused_call
from meshcast.zoo.layers.attention import attend
from meshcast.zoo.layers.context_attention import balanced_positions
from meshcast.zoo.layers.pieces import attention, causal_mask
from meshcast.zoo.sharding import MeshLayout

B, S, H, K, D = 2, 12, 4, 2, 8


def _operands() -> tuple[Any, Any, Any, Any]:
    draw = np.random.default_rng(0)
    shapes = (B, S, H, D), (B, S, K, D), (B, S, K, D), (B, S, H, D)
    return tuple(jnp.asarray(draw.normal(size=shape), jnp.float32) for shape in shapes)  # type: ignore[return-value]


@pytest.mark.parametrize(("causal", "window", "cap"), [(False, 0, 0.0), (True, 0, 0.0), (True, 5, 0.0), (True, 0, 2.0)])
def test_the_mathematics_are_those_of_plain_attention(causal: bool, window: int, cap: float) -> None:
    q, k, v, weight = _operands()
    how = AttentionCall(scale=D**-0.5, causal=causal, window=window, cap=cap)
    mask = causal_mask(S, window) if causal else None

    def plain(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(weight * attention(q, k, v, mask, cap=cap))

    def asked(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(weight * fused_call(q, k, v, how))

    expected, found = (jax.jit(jax.value_and_grad(f, argnums=(0, 1, 2)))(q, k, v) for f in (plain, asked))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4), expected, found)


def test_the_last_query_is_at_the_last_key() -> None:
    """Fewer queries than keys are the newest positions."""
    q, k, v, _ = _operands()
    how = AttentionCall(scale=D**-0.5, causal=True)
    np.testing.assert_allclose(fused_call(q[:, -3:], k, v, how), fused_call(q, k, v, how)[:, -3:], atol=1e-5)


def test_heads_first_and_under_vmap() -> None:
    q, k, v, _ = _operands()
    expected = fused_call(q, k, v, AttentionCall(scale=1.0, causal=True))
    turned = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
    how = AttentionCall(scale=1.0, causal=True, heads_first=True)
    found = jax.vmap(lambda *each: fused_call(*(x[None] for x in each), how)[0])(*turned)
    np.testing.assert_allclose(found.transpose(0, 2, 1, 3), expected, atol=1e-5)


def test_chunks_are_shared_out_head_and_tail() -> None:
    assert balanced_positions(8, 2).tolist() == [0, 1, 6, 7, 2, 3, 4, 5]
    assert sorted(balanced_positions(48, 4).tolist()) == list(range(48))


def test_a_window_as_long_as_the_sequence_is_none() -> None:
    q, k, v, _ = _operands()
    layout = MeshLayout(attention="flash")
    found, expected = (attend(q, k, v, layout=layout, window=window) for window in (S, 0))
    np.testing.assert_allclose(found, expected)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(attend(q, k, v, layout=layout, window=2), expected)
