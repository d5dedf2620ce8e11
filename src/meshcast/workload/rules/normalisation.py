"""Batch normalisation as one op, which XLA counts as free; ours are the FLOPs of what its expander writes.

Per element. Training: sum, square, sum of squares, subtract, times rsqrt, scale, offset = 7. Inference: the last four.
Gradient: centre, product, two sums, and five to combine them = 9. One rsqrt per feature.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshcast.workload.graph import Cost, OpKind, Reduction
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import integer
from meshcast.workload.rules.costs import total_bytes

_TRAINING, _INFERENCE, _GRADIENT = 7, 4, 9


def _training(reading: OpReading) -> Cost:
    """Two passes over the operand: statistics, then normalisation."""
    return _cost(reading, flops=_TRAINING, full_size=(0,), passes=2)


def _inference(reading: OpReading) -> Cost:
    """One pass."""
    return _cost(reading, flops=_INFERENCE, full_size=(0,), passes=1)


def _gradient(reading: OpReading) -> Cost:
    """Two passes over the operand and over the output's gradient (operand 4)."""
    return _cost(reading, flops=_GRADIENT, full_size=(0, 4), passes=2)


def _cost(reading: OpReading, *, flops: int, full_size: tuple[int, ...], passes: int) -> Cost:
    """`flops` per element of operand 0; operands in `full_size` are read `passes` times, the per-feature ones once."""
    operand = reading.operands[0]
    feature = integer(reading.op, "feature_index")
    reduces = passes > 1
    dims = tuple(dim for dim in range(len(operand.shape)) if dim != feature)
    return Cost(
        kind=OpKind.REDUCE if reduces else OpKind.ELEMENTWISE,
        dtype=operand.dtype,
        vector_flops=float(flops * operand.elements),
        transcendentals=float(operand.shape[feature]),
        operand_bytes=tuple(
            tensor.bytes * (passes if position in full_size else 1) for position, tensor in enumerate(reading.operands)
        ),
        written_bytes=total_bytes(reading.results),
        geometry=Reduction(shape=operand.shape, dims=dims) if reduces else None,
    )


RULES: Mapping[str, Rule] = {
    "stablehlo.batch_norm_training": _training,
    "stablehlo.batch_norm_inference": _inference,
    "stablehlo.batch_norm_grad": _gradient,
}
