"""Calls inlined in place: Shardy propagates within one function, and MLIR's own `inline` pass leaves JAX's calls."""

from __future__ import annotations

from typing import Any

from meshcast.capture.mlir import ir, string_of, symbol_of
from meshcast.errors import InputError, UnsupportedError


def inline_calls(module: Any, main: Any) -> None:
    """Replaces every `func.call` reachable from `main` by its callee's body; the other functions are erased."""
    functions = {
        string_of(op.attributes["sym_name"]): op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    with module.context, ir.Location.unknown():
        inliner = _Inliner(functions)
        inliner.flatten(main.operation)
        kept = inliner.decompositions
        for symbol, function in functions.items():
            if function != main.operation and symbol not in kept:
                function.erase()


class _Inliner:
    """Callees are flattened before they are copied, so every block is walked once."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self._functions = functions
        self._flat: set[str] = set()
        self._open: list[str] = []  # functions being flattened, to find a call of oneself
        self.decompositions: set[str] = set()  # functions that composites name: whoever costs a composite may want them

    def flatten(self, operation: Any) -> None:
        """Inlines all calls in an op's regions."""
        for region in operation.regions:
            for block in region.blocks:
                for view in list(block.operations):
                    inner = view.operation
                    if inner.name == "func.call":
                        self._splice(inner)
                    elif inner.name == "stablehlo.composite":
                        symbol = symbol_of(inner.attributes["decomposition"])
                        self.decompositions.add(symbol)
                        self._flatten_function(symbol)
                    elif len(inner.regions):
                        self.flatten(inner)

    def _flatten_function(self, symbol: str) -> None:
        if symbol in self._open:
            cycle = " -> ".join(f"@{name}" for name in [*self._open[self._open.index(symbol) :], symbol])
            raise UnsupportedError(
                f"the program calls itself: {cycle}", where=f"@{symbol}", fix="write the recursion as a loop"
            )
        if symbol not in self._functions:
            raise InputError(f"@{symbol} is called but not defined", where=f"@{symbol}", fix="export the whole module")
        if symbol not in self._flat:
            self._open.append(symbol)
            self.flatten(self._functions[symbol])
            self._open.pop()
            self._flat.add(symbol)

    def _splice(self, call: Any) -> None:
        """Moves a copy of the callee's body before the call, and the call away."""
        symbol = symbol_of(call.attributes["callee"])
        self._flatten_function(symbol)
        clone = self._functions[symbol].clone(ip=ir.InsertionPoint(call))
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
