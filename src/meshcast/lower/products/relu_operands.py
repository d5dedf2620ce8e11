"""ReLUs that products compute on the way in: XLA:GPU's gemm_fusion takes them into the Triton kernels of products that read them.

A training step keeps what a ReLU is of for its gradient's mask. Then the result is written nowhere: the next layer's product and
the gradient of its weights both take the maximum of what they load. In XLA's optimized HLO of six training steps on an H200 (a
mixer of MLPs, a translation model, recommenders, a graph network) 84 of 98 products that read a ReLU do so: the autotuner mostly
prefers a kernel of Triton's to a pass over memory and cuBLAS. Where nobody else reads what the ReLU is of, it is the epilogue of
the product that makes it. Compiled without Triton's products (`measure.py --quick`) it is a pass of its own.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from meshcast.lower.graph.constants import known_values
from meshcast.lower.kernel import Kernel
from meshcast.lower.products.matrix_products import is_summed, is_tiny
from meshcast.workload import Gemm, Op, OpKind, Tensor

CUT = "stablehlo.maximum"


def with_cut_operands(
    ops: Sequence[Op], operands: Sequence[tuple[int, ...]], live_out: Set[int], tensors: Sequence[Tensor]
) -> tuple[list[Op], list[tuple[int, ...]]]:
    """The ops and their operands without ReLUs that products compute: these read what the ReLUs are of.

    Args:
        ops: The block's, in order.
        operands: Theirs, views resolved.
        live_out: Values that must be in memory after the block.
        tensors: Types of all values.
    """
    cut = {op.results[0]: place for place, op in enumerate(ops) if op.name == CUT and op.results[0] not in live_out}
    readers: dict[int, list[int]] = {value: [] for place in cut.values() for value in operands[place]}
    readers |= {value: [] for value in cut}
    for place, read in enumerate(operands):
        for value in set(read):
            if value in readers:
                readers[value].append(place)
    splats = known_values(ops, operands, tensors).splats
    inside: dict[int, int] = {}  # result -> what it is the maximum of
    for result, place in cut.items():
        before = [value for value in operands[place] if value not in splats]
        if len(before) != 1 or not readers[result] or not all(_is_library_product(ops[at]) for at in readers[result]):
            continue
        if before[0] in live_out or len(readers[before[0]]) > 1:
            inside[result] = before[0]
    if not inside:
        return list(ops), list(operands)
    left = [place for place, op in enumerate(ops) if not (op.results and op.results[0] in inside)]
    taken = {place: tuple([inside.get(value, value) for value in operands[place]]) for place in left}
    made = [
        ops[place] if taken[place] == operands[place] else _cutting(ops[place], operands[place], taken[place], tensors)
        for place in left
    ]
    return made, list(taken.values())


def computes_operands(kernel: Kernel, shape: Gemm) -> bool:
    """Whether a product's own arithmetic is done on what it loads, as above, in registers.

    An epilogue would be another of its ops, and weights that are widened on the way in say what they are stored as.
    """
    widened = bool(kernel.stored_bits) or bool(shape.stored_dtype)
    return kernel.vector_flops > 0 and len(kernel.ops) == 1 and not widened


def _cutting(op: Op, before: Sequence[int], read: tuple[int, ...], tensors: Sequence[Tensor]) -> Op:
    """A product with maxima of what it loads: its arithmetic tells that it is Triton's."""
    cut = sum(tensors[value].elements for value, old in zip(read, before, strict=True) if value != old)
    return replace(op, operands=read, equal=(), cost=replace(op.cost, vector_flops=op.cost.vector_flops + cut))


def _is_library_product(op: Op) -> bool:
    shape = op.cost.geometry
    return op.cost.kind is OpKind.GEMM and isinstance(shape, Gemm) and not is_tiny(shape) and not is_summed(shape)
