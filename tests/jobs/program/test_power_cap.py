"""The power cap binds the average of a step: whatever the device, and also where communication hides behind slower kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast import Options, Run, capture, prepare
from meshcast.estimate.energy import idle_watts
from meshcast.hardware import load_device
from meshcast.jobs.program.power_cap import MOST_CLOCKS, capped_energy
from meshcast.simulate import Simulator, Timeline

DEVICES = [
    "h200",
    "h100-sxm-500w",
    "a100-pcie-80gb",
    "v100-sxm2-32gb",
    "b200",
    "l40s",
    "mi300x",
    "mi250x",
    "tpu-v5p",
    "tpu-v6e",
]


def watts(run: Run) -> float:
    """Average power of the step."""
    return (run.timeline.energy + idle_watts(run.device) * run.timeline.duration) / run.timeline.duration


# Each device with one of the two plans, and each kind of device with both.
PLANS = [("fsdp=8,mbs=4", "32"), ("tp=8,sp=1,mbs=8", "8")]


@pytest.mark.parametrize(
    ("device", "plan", "batch"), [(device, *PLANS[place % 2]) for place, device in enumerate(DEVICES)]
)
def test_no_step_draws_more_than_the_cap(device: str, plan: str, batch: str) -> None:
    options = Options(
        on=device,
        fidelity="analytical",
        plan=plan,
        settings={"layers": "2", "batch": batch, "seq": "4096"},
        levers=False,
    )
    run = prepare("llama3-8b", options)
    assert watts(run) <= run.device.tdp_watts * (1 + 1e-9)
    if (
        run.clock_share < 1
    ):  # and the clock is not lower than the cap of the slowest device asks for, for which the others wait
        law = run.full_clock.law
        assert law is not None
        assert watts(run) > 0.99 * law.slowest(run.devices) ** 3 * run.device.tdp_watts


def test_the_clock_is_settled_with_few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    simulate = Simulator.run

    def counted(*asked: Any) -> Timeline:
        runs.append(1)
        return simulate(*asked)

    monkeypatch.setattr(Simulator, "run", counted)
    options = Options(
        on="h200", fidelity="analytical", plan="tp=8,sp=1", settings={"layers": "2", "batch": "8", "seq": "4096"}
    )
    run = prepare("llama3-8b", options)
    assert run.clock_share < 1
    assert run.timeline.duration > run.full_clock_timeline.duration
    assert len(runs) <= 4 < MOST_CLOCKS


def test_what_cannot_slow_down_keeps_to_the_cap_too() -> None:
    device = load_device("tpu-v5e")
    assert capped_energy(2 * device.tdp_watts, 1.0, device, "sustained") == device.tdp_watts
    assert capped_energy(2 * device.tdp_watts, 1.0, device, "burst") == 2 * device.tdp_watts
    assert capped_energy(1.0, 1.0, device, "sustained") == 1.0


def test_products_bring_an_a100_to_its_cap() -> None:
    # 257 TFLOP/s at 400 W: https://www.thonking.ai/p/strangely-matrix-multiplications
    side = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)
    run = prepare(capture(jnp.matmul, side, side), Options(on="a100-sxm-80gb", fidelity="analytical"))
    assert watts(run) == pytest.approx(400, rel=0.01)
    assert 2 * 8192**3 / run.timeline.duration == pytest.approx(257e12, rel=0.02)
