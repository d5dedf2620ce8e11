"""Blocks of loops and transposes, as XLA shares them out."""

from __future__ import annotations

from dataclasses import replace

from meshcast.estimate.gpu.elementwise import tile_elements
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.estimator import GpuSimulated
from meshcast.estimate.multiprocessors.parameters import SmParameters
from meshcast.estimate.multiprocessors.streaming import launched_blocks
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Reduction

H200 = Chip(device=load_device("h200"), parameters=SmParameters())
THREADS = 132 * 2048


def transposed(elements: int, *flags: str) -> Kernel:
    """A transpose of bf16."""
    return Kernel(
        name="transpose", kind=KernelKind.TRANSPOSE, dtype="bf16", read_bytes=2 * elements, written_bytes=2 * elements,
        elements=elements, flags=frozenset(flags), ops=("stablehlo.transpose",),
    )  # fmt: skip


def launched(kernel: Kernel) -> float:
    """Blocks that a kernel was played with."""
    return next(term.value for term in GpuSimulated().explain(kernel, H200.device).terms if term.symbol == "n")


def test_a_thread_takes_four_from_as_many_elements_on_as_there_are_threads() -> None:
    assert launched_blocks(THREADS - 128, H200) == (THREADS - 128) / 128
    assert launched_blocks(THREADS, H200) == THREADS / 512
    assert launched_blocks(2 * THREADS + 2, H200) == -(-(2 * THREADS + 2) // 256)  # twos divide it, fours do not
    assert launched_blocks(1, H200) == 1


def test_a_join_goes_over_its_largest_piece() -> None:
    """Two equal pieces: half of the blocks; a border of one beside 31: one element at a time."""
    assert launched_blocks(4 * THREADS, H200, (64, 64)) == 4 * THREADS / 2 / 512
    assert launched_blocks(4 * THREADS, H200, (1, 31)) == 4 * THREADS * 31 / 32 / 128


def test_a_transpose_is_tiled_only_where_it_turns_rows_into_columns() -> None:
    elements = 8 * THREADS
    assert launched(transposed(elements, "transpose", "turned")) == elements / tile_elements(2)
    assert launched(transposed(elements, "transpose")) == elements / 512


def test_rows_are_summed_sixteen_elements_a_thread_and_short_ones_together() -> None:
    """Rows of 1024 take 64 threads, four of them a block of 256; rows of 16,384 take all of a block of 1024."""

    def summed(rows: int, columns: int) -> Kernel:
        return Kernel(
            name="reduction:add", kind=KernelKind.REDUCTION, dtype="f32", vector_flops=float(rows * columns),
            read_bytes=rows * columns * 4, written_bytes=rows * 4, geometry=Reduction(shape=(rows, columns), dims=(1,)),
        )  # fmt: skip

    assert launched(summed(4096, 1024)) == 1024
    assert launched(summed(4096, 64)) == 512
    assert launched(summed(64, 16384)) == 64


def test_a_mask_of_places_is_computed_in_every_row() -> None:
    rows, columns = 4096, 4096
    ops = ("stablehlo.reduce", "stablehlo.subtract", "stablehlo.exponential", "stablehlo.reduce", "stablehlo.divide")
    plain = Kernel(
        name="softmax", kind=KernelKind.REDUCTION, dtype="f32", vector_flops=4.0 * rows * columns,
        transcendentals=float(rows * columns), read_bytes=4 * rows * columns, written_bytes=4 * rows * columns,
        elements=rows * columns, geometry=Reduction(shape=(rows, columns), dims=(1,)), ops=ops,
    )  # fmt: skip
    masked = replace(plain, ops=("stablehlo.iota", "stablehlo.iota", "stablehlo.compare", "stablehlo.select", *ops))
    times = GpuSimulated().estimate([plain, masked], H200.device).time
    assert times[1] > times[0]
