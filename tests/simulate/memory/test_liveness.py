"""Live bytes by hand (every value is 1,000 bytes), and against XLA's own buffer assignment on CPU."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.hardware import resolve
from meshcast.lower import BranchStep, KernelKind, Step, lower
from meshcast.programs import capture
from meshcast.simulate import peak_memory
from meshcast.simulate.memory.buffers import LiveBuffer
from meshcast.simulate.memory.liveness import outside_outputs
from meshcast.workload import SortGeometry, read_workload
from meshcast.workload.graph import Tensor
from tests.lower.programs import lower_function, spec
from tests.simulate.schedules import kernel, loop, program, schedule, update

BIG = Tensor((5000,), "i8")


def temporaries(*args: Any, **options: Any) -> int:
    return peak_memory(program(*args, **options)).temporaries


def test_a_chain_needs_two_buffers_at_a_time() -> None:
    """0 -> 1 -> 2 -> 3 -> out: beside argument and output, one value read and one written live at once."""
    steps = [kernel([0], [1]), kernel([1], [2]), kernel([2], [3]), kernel([3], [4])]
    use = peak_memory(program(schedule(steps, [0], [4])))
    assert (use.arguments, use.outputs, use.aliased) == (1000, 1000, 0)
    assert use.temporaries == 2000  # 2 and 3; 1 lies in the output's memory, which is not yet in use
    assert use.peak == 4000


def test_elementwise_passes_write_over_what_dies() -> None:
    steps = [kernel([0], [1]), *(kernel([i], [i + 1], elementwise=True) for i in range(1, 5))]
    assert temporaries(schedule(steps, [0], [5]), sizes={5: Tensor((1,), "i8")}) == 1000
    read_again = [kernel([0], [1]), kernel([1], [2], elementwise=True), kernel([1, 2], [3])]
    assert temporaries(schedule(read_again, [0], [3]), sizes={3: Tensor((1,), "i8")}) == 2000


def test_a_value_kept_for_later_stays() -> None:
    """Forward keeps 1, 2, 3 for the backward pass."""
    forward = [kernel([0], [1]), kernel([1], [2]), kernel([2], [3])]
    backward = [kernel([3], [4]), kernel([2, 4], [5]), kernel([1, 5], [6])]
    assert temporaries(schedule([*forward, *backward], [0], [6]), sizes={6: Tensor((1,), "i8")}) == 4000


def test_an_update_in_place_needs_nothing() -> None:
    steps = [kernel([0], [1]), update(1, 0, 2), update(2, 0, 3), kernel([3], [4])]
    assert temporaries(schedule(steps, [0], [4]), sizes={4: Tensor((1,), "i8")}) == 1000


def test_sorts_and_solvers_work_where_their_operands_lie() -> None:
    """0 -> 1 and 2, sorted together -> 3 and 4 -> out; CUB has a second array for both, a solver one result in place."""
    tiny = {5: Tensor((1,), "i8")}

    def needed(kind: KernelKind, shape: SortGeometry | None = None) -> int:
        worked = replace(kernel([1, 2], [3, 4]), kind=kind, geometry=shape)
        return temporaries(schedule([kernel([0], [1, 2]), worked, kernel([3, 4], [5])], [0], [5]), sizes=tiny)

    assert needed(KernelKind.SORT, SortGeometry(length=10, batch=100, operands=2)) == 2000
    assert needed(KernelKind.SORT, SortGeometry(length=10, batch=100, operands=2, radix=True)) == 4000
    assert needed(KernelKind.SOLVER) == 3000


@pytest.mark.parametrize("elementwise", [True, False])
def test_an_output_is_written_over_one_of_several_results(elementwise: bool) -> None:
    """0 -> 1 and 2 -> out: nothing is written over the result of a kernel with several, but in an output's memory it may lie."""
    steps = [kernel([0], [1, 2]), kernel([1, 2], [3], elementwise=elementwise)]
    use = peak_memory(program(schedule(steps, [0], [3])), resolve("h200").device)
    assert use.temporaries == (1000 if elementwise else 2000)


def test_a_loop_keeps_one_buffer_per_carried_value() -> None:
    """Body: 10, 11 (stack of 5,000) -> product 12, stack updated in place with it."""
    body = schedule([kernel([10], [12]), update(11, 12, 13)], [10, 11], [12, 13])
    steps: list[Step] = [kernel([0], [1]), kernel([0], [2]), loop(body, 4, [1, 2], [3, 4]), kernel([3, 4], [5])]
    sizes = dict.fromkeys((2, 4, 11, 13), BIG) | {5: Tensor((1,), "i8")}
    # The carried 1,000 and 5,000, and the product, which is written while its old value is still read.
    assert temporaries(schedule(steps, [0], [5]), sizes=sizes) == 7000


@pytest.mark.parametrize(("late", "needed"), [(False, 2000), (True, 3000)])
def test_a_new_state_is_not_where_something_lay_while_the_old_one_was_needed(late: bool, needed: int) -> None:
    """Body: 10 -> 11, a pass -> 12, a pass -> 13, the new state, in the carried buffer.

    Read by the first kernel alone, the old state leaves its buffer to all of them. Read by the second as well, elsewhere than
    where that writes, it is still there when 12 is written: that has memory of its own, for 13 to be written behind it.
    """
    second = replace(kernel([11, 10] if late else [11], [12], elementwise=True), rearranged=(0, 1))
    body = schedule([kernel([10], [11]), second, kernel([12], [13], elementwise=True)], [10], [13])
    steps: list[Step] = [kernel([0], [1]), loop(body, 4, [1], [2]), kernel([2], [3])]
    assert temporaries(schedule(steps, [0], [3]), sizes={3: Tensor((1,), "i8")}) == needed


def test_what_a_loop_passes_through_is_not_copied() -> None:
    body = schedule([kernel([10, 11], [12])], [10, 11], [12, 11])
    steps: list[Step] = [loop(body, 4, [0, 1], [2, 3]), kernel([2], [4])]
    sizes = dict.fromkeys((1, 3, 11), BIG) | {4: Tensor((1,), "i8")}
    assert (
        temporaries(schedule(steps, [0, 1], [4]), sizes=sizes) == 2000
    )  # the carried value, copied, and its successor


def test_two_carried_values_that_start_alike_have_a_buffer_each() -> None:
    body = schedule([update(10, 0, 12), update(11, 0, 13)], [10, 11], [12, 13])
    steps: list[Step] = [kernel([0], [1]), loop(body, 4, [1, 1], [2, 3]), kernel([2, 3], [4])]
    assert temporaries(schedule(steps, [0], [4]), sizes={4: Tensor((1,), "i8")}) == 2000


def test_of_two_branches_the_larger_counts() -> None:
    small, large = schedule([kernel([0], [5])], (), [5]), schedule([kernel([0], [6]), kernel([0, 6], [7])], (), [7])
    steps: list[Step] = [BranchStep(bodies=(small, large), reads=(0,), writes=(8,)), kernel([8], [9])]
    assert temporaries(schedule(steps, [0], [9]), sizes={9: Tensor((1,), "i8"), 6: BIG}) == 6000


def test_a_donated_argument_holds_the_output() -> None:
    steps = [kernel([0], [1]), kernel([0, 1], [2], elementwise=True)]
    named = peak_memory(program(schedule(steps, [0], [2]), donated={0: 0}))
    marked = peak_memory(program(schedule(steps, [0], [2]), donated={0: None}))
    assert (named.aliased, named.temporaries, named.peak) == (1000, 1000, 2000)
    assert marked == named
    plain = peak_memory(program(schedule(steps, [0], [2])))
    assert (plain.aliased, plain.outputs, plain.temporaries) == (0, 1000, 0)  # the sum is written over value 1


def test_a_loop_works_where_a_donated_argument_lies() -> None:
    """A stack of 5,000 that a loop updates and returns: a copy of it only where it is not handed over."""
    body = schedule([kernel([10], [12]), update(11, 0, 13)], [10, 11], [12, 13])
    steps: list[Step] = [kernel([0], [1]), loop(body, 4, [1, 2], [3, 4])]
    sizes = dict.fromkeys((2, 4, 11, 13), BIG)
    donated = peak_memory(program(schedule(steps, [0, 2], [3, 4]), sizes=sizes, donated={1: None}))
    assert (donated.aliased, donated.temporaries) == (5000, 1000)
    kept = peak_memory(program(schedule(steps, [0, 2], [3, 4]), sizes=sizes))
    assert kept.peak - donated.peak == 5000


def test_a_donor_without_an_output_of_its_type_saves_nothing() -> None:
    steps = [kernel([0], [1])]
    use = peak_memory(program(schedule(steps, [0], [1]), sizes={1: BIG}, donated={0: None}))
    assert (use.aliased, use.peak) == (0, 6000)


def test_an_output_written_while_its_donor_is_still_read_needs_a_buffer() -> None:
    steps = [kernel([0], [1]), kernel([0], [2]), kernel([1, 2], [3])]
    use = peak_memory(program(schedule(steps, [0], [1, 3]), donated={0: 0}))
    assert use.temporaries == 2000


def _mlp(params: list[jax.Array], x: jax.Array) -> jax.Array:
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x * x)


def _mlp_step(params: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    loss, grads = jax.value_and_grad(_mlp)(params, x)
    return [p - 0.1 * g for p, g in zip(params, grads, strict=True)], loss


def _scan(params: jax.Array, x: jax.Array) -> jax.Array:
    x, _ = lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params)
    return jnp.mean(x * x)


def _scan_step(params: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, grads = jax.value_and_grad(_scan)(params, x)
    return params - 0.1 * grads, loss


def _decode(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    cache = lax.dynamic_update_slice(cache, row, (at, 0))
    return cache, cache @ row.T


def _softmax_head(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(x @ w, -1) @ w.T


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "mlp train": (_mlp_step, ([f32(512, 512)] * 6, f32(1024, 512)), (0,)),
    "mlp train, not donated": (_mlp_step, ([f32(512, 512)] * 6, f32(1024, 512)), ()),
    "scan train": (_scan_step, (f32(8, 512, 512), f32(1024, 512)), (0,)),
    "scan forward": (_scan, (f32(8, 512, 512), f32(1024, 512)), ()),
    "decode": (_decode, (f32(4096, 256), f32(1, 256), jax.ShapeDtypeStruct((), jnp.int32)), (0,)),
    "softmax head": (_softmax_head, (f32(512, 256), f32(256, 4096)), ()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_agrees_with_xla(name: str) -> None:
    """Arguments, outputs and aliases exactly; temporaries within a factor of two, for the compiler differs."""
    function, args, donated = PROGRAMS[name]
    jitted = jax.jit(function, donate_argnums=donated)
    compiled = jitted.lower(*args).compile()
    xla = compiled.memory_analysis()
    assert xla is not None
    ours = peak_memory(lower(read_workload(capture(jitted, *args, name=name, platform="cpu"))))
    assert ours.arguments == xla.argument_size_in_bytes
    assert ours.aliased == xla.alias_size_in_bytes
    tuple_pointers = 8 * len(jax.tree.leaves(jax.eval_shape(function, *args)))  # XLA:CPU counts the output tuple's
    assert ours.outputs <= xla.output_size_in_bytes <= ours.outputs + tuple_pointers
    slack = 64 * 1024  # small values that XLA:CPU lays out one by one
    assert ours.temporaries <= 2 * xla.temp_size_in_bytes + slack
    assert xla.temp_size_in_bytes <= 2 * ours.temporaries + slack


def test_of_several_branches_the_largest_takes_memory() -> None:
    """Each branch has an array of its own on the way; one of them runs."""

    def function(which: jax.Array, x: jax.Array) -> jax.Array:
        def branch(times: int) -> Callable[[jax.Array], jax.Array]:
            return lambda x: (jnp.tile(x, (times, 1)) @ x[0]).sum() * x

        return jax.lax.switch(which, [branch(8), branch(8), branch(8)], x)

    def one(x: jax.Array) -> jax.Array:
        return (jnp.tile(x, (8, 1)) @ x[0]).sum() * x

    several = peak_memory(lower_function(function, spec(dtype="int32"), spec(256, 256))).temporaries
    alone = peak_memory(lower_function(one, spec(256, 256))).temporaries
    assert several < 2 * alone + 2 * 4 * 256 * 256


@pytest.mark.parametrize("seed", range(20))
def test_outputs_memories_take_what_does_not_overlap(seed: int) -> None:
    """As by comparing each buffer with everything that lies in each output's memory, the largest buffers first."""
    draw = random.Random(seed)
    spans = [(draw.randrange(1, 5), *sorted((draw.randrange(60), draw.randrange(60)))) for _ in range(40)]
    outputs = [LiveBuffer(size, start, 60, held=True, output=True) for size, start, _ in spans[:6]]
    others = [LiveBuffer(size, start, end) for size, start, end in spans[6:]]
    inside = [[output] for output in sorted(outputs, key=lambda buffer: buffer.size)]
    left = []
    for buffer in sorted(others, key=lambda buffer: -buffer.size):
        for memory in inside:
            apart = all(buffer.end < b.start or buffer.start > b.end for b in memory)
            if memory[0].size >= buffer.size and apart:
                memory.append(buffer)
                break
        else:
            left.append(buffer)
    assert outside_outputs([*outputs, *others]) == left
