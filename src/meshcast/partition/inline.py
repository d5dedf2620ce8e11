"""Calls inlined in place: Shardy propagates within one function, and MLIR's own `inline` pass leaves JAX's calls."""

from __future__ import annotations

from typing import Any

from meshcast.base import InputError, UnsupportedError, allow_nesting, recursion, room_to_grow
from meshcast.programs import ir, string_of, symbol_of

_CALLING = frozenset({"func.call", "stablehlo.composite"})


def inline_calls(module: Any, main: Any, *, whole: bool) -> None:
    """Replaces every `func.call` reachable from `main` by its callee's body; the other functions are erased.

    Args:
        module: Changed in place.
        main: The entry function.
        whole: Whether all calls have to go. Otherwise those stay that would let the program grow beyond all measure
            (`nesting.room_to_grow`), with the functions they call.

    Raises:
        UnsupportedError: A function calls itself; or a call would have to stay.
        FusionCallError: Calls may stay, and a function's own ops call one of XLA's fusions.
    """
    functions = {
        string_of(op.attributes["sym_name"]): op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    if len(functions) == 1:
        return  # there is nobody else to call: no op has to be looked at
    with module.context, ir.Location.unknown():
        inliner = _Inliner(functions, whole=whole)
        inliner.flatten(main.operation)
        kept = inliner.kept
        for symbol, function in functions.items():
            if function != main.operation and symbol not in kept:
                function.erase()


class FusionCallError(Exception):
    """A program calls XLA's own fusions, which are to stay as they are."""


class _Inliner:
    """Callees are flattened before they are copied, so every block is walked once."""

    def __init__(self, functions: dict[str, Any], *, whole: bool) -> None:
        self._functions = functions
        self._whole = whole
        self._flat: set[str] = set()  # names of ops that have no regions: as many as an op has, all of its name have
        self._sizes: dict[str, int] = {}  # ops of functions that are flat
        self._text = self._ops = 0  # read so far; there now
        self._depth = 0
        self._open: list[str] = []  # functions being flattened, to find a call of oneself
        self.kept: set[str] = (
            set()
        )  # functions that composites name, which may be wanted, and what calls name that stay

    def flatten(self, operation: Any) -> None:
        """Inlines all calls in an op's regions."""
        self._depth += 1
        if self._depth % 32 == 0:
            allow_nesting(self._depth, where=str(operation.location))
        for region in operation.regions:
            for block in region.blocks:
                for inner in self._to_look_into(block):
                    name = inner.name
                    if name == "func.call":
                        self._call(inner)
                    elif name == "stablehlo.composite":
                        symbol = symbol_of(inner.attributes["decomposition"])
                        self.kept.add(symbol)
                        self._flatten_function(symbol)
                    else:
                        self.flatten(inner)
        self._depth -= 1

    def _to_look_into(self, block: Any) -> list[Any]:
        """The calls, composites and ops with regions of a block, which is counted.

        They are a few of many, and the others are let go at once: MLIR's bindings keep a book of all ops that Python holds.
        """
        found = []
        flat = self._flat
        count = 0
        for view in block.operations:
            count += 1
            inner = view.operation
            name = inner.name
            if name in flat:
                continue
            if name in _CALLING or len(inner.regions):
                found.append(inner)
            else:
                flat.add(name)
        self._text += count
        self._ops += count
        return found

    def _call(self, call: Any) -> None:
        attributes = call.attributes
        if not self._whole and "meshcast.fusion" in attributes and call.parent.name == "func.func":
            raise FusionCallError
        symbol = symbol_of(attributes["callee"])
        self._flatten_function(symbol)
        grown = self._ops + self._sizes[symbol]
        if grown <= room_to_grow(self._text):
            self._splice(call, symbol)
            self._ops = grown
        elif self._whole:
            raise UnsupportedError(
                f"calls make {grown:,} ops and more of the program, whose text has {self._text:,}",
                where=f"@{symbol}",
                fix="a sharded program has to be flat: write what is repeated as a loop",
            )
        else:
            self.kept.add(symbol)

    def _flatten_function(self, symbol: str) -> None:
        if symbol in self._open:
            raise recursion([*self._open[self._open.index(symbol) :], symbol])
        if symbol not in self._functions:
            raise InputError(f"@{symbol} is called but not defined", where=f"@{symbol}", fix="export the whole module")
        if symbol not in self._sizes:
            self._open.append(symbol)
            before = self._ops
            self.flatten(self._functions[symbol])
            self._sizes[symbol] = self._ops - before
            self._open.pop()

    def _splice(self, call: Any, symbol: str) -> None:
        """Moves a copy of the callee's body before the call, and the call away."""
        clone = self._functions[symbol].clone(ip=ir.InsertionPoint(call))
        body = clone.regions[0].blocks[0]
        for parameter, value in zip(body.arguments, call.operands, strict=True):
            parameter.replace_all_uses_with(value)
        *ops, terminator = body.operations
        returned = list(terminator.operands)
        for op in ops:
            op.operation.move_before(call)
        for result, value in zip(call.results, returned, strict=True):
            result.replace_all_uses_with(value)
        call.erase()
        clone.erase()
