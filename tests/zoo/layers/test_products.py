"""Products in fewer bits: close to those in fp32, with the types and scales of the format."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast.base.errors import UsageError
from meshcast.zoo.layers.products import product
from meshcast.zoo.sharding import MeshLayout


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("bsd,df->bsf", (2, 8, 32), (32, 16)),
        ("bsd,dce->bsce", (2, 8, 32), (32, 3, 8)),
        ("egcd,edf->egcf", (2, 3, 4, 32), (2, 32, 8)),
    ],
)
@pytest.mark.parametrize(("products", "most"), [("fp8", 0.08), ("int8", 0.04), ("nvfp4", 0.4)])
def test_narrow_products_are_close(
    equation: str, left: tuple[int, ...], right: tuple[int, ...], products: str, most: float
) -> None:
    rng = np.random.default_rng(0)
    # Far from one: without scales these would overflow and vanish.
    x, w = jnp.asarray(rng.normal(0, 1e4, left), jnp.float32), jnp.asarray(rng.normal(0, 1e-6, right), jnp.float32)

    def loss(x: jax.Array, w: jax.Array, layout: MeshLayout) -> jax.Array:
        return jnp.sum(jnp.tanh(product(equation, x, w, layout, over=())))

    plain, narrow = MeshLayout(), MeshLayout(products=products)
    for found, expected in zip(
        [product(equation, x, w, narrow, over=()), *jax.grad(loss, (0, 1))(x, w, narrow)],
        [product(equation, x, w, plain, over=()), *jax.grad(loss, (0, 1))(x, w, plain)],
        strict=True,
    ):
        error = jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected)
        assert (
            0 < error < most
        )  # three bits of mantissa and two; 127 steps; one bit of mantissa, and no scales of blocks


def test_fp8_products_are_in_fp8() -> None:
    jaxpr = str(
        jax.make_jaxpr(
            jax.grad(lambda x, w: jnp.sum(product("bsd,df->bsf", x, w, MeshLayout(products="fp8"), over=())))
        )(jnp.ones((2, 4, 8), jnp.bfloat16), jnp.ones((8, 4), jnp.bfloat16))
    )
    assert "f8_e4m3fn" in jaxpr
    assert "f8_e5m2" in jaxpr


@pytest.mark.parametrize(
    ("equation", "left", "right", "result"),
    [
        ("bsd,df->bsf", (2, 8, 32), (32, 16), (2, 8, 16)),
        ("bsd,dce->bsce", (2, 8, 32), (32, 3, 8), (2, 8, 3, 8)),
        ("egcd,edf->egcf", (2, 3, 4, 32), (2, 32, 8), (2, 3, 4, 8)),
    ],
)
def test_rows_are_scaled_by_what_each_product_sums_up(
    equation: str, left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]
) -> None:
    """Rows far from each other in size keep their digits in both gradients; the forward product scales in its kernel."""
    rng = np.random.default_rng(0)
    x, w, y = (jnp.asarray(rng.normal(0, 1, shape), jnp.float32) for shape in (left, right, result))
    x = x * 10.0 ** jnp.arange(left[-2])[:, None]  # each row as large as all before it together

    def loss(x: jax.Array, w: jax.Array, layout: MeshLayout) -> jax.Array:
        return jnp.sum(y * product(equation, x, w, layout, over=()))

    plain, rows = (jax.grad(loss, (0, 1))(x, w, MeshLayout(products=kind)) for kind in ("plain", "fp8-rowwise"))
    for found, expected in zip(rows, plain, strict=True):
        assert jnp.linalg.norm(found - expected) < 0.08 * jnp.linalg.norm(expected)


def test_inputs_of_rows_are_kept_wide_and_rounded_again() -> None:
    """Forward two roundings, for both gradients of weights and inputs two each: nothing that is rounded serves twice."""
    layout = MeshLayout(products="fp8-rowwise")
    jaxpr = str(
        jax.make_jaxpr(jax.grad(lambda x, w: jnp.sum(product("bsd,df->bsf", x, w, layout, over=())), (0, 1)))(
            jnp.ones((2, 4, 8), jnp.bfloat16), jnp.ones((8, 4), jnp.bfloat16)
        )
    )
    assert jaxpr.count("new_dtype=float8_e4m3fn") == 6
    assert "f8_e5m2" not in jaxpr


def test_unknown_products_are_named() -> None:
    with pytest.raises(UsageError, match="plain, fp8"):
        product("bsd,df->bsf", jnp.ones((1, 1, 1)), jnp.ones((1, 1)), MeshLayout(products="fp4"), over=())
