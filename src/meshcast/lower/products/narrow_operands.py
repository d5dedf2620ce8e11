"""Operands of one byte or less that a product wants in the other order.

On NVIDIA's GPUs products of one-byte operands take both of them K-major. A training step needs each operand both ways: the
weights' gradient sums over positions, along which neither activations nor gradients are contiguous. What a program quantises
itself is therefore laid out twice: XLA transposes the quantised values or fuses that into the cast
(`input_convert_transpose_fusion`), Inductor writes both orders, Transformer Engine has a kernel for it. All move them once
more at about the memory's rate (235 M values in 0.20 ms on an H200, `data/measured/h200-fp8`), which is a copy here.
An argument that lies the wrong way is the product's own matter (`estimate/gpu/gemm.py`), but for what a framework's
forward pass has saved for its backward pass, which is laid out by its casts too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.kernel import Kernel, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Gemm, element_bytes


def with_both_orders(schedule: Schedule, values: ValueTypes, *, saved: bool = False) -> Schedule:
    """The schedule with K-major copies of what products read in one byte, each made once.

    Args:
        schedule: The schedule of a block; its inner blocks are looked through too.
        values: The values of the whole program, which the copies are added to.
        saved: Whether what the program is given was laid out by it as well: a pass of its own, of Transformer Engine's.
    """
    if not any(_is_narrow(kernel) for kernel, _ in schedule.walk()):
        return schedule
    return _with_copies(schedule, values, set(schedule.inputs) if saved else set())


def _is_narrow(kernel: Kernel) -> bool:
    """Whether it is a product that reads an operand in one byte which is not K-major."""
    gemm = kernel.geometry
    if not isinstance(gemm, Gemm):
        return False
    left = element_bytes(gemm.lhs_dtype) <= 1 and not gemm.lhs_contracting_minor
    return left or (element_bytes(gemm.rhs_dtype) <= 1 and not gemm.rhs_contracting_minor)


def _with_copies(schedule: Schedule, values: ValueTypes, made: set[int]) -> Schedule:
    copies: dict[int, int] = {}
    steps: list[Step] = []
    for step in schedule.steps:
        steps += _laid_out(step, values, made, copies)
        if isinstance(step, Kernel):
            made.update(step.writes)
    return replace(schedule, steps=tuple(steps))


def _laid_out(step: Step, values: ValueTypes, made: set[int], copies: dict[int, int]) -> Iterator[Step]:
    if not isinstance(step, Kernel):
        yield with_inner_blocks(step, lambda body: _with_copies(body, values, set()))
    elif isinstance(step.geometry, Gemm) and len(step.reads) > 1:
        yield from _product(step, step.geometry, values, made, copies)
    else:
        yield step


def _product(
    kernel: Kernel, gemm: Gemm, values: ValueTypes, made: set[int], copies: dict[int, int]
) -> Iterator[Kernel]:
    reads = list(kernel.reads)
    major = [gemm.lhs_contracting_minor, gemm.rhs_contracting_minor]
    for place, dtype in enumerate((gemm.lhs_dtype, gemm.rhs_dtype)):
        value = reads[place]
        if major[place] or element_bytes(dtype) > 1 or value not in made:
            continue
        if value not in copies:
            tensor = values.tensors[value]
            copies[value] = values.new(tensor.shape, tensor.dtype)
            yield replace(copy_kernel(value, copies[value], tensor, kernel.location), name="cast:transpose")
        reads[place], major[place] = copies[value], True
    if tuple(reads) == kernel.reads:
        yield kernel
        return
    geometry = replace(gemm, lhs_contracting_minor=major[0], rhs_contracting_minor=major[1])
    yield replace(kernel, reads=tuple(reads), geometry=geometry)
