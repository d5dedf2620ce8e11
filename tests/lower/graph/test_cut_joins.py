"""Slices of joins read what was joined, as XLA's algebraic simplifier has it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.lower.graph.cut_joins import with_cut_joins
from meshcast.workload import Cost, Op, OpKind, Tensor
from tests.lower.programs import kernels, lower_function, spec

MiB = 1 << 20


def join(result: int, *parts: int) -> Op:
    return Op(name="stablehlo.concatenate", operands=parts, results=(result,), cost=Cost(kind=OpKind.MOVE, dtype="f32"))


def cut(result: int, value: int, *starts: int, strides: tuple[int, ...] = ()) -> Op:
    cost = Cost(kind=OpKind.SLICE, dtype="f32", starts=starts, strides=strides)
    return Op(name="stablehlo.slice", operands=(value,), results=(result,), cost=cost)


def types(*rows: int) -> list[Tensor]:
    return [Tensor(dtype="f32", shape=(4, each)) for each in rows]


def test_all_of_an_array_is_its_name() -> None:
    buffer: dict[int, int] = {}
    ops = [join(2, 0, 1), cut(3, 2, 0, 3)]
    assert list(with_cut_joins(ops, types(3, 5, 8, 5), buffer)) == ops[:1]
    assert buffer == {3: 1}


def test_a_part_of_an_array_is_cut_off_it() -> None:
    buffer: dict[int, int] = {}
    _, found = with_cut_joins([join(2, 0, 1), cut(3, 2, 0, 4)], types(3, 5, 8, 2), buffer)
    assert (found.operands, found.cost.starts, buffer) == ((1,), (0, 1), {})


def test_joins_of_joins_are_seen_through() -> None:
    ops = [join(3, 0, 1), join(4, 3, 2), cut(5, 4, 0, 4)]
    found = with_cut_joins(ops, types(3, 5, 2, 8, 10, 2), {})[-1]
    assert (found.operands, found.cost.starts) == ((1,), (0, 1))


@pytest.mark.parametrize(
    "op", [cut(3, 2, 0, 2), cut(3, 2, 0, 3, strides=(1, 2)), cut(3, 1, 0, 0)], ids=["both", "strided", "of another"]
)
def test_others_stay(op: Op) -> None:
    buffer: dict[int, int] = {}
    ops = [join(2, 0, 1), op]
    assert with_cut_joins(ops, types(3, 5, 8, 2), buffer) is ops
    assert not buffer


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=5), st.data())
def test_what_is_cut_is_the_same_elements(sizes: list[int], data: st.DataObject) -> None:
    whole = sum(sizes)
    start = data.draw(st.integers(0, whole - 1))
    length = data.draw(st.integers(1, whole - start))
    joined, result = len(sizes), len(sizes) + 1
    buffer: dict[int, int] = {}
    ops = [join(joined, *range(len(sizes))), cut(result, joined, 0, start)]
    found = with_cut_joins(ops, types(*sizes, whole, length), buffer)
    numbers = [[(part, place) for place in range(size)] for part, size in enumerate(sizes)]
    wanted = [number for part in numbers for number in part][start : start + length]
    if result in buffer:
        assert numbers[buffer[result]] == wanted
    elif found is not ops:
        (value,), begin = found[-1].operands, found[-1].cost.starts[1]
        assert numbers[value][begin : begin + length] == wanted
    else:
        assert len({part for part, _ in wanted}) > 1


def test_keys_that_are_folded_and_drawn_from_make_no_kernel_each() -> None:
    """Masks of six keys in one pass: XLA 0.11.2 has one kernel for all keys, two for strides, one for the masks."""

    def step(key: jax.Array, x: jax.Array) -> jax.Array:
        for index in range(6):
            keep = jax.random.bernoulli(jax.random.fold_in(key, index), 0.9, x.shape)
            x = jnp.where(keep, x / 0.9, 0)
        return x

    made = kernels(lower_function(step, spec(2, dtype="uint32"), spec(16, 1024, 1024, dtype="bfloat16")))
    assert len(made) == 4
    assert [kernel.written_bytes for kernel in made if kernel.written_bytes > MiB] == [32 * MiB]
