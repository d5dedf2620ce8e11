"""Kinds of kernel off the beaten track: what each does, counted by hand, on an H200."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.estimate import GpuAnalytical
from meshcast.estimate.gpu.functions import index_instructions, instructions_per_work
from meshcast.lower import Kernel, KernelKind, Recency, sorted_by_radix
from meshcast.workload.graph import Indexed, Reduction, Tensor
from meshcast.workload.shapes import SortGeometry, Transform
from tests.estimate.conformance import gemm, pass_over
from tests.estimate.gpu.test_models import H200, kernel, seconds

GHZ = 1.98e9
SHORT = {"bfloat16": "bf16", "float16": "f16"}


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


JUST_READ = Recency(reads=((0, 16384),))


def small_loop(*ops: str, recency: Recency | None = JUST_READ) -> Kernel:
    """4,096 numbers in, as many out."""
    loop = replace(pass_over(16384, 16384), elements=4096, ops=tuple(f"stablehlo.{name}" for name in ops))
    return loop.with_recency(recency)


def test_in_a_program_a_small_loop_waits_for_its_operands() -> None:
    """550 cycles, 0.28 us: loops that read take 1.15 us in programs and 0.93 where they run alone; fills 0.85 in both."""
    assert seconds(small_loop()) - seconds(small_loop(recency=None)) == pytest.approx(550 / GHZ, rel=0.1)
    fill = replace(pass_over(4, 16384), elements=4096)
    assert seconds(fill.with_recency(JUST_READ)) == seconds(fill)


def test_every_branch_of_a_fusion_waits_for_what_is_behind_it() -> None:
    """A level of a scan is two pads and a join; six of them in a fusion took 12.6 us for 188 numbers as for 12,089."""
    level = ("slice", "slice", "pad", "pad", "add", "concatenate")
    one, six = seconds(small_loop(*level)), seconds(small_loop(*6 * level))
    assert six - one == pytest.approx(5 * 3 * (550 + 2.5 * (12 + 8 + 8) / 3) / GHZ, rel=0.1)


def test_a_join_that_is_written_into_a_large_cache_is_as_small_as_what_it_joins() -> None:
    """A cache of 2^28 numbers of which a token's are computed and joined: 320 us, the time of a copy, were measured."""
    ops = ("multiply", "concatenate", "dynamic_update_slice")
    cache = Kernel(
        name="update", kind=KernelKind.LOOP_FUSION, dtype="bf16", read_bytes=2**29, written_bytes=2**29, elements=2**28,
        vector_flops=2.0**16, ops=tuple(f"stablehlo.{name}" for name in 17 * ops),
    )  # fmt: skip
    assert seconds(cache) == pytest.approx(seconds(replace(cache, ops=())), rel=0.02)


def reduced(shape: tuple[int, ...], *, operands: int = 1, ops_per_element: int = 1, results: int = 0) -> Kernel:
    """A reduction of the last dimension, of f32."""
    total = math.prod(shape)
    results = results or total // shape[-1]
    return replace(
        kernel(KernelKind.REDUCTION, 4096 * operands, 4 * results, Reduction(shape=shape, dims=(len(shape) - 1,)), dtype="f32"),
        elements=results, vector_flops=float(total * ops_per_element), operand_bytes=(4096,) * operands,
    )  # fmt: skip


def test_narrow_rows_cost_more_than_their_arithmetic() -> None:
    """Distances of 4,096 x 8,192 points of 16 numbers: two loads of 10.5 instructions and three ops of 3.3 each; 729 us.

    Of 64 numbers it is 560 instructions a row.
    """
    narrow = reduced((4096, 8192, 16), operands=2, ops_per_element=3)
    lanes = 132 * 128 * GHZ
    assert seconds(narrow) == pytest.approx(4096 * 8192 * 16 * (2 * 10.5 + 3 * 3.3) / lanes, rel=0.1)
    wider = reduced((4096, 2048, 64), operands=2, ops_per_element=3)
    assert seconds(wider) == pytest.approx(4096 * 2048 * (560 + 64 * 3 * 3.3) / lanes, rel=0.1)
    long = reduced((4096 * 8192 * 16 // 1024, 1024), operands=2, ops_per_element=3)
    assert seconds(long) == pytest.approx(4096 * 8192 * 16 * 3 * 3.3 / lanes, rel=0.1)


def test_a_result_for_a_row_is_no_normalisation_however_short_the_row_is() -> None:
    """The place of the largest of 21 numbers, a million times: 20 us were measured, a third of what normalising takes."""
    rows = reduced((2**20, 21), ops_per_element=9)
    normalised = reduced((2**20, 21), ops_per_element=9, results=2**20 * 21)
    assert seconds(rows) == pytest.approx(20e-6, rel=0.5)
    assert seconds(normalised) > 1.5 * seconds(rows)


def test_passes_of_a_transform_wait_for_their_loads_in_a_program() -> None:
    """Back to reals: the transform, the scaling and the copy, two loads of 550 cycles each."""
    shape = Transform(kind="IRFFT", lengths=(1024,), batch=256)
    alone = kernel(KernelKind.OTHER, 1_050_624, 1_048_576, shape, dtype="complex<f32>")
    within = alone.with_recency(Recency(reads=((0, 1_050_624),)))
    assert seconds(within) - seconds(alone) == pytest.approx(3 * 2 * 550 / GHZ, rel=0.01)


@pytest.mark.parametrize(("elements", "slower"), [(2**26, 1), (2**26 + 2, 2), (2**26 + 1, 4)])
def test_odd_sizes_are_not_unrolled(elements: int, slower: int) -> None:
    filled = Kernel(
        name="fill", kind=KernelKind.LOOP_FUSION, dtype="bf16", written_bytes=2 * elements, elements=elements
    )
    assert seconds(filled) == pytest.approx(slower * 2**26 / 512 / 1.53e9, rel=0.06)


def scattered(dtype: str, rows: int, dim: int, count: int, *, extremum: bool = False) -> Kernel:
    table = Tensor((rows, dim), dtype)
    shape = Indexed(table=table, slice_shape=(1, dim), count=count, extremum=extremum)
    size = count * dim * (2 if dtype in SHORT.values() else 4)
    return kernel(KernelKind.SCATTER, size, size, shape, dtype=dtype)


def test_updates_that_meet_in_a_line_follow_each_other() -> None:
    """2.5 million numbers added to 4,722: 148 lines, 7.5 cycles a visit; 65 us were measured."""
    assert seconds(scattered("f32", 4722, 1, 2_538_707)) == pytest.approx(65e-6, rel=0.15)
    assert seconds(scattered("f32", 2**22, 1, 2_538_707)) < 40e-6


def test_compare_and_swap_takes_rounds() -> None:
    """112,000 bf16 numbers added to 32: all that wait try again at every success; 44 ms were measured."""
    assert seconds(scattered("bf16", 4, 8, 14_039)) == pytest.approx(44e-3, rel=0.4)
    assert seconds(scattered("bf16", 4, 8, 14_039, extremum=True)) < 1e-4


def test_swaps_of_few_rows_follow_what_was_measured() -> None:
    """The mean error over the measured cases of 2-byte types, and the order of their tables: fewer rows take longer."""
    folder = Path(__file__).parents[3] / "data" / "measured" / "h200-few-rows"
    rows = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    swapped = [row for row in rows if row["dtype"] != "float32" and row["rows"] <= 64]
    errors = [
        abs(math.log(seconds(scattered(SHORT[row["dtype"]], row["rows"], row["dim"], row["count"])) / row["us"] * 1e6))
        for row in swapped
    ]
    assert len(errors) > 50
    assert math.exp(sum(errors) / len(errors)) < 1.6
    by_rows = [seconds(scattered("bf16", count, 768, 4096)) for count in (1, 2, 8, 64, 512)]
    assert by_rows == sorted(by_rows, reverse=True)


def test_products_of_few_elements_are_loops() -> None:
    outer = gemm(4, 4, 1, batch=679_396)
    moved = (outer.read_bytes + outer.written_bytes) / H200.memory_bandwidth
    assert seconds(outer) < 3 * moved + 1e-5
    assert seconds(gemm(16, 4, 32, batch=9861)) == pytest.approx(9.4e-6, rel=0.5)  # measured


def test_pieces_that_four_does_not_divide_are_joined_one_by_one() -> None:
    """2**26 numbers of two bytes: 2**17 blocks by fours, 2**19 one by one, of 1.53 started a nanosecond."""
    size = 2**27
    joined = replace(kernel(KernelKind.LOOP_FUSION, size, size, None), elements=2**26, flags=frozenset({"joined"}))
    even, odd = (replace(joined, pieces=(2**10, pieces)) for pieces in (2**10, 1))
    assert seconds(even) < seconds(joined) < seconds(odd)
    assert seconds(odd) == pytest.approx(2**26 * 1024 / 1025 / 128 / (0.005842 * 132 * GHZ), rel=0.05)
    several = replace(joined, shape=(5, 2**26 // 5), pieces=(1,) * 5)
    assert seconds(several) == pytest.approx(seconds(joined), rel=1e-3)  # other loops take four of a piece at once
    one_by_one = 2**26 / 128 / (0.005842 * 132 * GHZ)
    for shape, pieces in (((2**26 // 5, 5), (1,) * 5), ((16, 2**22), (1,) * 16)):  # of different pieces, or of many
        assert seconds(replace(joined, shape=shape, pieces=pieces)) == pytest.approx(one_by_one, rel=0.05)


def test_strided_reads_take_as_long_as_their_sectors() -> None:
    plain = replace(kernel(KernelKind.LOOP_FUSION, 2**22, 2**22, None), elements=2**20)
    strided = replace(plain, fetched_bytes=2**25, touched_bytes=2**22)
    assert seconds(strided) > 2 * seconds(plain)


def test_tiles_are_no_loops_of_512_results() -> None:
    """A bf16 array is bound by the blocks that a loop starts, and by its bytes where tiles are 16 times as large."""
    size = 2**28
    loop = replace(kernel(KernelKind.LOOP_FUSION, size, size, None), elements=2**27)
    assert seconds(replace(loop, tile=8192, warps=8)) < seconds(loop)


@pytest.mark.parametrize(("length", "launches"), [(16, 1), (256, 2), (4096, 3)])
def test_prefix_sums_launch_a_kernel_for_each_level_of_windows(length: int, launches: int) -> None:
    """As `simulate.launches` counts them, and XLA compiles them."""
    scan = replace(reduced((64, length)), ops=("stablehlo.reduce_window",))
    terms = {term.symbol: term.value for term in GpuAnalytical().explain(scan, H200).terms}
    assert terms["levels"] + 1 == launches


def test_bytes_are_turned_through_tiles_as_words() -> None:
    """Blocks of 64 x 64 bytes, and the rate of a tile: far from the loop that a tuned product has before it."""
    straight = replace(kernel(KernelKind.TRANSPOSE, 2**24, 2**24, None), dtype="i8", elements=2**24)
    turned = replace(straight, flags=frozenset({"transpose", "turned"}))
    halved = replace(turned, dtype="i4", read_bytes=2**23, written_bytes=2**23)
    assert 8e-6 < seconds(turned) < 14e-6  # 10.7 us measured
    assert seconds(halved) <= seconds(turned)
    assert seconds(straight) > seconds(turned)  # rows that stay rows are a loop, a block for 512 of them
