"""Gradients that FSDP reduces in a wider dtype than weights are used in (`MixedPrecisionPolicy(reduce_dtype=...)`).

The program says so as a product in bf16, a cast to fp32 and a sharding. A partitioner sums where the product is, before
the cast. FSDP casts each device's part first; so does a product that has an fp32 result, which is what XLA makes of a
product and its cast on GPUs anyway. Here such products get that result.
"""

from __future__ import annotations

from typing import Any

from meshcast.programs.mlir import ir

_MOVES = ("stablehlo.transpose", "stablehlo.reshape")


def widen_reduced_products(module: Any) -> int:
    """Rewrites the module in place: a product that is only cast and then pinned to a sharding has the cast's dtype.

    Returns:
        How many other matrices (gradients of embeddings) are widened and pinned, and so are summed before.
    """
    others = 0
    pinned: list[Any] = []

    def collect(operation: Any) -> Any:
        if operation.name == "sdy.sharding_constraint":
            pinned.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for constraint in pinned:
        cast = _producer(constraint.operands[0])
        if cast is None or cast.name != "stablehlo.convert" or not _widens(cast):
            continue
        chain = _chain(cast.operands[0])
        if not chain:
            others += ir.RankedTensorType(cast.results[0].type).rank > 1
            continue
        element = ir.RankedTensorType(cast.results[0].type).element_type
        for operation in chain:
            result = operation.results[0]
            shape = ir.RankedTensorType(result.type)
            result.set_type(ir.RankedTensorType.get(shape.shape, element, shape.encoding, loc=operation.location))
        cast.results[0].replace_all_uses_with(cast.operands[0])
        cast.erase()
    return others


def _widens(cast: Any) -> bool:
    before, after = (ir.RankedTensorType(value.type).element_type for value in (cast.operands[0], cast.results[0]))
    floats = isinstance(before, ir.FloatType) and isinstance(after, ir.FloatType)
    return bool(floats and _bits(before) < _bits(after))


def _bits(kind: Any) -> int:
    return int(kind.width)


def _chain(value: Any) -> list[Any]:
    """The product that a value comes from and what only moves it, used nowhere else; empty where there is none."""
    found: list[Any] = []
    while True:
        operation = _producer(value)
        if operation is None or len(list(value.uses)) != 1:
            return []
        found.append(operation)
        if operation.name == "stablehlo.dot_general":
            return found
        if operation.name not in _MOVES:
            return []
        value = operation.operands[0]


def _producer(value: Any) -> Any:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation
