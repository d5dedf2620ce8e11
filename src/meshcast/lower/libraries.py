"""Kernels that a framework takes from other libraries than the compiler does: attention, and casts to one byte.

On NVIDIA's GPUs products of one-byte operands want both of them K-major. A training step needs each operand both ways: the
weights' gradient sums over positions, along which neither activations nor gradients are contiguous. XLA transposes such an
operand by a kernel of its own before the product. Frameworks with casts of their own write it in both orders when they quantise
(Transformer Engine's cast-transpose, Inductor's fused casts): the copy then costs a pass over memory, and the product is K-major.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Schedule, Step
from meshcast.lower.library import copy_kernel
from meshcast.lower.rewriting import Values
from meshcast.workload.graph import Attention, AttentionLibrary, Gemm, element_bytes

NarrowLayouts = Literal["transposed", "written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """Whose kernels a program runs, where a compiler leaves them to a library.

    Attributes:
        attention: Of fused attention.
        narrow: How one-byte operands of products come to be K-major: `transposed` before the product, or `written` so
            by the cast besides the other order.
    """

    attention: AttentionLibrary = "cudnn"
    narrow: NarrowLayouts = "transposed"

    @property
    def own(self) -> bool:
        """Whether they differ from those that XLA's compiler calls."""
        return self != XLA_CALLS


XLA_CALLS = Libraries()


def with_libraries(schedule: Schedule, values: Values, libraries: Libraries) -> Schedule:
    """The schedule with the kernels of other libraries in place of those that the compiler calls.

    Args:
        schedule: Of a block; its inner blocks are looked through too.
        values: Of the whole program, which copies are added to.
        libraries: Whose kernels.
    """
    copies: dict[int, int] = {}
    steps = [made for step in schedule.steps for made in _replaced(step, values, libraries, copies)]
    return replace(schedule, steps=tuple(steps))


def _replaced(step: Step, values: Values, libraries: Libraries, copies: dict[int, int]) -> Iterator[Step]:
    if isinstance(step, LoopStep):
        yield replace(step, body=with_libraries(step.body, values, libraries))
    elif isinstance(step, BranchStep):
        yield replace(step, bodies=tuple(with_libraries(body, values, libraries) for body in step.bodies))
    elif isinstance(step.geometry, Attention):
        yield replace(step, geometry=replace(step.geometry, library=libraries.attention))
    elif isinstance(step.geometry, Gemm) and libraries.narrow == "written" and len(step.reads) > 1:
        yield from _with_written_operands(step, step.geometry, values, copies)
    else:
        yield step


def _with_written_operands(kernel: Kernel, gemm: Gemm, values: Values, copies: dict[int, int]) -> Iterator[Kernel]:
    """The product with K-major operands, and the copies in that order that are not there yet."""
    reads = list(kernel.reads)
    major = {0: gemm.lhs_contracting_minor, 1: gemm.rhs_contracting_minor}
    for place, dtype in enumerate((gemm.lhs_dtype, gemm.rhs_dtype)):
        value = reads[place]
        if major[place] or element_bytes(dtype) != 1:
            continue
        if value not in copies:
            tensor = values.tensors[value]
            copies[value] = values.new(tensor.shape, tensor.dtype)
            yield replace(copy_kernel(value, copies[value], tensor, kernel.location), name="cast:transpose")
        reads[place], major[place] = copies[value], True
    geometry = replace(gemm, lhs_contracting_minor=major[0], rhs_contracting_minor=major[1])
    yield replace(kernel, reads=tuple(reads), geometry=geometry)
