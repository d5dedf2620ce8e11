"""A function split by its results: both halves together are the function, and nothing is computed twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from meshcast.jobs.planned.splitting import Split, split

WIDTH = 4


def _counted(function: ClosedJaxpr, times: int = 1) -> Counter[str]:
    """How often each primitive runs, scans multiplied and calls followed."""
    found: Counter[str] = Counter()
    for eqn in function.jaxpr.eqns:
        inner = eqn.params.get("jaxpr")
        if inner is None:
            found[eqn.primitive.name] += times
            continue
        body = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
        found += _counted(body, times * eqn.params.get("length", 1))
    return found


def _layers(x: jax.Array, weights: jax.Array) -> jax.Array:
    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ w), None

    return jax.lax.scan(layer, x, weights)[0]


def _recomputed(x: jax.Array, weights: jax.Array) -> jax.Array:
    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ w), None

    return jax.lax.scan(jax.checkpoint(layer, prevent_cse=False), x, weights)[0]


def _shared(x: jax.Array, weights: jax.Array) -> jax.Array:
    """A weight that every turn uses: its gradient is carried from turn to turn."""

    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ w @ weights[0]), None

    return jax.lax.scan(layer, x, weights)[0]


@pytest.mark.parametrize("function", [_layers, _recomputed, _shared])
def test_two_halves_are_the_whole(function: Any) -> None:
    rng = np.random.default_rng(0)
    x, weights = jnp.asarray(rng.normal(size=(2, WIDTH))), jnp.asarray(rng.normal(size=(3, WIDTH, WIDTH)))

    def backward(x: jax.Array, weights: jax.Array, dy: jax.Array) -> Any:
        return jax.vjp(function, x, weights)[1](dy)

    whole = jax.make_jaxpr(backward)(x, weights, x)
    found = split(whole, [True, False], [True, True, False])
    dx, *kept = jaxpr_as_fun(found.first)(x, weights, x)
    (dw,) = jaxpr_as_fun(found.second)(x, weights, *kept)
    for got, wanted in zip((dx, dw), backward(x, weights, x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    parts = _counted(found.first) + _counted(found.second)
    assert parts["dot_general"] == _counted(whole)["dot_general"]
    assert parts["tanh"] == _counted(whole)["tanh"]


def test_what_passes_between() -> None:
    """Of y = tanh(x w): x is there in both halves, and the gradient of the product has to be kept; of a scan, stacked."""
    x, weights = jnp.ones((2, WIDTH)), jnp.ones((3, WIDTH, WIDTH))
    y, transposed = jax.vjp(_layers, x, weights)
    traced = jax.make_jaxpr(transposed)(y)
    found = split(traced, [True, False], [False])
    assert [aval.shape for aval in found.first.out_avals] == [(2, WIDTH), (3, 2, WIDTH)]


def test_nothing_left_for_the_second_half() -> None:
    traced = jax.make_jaxpr(lambda x: (x * 2, x + 1))(1.0)
    found: Split = split(traced, [True, True], [True])
    assert not found.second.jaxpr.eqns
    assert [float(value) for value in jaxpr_as_fun(found.first)(3.0)] == [6.0, 4.0]
