"""Layers of their own instead of slots of stacks, and one-byte operands in both orders."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast import predict
from meshcast.lower import Kernel, LoweredProgram, lower
from meshcast.options.options import Options
from meshcast.options.stacks import load_stack
from meshcast.programs import capture
from meshcast.workload import read_workload
from meshcast.workload.graph import Attention, Gemm
from tests.lower.programs import kernels, loops, lower_function, spec

TRIPS, ROWS, WIDTH = 4, 64, 128


def layered(layers: str) -> LoweredProgram:
    """The gradient of a scan over layers, each a product and a function of its result."""

    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.sin(x @ w), None

        return jnp.sum(jax.lax.scan(layer, x, weights)[0])

    program = capture(jax.grad(loss), spec(TRIPS, WIDTH, WIDTH), spec(ROWS, WIDTH), name="layers")
    return lower(read_workload(program), layers=layers)  # type: ignore[arg-type]


def moves(kernel: Kernel) -> bool:
    return not kernel.collective and not kernel.matrix_flops and not kernel.transcendentals


def test_copies_into_and_out_of_slots_go_and_all_arithmetic_stays() -> None:
    scanned, separate = layered("scanned"), layered("separate")
    before, after = list(scanned.schedule.walk()), list(separate.schedule.walk())
    assert sum(k.matrix_flops * n for k, n in before) == sum(k.matrix_flops * n for k, n in after)
    assert sum(k.read_bytes * n for k, n in after) < sum(k.read_bytes * n for k, n in before)
    assert not any("stablehlo.dynamic_update_slice" in k.ops and moves(k) and k.written_bytes > 64 for k, _ in after)
    assert not any(k.ops[-1:] == ("stablehlo.dynamic_slice",) and k.written_bytes > 64 for k, _ in after)


def test_stacks_inside_a_loop_are_not_filled() -> None:
    """Of microbatches, each of which has layers that keep something."""

    def filled(layers: str) -> int:
        def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
            def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
                return jnp.sin(x @ w), None

            return jnp.sum(jax.lax.scan(layer, x, weights)[0])

        def step(weights: jax.Array, xs: jax.Array) -> jax.Array:
            def turn(total: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
                return total + jax.grad(loss)(weights, x), None

            return jax.lax.scan(turn, weights, xs)[0]

        program = capture(step, spec(TRIPS, WIDTH, WIDTH), spec(2, ROWS, WIDTH), name="microbatches")
        found = lower(read_workload(program), layers=layers)  # type: ignore[arg-type]
        filling = {"stablehlo.constant", "stablehlo.broadcast_in_dim"}
        return sum(n * k.written_bytes for k, n in found.schedule.walk() if filling.issuperset(k.ops))

    assert filled("separate") < filled("scanned")


def test_every_value_is_still_there() -> None:
    """What a removed copy wrote is read from the stack: nothing is read that nobody gives."""
    for loop in loops(layered("separate")):
        known = {*loop.body.inputs, *loop.reads}
        for step in loop.body.steps:
            assert known.issuperset(step.reads)
            known.update(step.writes)
        assert known.issuperset(loop.body.outputs)


def test_a_part_of_a_slot_is_written_all_the_same() -> None:
    """A cache that gets one position a turn is an update, not a slot."""

    def step(cache: jax.Array, x: jax.Array) -> jax.Array:
        def turn(i: int, cache: jax.Array) -> jax.Array:
            return jax.lax.dynamic_update_slice(cache, x[None, None], (i, 3, 0))

        return jax.lax.fori_loop(0, TRIPS, turn, cache)

    program = capture(step, spec(TRIPS, ROWS, WIDTH), spec(WIDTH), name="cache")
    lowered = lower(read_workload(program), layers="separate")
    assert any("stablehlo.dynamic_update_slice" in kernel.ops for kernel, _ in lowered.schedule.walk())


def test_a_stack_of_software_needs_no_more_memory_than_a_scan() -> None:
    options = Options(on="h100-sxm", plan="mbs=2,remat=none", settings={"batch": "2", "seq": "256"}, levers=False)
    compiler = load_stack("pytorch-compile")
    scanned, separate = (
        predict("llama3-tiny", options.with_stack(compiler, but=() if own else ("layers",))) for own in (False, True)
    )
    assert 0.7 * scanned.memory.peak < separate.memory.peak <= 1.01 * scanned.memory.peak
    assert separate.hbm_bytes < scanned.hbm_bytes
    assert separate.flops == pytest.approx(scanned.flops, rel=0.01)


def quantised(x: jax.Array) -> jax.Array:
    return (x / jnp.max(jnp.abs(x))).astype(jnp.float8_e4m3fn)


def test_what_is_cast_to_one_byte_is_laid_out_in_both_orders_once() -> None:
    """`x^T g` sums over rows: both operands are copied; `x w^T` finds them K-major."""

    def gradients(x: jax.Array, g: jax.Array, h: jax.Array) -> tuple[jax.Array, ...]:
        x, g, h = quantised(x), quantised(g), quantised(h)
        return tuple(jnp.einsum("sd,sf->df", x, y, preferred_element_type=jnp.bfloat16) for y in (g, h))

    args = spec(256, 512, dtype="bfloat16"), spec(256, 384, dtype="bfloat16"), spec(256, 640, dtype="bfloat16")
    steps = kernels(lower_function(gradients, *args))
    copies = [kernel for kernel in steps if kernel.name == "cast:transpose"]
    assert 2 <= len(copies) <= 3
    assert {kernel.written_bytes for kernel in copies} <= {256 * 512, 256 * 384, 256 * 640, 256 * (384 + 640)}
    shapes = [kernel.geometry for kernel in steps if isinstance(kernel.geometry, Gemm)]
    assert shapes
    assert all(shape.lhs_contracting_minor and shape.rhs_contracting_minor for shape in shapes)


def test_arguments_of_one_byte_are_left_to_the_product() -> None:
    args = spec(256, 512, dtype="float8_e4m3fn"), spec(256, 384, dtype="float8_e4m3fn")
    steps = kernels(
        lower_function(lambda x, g: jnp.einsum("sd,sf->df", x, g, preferred_element_type=jnp.float32), *args)
    )
    assert not any(kernel.name == "cast:transpose" for kernel in steps)


def test_attention_by_another_library() -> None:
    options = Options(on="h100-sxm", plan="attention=flash", settings={"batch": "2", "seq": "2048", "head_dim": "64"})
    from meshcast.jobs import one_program, resolve_job

    for name, library in (("pytorch-compile", "flash-2"), ("nemo", "cudnn")):
        found = one_program(resolve_job("llama3-tiny", options.with_stack(load_stack(name)))).lowered
        calls = [k.geometry for k, _ in found.schedule.walk() if isinstance(k.geometry, Attention)]
        assert calls
        assert {call.library for call in calls} == {library}
