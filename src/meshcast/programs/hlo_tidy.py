"""A converted module without leftovers of HLO: no tuples, no functions nobody calls, ops in the order they run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import passmanager

from meshcast.base import InputError, UnsupportedError
from meshcast.programs.mlir import ir, parse_module

ORDER = "meshcast.order"
_FIX = "check the shapes of its instructions"

# The elements of a tuple: values, or further such lists for nested tuples.
_Elements = list[Any]


def tidy(text: str, *, where: str) -> str:
    """The module in MLIR text: custom calls with several results, only reachable functions, ops in schedule order.

    XLA's converter orders ops by data flow; `hlo_rewrite` numbers those of scheduled computations (`meshcast.order`).
    """
    try:
        module = parse_module(text, where="")
    except (InputError, UnsupportedError) as error:  # its line numbers are those of text the user never saw
        reason = error.message.removeprefix("not a valid MLIR module: ")
        raise type(error)(f"the HLO program is inconsistent: {reason}", where=where, fix=_FIX) from None
    with module.context, ir.Location.unknown():
        passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
        for block in list(_blocks(module.operation)) if "tuple<" in text else ():
            _without_tuples(block)
        if ORDER in text:
            for function in module.body.operations:
                _in_schedule_order(function.operation)
        return str(module.operation.get_asm(enable_debug_info=True))


def _blocks(operation: Any) -> Iterator[Any]:
    """Every block below an op, inner ones first."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield from _blocks(op.operation)
            yield block


def _in_schedule_order(operation: Any) -> set[Any]:
    """Puts the blocks of an op, and those inside of them, in order; the values that they read from outside."""
    read: set[Any] = set()
    for region in operation.regions:
        for block in region.blocks:
            ops = [op.operation for op in block.operations]
            reads = [{*op.operands, *(_in_schedule_order(op) if op.regions else ())} for op in ops]
            _block_in_order(ops, reads)
            read.update(*reads)
            read.difference_update(block.arguments, *(op.results for op in ops))
    return read


def _block_in_order(ops: list[Any], reads: list[set[Any]]) -> None:
    """Moves numbered ops to their place; the others (views, constants) stand right before what first needs them.

    Args:
        ops: The ops of a block, its terminator last.
        reads: What each of them reads: operands, and values that its regions take from this block or from further out.
    """
    *ops, terminator = ops
    numbers = [_number(operation) for operation in ops]
    if not any(number is not None for number in numbers):
        return
    needed: dict[Any, float] = {}  # by value: the first numbered op that uses it
    keys: list[tuple[float, bool, int]] = []
    for index in reversed(range(len(ops))):
        number = numbers[index]
        key = number if number is not None else min((needed.get(r, math.inf) for r in ops[index].results), default=0)
        for value in reads[index]:
            needed[value] = min(needed.get(value, math.inf), key)
        keys.append((key, number is not None, index))
    for _, _, index in sorted(keys):
        ops[index].move_before(terminator)


def _number(operation: Any) -> int | None:
    """The op's place in the schedule, taken off the op."""
    if ORDER not in operation.attributes:
        return None
    number = int(ir.IntegerAttr(operation.attributes[ORDER]).value)
    del operation.attributes[ORDER]
    return number


def _without_tuples(block: Any) -> None:
    """Rewrites one block; tuple values never cross a region's border in converted HLO."""
    known: dict[Any, _Elements] = {}
    replaced: list[Any] = []
    for op in list(block.operations):
        operation = op.operation
        if operation.name == "stablehlo.tuple":
            known[operation.results[0]] = [known.get(operand, operand) for operand in operation.operands]
            replaced.append(operation)
        elif operation.name == "stablehlo.get_tuple_element" and operation.operands[0] in known:
            index = ir.IntegerAttr(operation.attributes["index"]).value
            element = known[operation.operands[0]][index]
            if isinstance(element, list):
                known[operation.results[0]] = element
            else:
                operation.results[0].replace_all_uses_with(element)
            replaced.append(operation)
        elif operation.name == "stablehlo.custom_call":
            elements = _flattened_call(operation, known)
            if elements is not None:
                known.update(elements)
                replaced.append(operation)
    for operation in reversed(replaced):
        if all(not list(result.uses) for result in operation.results):
            operation.erase()


def _flattened_call(call: Any, known: dict[Any, _Elements]) -> dict[Any, _Elements] | None:
    """A custom call made anew without tuples beside the old one; None when it has none."""
    operands = [leaf for operand in call.operands for leaf in _leaves(known.get(operand, operand))]
    types = [result.type for result in call.results]
    flat = [leaf for each in types for leaf in _leaf_types(each)]
    if len(operands) == len(call.operands) and flat == types:
        return None
    attributes = {named.name: named.attr for named in _named(call)}
    if len(operands) != len(call.operands):
        attributes.pop("operand_layouts", None)
        attributes.pop("result_layouts", None)
    made = ir.Operation.create(
        call.name, results=flat, operands=operands, attributes=attributes, loc=call.location, ip=ir.InsertionPoint(call)
    )
    results = iter(made.results)
    elements: dict[Any, _Elements] = {}
    for result, kind in zip(call.results, types, strict=True):
        value = _nested(kind, results)
        if isinstance(value, list):
            elements[result] = value
        else:
            result.replace_all_uses_with(value)
    return elements


def _named(operation: Any) -> list[Any]:
    """Attributes with their names: the bindings gave pairs first, names later."""
    attributes = operation.attributes
    return [attributes[index] for index in range(len(attributes))]


def _leaves(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, list) else [value]


def _leaf_types(kind: Any) -> list[Any]:
    if not isinstance(kind, ir.TupleType):
        return [kind]
    return [leaf for index in range(kind.num_types) for leaf in _leaf_types(kind.get_type(index))]


def _nested(kind: Any, results: Any) -> Any:
    """The values of a type in the order of its leaves, nested as its tuples are."""
    if not isinstance(kind, ir.TupleType):
        return next(results)
    return [_nested(kind.get_type(index), results) for index in range(kind.num_types)]
