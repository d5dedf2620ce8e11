"""Kernels that a framework takes from another library than the compiler does, or otherwise than it does.

PyTorch adds up the gradients of looked-up rows in the order of their indices, sorted where there are many, and in fp32
(`embedding_backward_cuda_kernel`, aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu; `index_put_with_sort_kernel` of
Indexing.cu): rows of two bytes are not compared and swapped one by one, as XLA's scatters are, which for a table of two rows
(BERT's kinds of tokens) is most of a step.
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower.kernel import BranchStep, KernelKind, LoopStep, Schedule, Step
from meshcast.workload import DTYPE_BITS, Attention, AttentionLibrary, Gemm, Indexed

_SUMS = "f32"


def with_libraries(schedule: Schedule, *, attention: AttentionLibrary, padded: bool) -> Schedule:
    """The schedule with every fused attention call and every product by a library's kernels, in inner blocks too.

    Args:
        schedule: The schedule of a block.
        attention: Whose fused attention runs.
        padded: Whether rows of products are padded to whole vectors where that is faster. XLA and Inductor do that; eager
            PyTorch hands cuBLAS what it has, and adds up rows by sorting them.
    """
    steps = tuple([_replaced(step, attention=attention, padded=padded) for step in schedule.steps])
    return replace(schedule, steps=steps)


def _replaced(step: Step, *, attention: AttentionLibrary, padded: bool) -> Step:
    if isinstance(step, LoopStep):
        return replace(step, body=with_libraries(step.body, attention=attention, padded=padded))
    if isinstance(step, BranchStep):
        bodies = tuple(with_libraries(body, attention=attention, padded=padded) for body in step.bodies)
        return replace(step, bodies=bodies)
    if isinstance(step.geometry, Attention) and step.geometry.library == "cudnn":  # else the call brings its own kernel
        return replace(step, geometry=replace(step.geometry, library=attention))
    if isinstance(step.geometry, Gemm) and step.geometry.padded != padded:
        return replace(step, geometry=replace(step.geometry, padded=padded))
    if not padded and step.kind is KernelKind.SCATTER and isinstance(step.geometry, Indexed):
        return replace(step, geometry=_summed_in_order(step.geometry))
    return step


def _summed_in_order(shape: Indexed) -> Indexed:
    """Rows that are added up in fp32; what is kept or put in place stays."""
    if shape.unique or shape.extremum or DTYPE_BITS[shape.table.dtype] >= DTYPE_BITS[_SUMS]:
        return shape
    return replace(shape, table=replace(shape.table, dtype=_SUMS))
