"""Rows in Triton's tiles: what a thread holds, worked out by hand, and what does not fit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.row_programs import (
    elements_of_program,
    is_masked,
    is_row_program,
    per_thread,
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


def test_a_mask_is_of_rows_and_columns_and_held_through_two_reductions() -> None:
    shape = Reduction(shape=(65536, 1024), dims=(1,))
    assert not is_masked(softmax(65536, 1024), shape)
    assert not is_masked(softmax(65536, 1024, mask=1024), shape)  # a vector: of columns alone
    masked = softmax(65536, 1024, mask=1024 * 1024)
    assert is_masked(masked, shape)
    assert not is_masked(replace(masked, ops=SOFTMAX[1:]), shape)
    assert is_masked(replace(softmax(65536, 1024), ops=(*SOFTMAX, "stablehlo.iota", "stablehlo.iota")), shape)


def test_operands_take_registers_by_their_words() -> None:
    shape = Reduction(shape=(65536, 1024), dims=(1,))
    assert words_of_operands(softmax(65536, 1024), shape) == 1
    assert words_of_operands(softmax(65536, 1024, width=2, mask=4096), shape) == 0.5


def test_values_that_registers_do_not_hold_are_spilled() -> None:
    """64 elements a thread: f32 with a mask 32 + 64 (1 + 0.55 + 2.2) = 272 registers of 255, and 8 bytes of each element moved.

    In bf16 it is 240, which fit; half of the elements a thread fit in f32, too.
    """
    plain, masked = softmax(65536, 1024), softmax(65536, 1024, mask=1024 * 1024)
    spill = seconds(masked) - seconds(plain)
    moved = 0.6 * 8 * 65536 * 1024 / GpuAnalytical()._machine(H200).cache_bandwidth
    assert spill == pytest.approx(moved, rel=0.2)
    narrow, narrow_masked = softmax(65536, 1024, width=2), softmax(65536, 1024, width=2, mask=1024 * 1024)
    assert seconds(narrow_masked) < 1.2 * seconds(narrow)
    smaller = softmax(65536, 1024, mask=1024 * 1024, tile=8192)
    assert seconds(smaller) < 0.9 * seconds(masked)


def test_time_grows_with_rows_and_is_no_less_than_memorys() -> None:
    times = [seconds(softmax(rows, 1024)) for rows in (256, 4096, 65536)]
    assert times == sorted(times)
    assert times[-1] > 65536 * 1024 * 6 / H200.memory_bandwidth


def test_explained_terms_add_up() -> None:
    kernel = softmax(65536, 1024, mask=1024 * 1024)
    found = {term.symbol: term.value for term in GpuAnalytical().explain(kernel, H200).terms}
    norm = (found["mem = B/W + B2/W2"] ** found["p"] + found["issue = i/I"] ** found["p"]) ** (1 / found["p"])
    total = found["start"] + norm + found["exchange = (w reductions - 1) c"] + found["spill"]
    assert total == pytest.approx(found["t"])


def test_measured_ones_are_told_apart_by_what_a_thread_holds() -> None:
    kernel, smaller = softmax(65536, 1024), softmax(65536, 1024, tile=8192)
    assert family_of(kernel, H200).removesuffix(" alone") == "reduction rows kept in tiles"
    (_, first), (_, second) = place(kernel, H200), place(smaller, H200)
    assert len(first) == len(second)
    assert sum(a != b for a, b in zip(first, second, strict=True)) == 1
