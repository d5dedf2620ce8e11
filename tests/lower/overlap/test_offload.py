"""Stacks of activations that wait in the host's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast import predict, prepare
from meshcast.hardware import resolve
from meshcast.hardware.host_link import host_rate
from meshcast.lower.kernel import Kernel
from meshcast.options.options import Options
from tests.lower.programs import FOUR_LAYERS, all_loops, planned


def test_layer_inputs_wait_at_the_host() -> None:
    """Of four layers' inputs two slots are on the device."""
    held, moved = (planned("fsdp=4,mbs=4,remat=full", overlap, "scanned") for overlap in ("", "offload"))
    sizes = {loop.host_bytes for loop in all_loops(moved.lowered.schedule)}
    assert len(sizes - {0}) == 1
    (slot,) = sizes - {0}
    assert held.memory.peak - moved.memory.peak == pytest.approx(2 * slot, rel=0.3)


def test_stacks_that_begin_as_the_same_zeros_wait_there_too() -> None:
    """Queries and the result of attention are of one shape, and XLA fills one buffer for both to begin with."""
    moved = planned("fsdp=4,mbs=4,remat=none", "offload", "scanned").lowered
    filled = {
        moved.tensors[value].shape
        for step in moved.schedule.steps
        if isinstance(step, Kernel) and "broadcast_in_dim" in step.name
        for value in step.writes
    }
    sent = next(loop for loop in all_loops(moved.schedule) if loop.host_bytes and not loop.fetched_bytes)
    slots = {moved.tensors[value].shape for value in sent.writes if moved.tensors[value].shape[:1] == (2,)}
    assert len(slots) > 1
    assert not {(sent.trips, *shape[1:]) for shape in slots} & filled


def test_a_slow_link_is_what_the_step_takes() -> None:
    """Each of four turns, forward and backward, waits for its slot."""
    cluster = resolve("dgx-h100")
    slow = replace(cluster, device=replace(cluster.device, host_bandwidth=1e6))
    options = Options(on=slow, plan="fsdp=4,mbs=4,remat=full,offload=activations", settings=FOUR_LAYERS)
    run = prepare("llama3-tiny", options)
    bytes_moved = sum(loop.trips * loop.host_bytes for loop in all_loops(run.lowered.schedule))
    prediction = run.predict()
    assert prediction.step_time_s is not None
    assert prediction.breakdown is not None
    assert prediction.step_time_s >= bytes_moved / host_rate(slow.device)
    assert prediction.breakdown.total == pytest.approx(prediction.step_time_s)
    fast = predict("llama3-tiny", options.having(on="dgx-h100"))
    assert fast.step_time_s is not None
    assert fast.step_time_s < prediction.step_time_s


def test_nothing_to_offload_is_told() -> None:
    options = Options(on="h100-sxm", overlap="offload", settings={"batch": "4"})
    warnings = predict("resnet-tiny", options).warnings
    assert any("offload changes nothing" in warning for warning in warnings)
