"""Of all tiles and splits only those are timed that may be the fastest, and the fastest is among them."""

from __future__ import annotations

from dataclasses import fields, replace
from unittest.mock import patch

import numpy as np
import pytest

from meshcast.base import at_place, column_of
from meshcast.estimate.gpu import GpuAnalytical, tiles
from meshcast.estimate.gpu.machine import GpuMachine
from meshcast.estimate.gpu.parameters import shipped_gpu_calibration
from meshcast.estimate.gpu.tile_ways import TiledProduct, summing_seconds
from meshcast.estimate.gpu.tiles import product_time, time_products
from meshcast.hardware import devices_of, load_device, named_with_changes, resolve, several
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Gemm


def machine() -> GpuMachine:
    return GpuMachine(device=load_device("h200"), parameters=shipped_gpu_calibration().parameters)


def product(m: int, n: int, k: int, *, split: bool = True) -> TiledProduct:
    return TiledProduct(
        batch=1, m=m, n=n, k=k, width=2, read=2 * k * (m + n), written=2 * m * n, peak=989e12, split=split
    )


def timed_splits(sides: tuple[int, int, int]) -> set[int]:
    with patch.object(tiles, "summing_seconds", side_effect=summing_seconds) as summed:
        product_time(product(*sides), machine())
    return {call.args[1] for call in summed.call_args_list}


def test_splits_that_cannot_be_the_fastest_are_not_timed() -> None:
    """4096 tiles of 128 x 128 keep 132 SMs busy: 64 partial results of 256 MB only lose. One tile keeps one SM busy."""
    assert 1 in timed_splits((8192, 8192, 8192))
    assert not timed_splits((8192, 8192, 8192)) & {8, 16, 32, 64}
    assert timed_splits((64, 64, 65536)) >= {32, 64}


@pytest.mark.parametrize("sides", [(8192, 8192, 8192), (64, 64, 65536), (300, 1000, 4096), (1, 50257, 768)])
def test_what_is_left_out_is_slower(sides: tuple[int, int, int]) -> None:
    """Where all of them are timed, the answer is the same."""
    fastest = product_time(product(*sides), machine())
    with patch.object(tiles._Tiled, "_may_be_fastest", lambda self, longest: np.nonzero(self._ways.kept)):
        assert product_time(product(*sides), machine()) == fastest


class TestManyAtOnce:
    """Products are timed together, and none is timed otherwise for its company."""

    SIDES = ((8192, 8192, 8192), (64, 64, 65536), (300, 1000, 4096), (1, 50257, 768), (17, 8, 3))

    def test_each_is_timed_as_alone(self) -> None:
        together = machine()
        asked = [product(*sides, split=split) for sides in self.SIDES for split in (True, False)]
        time_products(asked, together)
        assert [together.products[each] for each in asked] == [product_time(each, machine()) for each in asked]

    def test_each_is_timed_once(self) -> None:
        one = machine()
        with patch.object(tiles, "_Tiled", side_effect=tiles._Tiled) as timed:
            time_products([product(64, 64, 64)] * 3, one)
            product_time(product(64, 64, 64), one)
        assert timed.call_count == 1

    def test_an_estimate_times_all_of_its_products_together(self) -> None:
        sizes = (512, 1024, 2048)
        with patch.object(tiles, "_Tiled", side_effect=tiles._Tiled) as timed:
            GpuAnalytical().estimate([square_product(side) for side in sizes], load_device("h200"))
        assert [len(call.args[0]) for call in timed.call_args_list] == [len(sizes)]


def square_product(side: int) -> Kernel:
    shape = Gemm(
        batch=1, m=side, n=side, k=side, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16",
        lhs_contracting_minor=True, rhs_contracting_minor=False,
    )  # fmt: skip
    bytes_ = 2 * side * side
    return Kernel(
        name="gemm", kind=KernelKind.GEMM, dtype="bf16", geometry=shape, matrix_flops=2.0 * side**3, read_bytes=2 * bytes_,
        written_bytes=bytes_,
    )  # fmt: skip


def test_rows_that_groups_do_not_share_evenly_are_summed() -> None:
    """49 * (1 / 49) is less than 1 in floating point: the sum of a group's partial results has no whole number of elements."""
    uneven = TiledProduct(batch=49, m=1 / 49, n=64, k=65536, width=2, read=1e6, written=128, peak=989e12)
    assert (uneven.batch * uneven.m * uneven.n) % 1
    assert product_time(uneven, machine()).time > 0


def test_operands_that_pass_through_registers_take_longer_by_each_row_and_step() -> None:
    """One tile of 64 x 64, 32 steps of 128 bytes: 0.5 cycles for each of its 128 rows and columns, and 400 for the step."""
    plain = TiledProduct(batch=1, m=64, n=64, k=1024, width=4, read=0, written=0, peak=989e12, split=False)
    carried = TiledProduct(
        batch=1, m=64, n=64, k=1024, width=4, read=0, written=0, peak=989e12, split=False, carried=0.5, chained=400.0
    )
    more = product_time(carried, machine()).time - product_time(plain, machine()).time
    assert 0 < more <= 32 * (400 + 64) / machine().clock * 1.001
    assert more > 32 * 200 / machine().clock


def f32_product(side: int, **changes: object) -> float:
    """Seconds of a square product of f32."""
    shape = Gemm(
        batch=1, m=side, n=side, k=side, lhs_dtype="f32", rhs_dtype="f32", out_dtype="f32",
        lhs_contracting_minor=True, rhs_contracting_minor=False, **changes,  # type: ignore[arg-type]
    )  # fmt: skip
    kernel = Kernel(
        name="p", kind=KernelKind.GEMM, dtype="f32", matrix_flops=2.0 * side**3, read_bytes=8 * side * side,
        written_bytes=4 * side * side, geometry=shape,
    )  # fmt: skip
    return GpuAnalytical().work(kernel, load_device("h200")).time


def test_odd_rows_slow_tf32_down_and_plain_cores_not() -> None:
    assert f32_product(4095) > 1.5 * f32_product(4096)
    odd, even = f32_product(4095, precision="HIGHEST"), f32_product(4096, precision="HIGHEST")
    assert odd == pytest.approx(even, rel=0.01)
    assert even == pytest.approx(2 * 4096**3 / (0.68 * 67e12), rel=0.2)  # of the plain cores' peak


class TestAtPoints:
    """Products on the devices of several points of a sweep: each point's answer is what it is alone, to the last bit."""

    SIDES = ((8192, 8192, 8192), (64, 64, 65536), (300, 1000, 4096), (1, 50257, 768), (17, 8, 3), (4096, 128, 11008))

    @staticmethod
    def machine(*changes: str) -> GpuMachine:
        h200 = resolve("h200")
        named = [named_with_changes("h200", h200, each, where="") for each in changes]
        device = several([resolve(each) for each in named]).device
        return replace(machine(), device=device, points=len(changes))

    @pytest.mark.parametrize(
        "key",
        ["memory.bandwidth", "cache.bandwidth", "compute.launch_latency", "compute.clock", "compute.peak_clock"],
    )  # fmt: skip
    def test_each_point_is_timed_as_alone(self, key: str) -> None:
        """From a tenth of the rate to ten times as much: other tiles are the fastest, and memory outruns the cache."""
        together = self.machine(*(f"{key}={factor}x" for factor in (0.1, 0.5, 0.9, 1, 1.1, 2, 10)))
        devices = devices_of(together.device)
        assert devices is not None
        asked = [product(*sides, split=split) for sides in self.SIDES for split in (True, False)]
        asked += [replace(each, unpacked=2.0 * each.read) for each in asked]
        time_products(asked, together)
        for place, device in enumerate(devices):
            alone = replace(together, device=device, points=None)
            for each in asked:
                here = together.products[each]
                values = {name.name: at_place(getattr(here, name.name), place) for name in fields(here)}
                expected = product_time(each, alone)
                assert values == {
                    **{name.name: getattr(expected, name.name) for name in fields(expected)},
                    "formula": "",
                }

    def test_other_ways_are_the_fastest_at_other_points(self) -> None:
        """Else the test above would hold of the first point's tile alone."""
        together = self.machine("memory.bandwidth=0.1x", "memory.bandwidth=10x")
        found = [product(*sides) for sides in self.SIDES]
        time_products(found, together)
        fixed = [together.products[each] for each in found]
        assert any(at_place(each.computing, 0) != at_place(each.computing, 1) for each in fixed)

    def test_peaks_of_several_points(self) -> None:
        """A peak that is a column is another object for each product that asks for it, and found again by its values."""
        together = self.machine("compute.peak_clock=1x", "compute.peak_clock=0.5x")
        devices = devices_of(together.device)
        assert devices is not None
        peaks = (4e14, 9e14)
        for _ in range(2):
            found = product_time(replace(product(300, 1000, 4096), peak=column_of(peaks)), together)
        assert len(together.products) == 1
        for place, (device, peak) in enumerate(zip(devices, peaks, strict=True)):
            alone = product_time(
                replace(product(300, 1000, 4096), peak=peak), replace(together, device=device, points=None)
            )
            assert (at_place(found.time, place), at_place(found.compute, place)) == (alone.time, alone.compute)
