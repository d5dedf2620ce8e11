"""Weights cast and gradients added up a layer at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower import Kernel, KernelKind, LoweredProgram, Schedule, lower
from meshcast.lower.frameworks.layerwise_weights import with_layerwise_weights
from meshcast.lower.value_types import ValueTypes
from meshcast.programs import capture
from meshcast.simulate import peak_memory
from meshcast.workload import Tensor, read_workload
from tests.lower.programs import all_loops, planned, spec

TRIPS, ROWS, WIDTH = 4, 64, 128
STACK = 4 * TRIPS * WIDTH * WIDTH  # bytes of all layers' weights in fp32


def accumulated(layers: str) -> LoweredProgram:
    """Gradients of a scan over layers, summed over microbatches."""

    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.sin(x @ w), None

        return jnp.sum(jax.lax.scan(layer, x, weights)[0])

    def step(total: jax.Array, weights: jax.Array, xs: jax.Array) -> jax.Array:
        def turn(total: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
            return total + jax.grad(loss)(weights, x), None

        return jax.lax.scan(turn, total, xs)[0]

    args = (spec(TRIPS, WIDTH, WIDTH), spec(TRIPS, WIDTH, WIDTH), spec(2, ROWS, WIDTH))
    program = capture(step, *args, name="microbatches", options={"donate_argnums": (0,)})
    return lower(read_workload(program), layers=layers)  # type: ignore[arg-type]


def adding(lowered: LoweredProgram) -> list[Kernel]:
    """Kernels that add to all layers' gradients at once."""
    return [k for k, _ in lowered.schedule.walk() if "stablehlo.add" in k.ops and k.written_bytes == STACK]


def test_of_gradients_that_are_added_up_a_layer_s_is_alive() -> None:
    """A scan leaves all layers' new gradients to be added; of layers of their own one's is there at a time."""

    def left(layers: str) -> list[int]:
        """Sizes of what the loops of a microbatch leave for what adds."""
        lowered = accumulated(layers)
        (kernel,) = adding(lowered)
        written = {value for loop in all_loops(lowered.schedule) for value in loop.writes}
        return [lowered.tensors[value].bytes for value in kernel.reads if value in written]

    assert left("scanned") == [STACK]
    assert left("separate") == [STACK // TRIPS]


def test_fused_sums_leave_nothing_to_add() -> None:
    separate, fused = accumulated("separate"), accumulated("accumulating")
    assert not adding(fused)
    flops = [sum(k.matrix_flops * n for k, n in each.schedule.walk()) for each in (separate, fused)]
    assert flops[0] == flops[1]
    assert peak_memory(fused).peak <= peak_memory(separate).peak


def test_what_is_gathered_is_cast_by_the_layer() -> None:
    """Before, a microbatch casts every stack of matrices; then none that loops only gather slices of."""

    def cast(layers: str) -> int:
        run = planned("fsdp=4,mbs=1", "", layers)
        walked = run.lowered.schedule.walk()
        return sum(k.ops == ("stablehlo.convert",) and len(k.shape) == 3 and k.shape[0] == 4 for k, _ in walked)

    assert cast("scanned") > 0
    assert cast("separate") == 0
    assert planned("fsdp=4,mbs=1", "").memory.peak < planned("fsdp=4,mbs=1", "", "scanned").memory.peak


def single(layers: str) -> LoweredProgram:
    """A backward pass of one layer that adds to a sum of gradients: no loop, as in a pipeline's part of one layer."""

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(x @ w[0]))

    def step(total: jax.Array, w: jax.Array, x: jax.Array) -> jax.Array:
        return total + jax.grad(loss)(w, x)

    args = (spec(1, WIDTH, WIDTH), spec(1, WIDTH, WIDTH), spec(ROWS, WIDTH))
    return lower(read_workload(capture(step, *args, name="a layer")), layers=layers)  # type: ignore[arg-type]


def test_a_part_of_one_layer_has_fused_sums_too() -> None:
    """The product of the weight's gradient reads the sum and writes it: no kernel adds a matrix behind it."""

    def sums(lowered: LoweredProgram) -> list[Kernel]:
        size = 4 * WIDTH * WIDTH
        return [k for k, _ in lowered.schedule.walk() if k.kind.value == "loop-fusion" and k.written_bytes == size]

    before, after = single("separate"), single("accumulating")
    assert len(sums(before)) == 1
    assert not sums(after)
    products = [k for k, _ in after.schedule.walk() if k.kind.value == "gemm" and len(k.reads) == 3]
    assert len(products) == 1
    assert products[0].writes == after.schedule.outputs
    read = [sum(k.read_bytes for k, _ in each.schedule.walk()) for each in (before, after)]
    assert read[1] == read[0] - 4 * WIDTH * WIDTH  # the gradient alone is no longer read


def test_a_sum_that_is_made_behind_the_product_is_added_as_before() -> None:
    """Else the product would read what a later kernel writes."""
    values = ValueTypes([Tensor((WIDTH, WIDTH), "f32")] * 3 + [Tensor((1, WIDTH, WIDTH), "f32")] * 3)
    size = values.tensors[0].bytes

    def made(kind: KernelKind, reads: tuple[int, ...], write: int, *ops: str) -> Kernel:
        return Kernel(
            name=kind.value, kind=kind, dtype="f32", reads=reads, writes=(write,), ops=tuple(f"stablehlo.{op}" for op in ops),
            operand_bytes=(size,) * len(reads), read_bytes=size * len(reads), written_bytes=size,
        )  # fmt: skip

    product = made(KernelKind.GEMM, (0, 1), 2, "dot_general")
    total = made(KernelKind.SORT, (3,), 4, "sort")
    adding = made(KernelKind.LOOP_FUSION, (4, 2), 5, "reshape", "add")

    def left(*steps: Kernel) -> list[KernelKind]:
        schedule = Schedule(inputs=(0, 1, 3), outputs=(5,), steps=steps)
        found = with_layerwise_weights(schedule, values, fused_sums=True).steps
        return [step.kind for step in found if isinstance(step, Kernel)]

    assert left(total, product, adding) == [KernelKind.SORT, KernelKind.GEMM]
    assert left(product, total, adding) == [KernelKind.GEMM, KernelKind.SORT, KernelKind.LOOP_FUSION]
