"""Weights and gradients of a layer at a time: casts, sums, copies around collectives, and what waits at the host."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from meshcast.capture import capture
from meshcast.hardware import resolve
from meshcast.hardware.host_link import host_rate
from meshcast.lower import Kernel, LoopStep, LoweredProgram, Schedule, lower
from meshcast.options import Options
from meshcast.pipeline import predict, prepare
from meshcast.run import Run
from meshcast.simulate import peak_memory
from meshcast.workload import read_workload
from tests.lower.programs import lower_function, spec

TRIPS, ROWS, WIDTH = 4, 64, 128
SETTINGS = {"batch": "16", "seq": "64", "layers": "4"}
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


def all_loops(schedule: Schedule) -> list[LoopStep]:
    found = [step for step in schedule.steps if isinstance(step, LoopStep)]
    return [*found, *(inner for loop in found for inner in all_loops(loop.body))]


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


def planned(plan: str, overlap: str, layers: str = "separate", model: str = "llama3-tiny") -> Run:
    options = Options(on="dgx-h100", plan=plan, settings=SETTINGS, overlap=overlap, layers=layers)  # type: ignore[arg-type]
    return prepare(model, options)


def test_what_is_gathered_is_cast_by_the_layer() -> None:
    """Before, a microbatch casts every stack of matrices; then none that loops only gather slices of."""

    def cast(layers: str) -> int:
        run = planned("fsdp=4,mbs=1", "", layers)
        walked = run.lowered.schedule.walk()
        return sum(k.ops == ("stablehlo.convert",) and len(k.shape) == 3 and k.shape[0] == 4 for k, _ in walked)

    assert cast("scanned") > 0
    assert cast("separate") == 0
    assert planned("fsdp=4,mbs=1", "").memory.peak < planned("fsdp=4,mbs=1", "", "scanned").memory.peak


def test_fsdp2_copies_and_reduces_in_fp32() -> None:
    plain, copied = (planned("fsdp=4,mbs=4", overlap) for overlap in ("", "fsdp2"))

    def moved(run: Run, kind: str) -> int:
        walked = run.lowered.schedule.walk()
        return sum(n * k.collective.payload_bytes for k, n in walked if k.collective and k.collective.kind == kind)

    layers = 0.9 * moved(copied, "reduce_scatter")  # the ends of the model are reduced as they were
    assert layers / 2 < moved(plain, "reduce_scatter") < moved(copied, "reduce_scatter")
    assert moved(plain, "all_gather") == moved(copied, "all_gather")
    gathers = sum(n for k, n in plain.lowered.schedule.walk() if k.collective and k.collective.kind == "all_gather")
    copies = sum(n for k, n in copied.lowered.schedule.walk() if k.ops[:1] == ("copy",))
    assert copies - sum(n for k, n in plain.lowered.schedule.walk() if k.ops[:1] == ("copy",)) >= gathers


def test_weights_are_rounded_once_a_step() -> None:
    """Products stay as they are, and what rounds weights for every microbatch goes."""
    plan = "pp=2,mbs=1,precision=fp8"
    options = Options(on="dgx-h100", plan=plan, settings=SETTINGS, layers="separate")
    every, once = (predict("llama3-tiny", replace(options, overlap=overlap)) for overlap in ("", "cached-weights"))
    assert once.kernels < every.kernels
    assert once.flops == every.flops
    whole = Options(
        on="h100-sxm", plan="mbs=16,precision=fp8", settings=SETTINGS
    )  # one microbatch, all of it in one program
    one, same = (predict("llama3-tiny", replace(whole, overlap=overlap)) for overlap in ("", "cached-weights"))
    assert one.kernels == same.kernels


class TestOffload:
    def test_layer_inputs_wait_at_the_host(self) -> None:
        """Of four layers' inputs two slots are on the device."""
        held, moved = (planned("fsdp=4,mbs=4,remat=full", overlap, "scanned") for overlap in ("", "offload"))
        sizes = {loop.host_bytes for loop in all_loops(moved.lowered.schedule)}
        assert len(sizes - {0}) == 1
        (slot,) = sizes - {0}
        assert held.memory.peak - moved.memory.peak == pytest.approx(2 * slot, rel=0.3)

    def test_a_slow_link_is_what_the_step_takes(self) -> None:
        """Each of four turns, forward and backward, waits for its slot."""
        cluster = resolve("dgx-h100")
        slow = replace(cluster, device=replace(cluster.device, host_bandwidth=1e6))
        options = Options(on=slow, plan="fsdp=4,mbs=4,remat=full,offload=activations", settings=SETTINGS)
        run = prepare("llama3-tiny", options)
        bytes_moved = sum(loop.trips * loop.host_bytes for loop in all_loops(run.lowered.schedule))
        prediction = run.predict()
        assert prediction.step_time_s is not None
        assert prediction.breakdown is not None
        assert prediction.step_time_s >= bytes_moved / host_rate(slow.device)
        assert prediction.breakdown.total == pytest.approx(prediction.step_time_s)
        fast = predict("llama3-tiny", replace(options, on="dgx-h100"))
        assert fast.step_time_s is not None
        assert fast.step_time_s < prediction.step_time_s

    def test_nothing_to_offload_is_told(self) -> None:
        options = Options(on="h100-sxm", overlap="offload", settings={"batch": "4"})
        warnings = predict("resnet-tiny", options).warnings
        assert any("offload changes nothing" in warning for warning in warnings)


def test_of_several_branches_the_largest_takes_memory() -> None:
    """Each branch has an array of its own on the way; one of them runs."""

    def function(which: jax.Array, x: jax.Array) -> jax.Array:
        def branch(times: int) -> object:
            return lambda x: (jnp.tile(x, (times, 1)) @ x[0]).sum() * x

        return jax.lax.switch(which, [branch(8), branch(8), branch(8)], x)

    def one(x: jax.Array) -> jax.Array:
        return (jnp.tile(x, (8, 1)) @ x[0]).sum() * x

    several = peak_memory(lower_function(function, spec(dtype="int32"), spec(256, 256))).temporaries
    alone = peak_memory(lower_function(one, spec(256, 256))).temporaries
    assert several < 2 * alone + 2 * 4 * 256 * 256
