"""Multi-output fusion on XLA:GPU, and the order of steps that it keeps."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import KernelKind
from meshcast.lower.multi_output.step_order import StepOrder
from tests.lower.programs import kernels, lower_function, spec

X = spec(512, 512)
MiB = 1 << 20


def test_kernels_that_share_an_operand_are_one_however_far_apart() -> None:
    def step(x: jax.Array, norm: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = x * 2 + 1
        scale = jnp.sum(norm)  # made behind `first`, which does not wait for it
        return first, x * scale

    made = kernels(lower_function(step, X, spec(300)))
    (merged,) = [kernel for kernel in made if kernel.written_bytes >= MiB]
    assert len(merged.writes) == 2
    assert merged.written_bytes == 2 * MiB
    assert made.index(merged) == len(made) - 1  # behind the sum that one of them waits for


def test_kernels_of_which_one_waits_for_the_other_stay_apart() -> None:
    def step(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = jnp.exp(x + y) + 1
        return first, jnp.exp(x * jnp.sum(first @ first)) + 1

    made = kernels(lower_function(step, X, X))
    assert [len(kernel.writes) for kernel in made if kernel.written_bytes >= MiB] == [1, 1, 1]


def test_few_blocks_take_nothing_in_that_loads_a_constant_for_every_element() -> None:
    """XLA 0.11.2 has one pass of three results, and three reductions of 8 blocks each."""

    def step(x: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.sum(x + 1, 0), jnp.sum(x * 2, 0), jnp.max(jnp.exp(x), 0)

    assert [len(kernel.writes) for kernel in kernels(lower_function(step, X))] == [3, 1, 1, 1]


def test_a_slow_function_stays_apart_from_a_reduction_of_few_rows_that_others_need_as_well() -> None:
    """32 rows of 8,192: a softplus in 32 blocks takes longer than a kernel of its own (XLA 0.11.2: two kernels)."""

    def step(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        soft = jnp.log1p(jnp.exp(x))
        return jnp.sum(soft, -1), x * soft

    made = kernels(lower_function(step, spec(32, 8192)))
    assert [kernel.transcendentals > 0 for kernel in made] == [True, False]


@pytest.mark.parametrize(("axis", "sums"), [(0, [1, 2]), (1, [3])])
def test_reductions_of_columns_are_as_many_as_have_room_in_shared_memory(axis: int, sums: list[int]) -> None:
    def step(x: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.sum(x, axis), jnp.prod(x, axis), jnp.max(x, axis)

    made = kernels(lower_function(step, X))
    assert sorted(len(kernel.writes) for kernel in made) == sums


def test_what_a_single_op_moves_is_no_fusion() -> None:
    made = kernels(lower_function(lambda x: (x[:256] + 1, x[256:]), X))
    assert [len(kernel.writes) for kernel in made] == [1, 1]


def test_what_stands_between_two_steps_moves_out_of_their_way() -> None:
    # 0 -> 1 -> 4 and 2 -> 3: 0 and 3 become one, for which 2 has to come first and 1 behind.
    order = StepOrder([set(), {0}, set(), {2}, {1}])
    assert not order.connected(0, 3)
    order.merge(0, 3)
    assert sorted((0, 1, 2, 4), key=order.places.__getitem__) == [2, 0, 1, 4]
    assert order.connected(2, 4)  # over what was merged
    assert order.connected(0, 2)


def test_a_step_is_passed_on_to_a_reader_unless_a_third_one_is_between() -> None:
    order = StepOrder([set(), {0}, {0, 1}])
    assert order.connected(0, 1)
    assert not order.connected(0, 1, passing_on=True)
    assert order.connected(0, 2, passing_on=True)
    order.merge(1, 0)
    assert not order.connected(1, 2, passing_on=True)


def test_a_search_that_takes_too_long_says_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshcast.lower.multi_output.step_order.MAX_SEARCHED", 3)
    wide = [set(), *[set[int]() for _ in range(6)], {1, 2, 3, 4, 5, 6}]
    assert StepOrder(wide).connected(0, 7)
    assert not StepOrder(wide[:1] + wide[5:6] + [{1}]).connected(0, 2)


def test_all_that_waits_moves_behind_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a question may be given up: 0 becomes one with 7, which waits for 6, and 1 to 5 wait for 0."""
    monkeypatch.setattr("meshcast.lower.multi_output.step_order.MAX_SEARCHED", 3)
    order = StepOrder([set(), *[{0} for _ in range(5)], set(), {6}])
    order.merge(0, 7)
    assert sorted(range(7), key=order.places.__getitem__) == [6, 0, 1, 2, 3, 4, 5]


def counting_looks(order: StepOrder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets a number whenever the edges of a step are looked at."""
    looks: list[int] = []

    class Counted(set[int]):
        def __iter__(self) -> Iterator[int]:
            looks.append(len(self))
            return super().__iter__()

    for edges in ("_before", "_after"):
        monkeypatch.setattr(order, edges, [Counted(each) for each in getattr(order, edges)])
    return looks


def test_what_was_found_between_two_steps_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    order = StepOrder([set(), {0}, set(), {2}, {1}])
    assert not order.connected(0, 3)
    looks = counting_looks(order, monkeypatch)
    order.merge(0, 3)
    assert len(looks) == 4  # what waits for 0 and what waits for that; both edges of 3, which become those of 0


def test_where_nothing_has_to_come_first_nothing_moves_and_none_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 to 9 wait for one another and for 0; 10 waits for nothing and becomes a part of 0."""
    order = StepOrder([set(), *[{index} for index in range(9)], set()])
    assert not order.connected(0, 10)
    looks = counting_looks(order, monkeypatch)
    order.merge(0, 10)
    assert order.places[:10] == list(range(10))
    assert len(looks) == 3  # who waits for 0; both edges of 10


def test_what_is_next_to_the_earlier_step_is_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """11 waits for 2 to 10, of which 2 leads to 0 over 1 and the others to nothing."""
    order = StepOrder([set(), {0}, {1}, *[set() for _ in range(8)], set(range(2, 11))])
    looks = counting_looks(order, monkeypatch)
    assert 0 in (order._waited_for(0, 11) or ())
    assert looks == [9, 1, 1]


@pytest.mark.parametrize(("parts", "results"), [(4, [1, 1]), (5, [2])])
def test_joins_of_few_arrays_have_one_result(parts: int, results: list[int]) -> None:
    """XLA's emitter for joins of up to four arrays gives one result; others are passes like any."""

    def step(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.concatenate([x[:, :32] * (1 + n) for n in range(parts)], 1), x * 2

    found = kernels(lower_function(step, spec(4096, 32 * parts)))
    assert sorted(len(kernel.writes) for kernel in found) == results


@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize("reshaped", [True, False])
def test_a_slice_that_a_product_needs_is_handed_on_by_who_else_reads_all_of_it(summed: bool, reshaped: bool) -> None:
    """XLA's `loop_convert_slice_fusion` and `input_reduce_slice_fusion`: the slice is cut once, in one launch with its reader."""

    def used(x: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        part = x[:, :768]
        heads = (part.reshape(8192, 12, 64) if reshaped else part).astype(jnp.float32)
        return part @ weights, jnp.sum(heads * heads, -1) if summed else heads

    made = kernels(lower_function(used, spec(8192, 2304, dtype="bfloat16"), spec(768, 768, dtype="bfloat16")))
    assert len(made) == 2
    (product,) = [kernel for kernel in made if kernel.kind is KernelKind.GEMM]
    (other,) = [kernel for kernel in made if kernel is not product]
    assert len(other.writes) == 2
    assert not set(other.writes).isdisjoint(product.reads)
