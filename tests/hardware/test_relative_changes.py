"""Changes of hardware as people say them become numbers by hand."""

from __future__ import annotations

import pytest

from meshcast.base import UsageError
from meshcast.hardware import named_with_changes, resolve


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ("hbm=2x", "dgx-h200+memory.bandwidth=9.6TB/s"),
        ("memory=-50%", "dgx-h200+memory.bandwidth=2.4TB/s"),
        ("memory.bandwidth=6 TB/s", "dgx-h200+memory.bandwidth=6 TB/s"),
        ("nvlink=2x, launch=0.5x", "dgx-h200+nvlink.link_bandwidth=50GB/s+compute.launch_latency=0.6us"),
        ("network=2x", "dgx-h200+nvlink.link_bandwidth=50GB/s+infiniband.link_bandwidth=100GB/s"),
        ("capacity=+100%", "dgx-h200+memory.capacity=279.6GiB"),
    ],
)
def test_a_change_is_named_by_its_numbers(changes: str, named: str) -> None:
    assert named_with_changes("dgx-h200", resolve("dgx-h200"), changes) == named
    resolve(named)


def test_cores_are_whole_and_bring_their_arithmetic() -> None:
    before = resolve("h200").device
    after = resolve(named_with_changes("h200", resolve("h200"), "sm=+10%")).device
    assert after.cores == 145  # of 145.2
    for rates, others in ((before.matrix_flops, after.matrix_flops), (before.vector_flops, after.vector_flops)):
        assert others == pytest.approx({name: rate * 145 / 132 for name, rate in rates.items()})
    assert after.memory_bandwidth == before.memory_bandwidth


def test_a_clock_brings_its_arithmetic() -> None:
    before = resolve("h200").device
    after = resolve(named_with_changes("h200", resolve("h200"), "clock=0.5x")).device
    assert (after.clock_hz, after.peak_clock_hz) == (before.clock_hz / 2, before.peak_clock_hz / 2)
    assert after.matrix_flops["bf16"] == pytest.approx(before.matrix_flops["bf16"] / 2)


def test_hardware_that_is_changed_already_is_changed_from_there() -> None:
    on = "h200+memory.bandwidth=9.6TB/s+power.tdp=800W"
    assert named_with_changes(on, resolve(on), "hbm=0.5x") == "h200+memory.bandwidth=4.8TB/s+power.tdp=800W"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("hbn=2x", "no number 'hbn'"),
        ("hbm", "changes nothing"),
        (" , ", "changes nothing"),
        ("hbm=0x", "leaves nothing"),
        ("hbm=-100%", "leaves nothing"),
        ("hbm=2x,memory.bandwidth=3x", "both change memory.bandwidth"),
        ("sm=150SM", "stands for"),
        ("nvlink=-2x", "got '-2x'"),
        ("sm=1e9x", "without an exponent, got '1e9x'"),
        ("memory.bandwidth=6", "memory.bandwidth=6 has no unit, where 4.8 TB/s stands now"),
    ],
)
def test_what_is_no_change_is_refused(changes: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as found:
        named_with_changes("dgx-h200", resolve("dgx-h200"), changes)
    assert found.value.where == "--what-if"
    assert found.value.fix
