"""StableHLO text in, op graph out: loops, calls, branches, composites, collectives, dynamic dimensions."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import pytest

from meshcast.base.errors import UnsupportedError
from meshcast.programs import capture, from_bytes
from meshcast.workload import OpKind, ReadOptions, Workload, emitted_ops, read_workload

F32 = jax.ShapeDtypeStruct((8, 8), "float32")


def read_text(body: str, **options: Any) -> Workload:
    return read_workload(from_bytes(body.encode(), name="fixture", where="fixture.mlir"), ReadOptions(**options))


def read_function(function: Any, *args: Any, **options: Any) -> Workload:
    return read_workload(capture(function, *args, name="function"), ReadOptions(**options))


def loop_text(*, start: int = 0, limit: int = 10, step: int = 1, direction: str = "LT", op: str = "add") -> str:
    return f"""
    func.func public @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {{
      %start = stablehlo.constant dense<{start}> : tensor<i32>
      %0:2 = stablehlo.while(%i = %start, %y = %x) : tensor<i32>, tensor<8x8xf32>
        cond {{
          %limit = stablehlo.constant dense<{limit}> : tensor<i32>
          %c = stablehlo.compare {direction}, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          %step = stablehlo.constant dense<{step}> : tensor<i32>
          %j = stablehlo.{op} %i, %step : tensor<i32>
          %z = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0]
            : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
          stablehlo.return %j, %z : tensor<i32>, tensor<8x8xf32>
        }}
      return %0#1 : tensor<8x8xf32>
    }}"""


@pytest.mark.parametrize(
    ("loop", "trips"),
    [
        ({"limit": 10}, 10),
        ({"start": 3, "limit": 10}, 7),
        ({"limit": 10, "step": 3}, 4),
        ({"limit": 10, "direction": "LE"}, 11),
        ({"start": 10, "limit": 0, "direction": "GT", "op": "subtract"}, 10),
        ({"start": 9, "limit": 0, "direction": "GE", "op": "subtract"}, 10),
        ({"limit": 12, "step": 4, "direction": "NE"}, 3),
        ({"start": 5, "limit": 5}, 0),
    ],
)
def test_counted_loops_have_trip_counts(loop: dict[str, Any], trips: int) -> None:
    workload = read_text(loop_text(**loop))
    assert workload.totals.matrix_flops.get("f32", 0.0) == trips * 2 * 8**3


def test_nested_scans_multiply() -> None:
    def inner(x: Any, _: Any) -> Any:
        return x @ x, None

    def outer(x: Any, _: Any) -> Any:
        return jax.lax.scan(inner, x, None, length=5)[0], None

    workload = read_function(lambda x: jax.lax.scan(outer, x, None, length=7)[0], F32)
    assert workload.totals.matrix_flops == {"f32": 35 * 2 * 8**3}


def test_fori_loop_with_carried_bounds() -> None:
    workload = read_function(lambda x: jax.lax.fori_loop(2, 9, lambda i, y: y @ y * i, x), F32)
    assert workload.totals.matrix_flops == {"f32": 7 * 2 * 8**3}


def test_turns_that_depend_on_data_are_assumed_or_given() -> None:
    def until_small(x: Any) -> Any:
        return jax.lax.while_loop(lambda y: jnp.sum(y) > 1.0, lambda y: y @ y, x)

    once = read_function(until_small, F32)
    assert once.totals.matrix_flops == {"f32": 2 * 8**3}
    (loop,) = once.data_loops
    assert (loop.label, loop.turns, loop.assumed, loop.at_most) == ("while#1", 1, True, None)
    assert any("one turn of while#1" in warning for warning in once.warnings)
    for given in ({"*": 6}, {"while#1": 6}, {loop.source: 6}, {"while": 6}):
        found = read_function(until_small, F32, trip_counts=given)
        assert found.totals.matrix_flops == {"f32": 6 * 2 * 8**3}
        assert not found.data_loops[0].assumed
        assert not any("assumed" in warning for warning in found.warnings)


def test_the_condition_is_computed_before_every_turn_and_behind_the_last() -> None:
    """Sums of 64 numbers, 63 additions each; a loop that counts has its turns in the program, and none is asked."""

    def until_small(x: Any) -> Any:
        return jax.lax.while_loop(lambda y: jnp.sum(y) > 1.0, lambda y: y @ y, x)

    for turns in (1, 5):
        found = read_function(until_small, F32, trip_counts={"*": turns})
        sums = sum(count for op, count in found.walk() if op.name == "stablehlo.reduce")
        assert sums == turns + 1
    counted = read_function(lambda x: jax.lax.fori_loop(0, 5, lambda i, y: y @ y, x), F32)
    assert not [op for op, _ in counted.walk() if op.name == "stablehlo.compare"]
    assert counted.data_loops == ()


def bounded(condition: str) -> str:
    return loop_text().replace(
        "stablehlo.return %c : tensor<i1>",
        f"""%tol = stablehlo.constant dense<1.0> : tensor<f32>
          %s = stablehlo.slice %y [0:1, 0:1] : (tensor<8x8xf32>) -> tensor<1x1xf32>
          %r = stablehlo.reshape %s : (tensor<1x1xf32>) -> tensor<f32>
          %d = stablehlo.compare GT, %r, %tol, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
          {condition}
          stablehlo.return %e : tensor<i1>""",
    )


FALSE = "%false = stablehlo.constant dense<false> : tensor<i1>\n"


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("%e = stablehlo.and %c, %d : tensor<i1>", 10),
        ("%e = stablehlo.or %c, %d : tensor<i1>", None),
        (
            FALSE
            + """%n = stablehlo.compare NE, %c, %false, UNSIGNED : (tensor<i1>, tensor<i1>) -> tensor<i1>
            %b = stablehlo.convert %n : tensor<i1>
            %e = stablehlo.and %d, %b : tensor<i1>""",
            10,
        ),
        ("%e = func.call @both(%d, %i) : (tensor<i1>, tensor<i32>) -> tensor<i1>", 7),
    ],
)
def test_a_loop_that_ends_on_data_may_have_a_most(condition: str, most: int | None) -> None:
    """All turns that the condition allows are assumed, also where a part of it is in a function."""
    both = """
    func.func private @both(%d: tensor<i1>, %i: tensor<i32>) -> tensor<i1> {
      %seven = stablehlo.constant dense<7> : tensor<i32>
      %c = stablehlo.compare LT, %i, %seven, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %e = stablehlo.and %d, %c : tensor<i1>
      return %e : tensor<i1>
    }"""
    found = read_text(bounded(condition) + both)
    (loop,) = found.data_loops
    assert (loop.at_most, loop.turns) == (most, most or 1)
    assert found.totals.matrix_flops == {"f32": (most or 1) * 2 * 8**3}


def test_calls_are_inlined_each_time() -> None:
    workload = read_text("""
    func.func public @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %0 = func.call @square(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %1 = func.call @square(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      return %1 : tensor<4x4xf32>
    }
    func.func private @square(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
        : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      return %0 : tensor<4x4xf32>
    }""")
    assert workload.totals.matrix_flops == {"f32": 2 * 2 * 4**3}


def test_a_branch_counts_its_costlier_side() -> None:
    workload = read_function(
        lambda p, x: jax.lax.cond(p, lambda y: y @ y @ y, lambda y: y + 1.0, x), jnp.bool_(True), F32
    )
    assert workload.totals.matrix_flops == {"f32": 2 * 2 * 8**3}
    assert any("branch" in warning for warning in workload.warnings)


def test_a_composite_named_after_an_op_costs_what_that_op_costs() -> None:
    workload = read_text("""
    func.func public @main(%x: tensor<64x1024xf32>) -> tensor<64x1024xf32> {
      %0 = stablehlo.composite "chlo.erf" %x {decomposition = @impl} : (tensor<64x1024xf32>) -> tensor<64x1024xf32>
      %1 = stablehlo.composite "mine.twice" %0 {decomposition = @impl} : (tensor<64x1024xf32>) -> tensor<64x1024xf32>
      return %1 : tensor<64x1024xf32>
    }
    func.func private @impl(%x: tensor<64x1024xf32>) -> tensor<64x1024xf32> {
      %0 = stablehlo.add %x, %x : tensor<64x1024xf32>
      return %0 : tensor<64x1024xf32>
    }""")
    assert workload.totals.transcendentals == 64 * 1024
    assert workload.totals.vector_flops == {"f32": 64 * 1024}


def test_bounded_dimensions_are_read_at_their_bound() -> None:
    workload = read_text("""
    func.func public @main(%x: tensor<?x8xf32, #stablehlo.bounds<16, ?>>) -> tensor<?x8xf32, #stablehlo.bounds<16, ?>> {
      %0 = stablehlo.add %x, %x : tensor<?x8xf32, #stablehlo.bounds<16, ?>>
      return %0 : tensor<?x8xf32, #stablehlo.bounds<16, ?>>
    }""")
    assert workload.totals.vector_flops == {"f32": 128.0}


def test_explicit_collectives_keep_their_groups_compact() -> None:
    workload = read_text("""
    module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%x: tensor<8x8xf32>) -> tensor<32x8xf32> {
      %0 = "stablehlo.all_gather"(%x) <{
        all_gather_dim = 0 : i64, replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>}>
        : (tensor<8x8xf32>) -> tensor<32x8xf32>
      return %0 : tensor<32x8xf32>
    }}""")
    ((collective, count),) = workload.collectives()
    assert (collective.kind, collective.group.dims, count) == ("all_gather", ((4, 2),), 1)
    assert (collective.input_bytes, collective.output_bytes) == (256, 1024)
    assert workload.devices == 8


def test_recomputed_work_is_told_apart() -> None:
    def loss(w: Any, x: Any) -> Any:
        layer = jax.checkpoint(lambda y: jnp.sin(jnp.sin(y @ w) @ w))
        return jnp.sum(layer(x))

    totals = read_function(jax.grad(loss), F32, F32).totals
    assert totals.recomputed_flops > 0
    assert totals.recomputed_flops < sum(totals.matrix_flops.values())


def test_recomputation_that_cannot_be_told_is_said() -> None:
    text = """
    func.func public @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %0 = stablehlo.optimization_barrier %x : tensor<8x8xf32>
      %1 = stablehlo.add %0, %0 : tensor<8x8xf32>
      return %1 : tensor<8x8xf32>
    }"""
    assert any("recompute" in warning for warning in read_text(text).warnings)
    located = text.replace(
        "%1 = stablehlo.add %0, %0 : tensor<8x8xf32>", '%1 = stablehlo.add %0, %0 : tensor<8x8xf32> loc("add")'
    )
    assert not read_text(located).warnings


def test_an_unknown_custom_call_is_refused_or_guessed() -> None:
    text = """
    func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = stablehlo.custom_call @nobody_knows(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }"""
    with pytest.raises(UnsupportedError, match="nobody_knows"):
        read_text(text)
    workload = read_text(text, approximate=True)
    (op,) = [op for op, _ in workload.walk() if op.cost.kind is OpKind.CUSTOM]
    assert op.cost.guessed
    assert sum(op.cost.operand_bytes) + op.cost.written_bytes == 64
    assert any("nobody_knows" in warning for warning in workload.warnings)


def test_columns_add_up_to_the_totals() -> None:
    workload = read_text(loop_text())
    table = workload.table
    assert (table["count"] * table["matrix_flops"]).sum() == workload.totals.matrix_flops["f32"]


def test_the_content_hash_ignores_names_and_sees_shapes() -> None:
    first, second = read_text(loop_text()), read_text("// a comment\n" + loop_text().replace("%z", "%renamed"))
    assert first.content_hash == second.content_hash
    assert first.content_hash != read_text(loop_text(limit=11)).content_hash
    donated = loop_text().replace("%x: tensor<8x8xf32>)", "%x: tensor<8x8xf32> {tf.aliasing_output = 0 : i32})")
    assert first.content_hash != read_text(donated).content_hash


def test_workloads_print_in_a_terminal_and_a_notebook() -> None:
    workload = read_text(loop_text())
    assert "matrix FLOPs" in str(workload)
    assert "<table>" in workload._repr_html_()  # type: ignore[attr-defined]


def test_ops_are_asked_for_their_names_where_the_text_gives_some(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(wraps=emitted_ops.location_name)
    monkeypatch.setattr(emitted_ops, "location_name", asked)
    text = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %r = stablehlo.abs %x : tensor<8xf32> AT
      return %r : tensor<8xf32>
    }"""
    assert read_text(text.replace("AT", "")).body.ops[0].location == ""
    asked.assert_not_called()
    assert read_text(text.replace("AT", 'loc("a/b")')).body.ops[0].location == "a/b"
    assert read_text(text.replace("AT", 'loc  ("a/b")')).body.ops[0].location == "a/b"
    assert asked.call_count == 2


def test_a_choice_between_a_value_and_itself_is_that_value() -> None:
    """Environments that reset themselves choose leaf by leaf; compilers drop the choices that are none."""
    text = """
    func.func @main(%p: tensor<8xi1>, %x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %a = stablehlo.select %p, %x, %x : tensor<8xi1>, tensor<8xf32>
      %b = stablehlo.select %p, %a, %x : tensor<8xi1>, tensor<8xf32>
      %c = stablehlo.select %p, %x, %y : tensor<8xi1>, tensor<8xf32>
      return %b, %c : tensor<8xf32>, tensor<8xf32>
    }
    """
    workload = read_workload(from_bytes(text.encode(), name="fixture", where="fixture.mlir"))
    assert [op.name for op in workload.body.ops] == ["stablehlo.select"]
    assert workload.body.outputs[0] == workload.body.inputs[1]
