"""Operands that are padded before a product's K is split: by a pass of their own, or by the one that makes them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel, KernelKind, LoweredProgram
from meshcast.lower.products.padded_operands import needs_padding
from meshcast.workload import Cost, Gemm, OpKind
from tests.lower.programs import lower_function, spec

# 64 parts of 3,128 rows: 3,125 of 4 bytes are no multiple of 16 bytes.
ROWS, PADDED, WIDTH = 200_000, 200_192, 128


def _gemm(k: int, m: int = WIDTH, groups: int = 1, stored: str = "") -> Cost:
    shape = Gemm(
        batch=1, m=m, n=WIDTH, k=k, lhs_dtype="f32", rhs_dtype="f32", out_dtype="f32", lhs_contracting_minor=False,
        rhs_contracting_minor=False, groups=groups, stored_dtype=stored,
    )  # fmt: skip
    return Cost(kind=OpKind.GEMM, dtype="f32", geometry=shape)


@pytest.mark.parametrize(
    ("cost", "padded"),
    [
        (_gemm(ROWS), True),
        (_gemm(PADDED), False),
        (_gemm(1 << 18), False),
        (_gemm(1001), True),
        (_gemm(1001, m=1 << 16), False),  # enough tiles: K is not split
        (_gemm(1001, m=1), False),  # a reduction
        (_gemm(ROWS, groups=4), False),
        (_gemm(ROWS, stored="i8"), False),
        (Cost(kind=OpKind.GEMM), False),
    ],
)
def test_products_of_unequal_parts_are_padded(cost: Cost, padded: bool) -> None:
    assert needs_padding(cost) is padded


def _kernels(lowered: LoweredProgram) -> tuple[list[Kernel], Kernel]:
    """What is no product, and the product."""
    found = [kernel for kernel, _ in lowered.schedule.walk() if kernel.name != "memset"]
    (product,) = [kernel for kernel in found if kernel.kind is KernelKind.GEMM]
    return [kernel for kernel in found if kernel is not product], product


def test_arguments_are_padded_by_passes_of_their_own() -> None:
    lowered = lower_function(lambda x, y: x.T @ y, spec(ROWS, WIDTH), spec(ROWS, WIDTH))
    pads, product = _kernels(lowered)
    assert [(pad.read_bytes, pad.written_bytes) for pad in pads] == [(ROWS * WIDTH * 4, PADDED * WIDTH * 4)] * 2
    assert isinstance(product.geometry, Gemm)
    assert product.geometry.k == PADDED
    assert product.operand_bytes == (PADDED * WIDTH * 4,) * 2
    assert product.matrix_flops == 2.0 * WIDTH * WIDTH * ROWS


def test_arithmetic_pads_what_it_makes_and_one_operand_is_padded_once() -> None:
    def squared(x: jax.Array) -> jax.Array:
        y = jnp.tanh(x)
        return y.T @ y

    pads, product = _kernels(lower_function(squared, spec(ROWS, WIDTH)))
    (pad,) = pads
    assert "stablehlo.tanh" in pad.ops
    assert "stablehlo.pad" in pad.ops
    assert product.reads[0] == product.reads[-1]


def test_several_summed_dimensions_are_padded_as_one() -> None:
    """32 images of 197 tokens: 6,304 become 16 parts of 400 in bf16."""
    lowered = lower_function(
        lambda x, y: jnp.einsum("bsd,bsf->df", x, y),
        spec(32, 197, 768, dtype="bfloat16"),
        spec(32, 197, 768, dtype="bfloat16"),
    )
    _, product = _kernels(lowered)
    assert isinstance(product.geometry, Gemm)
    assert product.geometry.k % 8 == 0
    assert product.geometry.k >= 32 * 197
