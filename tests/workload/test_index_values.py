"""Indices that a program computes of constants alone are known: how often each row is picked."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.estimate.gpu.picks import Picks, picks_of
from meshcast.lower import lower_hlo
from meshcast.programs import capture
from meshcast.workload import Indexed, OpKind, Workload, read_workload
from tests.lower.programs import spec


def scatters(workload: Workload) -> list[Indexed]:
    return [
        op.cost.geometry for op in workload.body.ops
        if op.cost.kind is OpKind.SCATTER and isinstance(op.cost.geometry, Indexed)
    ]  # fmt: skip


def gradient(function: object, *args: object) -> Workload:
    return read_workload(capture(jax.grad(function), *args, name="gradient"))  # type: ignore[arg-type]


def buckets(length: int) -> jax.Array:
    """T5's, both ways: 8 near distances each, then 8 by their logarithm up to 128."""
    distance = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
    away = jnp.abs(distance)
    far = 8 + (jnp.log(away / 8) / jnp.log(16.0) * 8).astype(jnp.int32)
    return jnp.where(distance > 0, 16, 0) + jnp.where(away < 8, away, jnp.minimum(far, 15))


def test_buckets_of_relative_positions_are_counted() -> None:
    def loss(table: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.sum(jnp.take(table, buckets(512), axis=0) * weights)

    (shape,) = scatters(gradient(loss, spec(32, 16, dtype="bfloat16"), spec(512, 512, 16, dtype="bfloat16")))
    assert shape.counts[:2] == (88831, 88831)  # sum of 512 - n over distances n of 91 and more
    assert sum(shape.counts) == 512 * 512
    assert picks_of(shape).hottest == 88831


def test_token_types_of_zeros_all_fall_on_one_row() -> None:
    def loss(table: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.sum(table[jnp.zeros((8, 128), jnp.int32)] * weights)

    workload = gradient(loss, spec(2, 64, dtype="bfloat16"), spec(8, 128, 64, dtype="bfloat16"))
    assert [shape.counts for shape in scatters(workload)] == [(1024,)]
    assert not workload.warnings


def test_what_xla_compiled_is_counted_as_well() -> None:
    """Its program is one device's, but positions in it are the whole program's."""
    compiled = lower_hlo("""HloModule m, is_scheduled=true

%added (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%a, %b)
}

%fused (table: bf16[4,64], more: bf16[1024,1,64]) -> bf16[4,64] {
  %table = bf16[4,64]{1,0} parameter(0)
  %at = s32[1024,1]{1,0} iota(), iota_dimension=0
  %last = s32[] constant(2)
  %lasts = s32[1024,1]{1,0} broadcast(%last), dimensions={}
  %rows = s32[1024,1]{1,0} minimum(%at, %lasts)
  %more = bf16[1024,1,64]{2,1,0} parameter(1)
  ROOT %s = bf16[4,64]{1,0} scatter(%table, %rows, %more), update_window_dims={1,2}, inserted_window_dims={},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%added
}

ENTRY %main (t: bf16[4,64], m: bf16[1024,1,64]) -> bf16[4,64] {
  %t = bf16[4,64]{1,0} parameter(0)
  %m = bf16[1024,1,64]{2,1,0} parameter(1)
  ROOT %f = bf16[4,64]{1,0} fusion(%t, %m), kind=kInput, calls=%fused
}
""")
    shapes = [kernel.geometry for kernel, _ in compiled.schedule.walk()]
    assert [shape.counts for shape in shapes if isinstance(shape, Indexed)] == [(1022, 1, 1)]


def test_nothing_is_said_of_rows_that_are_all_out_of_bounds() -> None:
    """It is known that none of them is added: nothing waits."""

    def added(table: jax.Array, more: jax.Array) -> jax.Array:
        return table.at[jnp.full((1024,), 9, jnp.int32)].add(more, mode="drop")

    given = spec(2, 64, dtype="bfloat16"), spec(1024, 64, dtype="bfloat16")
    workload = read_workload(capture(added, *given, name="added"))
    assert [shape.counts for shape in scatters(workload)] == [()]
    assert not workload.warnings


@pytest.mark.parametrize(
    ("dtype", "rows", "warned"), [("bfloat16", 2, True), ("float32", 2, False), ("bfloat16", 4096, False)]
)
def test_what_data_decides_is_said(dtype: str, rows: int, warned: bool) -> None:
    def loss(table: jax.Array, weights: jax.Array, types: jax.Array) -> jax.Array:
        return jnp.sum(table[types] * weights)

    workload = gradient(loss, spec(rows, 64, dtype=dtype), spec(8, 128, 64, dtype=dtype), spec(8, 128, dtype="int32"))
    assert [shape.counts for shape in scatters(workload)] == [()]
    assert any("1,024 rows are added to a table of 2" in each for each in workload.warnings) == warned


def test_counts_say_how_often_the_hottest_row_comes() -> None:
    picks = Picks(4, 10, 0.0, (7, 2, 1))
    assert (picks.hottest, picks.squares) == (7, 49 + 7 + 4 + 2 + 1 + 1)


@pytest.mark.parametrize(("ops", "known"), [(40, True), (480, False)])
def test_long_chains_of_ops_are_not_followed(ops: int, known: bool) -> None:
    def loss(table: jax.Array, weights: jax.Array) -> jax.Array:
        places = jnp.arange(1024, dtype=jnp.int32)
        for _ in range(ops):
            places = jnp.bitwise_xor(places, 1)
        return jnp.sum(jnp.take(table, places % 4, axis=0) * weights)

    (shape,) = scatters(gradient(loss, spec(4, 8, dtype="bfloat16"), spec(1024, 8, dtype="bfloat16")))
    assert shape.counts == ((256,) * 4 if known else ())


def test_a_scatter_without_indices_picks_nothing() -> None:
    """Such as `x.at[:].add(y)`: the whole array is its only row."""
    added = jax.lax.ScatterDimensionNumbers((0,), (), ())
    at = jnp.zeros((0,), jnp.int32)

    def whole(table: jax.Array, more: jax.Array) -> jax.Array:
        return jax.lax.scatter_add(table, at, more, added)

    (shape,) = scatters(read_workload(capture(whole, spec(64), spec(64), name="whole")))
    assert not shape.counts


def test_no_more_is_held_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(table: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.sum(jnp.take(table, buckets(64), axis=0) * weights)

    given = spec(32, 16, dtype="bfloat16"), spec(64, 64, 16, dtype="bfloat16")
    assert scatters(gradient(loss, *given))[0].counts
    monkeypatch.setattr("meshcast.workload.index_values.MOST_BYTES", 8 * 64 * 64 * 4)
    assert not scatters(gradient(loss, *given))[0].counts
