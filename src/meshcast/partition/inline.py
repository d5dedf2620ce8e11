"""Calls inlined in place: Shardy propagates within one function, and MLIR's own `inline` pass leaves JAX's calls."""

from __future__ import annotations

from typing import Any

from meshcast.capture.mlir import ir


def inline_calls(module: Any, main: Any) -> None:
    """Replaces every `func.call` reachable from `main` by its callee's body; the other functions are erased."""
    functions = {
        ir.StringAttr(op.attributes["sym_name"]).value: op
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    with module.context, ir.Location.unknown():
        pending = [main.operation.regions[0].blocks[0]]
        while pending:
            block = pending.pop()
            for op in list(block.operations):
                operation = op.operation
                if operation.name == "func.call":
                    if _inline(operation, functions):
                        pending.append(block)  # the callee had calls or regions of its own
                else:
                    pending.extend(inner for region in operation.regions for inner in region.blocks)
        for function in functions.values():
            if function.operation != main.operation:
                function.operation.erase()


def _inline(call: Any, functions: dict[str, Any]) -> bool:
    """Moves a clone of the callee's body before `call`; true when that body needs another look."""
    callee = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
    clone = callee.operation.clone(ip=ir.InsertionPoint(call))
    body = clone.regions[0].blocks[0]
    for parameter, value in zip(list(body.arguments), list(call.operands), strict=True):
        parameter.replace_all_uses_with(value)
    *ops, terminator = list(body.operations)
    returned = list(terminator.operands)
    nested = any(op.operation.name == "func.call" or len(op.operation.regions) > 0 for op in ops)
    for op in ops:
        op.operation.move_before(call)
    for result, value in zip(list(call.results), returned, strict=True):
        result.replace_all_uses_with(value)
    call.erase()
    clone.erase()
    return nested
