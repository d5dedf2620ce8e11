"""Rows in Triton's tiles: what a thread holds, worked out by hand, and what does not fit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.row_programs import (
    as_tiled,
    elements_of_program,
    held_operands,
    held_twice,
    is_row_program,
    mask_is_shared,
    per_thread,
    registers_of,
    words_of_operands,
)
from meshcast.estimate.profiled.features import family_of, place
from meshcast.lower import Kernel, KernelKind
from meshcast.workload.graph import Reduction
from tests.estimate.gpu.test_models import H200, seconds

SOFTMAX = ("stablehlo.reduce", "stablehlo.subtract", "stablehlo.exponential", "stablehlo.reduce", "stablehlo.divide")


def softmax(rows: int, row: int, width: int = 4, mask: int = 0, tile: int = 16384) -> Kernel:
    """A softmax over rows, whose mask has so many bytes; 16 K elements on 8 warps are 64 a thread."""
    elements = rows * row
    operands = (elements * width, mask) if mask else (elements * width,)
    return Kernel(
        name="softmax", kind=KernelKind.REDUCTION, dtype="f32", geometry=Reduction(shape=(rows, row), dims=(1,)),
        elements=elements, shape=(rows, row), read_bytes=sum(operands), operand_bytes=operands,
        written_bytes=elements * 2, vector_flops=7.0 * elements, transcendentals=float(elements), ops=SOFTMAX, tile=tile,
        warps=8, programs=math.ceil(elements / tile),
    )  # fmt: skip


def heads(width: int = 4, mask: int = 0, *, strewn: bool = False, operands: int = 1) -> Kernel:
    """A softmax over 64 heads of 1,024 x 1,024, whose operands have every number, and whose mask has so many bytes."""
    shape = (64, 1024, 1024)
    plain, elements = softmax(65536, 1024), math.prod(shape)
    sizes = (elements * width,) * operands + ((mask,) if mask else ())
    return replace(
        plain, geometry=Reduction(shape=shape, dims=(2,)), shape=shape, operand_bytes=sizes, read_bytes=sum(sizes),
        flags=frozenset({"strewn"}) if strewn else frozenset(),
    )  # fmt: skip


def shape_of(kernel: Kernel) -> Reduction:
    """What a kernel reduces."""
    assert isinstance(kernel.geometry, Reduction)
    return kernel.geometry


def test_a_program_holds_its_tile_or_rows_filled_up_to_a_power_of_two() -> None:
    kept = softmax(65536, 1024)
    shape = kept.geometry
    assert isinstance(shape, Reduction)
    assert elements_of_program(kept, shape) == 16384
    assert per_thread(kept, shape) == 64
    summed = replace(kept, geometry=Reduction(shape=(8192, 768), dims=(1,)), elements=8192, tile=16, programs=512)
    assert elements_of_program(summed, Reduction(shape=(8192, 768), dims=(1,))) == 16 * 1024


def test_tiles_that_do_not_cover_what_is_reduced_tell_nothing() -> None:
    kernel = softmax(65536, 1024)
    assert is_row_program(kernel)
    assert not is_row_program(replace(kernel, programs=4096 * 100))
    assert not is_row_program(replace(kernel, tile=0))
    assert not is_row_program(replace(kernel, geometry=Reduction(shape=(65536, 1024), dims=(0,))))


def test_outer_dimensions_share_a_mask_of_rows_and_columns() -> None:
    assert not mask_is_shared(heads(), shape_of(heads()))
    assert not mask_is_shared(heads(mask=64 * 1024), shape_of(heads()))  # of heads and columns
    assert not mask_is_shared(heads(mask=4 * 65536), shape_of(heads()))  # a number for each row
    masked = heads(mask=1024 * 1024)
    assert mask_is_shared(masked, shape_of(masked))
    assert not mask_is_shared(softmax(1024, 1024, mask=1024 * 1024), Reduction(shape=(1024, 1024), dims=(1,)))
    several = replace(heads(mask=256 * 256 * 2), geometry=Reduction(shape=(16, 8, 256, 256), dims=(3,)))
    assert not mask_is_shared(several, shape_of(several))  # 131,072 bytes: 16 x 8 x 256 sums in f32
    spread = ("broadcast_in_dim", "broadcast_in_dim", "compare")
    for places in (("iota", "iota"), ("iota", *spread), ("iota", "constant", *spread)):
        causal = replace(heads(), ops=(*(f"stablehlo.{name}" for name in places), *SOFTMAX))
        assert mask_is_shared(causal, shape_of(causal))
        up_to_lengths = replace(causal, flags=frozenset({"lengths"}))
        assert not mask_is_shared(up_to_lengths, shape_of(causal))
    shorter = replace(heads(), ops=("stablehlo.iota", "stablehlo.broadcast_in_dim", "stablehlo.compare", *SOFTMAX))
    assert not mask_is_shared(shorter, shape_of(shorter))  # columns alone, up to a length


def test_masked_values_of_rows_apart_are_held_twice_through_several_reductions() -> None:
    masked = heads(mask=1024 * 1024, strewn=True)
    assert held_twice(masked, shape_of(masked))
    assert not held_twice(heads(mask=1024 * 1024), shape_of(masked))
    assert not held_twice(heads(strewn=True), shape_of(masked))
    assert not held_twice(replace(masked, ops=SOFTMAX[1:]), shape_of(masked))
    assert not held_twice(replace(masked, elements=65536, tile=16), shape_of(masked))


def test_operands_take_registers_by_their_words() -> None:
    shape = Reduction(shape=(65536, 1024), dims=(1,))
    assert words_of_operands(softmax(65536, 1024), shape) == 1
    assert words_of_operands(softmax(65536, 1024, width=2, mask=4096), shape) == 0.5


def test_registers_are_those_of_ptxas() -> None:
    """By hand: 32 + 64 x 0.9, x 1.3 and x 2.15; ptxas has 80, 112 to 116 and 168 to 175 for such programs of XLA's."""
    for kernel, registers in ((heads(), 89.6), (heads(strewn=True), 115.2), (heads(mask=1 << 20, strewn=True), 169.6)):
        assert registers_of(kernel, shape_of(kernel)) == pytest.approx(registers)
    two = heads(mask=1 << 20, strewn=True, operands=2)
    assert held_operands(two, shape_of(two)) == 2
    assert registers_of(two, shape_of(two)) == pytest.approx(32 + 64 * 2 * 2.15)


def test_values_that_registers_do_not_hold_are_spilled() -> None:
    """Two operands of 64 elements a thread, held twice: 307 registers of 255, and one value of each element goes through L2."""
    two = heads(mask=1 << 20, strewn=True, operands=2)
    found = {term.symbol: term.value for term in GpuAnalytical().explain(two, H200).terms}
    moved = 0.3 * 8 * 64 * 1024 * 1024 / GpuAnalytical()._machine(H200).cache_bandwidth
    assert found["spill"] == pytest.approx(moved)
    one = {term.symbol: term.value for term in GpuAnalytical().explain(heads(), H200).terms}
    assert (one["spill"], one["turn"]) == (0, 0)


def test_masks_that_heads_share_take_more_than_twice_as_long() -> None:
    """Measured on an H200: 282 us with such a mask, 116 us without."""
    plain, masked = seconds(heads()), seconds(heads(mask=1 << 20, strewn=True))
    assert 1.8 < masked / plain < 3


def test_modelled_rows_get_the_tiles_that_the_compiler_would_choose() -> None:
    plain, masked = (replace(heads(mask=mask), tile=0, warps=0, programs=0) for mask in (0, 1 << 20))
    small, large = as_tiled(plain, shape_of(plain)), as_tiled(masked, shape_of(masked))
    assert (small.tile, small.warps, small.programs, small.flags) == (2048, 4, 32768, frozenset())
    assert (large.tile, large.warps, large.programs, large.flags) == (16384, 8, 4096, {"strewn"})
    assert seconds(masked) == seconds(large)
    few = replace(softmax(128, 1000, mask=4000), tile=0)
    assert as_tiled(few, shape_of(few)).programs == 64


def test_time_grows_with_rows_and_is_no_less_than_memorys() -> None:
    times = [seconds(softmax(rows, 1024)) for rows in (256, 4096, 65536)]
    assert times == sorted(times)
    assert times[-1] > 65536 * 1024 * 6 / H200.memory_bandwidth


def test_explained_terms_add_up() -> None:
    kernel = heads(mask=1 << 20, strewn=True, operands=2)
    found = {term.symbol: term.value for term in GpuAnalytical().explain(kernel, H200).terms}
    norm = (found["mem = B/W + B2/W2"] ** found["p"] + (found["issue = i/I"] + found["turn"]) ** found["p"]) ** (
        1 / found["p"]
    )
    total = found["start"] + norm + found["exchange = (w reductions - 1) c"] + found["spill"]
    assert total == pytest.approx(found["t"])


def test_measured_ones_are_told_apart_by_what_a_thread_holds() -> None:
    kernel, smaller = softmax(65536, 1024), softmax(65536, 1024, tile=8192)
    assert family_of(kernel, H200).removesuffix(" alone") == "reduction rows kept in tiles"
    (_, first), (_, second) = place(kernel, H200), place(smaller, H200)
    assert len(first) == len(second)
    assert sum(a != b for a, b in zip(first, second, strict=True)) == 1


def test_compared_places_of_long_rows_are_in_both_orders_at_once() -> None:
    """256 threads take 2,048 numbers of 2 bytes at a time, or 1,024 of 4: longer rows share what they work out.

    Masks that are read stay in both orders.
    """

    def causal(row: int, width: int, *, mask: int = 0) -> Kernel:
        kernel = heads(width, mask, strewn=True)
        ops = ("stablehlo.iota", "stablehlo.iota", "stablehlo.compare", *SOFTMAX)
        shape, elements = (64, 256, row), 64 * 256 * row
        operands = (elements * width, mask) if mask else (elements * width,)
        return replace(
            kernel, geometry=Reduction(shape=shape, dims=(2,)), shape=shape, ops=ops, elements=elements,
            operand_bytes=operands, read_bytes=sum(operands), written_bytes=elements * width,
        )  # fmt: skip

    twice = {
        (row, width): held_twice(kernel, shape_of(kernel))
        for row in (1024, 2048, 4096)
        for width in (2, 4)
        for kernel in (causal(row, width),)
    }
    assert twice == {
        (1024, 2): True, (2048, 2): True, (4096, 2): False, (1024, 4): True, (2048, 4): False, (4096, 4): False,
    }  # fmt: skip
    masked = causal(4096, 2, mask=4096 * 4)
    assert held_twice(masked, shape_of(masked))
    long = causal(4096, 2)
    assert registers_of(long, shape_of(long)) == pytest.approx(128, rel=0.15)  # as ptxas has it: two programs an SM
