"""The machine model's mechanisms, each on a case that can be followed by hand, and what holds for all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from meshcast.estimate.estimator import Clocks
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.power import settled_clock
from meshcast.estimate.roofline import Roofline
from meshcast.hardware import Device, load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.lower.products.swapped_products import swapped_sides
from meshcast.workload.graph import Attention, Convolution, Gemm, Indexed, Reduction, Tensor
from meshcast.workload.shapes import SortGeometry, Window
from tests.estimate.conformance import check_conformance, gemm, pass_over

H200 = load_device("h200")
GPUS = ("h200", "h100-sxm", "a100-sxm-80gb", "b200", "l40s", "mi300x", "v100-sxm2-32gb")


def seconds(kernel: Kernel, device: Device = H200, **options: object) -> float:
    return float(GpuAnalytical(**options).estimate([kernel], device).time[0])  # type: ignore[arg-type]


def kernel(kind: KernelKind, read: int, written: int, geometry: object, **more: object) -> Kernel:
    fields: dict[str, object] = {"dtype": "bf16", "read_bytes": read, "written_bytes": written, "geometry": geometry}
    return Kernel(name=kind.value, kind=kind, **(fields | more))  # type: ignore[arg-type]


TABLE = Tensor(shape=(1_000_000, 128), dtype="f32")
CONVOLUTION = Convolution(
    batch=32, in_channels=64, out_channels=64, in_spatial=(56, 56), out_spatial=(56, 56), kernel=(3, 3), strides=(1, 1),
    padding=((1, 1), (1, 1)), lhs_dilation=(1, 1), rhs_dilation=(1, 1), feature_groups=1, batch_groups=1,
    macs=32 * 56 * 56 * 64 * 64 * 9, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16", layout="b01f,01io->b01f",
)  # fmt: skip
FLASH = Attention(
    batch=4, heads=32, kv_heads=32, q_len=2048, kv_len=2048, head_dim=128, dtype="bf16", causal=True, backward=False
)
EVERY_KIND = (
    gemm(512, 512, 512),
    pass_over(2**20, 2**20, vector=2**18),
    kernel(KernelKind.CONVOLUTION, 2**24, 2**24, CONVOLUTION, matrix_flops=2.0 * CONVOLUTION.macs),
    kernel(KernelKind.ATTENTION, 2**27, 2**26, FLASH, matrix_flops=1.4e11, transcendentals=2.7e8),
    kernel(KernelKind.REDUCTION, 2**22, 4096, Reduction(shape=(1024, 1024), dims=(0,)), dtype="f32"),
    kernel(KernelKind.TRANSPOSE, 2**24, 2**24, None),
    kernel(KernelKind.GATHER, 2**20, 2**20, Indexed(table=TABLE, slice_shape=(1, 128), count=2048), dtype="f32"),
    kernel(KernelKind.SCATTER, 2**20, 2**20, Indexed(table=TABLE, slice_shape=(1, 128), count=2048), dtype="f32"),
    kernel(KernelKind.SORT, 2**22, 2**22, SortGeometry(length=1024, batch=1024, operands=1), dtype="f32"),
    kernel(KernelKind.SORT, 2**22, 2**16, SortGeometry(length=1024, batch=1024, operands=1, top=8), dtype="f32"),
    kernel(KernelKind.OTHER, 2**24, 2**22, Window(shape=(8, 64, 64, 64), window=(1, 3, 3, 1), strides=(1, 2, 2, 1))),
    kernel(KernelKind.CUSTOM, 2**24, 2**24, None),
)


@pytest.mark.parametrize("device", GPUS)
def test_conforms(device: str) -> None:
    check_conformance(GpuAnalytical(), load_device(device))


@pytest.mark.parametrize("device", GPUS)
@pytest.mark.parametrize("sample", EVERY_KIND, ids=lambda k: k.kind.value)
def test_answers_for_every_kind_within_its_interval(sample: Kernel, device: str) -> None:
    answer = GpuAnalytical().estimate([sample], load_device(device))
    assert 0 < answer.low[0] <= answer.time[0] <= answer.high[0] < 1
    assert answer.energy[0] > 0


def test_leaves_other_machines_to_others() -> None:
    assert GpuAnalytical().supports(gemm(64, 64, 64), load_device("tpu-v5e")).level == "no"


@given(m=st.integers(1, 9000), n=st.integers(1, 9000), k=st.integers(8, 9000))
@settings(max_examples=40, deadline=None)
def test_a_product_is_never_faster_than_light_at_the_boost_clock(m: int, n: int, k: int) -> None:
    product = gemm(m, n, k)
    bound = float(Roofline().estimate([product], H200).time[0])
    assert seconds(product) > bound * H200.peak_clock_hz / H200.clock_hz * 0.99


@given(
    m=st.integers(1, 9000), n=st.integers(1, 9000), k=st.integers(8, 9000), rows=st.booleans(), columns=st.booleans()
)
@settings(max_examples=40, deadline=None)
@example(m=1, n=1, k=8, rows=False, columns=True)
def test_a_product_takes_as_long_with_its_operands_the_other_way_round(
    m: int, n: int, k: int, rows: bool, columns: bool
) -> None:
    product = gemm(m, n, k)
    assert isinstance(product.geometry, Gemm)
    geometry = replace(product.geometry, lhs_contracting_minor=rows, rhs_contracting_minor=columns)
    swapped = replace(product, geometry=swapped_sides(geometry))
    assert isinstance(swapped.geometry, Gemm)
    # Its result lies the other way round, too: rows that are written may be aligned one way alone.
    assume(geometry.writes_aligned == swapped.geometry.writes_aligned)
    assert seconds(swapped) == pytest.approx(seconds(replace(product, geometry=geometry)), rel=1e-12)


@given(elements=st.integers(1, 2**28))
@settings(max_examples=40, deadline=None)
def test_more_bandwidth_is_never_slower(elements: int) -> None:
    faster = replace(H200, memory_bandwidth=2 * H200.memory_bandwidth, cache_bandwidth=2 * (H200.cache_bandwidth or 0))
    copy = pass_over(4 * elements, 4 * elements)
    assert seconds(copy, faster) <= seconds(copy)


def test_small_types_are_bound_by_the_blocks_that_can_be_started() -> None:
    """2^26 bf16 results in blocks of 512, 1.53 a nanosecond: filling takes as long as copying."""
    fill = Kernel(name="fill", kind=KernelKind.LOOP_FUSION, dtype="bf16", written_bytes=2**27)
    copy = replace(fill, read_bytes=2**27)
    assert seconds(fill) == pytest.approx(seconds(copy), rel=0.05)
    assert seconds(fill) == pytest.approx(2**26 / 512 / 1.53e9, rel=0.05)


def test_mixed_bits_take_an_instruction_an_op() -> None:
    """Five ops a round of Threefry, 20 rounds of 16 Mi words: at 128 lanes of 132 SMs, some 50 us; 2.7 times that before."""
    elements = 2**24
    mixed = replace(
        pass_over(0, 4 * elements, vector=100.0 * elements), dtype="ui32",
        ops=("stablehlo.add", "stablehlo.shift_left", "stablehlo.shift_right_logical", "stablehlo.or", "stablehlo.xor") * 20,
    )  # fmt: skip
    assert seconds(mixed) == pytest.approx(100 * elements / (128 * 132 * 1.98e9), rel=0.1)


def test_what_stays_in_cache_is_faster_and_can_be_ruled_out() -> None:
    small = pass_over(2**23, 2**22)
    assert seconds(small) < 0.8 * seconds(small, cold_cache=True)
    large = pass_over(2**30, 2**30)
    assert seconds(large) == pytest.approx(seconds(large, cold_cache=True))


def test_odd_sizes_cost_alignment() -> None:
    assert seconds(gemm(1023, 4097, 513)) > 1.8 * seconds(gemm(1024, 4096, 512))


def test_wave_quantisation_shows() -> None:
    """133 tiles where 132 run at a time take up to twice as long per tile; smaller tiles and splits soften it."""
    whole, over = gemm(132 * 128, 256, 4096), gemm(133 * 128, 256, 4096)
    assert seconds(over) > seconds(whole)


def test_byte_products_pay_for_a_transpose() -> None:
    straight = gemm(4096, 4096, 4096, dtype="i8", out="i32")
    assert isinstance(straight.geometry, Gemm)
    major = replace(straight, geometry=replace(straight.geometry, rhs_contracting_minor=True))
    with_transpose, without = (GpuAnalytical().work(k, H200).time for k in (straight, major))  # before any power cap
    assert with_transpose - without == pytest.approx(4096**2 / (0.63 * 132 * 1.98e9), rel=0.05)


def test_narrow_column_sums_are_bound_by_latency() -> None:
    def columns(rows: int) -> Kernel:
        shape = Reduction(shape=(rows, 256), dims=(0,))
        return kernel(KernelKind.REDUCTION, rows * 1024, 1024, shape, dtype="f32")

    assert seconds(columns(4096)) > 3 * seconds(columns(512))


def capped(kernels: list[Kernel], counts: list[int], clocks: Clocks) -> tuple[float, float, float]:
    """(clock share, seconds, watts) of a program of these kernels."""
    draw = GpuAnalytical().estimate(kernels, H200).draw
    assert draw is not None
    times = np.array(counts, dtype=np.float64)
    share = settled_clock(draw, times, H200, clocks)
    took = float(times @ draw.times(share))
    return share, took, float(times @ draw.joules(share)) / took + (H200.idle_watts or 0)


def test_long_products_settle_at_the_clock_the_cap_allows() -> None:
    product = gemm(8192, 8192, 8192)
    share, took, watts = capped([product], [1], "sustained")
    assert took > 1.03 * capped([product], [1], "burst")[1] > 1.06 * seconds(product)
    assert watts == pytest.approx(700, rel=0.01)
    assert took == pytest.approx(1598e-6, rel=0.05)  # measured
    assert share == pytest.approx(1504 / 1980, rel=0.07)  # measured


def test_the_cap_binds_the_program_not_its_kernels() -> None:
    product, copy = gemm(8192, 8192, 8192), pass_over(2**26, 2**26)
    alone, _, _ = capped([product], [1], "sustained")
    mixed, took, watts = capped([product, copy], [1, 50], "sustained")
    assert alone < mixed <= 1
    assert watts <= 701
    assert took > seconds(product) + 50 * seconds(copy) * 0.999


def test_copies_do_not_depend_on_the_clock_cap() -> None:
    copy = pass_over(2**30, 2**30)
    assert capped([copy], [1], "sustained")[1] == pytest.approx(seconds(copy), rel=0.01)
