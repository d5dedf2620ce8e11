"""Fused attention on GPUs: what each library reaches, against hand counts and measured calls."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshcast.estimate.energy import idle_watts
from meshcast.estimate.gpu.attention import attention
from meshcast.estimate.gpu.clocks import MEASURED_CLOCK_SHARE, power_draw
from meshcast.estimate.gpu.estimator import GpuAnalytical
from meshcast.estimate.gpu.machine import GpuMachine
from meshcast.estimate.gpu.parameters import shipped_gpu_calibration
from meshcast.estimate.measurements.calls import backward_kernel, read_calls, read_row
from meshcast.estimate.measurements.silicon_kernels import attention_kernel
from meshcast.estimate.power import settled_clock
from meshcast.evidence.fits.fitting import geomean_error
from meshcast.evidence.fits.gpu import attention_calls, attention_probes, residual
from meshcast.hardware import load_device
from meshcast.workload.graph import Attention

MEASURED = Path(__file__).resolve().parents[3] / "data" / "measured" / "h200-torch" / "measurements.jsonl"
PROFILE = MEASURED.parents[1] / "h200-profile" / "h200.profile.jsonl.gz"
SHAPE = Attention(
    batch=2, heads=32, kv_heads=8, q_len=8192, kv_len=8192, head_dim=128, dtype="bf16", causal=True, backward=False
)


def seconds(device: str = "h200", **changes: Any) -> float:
    shape = replace(SHAPE, **changes)
    kernel = attention_kernel(replace(shape, backward=False))
    kernel = backward_kernel(kernel, shape) if shape.backward else kernel
    return float(GpuAnalytical().estimate([kernel], load_device(device)).time[0])


def test_flash_2_multiplies_by_warps_on_hopper() -> None:
    """It leaves a third and more of the rate there, and on Ampere, for which it was written, nothing of the kind."""
    assert 1.5 < seconds(library="flash-2") / seconds() < 2.2
    assert 1.5 < seconds(library="flash-2", backward=True) / seconds(backward=True) < 2.4
    a100 = seconds("a100-sxm-80gb", library="flash-2") / seconds("a100-sxm-80gb")
    assert a100 < 1.5 < seconds(library="flash-2") / seconds()


def settled_mhz(device: str = "h200", **changes: Any) -> float:
    """The clock that a call on normally distributed numbers, repeated without a pause, settles at under the power cap."""
    shape = replace(SHAPE, **changes)
    kernel = attention_kernel(replace(shape, backward=False))
    kernel = backward_kernel(kernel, shape) if shape.backward else kernel
    on = load_device(device)
    draw = GpuAnalytical().estimate([kernel], on).draw
    assert draw is not None
    drawn = replace(draw, dynamic=draw.dynamic * draw.law.values["normal"].dynamic)
    return settled_clock(drawn, np.ones(1), on, "sustained") * on.clock_hz / 1e6


def test_products_by_warps_meet_the_cap_on_hopper() -> None:
    """FlashAttention-2 forward falls to 1885 of 1980 MHz at 700 W, its backward pass of 32,768 tokens to 1932 (measured)."""
    assert settled_mhz(library="flash-2") == pytest.approx(1885, rel=0.02)
    longest = settled_mhz(library="flash-2", backward=True, batch=1, q_len=32768, kv_len=32768)
    assert longest == pytest.approx(1932, rel=0.03)


def test_a_lower_cap_slows_flash_2_as_its_energy_says() -> None:
    """Above idle 384 of 584 W: the clock falls by (384 / 584)^(1 / (1 + k)), k being 1.677, but for what memory draws."""
    share = settled_mhz("h100-sxm-500w", library="flash-2") / settled_mhz("h100-sxm", library="flash-2")
    assert share == pytest.approx((384 / 584) ** (1 / 2.677), rel=0.02)


def test_one_energy_of_warps_fits_measured_clocks() -> None:
    """The energy of a product that each measured call's clock asks for, over that of warp groups: their median is shipped.

    Calls were measured on normally distributed numbers, which draw more.
    """
    h200 = load_device("h200")
    parameters = shipped_gpu_calibration().parameters
    machine = GpuMachine(device=h200, parameters=replace(parameters, warp_joules=1.0))
    found = []
    for row in map(json.loads, MEASURED.read_text().splitlines()):
        for call in read_row(row):
            if call.group != "attention flash2" or call.burst < 1e-3:
                continue
            share = row["-".join(call.id.split("-")[:2])]["mhz"] * 1e6 / h200.clock_hz
            if share > 0.997:  # the cap is not reached
                continue
            work = attention(call.kernel, machine)
            draw = power_draw([work], np.array([call.burst]), machine)
            products = work.matrix_joules / MEASURED_CLOCK_SHARE**parameters.frequency_power
            above_idle = (h200.tdp_watts - idle_watts(h200)) * call.burst / share - draw.static[0]
            dynamic = above_idle / share**parameters.frequency_power
            found.append((dynamic / parameters.normal_dynamic - (draw.dynamic[0] - products)) / products)
    assert len(found) == 12
    assert parameters.warp_joules == pytest.approx(np.median(found), rel=0.01)
    assert np.ptp(found) < 0.2


def test_flash_1_takes_twice_as_long_as_flash_2() -> None:
    ratio = seconds("a100-sxm-80gb", library="flash-1") / seconds("a100-sxm-80gb", library="flash-2")
    assert ratio == pytest.approx(2, rel=0.02)


def test_never_above_the_peak() -> None:
    device = load_device("h200")
    flops = attention_kernel(SHAPE).matrix_flops
    assert flops / seconds() < device.matrix_flops["bf16"] * device.clock_hz / device.peak_clock_hz


def test_a_mask_halves_long_sequences_and_less_of_short_ones() -> None:
    def gain(length: int) -> float:
        size: dict[str, Any] = {"batch": 16384 // length, "q_len": length, "kv_len": length}
        return seconds(**size, causal=False) / seconds(**size)

    assert gain(512) < gain(2048) < gain(8192) < 2


def test_heads_are_padded() -> None:
    """A head of 80 costs cuDNN what one of 128 does, less its bytes."""
    assert seconds(head_dim=80, kv_heads=32) == pytest.approx(seconds(head_dim=128, kv_heads=32), rel=0.03)
    assert seconds(head_dim=80, library="flash-2") < 0.9 * seconds(head_dim=128, library="flash-2")


def test_few_tiles_wait_for_the_longest() -> None:
    """Eight heads are a quarter of the work of 32, and take more than a quarter of the time."""
    assert seconds(batch=1, heads=8) > 1.1 * seconds(batch=1, heads=32) / 4


def test_tiles_are_whole() -> None:
    """196 queries and keys fill two tiles, as 256 do."""
    short, full = (seconds(batch=64, q_len=n, kv_len=n, causal=False) for n in (196, 256))
    assert short == pytest.approx(full, rel=0.05)


def test_every_clear_is_a_launch() -> None:
    """A forward pass of cuDNN's clears three times, for a single query once; its backward pass is eight launches."""
    tiny: dict[str, Any] = {"batch": 1, "heads": 1, "kv_heads": 1, "kv_len": 128, "head_dim": 64, "causal": False}
    device = load_device("h200")
    launch = shipped_gpu_calibration().parameters.launch_share * device.launch_latency_s
    assert 2 * launch < seconds(**tiny, q_len=1) < 3 * launch
    assert 4 * launch < seconds(**tiny, q_len=128) < 8 * launch < seconds(**tiny, q_len=128, backward=True)


def test_calls_in_probes() -> None:
    probes = attention_probes(PROFILE)
    parameters, device = shipped_gpu_calibration().parameters, load_device("h200")
    held = [residual(probe, parameters, device) for probe in probes if not probe.fitted]
    assert len(held) > 20
    assert geomean_error(held) < 0.12


def test_measured_calls_that_no_parameter_was_fitted_to() -> None:
    parameters, device = shipped_gpu_calibration().parameters, load_device("h200")
    held = [residual(call, parameters, device) for call in attention_calls(MEASURED) if not call.fitted]
    assert len(held) > 20
    assert geomean_error(held) < 0.06


def test_calls_that_wait_for_the_host_are_left_out() -> None:
    calls = read_calls(MEASURED)
    assert not any("4-12-12-512" in call.id and "backward" in call.id for call in calls)
    assert {call.group for call in calls} >= {"product bf16", "product e4m3", "attention cudnn", "attention flash2"}
