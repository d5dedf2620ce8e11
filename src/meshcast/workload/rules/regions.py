"""Work of one application of an op's region: the body of a reduce, a scatter, a scan, a map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlib.mlir import ir

from meshcast.base import UnsupportedError
from meshcast.programs import symbol_of
from meshcast.workload.graph import Tensor
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules import elementwise, gemm, movement
from meshcast.workload.rules.costs import is_complex
from meshcast.workload.rules.elementwise import ElementWork

_BODY_RULES: Mapping[str, Rule] = {**movement.RULES, **elementwise.RULES, **gemm.RULES}
_TERMINATORS = ("stablehlo.return", "func.return")
_NO_WORK = ElementWork()


def region_work(reading: OpReading, index: int = 0) -> ElementWork:
    """FLOPs and transcendentals of running region `index` once, on the types its block is written with."""
    block = reading.op.regions[index].blocks[0]
    body = [op.operation for op in block]
    if len(body) == 1:
        return _NO_WORK  # returns one of its arguments: a scatter that overwrites
    if len(body) == 2:
        plain = _plain(body[0])
        if plain is not None:
            return plain
    return _block_work(body, reading)


def plain_body(op: Any) -> str | None:
    """The elementwise op that a region is, beside what returns its result; None where it is more, or another one.

    Of a reduce it says, with the operands' types, what the region does.
    """
    name, *others = (inner.operation.name for inner in op.regions[0].blocks[0])
    return name if len(others) == 1 and name in elementwise.WEIGHTS else None


def block_elements(reading: OpReading, index: int = 0) -> int:
    """Elements of the region's first argument: 1 for scalar bodies, a slice's for scans written over slices."""
    return _tensor(reading.op.regions[index].blocks[0].arguments[0].type).elements


def _plain(op: Any) -> ElementWork | None:
    """The weight of a body of one real elementwise op on scalars (add, max, ...), the common case."""
    weight = elementwise.WEIGHTS.get(op.name)
    if weight is None:
        return None
    operand_type = op.operands[0].type
    if operand_type.rank or is_complex(str(operand_type.element_type)):
        return None
    return weight


def _block_work(body: list[Any], reading: OpReading) -> ElementWork:
    """The sum over a block's ops, following calls."""
    flops = transcendentals = 0.0
    for op in body:
        name = op.name
        if name in _TERMINATORS:
            continue
        if name == "func.call":
            callee = _block_work([inner.operation for inner in _callee(op)], reading)
            flops, transcendentals = flops + callee.flops, transcendentals + callee.transcendentals
            continue
        rule = _BODY_RULES.get(name)
        if rule is None:
            raise UnsupportedError(
                f"{name} inside the region of {reading.name} has no cost rule",
                where=reading.location or None,
                fix=f"write the body of {reading.name} with elementwise ops",
            )
        cost = rule(
            OpReading(
                name=name,
                operands=tuple(_tensor(value.type) for value in op.operands),
                results=tuple(_tensor(value.type) for value in op.results),
                op=op,
                location=reading.location,
            )
        )
        flops += cost.vector_flops + cost.matrix_flops
        transcendentals += cost.transcendentals
    return ElementWork(flops, transcendentals)


def _callee(call: Any) -> Any:
    """The entry block of the function that `call` names."""
    module = call
    while module.name != "builtin.module":
        module = module.parent.operation
    name = symbol_of(call.attributes["callee"])
    return ir.SymbolTable(module)[name].operation.regions[0].blocks[0]


def _tensor(value_type: Any) -> Tensor:
    """Shape and element type of a ranked tensor type."""
    tensor_type = ir.RankedTensorType(value_type)
    return Tensor(tuple(tensor_type.shape), str(tensor_type.element_type))
