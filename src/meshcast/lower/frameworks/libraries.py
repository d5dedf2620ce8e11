"""Kernels that a framework takes from another library than the compiler does, or otherwise than it does.

PyTorch adds up the gradients of looked-up rows in the order of their indices, sorted where there are many, and in fp32
(`embedding_backward_cuda_kernel`, aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu; `index_put_with_sort_kernel` of
Indexing.cu): rows of two bytes are not compared and swapped one by one, as XLA's scatters are, which for a table of two rows
(BERT's kinds of tokens) is most of a step.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from meshcast.lower.kernel import Kernel, KernelKind, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.workload import DTYPE_BITS, Attention, AttentionLibrary, Gemm, Indexed

_SUMS = "f32"


def with_libraries(
    schedule: Schedule, *, attention: AttentionLibrary, padded: bool, in_order: bool = False
) -> Schedule:
    """The schedule with every fused attention call and every product by a library's kernels, in inner blocks too.

    Args:
        schedule: The schedule of a block.
        attention: Whose fused attention runs.
        padded: Whether rows of products are padded to whole vectors where that is faster. XLA and Inductor do that; eager
            PyTorch hands cuBLAS what it has.
        in_order: Whether rows are added up in the order of their indices. Inductor leaves sums of bf16 to PyTorch too
            (`needs_fallback_due_to_atomic_add_limitations`, torch/_inductor/utils.py).
    """
    within = partial(with_libraries, attention=attention, padded=padded, in_order=in_order)

    def replaced(step: Step) -> Step:
        if not isinstance(step, Kernel):
            return with_inner_blocks(step, within)
        return _replaced(step, attention=attention, padded=padded, in_order=in_order)

    return replace(schedule, steps=tuple(map(replaced, schedule.steps)))


def _replaced(step: Kernel, *, attention: AttentionLibrary, padded: bool, in_order: bool) -> Kernel:
    if isinstance(step.geometry, Attention) and step.geometry.library == "cudnn":  # else the call brings its own kernel
        return replace(step, geometry=replace(step.geometry, library=attention))
    if isinstance(step.geometry, Gemm) and step.geometry.padded != padded:
        return replace(step, geometry=replace(step.geometry, padded=padded))
    if in_order and step.kind is KernelKind.SCATTER and isinstance(step.geometry, Indexed):
        return replace(step, geometry=_summed_in_order(step.geometry))
    return step


def _summed_in_order(shape: Indexed) -> Indexed:
    """Rows that are added up in fp32; what is kept or put in place stays."""
    if shape.unique or shape.extremum or DTYPE_BITS[shape.table.dtype] >= DTYPE_BITS[_SUMS]:
        return shape
    return replace(shape, table=replace(shape.table, dtype=_SUMS))
