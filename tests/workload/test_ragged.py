"""`ragged_dot` in its three modes, as JAX lowers it and as the composite that `jax.export` writes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from meshcast.base.errors import UnsupportedError
from meshcast.programs import capture, from_bytes
from meshcast.workload import Workload, read_workload
from meshcast.workload.graph import Gemm, Op, OpKind

SIZES = jax.ShapeDtypeStruct((8,), jnp.int32)
DENSE = 2 * 1024 * 256 * 512


def array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def general(
    contracting: tuple[tuple[int, ...], tuple[int, ...]],
    batch: tuple[tuple[int, ...], tuple[int, ...]],
    group: list[int],
) -> Any:
    dims = lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(contracting, batch), lhs_ragged_dimensions=[0], rhs_group_dimensions=group
    )
    return lambda x, w, sizes: lax.ragged_dot_general(x, w, sizes, dims)


def loss(x: Any, w: Any, sizes: Any) -> Any:
    return lax.ragged_dot(x, w, sizes).astype(jnp.float32).sum()


MODES = {
    "rows": (lax.ragged_dot, (array(1024, 256), array(8, 256, 512), SIZES), [(1, 1024, 512, 256, 8)]),
    "contracting": (
        general(((0,), (0,)), ((), ()), []),
        (array(1024, 256), array(1024, 512), SIZES),
        [(8, 256, 512, 128, 1)],
    ),
    "batch": (
        general(((2,), (1,)), ((0,), (0,)), []),
        (array(16, 64, 256), array(16, 256, 512), SIZES),
        [(16, 64, 512, 256, 1)],
    ),
    "gradient": (
        jax.grad(loss, argnums=(0, 1)),
        (array(1024, 256), array(8, 256, 512), SIZES),
        [(1, 1024, 256, 512, 8), (8, 256, 512, 128, 1)],
    ),
}


def products(workload: Workload) -> list[Op]:
    return [op for op in workload.body.ops if op.cost.kind is OpKind.GEMM]


def extents(op: Op) -> tuple[int, ...]:
    shape = op.cost.geometry
    assert isinstance(shape, Gemm)
    return shape.batch, shape.m, shape.n, shape.k, shape.groups


@pytest.mark.parametrize("mode", MODES)
def test_groups_share_out_what_is_ragged(mode: str) -> None:
    function, args, expected = MODES[mode]
    found = products(read_workload(capture(function, *args, name=mode)))
    assert sorted(map(extents, found)) == sorted(expected)
    assert {op.cost.matrix_flops for op in found} == {DENSE}


@pytest.mark.parametrize("platform", ["cuda", "tpu"])  # for CPUs JAX writes masked products instead
@pytest.mark.parametrize("mode", MODES)
def test_the_composite_of_an_export_costs_the_same(mode: str, platform: str) -> None:
    function, args, _ = MODES[mode]
    lowered = read_workload(capture(function, *args, name=mode))
    exported = export.export(jax.jit(function), platforms=[platform])(*args)
    assert "stablehlo.composite" in exported.mlir_module()
    text = from_bytes(exported.mlir_module().encode(), name=mode, where="export.mlir")
    assert [op.cost for op in products(read_workload(text))] == [op.cost for op in products(lowered)]


def test_bytecode_and_the_artifact_of_an_export_are_read_alike() -> None:
    function, args, _ = MODES["rows"]
    exported = export.export(jax.jit(function), platforms=["tpu"])(*args)
    for data in (exported.mlir_module_serialized, bytes(exported.serialize())):
        (product,) = products(read_workload(from_bytes(data, name="export", where="export")))
        assert product.cost.matrix_flops == DENSE


COMPOSITE = """
func.func public @main(%x: tensor<8x8xf32>, %w: tensor<2x8x8xf32>, %s: tensor<2xi32>) -> tensor<8x8xf32> {{
  %0 = stablehlo.composite "{name}" %x, %w, %s {{composite_attributes = {{{attributes}}}, decomposition = @impl}}
    : (tensor<8x8xf32>, tensor<2x8x8xf32>, tensor<2xi32>) -> tensor<8x8xf32>
  func.return %0 : tensor<8x8xf32>
}}
func.func private @impl(%x: tensor<8x8xf32>, %w: tensor<2x8x8xf32>, %s: tensor<2xi32>) -> tensor<8x8xf32> {{
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %0 : tensor<8x8xf32>
}}
"""


def composite(name: str, attributes: str = "") -> Workload:
    text = COMPOSITE.format(name=name, attributes=attributes)
    return read_workload(from_bytes(text.encode(), name="fixture", where="fixture.mlir"))


@pytest.mark.parametrize("name", ["mine.attention", "chlo.scan", "stablehlo.dot_general"])
def test_an_unknown_composite_is_what_it_decomposes_to(name: str) -> None:
    (op,) = composite(name).body.ops
    assert op.cost.matrix_flops == 2 * 8**3


def test_a_ragged_composite_without_its_numbers_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="ragged_dot_dimension_numbers"):
        composite("chlo.ragged_dot")
    beyond = ", ".join(["dense<> : tensor<0xi64>"] * 2 + ["dense<7> : tensor<1xi64>"] * 4)
    with pytest.raises(UnsupportedError, match="do not fit"):
        composite("chlo.ragged_dot", f"ragged_dot_dimension_numbers = [{beyond}]")
