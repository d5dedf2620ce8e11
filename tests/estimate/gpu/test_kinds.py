"""Kinds of kernel off the beaten track: what each does, counted by hand, on an H200."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.estimate.gpu.functions import index_instructions, instructions_per_work
from meshcast.estimate.gpu.sorting import sorted_by_radix
from meshcast.lower import Kernel, KernelKind
from meshcast.workload.graph import Indexed, Tensor
from meshcast.workload.shapes import SortGeometry, Transform
from tests.estimate.conformance import gemm, pass_over
from tests.estimate.gpu.test_models import H200, kernel, seconds

GHZ = 1.98e9


def ordered(length: int, batch: int = 1, operands: int = 1, top: int | None = None, dtype: str = "f32") -> Kernel:
    size = 4 * length * batch
    return kernel(
        KernelKind.SORT, size, size, SortGeometry(length=length, batch=batch, operands=operands, top=top), dtype=dtype
    )


@pytest.mark.parametrize(
    ("length", "batch", "bits", "radix"),
    [
        (22_000, 1, 32, False), (22_001, 1, 32, True), (512, 1, 16, False), (513, 1, 16, True), (2**14, 44, 32, False),
        (2**14 + 1, 45, 32, True), (2**17 + 1, 26, 32, False), (2**17 + 1, 27, 32, True), (100, 1, 8, True), (1300, 4, 8, False),
    ],
)  # fmt: skip
def test_xlas_own_table_says_which_sorts_are_cubs(length: int, batch: int, bits: int, radix: bool) -> None:
    assert sorted_by_radix(SortGeometry(length=length, batch=batch, operands=1), bits) is radix
    assert not sorted_by_radix(SortGeometry(length=length, batch=batch, operands=3), bits)
    assert not sorted_by_radix(SortGeometry(length=length, batch=batch, operands=1, minor=False), bits)
    assert sorted_by_radix(SortGeometry(length=length, batch=batch, operands=3, radix=True), bits)


def test_a_tile_sorts_on_one_sm_however_many_there_are() -> None:
    """4,096 numbers are 78 steps of 27.3 instructions each on 128 lanes: 34 us were measured; 132 of them take as long."""
    steps = 12 * 13 / 2
    issued = steps * 4096 * 27.3 / 128 / GHZ
    assert seconds(ordered(4096)) == pytest.approx(issued, rel=0.15)
    assert seconds(ordered(4096, 132)) == pytest.approx(seconds(ordered(4096)), rel=0.05)
    assert seconds(ordered(4096, 133)) > 1.8 * seconds(ordered(4096))


def test_beyond_a_tile_every_level_adds_kernels() -> None:
    one, two, three = (seconds(ordered(4096 * 2**level, operands=3)) for level in (0, 1, 2))
    assert one < two < three


def test_onesweep_takes_a_pass_for_eight_bits() -> None:
    wide, narrow = seconds(ordered(2**19)), seconds(ordered(2**19, dtype="i16"))
    assert 1.6 < wide / narrow < 2.4


def test_the_largest_few_take_longer_the_more_they_are() -> None:
    times = [seconds(ordered(65536, top=top)) for top in (1, 2, 8, 16)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(173e-6, rel=0.1)  # measured


def test_transforms_pass_once_a_dimension_and_once_to_scale() -> None:
    def spent(kind: str, *lengths: int) -> float:
        size = 8 * 2**24
        shape = Transform(kind=kind, lengths=lengths, batch=2**24 // (lengths[0] * (lengths[1] if lengths[1:] else 1)))  # type: ignore[arg-type]
        return seconds(kernel(KernelKind.OTHER, size, size, shape, dtype="complex<f32>"))

    once = spent("FFT", 1024)
    assert spent("IFFT", 1024) == pytest.approx(2 * once, rel=0.1)
    assert spent("FFT", 1024, 1024) == pytest.approx(3 * once, rel=0.1)  # the outer one at half the bandwidth
    assert spent("FFT", 1000) > 1.3 * once  # no power of two
    assert spent("FFT", 4099) > once  # a prime


def test_functions_cost_what_they_cost() -> None:
    plain, power = instructions_per_work(("stablehlo.add", "stablehlo.power"), 1.25, 25.0)
    assert (plain, power) == (1.25, 92)
    assert instructions_per_work(("stablehlo.add", "stablehlo.divide"), 1.25, 25.0)[0] == (1.25 + 10) / 2
    assert instructions_per_work(("stablehlo.dot_general",), 1.25, 25.0) == (1.25, 25.0)
    flops, functions = instructions_per_work(("chlo.lgamma",), 1.25, 25.0)
    assert 53 * flops + 4 * functions == pytest.approx(270)
    assert index_instructions(("stablehlo.concatenate", "stablehlo.pad", "stablehlo.add")) == 20


def test_long_chains_of_few_elements_wait_for_themselves() -> None:
    """A thousand instructions one after the other, 2.5 cycles each, take 1.26 us for one element or for a thousand."""
    chain = replace(pass_over(4, 4, vector=800.0), elements=1)
    assert seconds(chain) - seconds(pass_over(4, 4)) == pytest.approx(2.5 * 1000 / GHZ, rel=0.02)


@pytest.mark.parametrize(("elements", "slower"), [(2**26, 1), (2**26 + 2, 2), (2**26 + 1, 4)])
def test_odd_sizes_are_not_unrolled(elements: int, slower: int) -> None:
    filled = Kernel(
        name="fill", kind=KernelKind.LOOP_FUSION, dtype="bf16", written_bytes=2 * elements, elements=elements
    )
    assert seconds(filled) == pytest.approx(slower * 2**26 / 512 / 1.53e9, rel=0.06)


def scattered(dtype: str, rows: int, dim: int, count: int, *, extremum: bool = False) -> Kernel:
    table = Tensor((rows, dim), dtype)
    shape = Indexed(table=table, slice_shape=(1, dim), count=count, extremum=extremum)
    size = count * dim * (2 if dtype == "bf16" else 4)
    return kernel(KernelKind.SCATTER, size, size, shape, dtype=dtype)


def test_updates_that_meet_in_a_line_follow_each_other() -> None:
    """2.5 million numbers added to 4,722: 148 lines, 7.5 cycles a visit; 65 us were measured."""
    assert seconds(scattered("f32", 4722, 1, 2_538_707)) == pytest.approx(65e-6, rel=0.15)
    assert seconds(scattered("f32", 2**22, 1, 2_538_707)) < 40e-6


def test_compare_and_swap_takes_rounds() -> None:
    """112,000 bf16 numbers added to 32: all that wait try again at every success; 44 ms were measured."""
    assert seconds(scattered("bf16", 4, 8, 14_039)) == pytest.approx(44e-3, rel=0.4)
    assert seconds(scattered("bf16", 4, 8, 14_039, extremum=True)) < 1e-4


def test_products_of_few_elements_are_loops() -> None:
    outer = gemm(4, 4, 1, batch=679_396)
    moved = (outer.read_bytes + outer.written_bytes) / H200.memory_bandwidth
    assert seconds(outer) < 3 * moved + 1e-5
    assert seconds(gemm(16, 4, 32, batch=9861)) == pytest.approx(9.4e-6, rel=0.5)  # measured
