"""Calls inlined in place: Shardy propagates within one function, and MLIR's own `inline` pass leaves JAX's calls."""

from __future__ import annotations

from typing import Any

from meshcast.capture.mlir import ir


def inline_calls(module: Any, main: Any) -> None:
    """Replaces every `func.call` reachable from `main` by its callee's body; the other functions are erased."""
    functions = {
        ir.StringAttr(op.attributes["sym_name"]).value: op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    with module.context, ir.Location.unknown():
        _Inliner(functions).flatten(main.operation)
        for function in functions.values():
            if function != main.operation:
                function.erase()


class _Inliner:
    """Callees are flattened before they are copied, so every block is walked once."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self._functions = functions
        self._flat: set[str] = set()

    def flatten(self, operation: Any) -> None:
        """Inlines all calls in an op's regions."""
        for region in operation.regions:
            for block in region.blocks:
                for view in list(block.operations):
                    inner = view.operation
                    if inner.name == "func.call":
                        self._splice(inner)
                    elif len(inner.regions):
                        self.flatten(inner)

    def _splice(self, call: Any) -> None:
        """Moves a copy of the callee's body before the call, and the call away."""
        symbol = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        callee = self._functions[symbol]
        if symbol not in self._flat:
            self._flat.add(symbol)
            self.flatten(callee)
        clone = callee.clone(ip=ir.InsertionPoint(call))
        body = clone.regions[0].blocks[0]
        for parameter, value in zip(list(body.arguments), list(call.operands), strict=True):
            parameter.replace_all_uses_with(value)
        *ops, terminator = list(body.operations)
        returned = list(terminator.operands)
        for op in ops:
            op.operation.move_before(call)
        for result, value in zip(list(call.results), returned, strict=True):
            result.replace_all_uses_with(value)
        call.erase()
        clone.erase()
