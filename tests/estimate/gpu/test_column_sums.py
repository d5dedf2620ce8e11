"""Sums of columns as XLA's emitters run them: what a thread loads at once, blocks, steps, and what the registers hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.column_sums import ColumnWalk, column_walk, folded, vector_of
from meshcast.hardware import resolve
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Gemm, Reduction, element_bytes

H200 = resolve("h200").device


def mixed(matrices: int, rows: int, columns: int, dtype: str = "bf16", *, arrays: int = 1) -> Kernel:
    """What heads make of their caches: a factor for each row, and the sum of all rows; of so many arrays at once."""
    width = element_bytes(dtype)
    operands = (int(matrices * rows * width), *(int(matrices * rows * columns * width),) * arrays)
    return Kernel(
        name="input_reduce_fusion",
        kind=KernelKind.REDUCTION,
        dtype="f32",
        vector_flops=2.0 * matrices * rows * columns * arrays,
        read_bytes=sum(operands),
        written_bytes=int(matrices * columns * width) * arrays,
        operand_bytes=operands,
        geometry=Reduction(shape=(matrices, rows, columns), dims=(1,)),
        elements=matrices * columns,
        shape=(matrices, columns),
        ops=("stablehlo.multiply", "stablehlo.reduce"),
    )


def seconds(kernel: Kernel) -> float:
    return float(GpuAnalytical().estimate([kernel], H200).time[0])


def walk(kernel: Kernel) -> ColumnWalk:
    assert isinstance(kernel.geometry, Reduction)
    return column_walk(kernel, kernel.geometry)


def launched(kernel: Kernel) -> tuple[int, int, int, int]:
    """Blocks, those that an SM holds, steps of a warp and loads of a step."""
    found = walk(kernel)
    return found.blocks, found.resident, found.steps, found.loads


@pytest.mark.parametrize(
    ("columns", "width", "vector"),
    [(81, 2, 1), (32, 2, 1), (80, 2, 2), (126, 2, 2), (130, 2, 2), (128, 2, 4), (128, 4, 2), (128, 8, 1)],
)
def test_elements_that_a_thread_takes_of_a_row(columns: int, width: float, vector: int) -> None:
    assert vector_of(columns, width) == vector


def test_what_is_reduced_lies_between_what_is_kept() -> None:
    assert folded(Reduction(shape=(4, 8, 4096, 4), dims=(2,))) == (32, 4096, 4)
    assert folded(Reduction(shape=(16, 14, 14, 256), dims=(0, 1, 2))) == (1, 3136, 256)


def test_blocks_steps_and_loads_are_those_that_the_compiler_launches() -> None:
    """Grids, registers and PTX of XLA's kernels, compiled for an H200."""
    one = launched(mixed(763, 2048, 64))  # a block has all columns: two elements at once, and the factor
    assert one == (763, 2, 64, 2)
    odd = launched(mixed(610, 2048, 80))  # two blocks of 64 columns; elements one by one; 56 registers
    assert odd == (1220, 1, 64, 3)
    assert walk(mixed(1221, 1024, 80)).resident == 2  # two turns of 16 steps: 32 registers
    assert walk(mixed(64, 2048, 1024)).resident == 2  # powers of two: offsets are shifts
    two = launched(mixed(64, 2048, 1408, arrays=2))  # both matrices of a gated expert; 46 registers
    assert two == (704, 1, 64, 9)
    short = launched(mixed(64, 128, 768))  # four steps, unrolled: vectors again
    assert short == (384, 2, 4, 2)


def test_numbers_of_columns_are_no_factors_of_rows() -> None:
    """Exponentials less the columns' largest, over 7 heads a group: nothing is loaded for a row, and two blocks are resident."""
    score, largest = 8 * 2048 * 14336 * 2, 8 * 14336 * 4
    kernel = replace(mixed(8, 2048, 14336), operand_bytes=(score, largest), read_bytes=score + largest)
    assert launched(kernel) == (896, 2, 64, 4)


def test_few_columns_are_a_block_of_their_own() -> None:
    """(8, 4096, 4): eight blocks, a thread takes one element a turn, as shared memory has 32 rows of four."""
    kernel = replace(mixed(8, 4096, 4, "f32"), operand_bytes=(8 * 4096 * 4 * 4,))
    assert launched(kernel) == (8, 16, 128, 1)
    assert walk(kernel).form == "few"
    wide = replace(mixed(8, 4096, 32), operand_bytes=(8 * 4096 * 32 * 2,))
    assert walk(wide).steps == 4096 * 32 // (128 * 4)


def test_lanes_beyond_the_last_column_cost_as_much_as_others() -> None:
    """Of 126 columns there are half as many bytes again, and each row takes as many loads."""
    assert seconds(mixed(1221, 1024, 80)) == pytest.approx(seconds(mixed(1221, 1024, 126)), rel=0.1)
    assert seconds(mixed(610, 2048, 80)) > 1.5 * seconds(mixed(610, 1984, 80))  # one block an SM instead of two


def test_a_loop_that_keeps_what_it_reads_waits_for_every_turn() -> None:
    plain = replace(mixed(8, 4096, 4), operand_bytes=(8 * 4096 * 4 * 2,))
    kept = replace(plain, written_bytes=8 * 4096 * 4 * 4)
    assert seconds(kept) > 3 * seconds(plain)


def test_a_further_result_goes_through_shared_memory_behind_the_first() -> None:
    """A microsecond a wave of blocks: 2,000 cycles."""
    one = mixed(2112, 128, 64, arrays=2)
    two = replace(one, ops=(*one.ops, "stablehlo.reduce"))
    waves = 2112 / (2 * H200.cores)
    assert seconds(two) - seconds(one) == pytest.approx(waves * 2000 / H200.clock_hz, rel=0.15)


def test_places_in_sides_that_are_powers_of_two_are_found_by_shifts() -> None:
    """A softmax over grouped heads that is turned for the next product."""

    def turned(keys: int) -> float:
        elements = 8 * 4 * keys * 2048
        kernel = Kernel(
            name="input_transpose_fusion", kind=KernelKind.LOOP_FUSION, dtype="f32", vector_flops=6.0 * elements,
            read_bytes=2 * elements, written_bytes=2 * elements, operand_bytes=(2 * elements,), writes=(1,),
            elements=elements, shape=(8, 4, 2048, keys), flags=frozenset({"tiles", "transpose", "turned"}),
            ops=("stablehlo.divide", "stablehlo.transpose"),
        )  # fmt: skip
        return seconds(kernel) / elements

    assert turned(1920) > 1.2 * turned(2048)


def test_what_the_compiler_gave_tiles_is_a_product() -> None:
    """A vector by a matrix, its long sum split into a batch of small ones: bytes, not products that are written and summed."""
    shape = Gemm(
        batch=8, m=4096, n=1, k=1792, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="f32",
        lhs_contracting_minor=False, rhs_contracting_minor=False,
    )  # fmt: skip
    read, written = 8 * (4096 + 1) * 1792 * 2, 8 * 4096 * 4
    summed = Kernel(
        name="gemm_fusion_dot", kind=KernelKind.GEMM, dtype="bf16", matrix_flops=2.0 * 8 * 4096 * 1792, read_bytes=read,
        written_bytes=written, geometry=shape,
    )  # fmt: skip
    tiled = replace(summed, tile=128, warps=2, programs=4096)
    assert seconds(tiled) < 1.5 * read / H200.memory_bandwidth
    assert seconds(summed) > 3 * seconds(tiled)


@given(matrices=st.integers(1, 300), rows=st.integers(2, 5000), columns=st.integers(1, 3000), arrays=st.integers(1, 3))
def test_every_element_is_walked_over(matrices: int, rows: int, columns: int, arrays: int) -> None:
    found = walk(mixed(matrices, rows, columns, arrays=arrays))
    threads = 1024 if 32 % columns else 128
    assert found.blocks * found.steps * threads * 4 >= matrices * rows * columns
    assert found.resident in (1, 2, 16)
    assert arrays <= found.loads <= 4 * arrays + 1


def kept(rows: int, columns: int, arrays: int) -> Kernel:
    """The gradients of a batch norm: two operands, a sum, and so many arrays that are written beside it."""
    elements = rows * columns
    return replace(
        mixed(1, rows, columns, arrays=2),
        operand_bytes=(2 * elements, 2 * elements),
        written_bytes=4 * columns + 2 * elements * arrays,
        writes=tuple(range(1 + arrays)),
        ops=("stablehlo.multiply", "stablehlo.reduce"),
    )


def test_every_array_that_is_kept_is_worked_out_anew_element_by_element() -> None:
    """By hand, 49 steps of four elements: 260 cycles for what waits behind stores, and 104 for each element of each array."""
    found = walk(kept(1568, 256, 3))
    assert (found.blocks, found.steps, found.apart) == (2, 49, 4)
    cycles = {arrays: 49 * (260 + 104 * 4 * arrays) for arrays in (3, 6)}
    assert seconds(kept(1568, 256, 6)) - seconds(kept(1568, 256, 3)) == pytest.approx(
        (cycles[6] - cycles[3]) / H200.clock_hz, rel=0.02
    )
    assert seconds(kept(1568, 256, 3)) == pytest.approx(37.4e-6, rel=0.15)  # measured in ResNet-50's step


def test_elements_that_are_loaded_together_are_stored_together() -> None:
    assert walk(kept(1568, 128, 1)).apart == 1  # one block has all columns, and takes vectors
    assert walk(kept(1568, 256, 1)).apart == 4


def test_wider_numbers_that_are_kept_are_parts_of_as_many_more_sectors() -> None:
    """Eight blocks across, four numbers of a row a thread, eight parts of sectors a step: 450 cycles for each of 2 bytes."""
    matrices, rows, columns = 66, 2048, 1024
    elements = matrices * rows * columns

    def kept(width: int) -> Kernel:
        plain = mixed(matrices, rows, columns)
        return replace(plain, operand_bytes=(elements * 2,), read_bytes=elements * 2, written_bytes=elements * width)

    found = walk(kept(4))
    assert (found.blocks, found.steps, found.apart, found.stores) == (528, 64, 4, 8)
    cycles = 528 / (2 * H200.cores) * 64 * 8 * 450  # of 2 bytes; twice as many of 4
    assert seconds(kept(4)) == pytest.approx(2 * cycles / H200.clock_hz, rel=0.05)
    narrow = replace(kept(4), geometry=Reduction(shape=(528, 2048, 24), dims=(1,)), elements=528 * 24, shape=(528, 24))
    assert walk(narrow).apart == 1  # whole sectors, whatever their numbers are
