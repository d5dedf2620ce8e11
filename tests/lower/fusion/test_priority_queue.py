"""XLA's priority fusion: what is fused first, and what is then too dear to be computed twice."""

from __future__ import annotations

from math import prod

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from meshcast.lower import KernelKind
from meshcast.lower.fusion.cost_model import again_rate, loop_rates
from meshcast.lower.fusion.priority_queue import kept_ops
from meshcast.lower.fusion.reduction_grids import reduction_grid
from meshcast.lower.graph.constants import KnownValues
from meshcast.workload import Cost, Op, OpKind, Reduction, Tensor
from tests.lower.programs import kernels, lower_function, spec

NOTHING_KNOWN = KnownValues(constants=frozenset(), splats=frozenset())


def kept(names: list[str], reads: list[tuple[int, ...]], elements: int, results: set[int]) -> set[int]:
    """What stays a kernel of arithmetic on arrays of so many f32: value 0 is an argument, op `i` gives value `i + 1`."""
    tensor = Tensor(dtype="f32", shape=(elements,))
    tensors = [tensor] * (len(names) + 1)
    ops = [
        Op(
            name=f"stablehlo.{name}",
            operands=read,
            results=(index + 1,),
            cost=Cost(
                kind=OpKind.ELEMENTWISE,
                dtype="f32",
                written_bytes=4 * elements,
                operand_bytes=(4 * elements,) * len(read),
            ),
        )
        for index, (name, read) in enumerate(zip(names, reads, strict=True))
    ]
    readers: dict[int, list[int]] = {}
    for index, read in enumerate(reads):
        for value in read:
            readers.setdefault(value, []).append(index)
    fusible = [index for index in range(len(ops)) if index + 1 in readers and index + 1 not in results]
    found = kept_ops(ops, reads, fusible, readers, NOTHING_KNOWN, {}, {}, tensors, lambda value: elements)
    return set(found)


def test_a_chain_is_one_kernel() -> None:
    assert kept(["abs", "tanh", "negate"], [(0,), (1,), (2,)], 10**6, {3}) == set()


def test_a_slow_function_is_computed_once_for_two_readers_of_large_arrays() -> None:
    """Of 10 million elements tanh takes 467 * 1e7 / (132 * 128 * 3.96e9) = 70 us, a read or a write 8 us."""
    assert kept(["tanh", "abs", "negate"], [(0,), (1,), (1,)], 10**7, {2, 3}) == {0}
    assert kept(["abs", "abs", "negate"], [(0,), (1,), (1,)], 10**7, {2, 3}) == set()


def test_a_slow_function_of_few_elements_is_computed_again_for_the_sake_of_a_launch() -> None:
    assert kept(["tanh", "abs", "negate"], [(0,), (1,), (1,)], 1000, {2, 3}) == set()


def test_what_is_cheap_is_repeated_before_anything_dear_is_behind_it() -> None:
    """Tanh -> abs -> two readers: abs goes into both first, as it saves as much and comes later; then tanh stays, not abs."""
    assert kept(["tanh", "abs", "exponential", "negate"], [(0,), (1,), (2,), (2,)], 10**7, {3, 4}) == {0}


def test_an_argument_that_both_read_is_loaded_once() -> None:
    """A product with the argument is repeated though it reads two arrays, as its readers read both."""
    names, reads = ["abs", "multiply", "add", "subtract"], [(0,), (0, 1), (0, 2), (0, 2)]
    assert kept(names, reads, 10**7, {3, 4}) == set()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(2, 14), elements=st.sampled_from([100, 10**5, 10**7]))
def test_every_op_that_may_be_fused_is_a_kernel_or_inside_all_readers(
    data: st.DataObject, count: int, elements: int
) -> None:
    """Whatever the graph: only what was asked about is kept, and the answer is the same every time."""
    slow = st.sampled_from(["tanh", "abs", "exponential", "add"])
    names = [data.draw(slow) for _ in range(count)]
    reads = [tuple({data.draw(st.integers(0, index)) for _ in range(2)}) for index in range(count)]
    found = kept(names, reads, elements, {count})
    assert count - 1 not in found
    assert found <= set(range(count))
    assert found == kept(names, reads, elements, {count})


def test_what_is_loaded_again_comes_from_the_nearest_cache_that_holds_it() -> None:
    _, from_memory, cached = loop_rates(10**7)
    assert again_rate(4, cached, from_memory) == 20 * from_memory
    assert again_rate(40 * 2**20, cached, from_memory) == 2.5 * from_memory
    assert again_rate(2**30, cached, from_memory) == from_memory


def test_columns_of_narrow_elements_are_reduced_four_at_a_time() -> None:
    """3,072 columns: two words or four halves a thread, 32 threads side by side."""
    columns = Reduction(shape=(768, 3072), dims=(0,))
    assert reduction_grid(columns).blocks == 3072 // 64
    assert reduction_grid(columns, narrow=True).blocks == 3072 // 128
    assert reduction_grid(Reduction(shape=(768, 66), dims=(0,)), narrow=True) == reduction_grid(
        Reduction(shape=(768, 66), dims=(0,))
    )


def test_windows_are_computed_inside_what_reads_them() -> None:
    def pooled(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") * 0.25

    (kernel,) = kernels(lower_function(pooled, spec(8, 64, 64, 32)))
    assert (kernel.kind, kernel.written_bytes) == (KernelKind.LOOP_FUSION, 8 * 32 * 32 * 32 * 4)


@pytest.mark.parametrize("count", [64, 16])
def test_a_window_of_a_window_is_written_down(count: int) -> None:
    """The gradient of squares of sums: XLA asks the first window 16 times for each of its elements, and keeps it."""

    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(lax.reduce_window(jax.nn.relu(x), 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2)

    made = kernels(lower_function(jax.grad(loss), spec(count, 56, 56, 4096 // count)))
    assert [kernel.written_bytes for kernel in made] == [prod((28, 28, 4096)) * 4, prod((56, 56, 4096)) * 4]


def test_an_associative_scan_keeps_few_of_its_levels() -> None:
    """Twelve levels of slices of 4,096 rows: XLA has five kernels, which write little beside the result."""
    made = kernels(lower_function(lambda x: lax.associative_scan(jnp.add, x), spec(4096, 256)))
    assert len(made) <= 6
    assert sum(kernel.written_bytes for kernel in made) < 1.5 * 4096 * 256 * 4


@pytest.mark.parametrize("shape", [(65536, 1024), (8192, 8192), (256, 256)])
def test_the_softmax_of_an_argument_is_one_kernel_however_large(shape: tuple[int, int]) -> None:
    """Nobody computes what its first reduction reads; the diamonds are closed all the same, before anything is weighed."""
    (kernel,) = kernels(lower_function(jax.nn.softmax, spec(*shape)))
    assert kernel.read_bytes == kernel.written_bytes == 4 * prod(shape)


def test_a_transpose_at_the_end_of_a_fusion_goes_through_tiles() -> None:
    """As XLA's transpose emitter has it; runs that fill no tile are written across, and a backend without tiles has none."""

    def turned(x: jax.Array) -> jax.Array:
        return jnp.exp(x).T

    (tiled,) = kernels(lower_function(turned, spec(4096, 4096)))
    assert "tiles" in tiled.flags
    (short,) = kernels(lower_function(turned, spec(4096, 2)))
    assert "tiles" not in short.flags


@pytest.mark.parametrize("into_itself", [True, False])
def test_a_scatter_takes_in_no_gather_of_what_it_writes_into(into_itself: bool) -> None:
    """Messages in a graph: `y + sum of y[source]` is a scatter into `y`, and rows of `y` are gathered before it."""
    nodes, edges, width = 5_000, 60_000, 64

    def passed(x: jax.Array, y: jax.Array, source: jax.Array, target: jax.Array) -> jax.Array:
        y = jnp.tanh(y)
        return (y if into_itself else x).at[target].add(y[source], mode="promise_in_bounds")

    found = kernels(
        lower_function(
            passed, spec(nodes, width), spec(nodes, width), spec(edges, dtype="int32"), spec(edges, dtype="int32")
        )
    )
    (scatter,) = [kernel for kernel in found if kernel.kind is KernelKind.SCATTER]
    gathering = [kernel for kernel in found if "stablehlo.gather" in kernel.ops]
    assert (scatter in gathering) is not into_itself
    assert len(gathering) == 1
