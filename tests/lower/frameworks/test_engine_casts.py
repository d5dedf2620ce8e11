"""Values in 8 and 4 bits that Transformer Engine's kernels round, behind what makes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.lower import Kernel, KernelKind
from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.frameworks.engine_casts import with_engine_casts
from meshcast.lower.value_types import ValueTypes
from meshcast.workload.graph import Reduction, Tensor
from tests.simulate.schedules import loop, schedule

ROWS, WIDTH = 64, 1024
NUMBERS = ROWS * WIDTH
WIDE, FP8, FP4 = (Tensor((ROWS, WIDTH), dtype) for dtype in ("bf16", "f8E4M3FN", "f4E2M1FN"))
LARGEST = Tensor((), "f32")


def made(reads: dict[int, Tensor], writes: dict[int, Tensor], *ops: str, reduces: bool = False) -> Kernel:
    sizes = tuple(kind.bytes for kind in reads.values())
    return Kernel(
        name="made", kind=KernelKind.REDUCTION if reduces else KernelKind.LOOP_FUSION, dtype="f32", reads=tuple(reads),
        operand_bytes=sizes, read_bytes=sum(sizes), writes=tuple(writes), elements=NUMBERS,
        written_bytes=sum(kind.bytes for kind in writes.values()), vector_flops=3.0 * NUMBERS,
        geometry=Reduction(shape=(ROWS, WIDTH), dims=(0, 1)) if reduces else None,
        ops=tuple(f"stablehlo.{op}" for op in ops),
    )  # fmt: skip


def rewritten(kernel: Kernel, *values: Tensor) -> list[Kernel]:
    body = schedule([kernel], kernel.reads, kernel.writes)
    return [step for step in with_engine_casts(body, ValueTypes(list(values))).steps if isinstance(step, Kernel)]


def test_a_cast_alone_goes_at_the_memory_s_rate() -> None:
    cast = made({0: WIDE}, {1: FP8}, "convert", "broadcast_in_dim", "divide", "convert")
    assert rewritten(cast, WIDE, FP8) == [replace(cast, flags=frozenset({"copy"}))]


@pytest.mark.parametrize("reduces", [False, True])
def test_a_cast_behind_other_work_reads_what_that_has_written(reduces: bool) -> None:
    """A gate's two halves are read and rounded in one kernel: in two the values pass through memory in 16 bits."""
    fused = made({0: WIDE, 1: WIDE}, {2: FP8}, "negate", "exponential", "multiply", "convert", reduces=reduces)
    before, cast = rewritten(fused, WIDE, WIDE, FP8)
    assert (before.read_bytes, before.written_bytes) == (4 * NUMBERS, 2 * NUMBERS)
    assert before.writes == cast.reads
    assert (cast.read_bytes, cast.written_bytes, cast.writes) == (2 * NUMBERS, NUMBERS, (2,))
    assert ("copy" in before.flags, "copy" in cast.flags) == (False, True)


def test_the_largest_value_is_sought_in_a_pass_of_its_own() -> None:
    both = made({0: WIDE, 1: WIDE}, {2: WIDE, 3: LARGEST}, "multiply", "add", "abs", "reduce", reduces=True)
    before, largest = rewritten(both, WIDE, WIDE, WIDE, LARGEST)
    assert (before.kind, before.writes, before.written_bytes) == (KernelKind.LOOP_FUSION, (2,), 2 * NUMBERS)
    assert (largest.kind, largest.reads, largest.writes) == (KernelKind.REDUCTION, (2,), (3,))
    assert (largest.read_bytes, largest.written_bytes) == (2 * NUMBERS, LARGEST.bytes)


def test_a_norm_that_sums_up_too_stays_one_kernel() -> None:
    norm = made({0: WIDE}, {1: WIDE, 2: LARGEST}, "square", "reduce", "multiply", "abs", "reduce", reduces=True)
    assert rewritten(norm, WIDE, WIDE, LARGEST) == [norm]


@pytest.mark.parametrize(("kind", "read"), [(FP8, 0), (FP4, 2 * NUMBERS)])
def test_the_second_order_is_written_with_the_first_but_in_4_bits(kind: Tensor, read: int) -> None:
    second = replace(copy_kernel(0, 1, kind, ""), name="cast:transpose")
    (found,) = rewritten(second, kind, kind)
    assert (found.read_bytes, found.operand_bytes, found.written_bytes) == (read, (read,), kind.bytes)


def test_what_rounds_nothing_is_left_alone_and_loops_are_looked_through() -> None:
    plain = made({0: WIDE}, {1: WIDE}, "multiply", "convert")
    assert rewritten(plain, WIDE, WIDE) == [plain]
    cast = made({0: WIDE}, {1: FP8}, "convert")
    values = ValueTypes([WIDE, FP8])
    found = with_engine_casts(schedule([loop(schedule([cast], (0,), (1,)), 3, [0], [1])], (0,), (1,)), values)
    assert sum(count for each, count in found.walk() if "copy" in each.flags) == 3
