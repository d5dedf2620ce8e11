"""Sums as ATen shares them out: grids that profiles on an H200 show, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.estimate.chain import estimate_each
from meshcast.estimate.gpu.estimator import GpuAnalytical
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.programs.pytorch.eager.kernels import eager_launches
from meshcast.programs.pytorch.eager.reduce_shapes import PARTS, ROUND, START, START_COLUMNS, shared_sum
from meshcast.workload import CodeShape
from tests.programs.recordings import call, dense


def test_columns_are_cut_into_parts_as_the_grids_of_profiles_have_them() -> None:
    # 512 columns, 4 to a thread: 4 blocks of 32 x 4 threads across, 8,192 rows a thread; 2,112 blocks fit at once, and no thread
    # is left with fewer than 16 rows: 512 parts. Four threads then add up 128 of them each.
    parted = shared_sum(512, 32768, rows=False)
    assert (parted.rounds, parted.part_rounds) == (4, 128)
    # 3,456 columns are 27 blocks across: 79 parts fill the device.
    wide = shared_sum(3456, 32768, rows=False)
    assert (wide.rounds, wide.part_rounds) == (26, 20)
    assert parted.waits == START_COLUMNS + PARTS + 128 * ROUND > wide.waits


def test_few_rows_are_one_threads_and_nothing_is_parted() -> None:
    few = shared_sum(512, 16, rows=False)
    assert (few.rounds, few.part_rounds, few.waits) == (4, 0, START_COLUMNS)
    one = shared_sum(1, 16, rows=True)
    assert (one.rounds, one.part_rounds, one.waits) == (1, 0, START)


@pytest.mark.parametrize(("inputs", "rounds"), [(2048, 1), (8192, 4), (32768, 16)])
def test_one_sum_is_a_block_of_512_threads_with_four_values_each(inputs: int, rounds: int) -> None:
    assert shared_sum(1, inputs, rows=True).rounds == rounds


def test_more_rows_never_wait_less() -> None:
    waits = [shared_sum(256, 1 << power, rows=False).waits for power in range(4, 24)]
    assert waits == sorted(waits)


def test_parts_are_counted_from_zeros_that_are_set_before() -> None:
    x = dense(0, 32768, 512)
    zeros, summed = eager_launches(call("sum", (x,), (dense(1, 1, 512),), dim=(0,)))
    assert (zeros.name, summed.name) == ("memset", "sum")
    assert (summed.block_cycles, summed.wait_cycles) == (4 * ROUND, shared_sum(512, 32768, rows=False).waits)
    small = eager_launches(call("sum", (dense(0, 16, 512),), (dense(1, 1, 512),), dim=(0,)))
    assert [launch.name for launch in small] == ["sum"]


def test_waits_are_cycles_of_the_devices_clock() -> None:
    kernel = Kernel(name="sum", kind=KernelKind.LOOP_FUSION, dtype="f32", read_bytes=64, written_bytes=4)
    waiting = replace(kernel, code=CodeShape(wait_cycles=3000.0))
    plain = replace(kernel, code=CodeShape())
    for name in ("h200", "v100-sxm2-32gb"):
        device = load_device(name)
        found = estimate_each([plain, waiting], device, [GpuAnalytical()])
        short, long = found[plain].time, found[waiting].time
        assert long - short == pytest.approx(3000.0 / device.clock_hz)


def test_seconds_of_shapes_are_those_of_an_h200_and_as_many_cycles_elsewhere() -> None:
    kernel = Kernel(name="embedding", kind=KernelKind.LOOP_FUSION, dtype="f32", read_bytes=64, written_bytes=4)
    plain, waiting = (replace(kernel, code=CodeShape(extra=seconds)) for seconds in (0.0, 30e-6))
    for name, seconds in (("h200", 30e-6), ("a100-sxm-80gb", 30e-6 * 1.98 / 1.41)):
        found = estimate_each([plain, waiting], load_device(name), [GpuAnalytical()])
        assert found[waiting].time - found[plain].time == pytest.approx(seconds)
