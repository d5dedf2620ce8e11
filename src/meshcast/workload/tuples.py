"""Programs without tuples: what older exports and converted HLO write as one tuple becomes several results.

A custom call (`custom_call_topk` and its like) that yields a tuple yields its elements; `stablehlo.tuple` and
`stablehlo.get_tuple_element` then only rename, and go. A function that returns tuples returns their elements. Loops, branches
and calls that carry tuples are left as they are, and refused where they are read.
"""

from __future__ import annotations

from typing import Any

from meshcast.programs import ir, operations, to_bytecode

_Parts = list[Any]  # values, or such lists for tuples in tuples
_LAYOUTS = frozenset({"operand_layouts", "result_layouts"})  # say nothing about costs, and have an entry a result


def without_tuples(module: Any) -> Any:
    """A copy of the module in which custom calls yield no tuples."""
    with module.context, ir.Location.unknown():
        copy = ir.Module.parse(to_bytecode(module))
        parts: dict[Any, _Parts] = {}
        gone: list[Any] = []
        for op in list(operations(copy.operation)):
            if op.name == "stablehlo.custom_call" and any(_is_tuple(result) for result in op.results):
                _split_call(op, parts)
                gone.append(op)
            elif op.name == "stablehlo.tuple":
                parts[op.results[0]] = [parts.get(operand, operand) for operand in op.operands]
                gone.append(op)
            elif op.name == "stablehlo.get_tuple_element" and op.operands[0] in parts:
                _pick(op, parts)
                gone.append(op)
            elif op.name == "func.return" and any(operand in parts for operand in op.operands):
                _return_parts(op, parts)
                gone.append(op)
        for op in reversed(gone):
            if all(not list(result.uses) for result in op.results):
                op.erase()
        return copy


def _is_tuple(value: Any) -> bool:
    return isinstance(value.type, ir.TupleType)


def _split_call(op: Any, parts: dict[Any, _Parts]) -> None:
    """A copy of the call with a result for every element of its tuple."""
    types = [leaf for result in op.results for leaf in _leaves(result.type)]
    attributes = {each.name: each.attr for each in _named(op) if each.name not in _LAYOUTS}
    with ir.InsertionPoint(op):
        made = ir.Operation.create(
            op.name, results=types, operands=list(op.operands), attributes=attributes, loc=op.location
        )
    values = iter(made.results)
    for result in op.results:
        if _is_tuple(result):
            parts[result] = _nested(result.type, values)
        else:
            result.replace_all_uses_with(next(values))


def _pick(op: Any, parts: dict[Any, _Parts]) -> None:
    found = parts[op.operands[0]][int(ir.IntegerAttr(op.attributes["index"]).value)]
    if isinstance(found, list):
        parts[op.results[0]] = found
    else:
        op.results[0].replace_all_uses_with(found)


def _return_parts(op: Any, parts: dict[Any, _Parts]) -> None:
    """The elements are returned, and the function's type says so."""
    values = [leaf for operand in op.operands for leaf in _flat(parts.get(operand, operand))]
    with ir.InsertionPoint(op):
        ir.Operation.create("func.return", operands=values, loc=op.location)
    function = op.parent.operation
    inputs = [argument.type for argument in function.regions[0].blocks[0].arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, [v.type for v in values]))
    if "res_attrs" in function.attributes:  # one for every result, as they were
        del function.attributes["res_attrs"]


def _named(op: Any) -> list[Any]:
    return [op.attributes[index] for index in range(len(op.attributes))]


def _leaves(value_type: Any) -> list[Any]:
    if not isinstance(value_type, ir.TupleType):
        return [value_type]
    return [leaf for index in range(value_type.num_types) for leaf in _leaves(value_type.get_type(index))]


def _nested(value_type: Any, values: Any) -> _Parts:
    inner = [value_type.get_type(index) for index in range(value_type.num_types)]
    return [_nested(each, values) if isinstance(each, ir.TupleType) else next(values) for each in inner]


def _flat(part: Any) -> list[Any]:
    return [leaf for each in part for leaf in _flat(each)] if isinstance(part, list) else [part]
