"""Ops that are alike are costed once: by their types, a few attributes, and of reductions by what their body does."""

from __future__ import annotations

from dataclasses import replace

from meshcast.programs import from_bytes
from meshcast.workload import Op, read_workload


def ops_of(*lines: str) -> list[Op]:
    body = "\n".join(lines)
    text = f"""func.func public @main(%x: tensor<8x4xf32>, %s: tensor<2x4xf32>, %i: tensor<i32>) -> tensor<8x4xf32> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      {body}
      return %x : tensor<8x4xf32>
    }}"""
    program = from_bytes(text.encode(), name="fixture", where="fixture.mlir")
    return [op for op in read_workload(program).body.ops if op.name != "stablehlo.constant"]


def reduced(name: str, op: str, dimension: int) -> str:
    size = 4 if dimension == 0 else 8
    return f"""%{name} = stablehlo.reduce(%x init: %zero) across dimensions = [{dimension}]
        : (tensor<8x4xf32>, tensor<f32>) -> tensor<{size}xf32>
        reducer(%l: tensor<f32>, %r: tensor<f32>) {{
          %p = stablehlo.{op} %l, %r : tensor<f32>
          stablehlo.return %p : tensor<f32>
        }}"""


def test_reductions_are_told_apart_by_their_dimensions_and_bodies() -> None:
    first, again, rows, power = ops_of(
        reduced("a", "add", 0), reduced("b", "add", 0), reduced("c", "add", 1), reduced("d", "power", 0)
    )
    assert again.cost is first.cost
    assert rows.cost.geometry != first.cost.geometry
    assert (first.cost.vector_flops, first.cost.transcendentals) == (28.0, 0.0)  # 32 elements become 4
    assert power.cost.transcendentals > 0


def test_a_body_of_several_ops_is_counted_for_itself() -> None:
    """A maximum of absolute values: two ops for each of 28 steps, not one."""
    (found,) = ops_of("""%a = stablehlo.reduce(%x init: %zero) across dimensions = [0]
        : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
        reducer(%l: tensor<f32>, %r: tensor<f32>) {
          %p = stablehlo.abs %r : tensor<f32>
          %q = stablehlo.maximum %l, %p : tensor<f32>
          stablehlo.return %q : tensor<f32>
        }""")
    assert found.cost.vector_flops == 56.0


def test_slices_at_any_place_cost_the_same_and_all_of_an_array_nothing() -> None:
    some = "stablehlo.dynamic_slice %x, %i, %i, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>)"
    whole = "stablehlo.dynamic_slice %x, %i, %i, sizes = [8, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>)"
    into = (
        "stablehlo.dynamic_update_slice %x, %s, %i, %i : (tensor<8x4xf32>, tensor<2x4xf32>, tensor<i32>, tensor<i32>)"
    )
    first, again, all_of_it, update, second = ops_of(
        f"%a = {some} -> tensor<2x4xf32>",
        f"%b = {some} -> tensor<2x4xf32>",
        f"%c = {whole} -> tensor<8x4xf32>",
        f"%d = {into} -> tensor<8x4xf32>",
        f"%e = {into} -> tensor<8x4xf32>",
    )
    assert again.cost is first.cost
    assert (first.cost.written_bytes, all_of_it.cost.written_bytes, update.cost.written_bytes) == (32, 0, 32)
    assert second.cost is update.cost


def convolved(name: str, padding: str) -> str:
    return f"""%{name} = "stablehlo.convolution"(%image, %filter) <{{batch_group_count = 1 : i64,
        dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, feature_group_count = 1 : i64,
        padding = dense<{padding}> : tensor<1x2xi64>}}> : (tensor<1x8x4xf32>, tensor<3x4x4xf32>) -> tensor<1x8x4xf32>"""


def test_what_shifts_data_is_told_apart_by_its_attributes() -> None:
    """Of a program on one device: padded on both sides, 2 of the 24 pairs of a place and a tap are outside, else 1 + 2."""
    *_, first, again, aside, head, tail = ops_of(
        "%image = stablehlo.reshape %x : (tensor<8x4xf32>) -> tensor<1x8x4xf32>",
        "%filter = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<3x4x4xf32>",
        convolved("a", "[[1, 1]]"),
        convolved("b", "[[1, 1]]"),
        convolved("c", "[[2, 0]]"),
        "%d = stablehlo.slice %x [0:2, 0:4] : (tensor<8x4xf32>) -> tensor<2x4xf32>",
        "%e = stablehlo.slice %x [6:8, 0:4] : (tensor<8x4xf32>) -> tensor<2x4xf32>",
    )
    assert again.cost is first.cost
    assert (first.cost.matrix_flops, aside.cost.matrix_flops) == (22 * 32.0, 21 * 32.0)
    assert (head.cost.starts, tail.cost.starts) == ((0, 0), (6, 0))


def test_ops_are_the_same_by_the_short_way_and_by_the_long_one() -> None:
    """What is one device's part of a program is read by the long way, as its ops may say how they are sharded."""
    text = """func.func public @main(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
      %a = stablehlo.add %x, %ones : tensor<8x4xf32>
      %b = stablehlo.add %x, %ones : tensor<8x4xf32> loc("checkpoint/rematted_computation/add")
      %c = stablehlo.convert %b : (tensor<8x4xf32>) -> tensor<8x4xbf16>
      %d = stablehlo.convert %c : (tensor<8x4xbf16>) -> tensor<8x4xf32>
      %e = stablehlo.tanh %d : tensor<8x4xf32> loc("tanh")
      return %a, %e : tensor<8x4xf32>, tensor<8x4xf32>
    }"""
    program = from_bytes(text.encode(), name="fixture", where="fixture.mlir")
    short, long = read_workload(program), read_workload(replace(program, partitioned=True))
    assert short.body == long.body
    assert short.tensors == long.tensors
    added, again = (op for op in short.body.ops if op.name == "stablehlo.add")
    assert again.equal == added.results
    assert (again.recomputed, added.recomputed) == (True, False)
    assert [op.location for op in short.body.ops][-1] == "tanh"
