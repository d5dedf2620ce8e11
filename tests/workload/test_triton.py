"""Pallas kernels for GPUs, captured where there is none: counted by their code, known by name, refused with their name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.experimental.pallas.ops.gpu.attention import mha

from meshcast import predict
from meshcast.base.errors import UnsupportedError
from meshcast.programs import capture, from_bytes
from meshcast.workload import read_workload
from meshcast.workload.graph import Attention, Cost

ROWS = jax.ShapeDtypeStruct((256, 128), jnp.float32)
HEADS = jax.ShapeDtypeStruct((2, 1024, 4, 64), jnp.bfloat16)
BLOCK = pl.BlockSpec((64, 128), lambda i: (i, 0))
PAIRS = 2 * 4 * 1024 * 1025 // 2  # of a causal mask


def twice(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jnp.exp(x_ref[...]) * 2.0


def called(x: Any, **options: Any) -> Any:
    return pl.pallas_call(
        twice, out_shape=ROWS, grid=(4,), in_specs=[BLOCK], out_specs=BLOCK, name="twice",
        compiler_params=plgpu.CompilerParams(), **options,
    )(x)  # fmt: skip


def costs(function: Any, *args: Any) -> list[Cost]:
    workload = read_workload(capture(function, *args, name="function"))
    return [op.cost for op in workload.body.ops if op.name.startswith("custom_call")]


def test_a_kernel_is_counted_by_its_code() -> None:
    (cost,) = costs(called, ROWS)
    assert (cost.vector_flops, cost.transcendentals) == (256 * 128, 256 * 128)
    assert (sum(cost.operand_bytes), cost.written_bytes) == (256 * 128 * 4, 256 * 128 * 4)
    assert cost.guessed


def test_what_its_author_estimates_comes_before_what_is_counted() -> None:
    estimate = pl.CostEstimate(flops=1000, transcendentals=7, bytes_accessed=300_000)
    (cost,) = costs(lambda x: called(x, cost_estimate=estimate), ROWS)
    assert (cost.matrix_flops, cost.transcendentals) == (1000, 7)
    assert sum(cost.operand_bytes) + cost.written_bytes == 300_000
    assert cost.guessed


@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_known_by_its_name_and_its_mask_by_its_loops(causal: bool) -> None:
    (cost,) = costs(lambda q, k, v: mha(q, k, v, None, causal=causal), HEADS, HEADS, HEADS)
    shape = cost.geometry
    assert isinstance(shape, Attention)
    assert (shape.batch, shape.heads, shape.q_len, shape.kv_len, shape.head_dim) == (2, 4, 1024, 1024, 64)
    assert shape.causal == causal
    assert shape.library == "flash-2"
    assert cost.matrix_flops == 2 * (PAIRS if causal else 2 * 4 * 1024 * 1024) * 2 * 64
    assert not cost.guessed


def test_its_backward_pass_computes_seven_products_three_of_them_again() -> None:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return mha(q, k, v, None, causal=True).astype(jnp.float32).sum()

    found = costs(jax.grad(loss, argnums=(0, 1, 2)), HEADS, HEADS, HEADS)
    backward = [cost for cost in found if isinstance(cost.geometry, Attention) and cost.geometry.backward]
    assert [cost.matrix_flops for cost in backward] == [2 * PAIRS * 7 * 64]
    assert [cost.recomputed_flops for cost in backward] == [2 * PAIRS * 3 * 64]


def test_it_is_predicted_as_guessed_work() -> None:
    assert predict((called, (ROWS,)), on="h200").provenance.guessed > 0.99


CALL = """
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
  %0 = stablehlo.custom_call @{target}(%x) {{mhlo.backend_config = {{grid_x = 1 : i32, grid_y = 1 : i32,
    grid_z = 1 : i32, ir = "{code}", name = "mine"}}}} : (tensor<8xf32>) -> tensor<8xf32> loc("jit(f)/mine/pallas_call"(\
"train.py":12:3))
  func.return %0 : tensor<8xf32>
}}
"""


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("__gpu$xla.gpu.triton", r"ML\\EFR\\0D\\FF\\FE", "cannot be counted"),
        ("mosaic_gpu_v2", "", "carries no cost_estimate"),
    ],
)
def test_a_kernel_that_nothing_tells_of_is_refused_by_name_and_line(target: str, code: str, why: str) -> None:
    text = CALL.format(target=target, code=code.replace("\\\\", "\\"))
    program = from_bytes(text.encode(), name="fixture", where="fixture.mlir")
    with pytest.raises(UnsupportedError, match=why) as refused:
        read_workload(program)
    assert "'mine' (train.py:12)" in str(refused.value)
    assert "register_custom_call" in (refused.value.fix or "")


@pytest.mark.parametrize(
    ("bound", "before"),
    [
        ("arith.divsi %a, %b", "384307168202282324"),  # (2^60 + 2) / 3, which no double holds
        ("arith.remsi %a, %b", "-2"),  # nothing is left
        ("arith.divsi %d, %c", "-5"),  # -7 / 2 is -3: towards zero
        ("arith.remsi %d, %c", "-3"),  # and leaves -1
    ],
)
def test_bounds_of_loops_are_divided_as_integers(bound: str, before: str) -> None:
    """Each loop turns twice, and adds once a turn."""
    from jaxlib.mlir import ir
    from jaxlib.triton import dialect

    from meshcast.workload.triton_code import kernel_work

    code = f"""
    tt.func @twice() {{
      %a = arith.constant 1152921504606846978 : i64
      %b = arith.constant 3 : i64
      %c = arith.constant 2 : i64
      %d = arith.constant -7 : i64
      %one = arith.constant 1 : i64
      %low = arith.constant {before} : i64
      %high = {bound} : i64
      %x = arith.constant 1.0 : f32
      scf.for %i = %low to %high step %one : i64 {{
        %y = arith.addf %x, %x : f32
      }}
      tt.return
    }}"""
    context = ir.Context()
    dialect.register_dialect(context)
    context.load_all_available_dialects()
    with context:
        assert kernel_work(ir.Module.parse(code), (1, 1, 1)).vector_flops == 2
