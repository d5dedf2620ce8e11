"""Trip counts of counted loops: `while i < n: i += step`, as scan and fori_loop lower to.

A loop that ends on data may still count: `while i < n and error > tolerance` runs `n` times at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from meshcast.programs import ir, string_of, symbol_of

CONSTANTS = ("stablehlo.constant", "sdy.constant")
_TRANSPARENT = (
    "stablehlo.convert",
    "stablehlo.reshape",
    "stablehlo.broadcast_in_dim",
    "stablehlo.optimization_barrier",
    "stablehlo.transpose",  # a compiled program's copies; of a scalar it can be nothing else
)
_KNOWN_COUNT = ("meshcast.trip_count", "mhlo.known_trip_count", "known_trip_count")
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


class _Place(NamedTuple):
    """A value, and the calls that lead to the function that it is in."""

    value: Any
    calls: tuple[Any, ...] = ()


def trip_count(loop: Any) -> int | None:
    """How often a `stablehlo.while` runs its body, or None where its bounds are not constants."""
    for name in _KNOWN_COUNT:
        if name in loop.attributes:
            return int(ir.IntegerAttr(loop.attributes[name]).value)
    return _Counting(loop, {}).turns(_Place(_predicate(loop)))


def most_trips(loop: Any) -> int | None:
    """How often a `stablehlo.while` runs at most, where one of the things that it asks for is a count; None where none is.

    Compiled programs, and some that JAX writes, have parts of their conditions in functions: these are looked into.
    """
    counting = _Counting(loop, _functions(loop))
    asked = counting.conjuncts(_Place(_predicate(loop)))
    return min((turns for each in asked if (turns := counting.turns(each)) is not None), default=None)


def _predicate(loop: Any) -> Any:
    condition = loop.regions[0].blocks[0]
    return condition.operations[len(condition.operations) - 1].operands[0]


def _functions(operation: Any) -> dict[str, Any]:
    """The blocks of a module's functions, by name."""
    while operation.parent is not None:
        operation = operation.parent
    ops = operation.regions[0].blocks[0].operations
    return {
        string_of(op.attributes["sym_name"]): op.regions[0].blocks[0] for op in ops if op.operation.name == "func.func"
    }


class _Counting:
    """What counts the turns of a loop: a counter that the condition compares and the body changes.

    Args:
        loop: The loop.
        functions: Blocks of the functions that are looked into, by name.
    """

    def __init__(self, loop: Any, functions: Mapping[str, Any]) -> None:
        self._loop = loop
        self._functions = functions
        self._condition, self._body = (region.blocks[0] for region in loop.regions)

    def conjuncts(self, predicate: _Place) -> Iterator[_Place]:
        """What must all be true for a predicate to be."""
        waiting = [predicate]
        while waiting:
            place = waiting.pop()
            operation, calls = self._defining(place)
            if operation is None:
                continue
            operands = list(operation.operands)
            if operation.name == "stablehlo.and":
                waiting += (_Place(each, calls) for each in operands)
            elif (
                operation.name in _TRANSPARENT
                or _keeps_scalar(operation)
                or self._is_unequal_to_false(operation, calls)
            ):
                waiting.append(_Place(operands[0], calls))
            else:
                yield place

    def turns(self, predicate: _Place) -> int | None:
        """How often the loop runs of whose condition a comparison with a counter is all; None where it is no such thing."""
        compare, calls = self._defining(predicate)
        if compare is None or compare.name != "stablehlo.compare":
            return None
        direction = _direction(compare)
        left, right = (_Place(each, calls) for each in compare.operands)
        index = self._argument_index(left, self._condition)
        if index is None or self._step(index) is None:  # the counter may stand on either side
            left, right, direction = right, left, _MIRRORED[direction]
            index = self._argument_index(left, self._condition)
        if index is None:
            return None
        step = self._step(index)
        start = self._constant(_Place(self._loop.operands[index]))
        limit = self._constant(right)
        if limit is None:
            limit = self._invariant(self._condition, right)
        if start is None or limit is None or not step:
            return None
        return _iterations(start, limit, step, direction)

    def _is_unequal_to_false(self, operation: Any, calls: tuple[Any, ...]) -> bool:
        """Whether it is `x != false`, which is x."""
        if operation.name != "stablehlo.compare" or _direction(operation) != "NE":
            return False
        return _truth(self._behind(_Place(operation.operands[1], calls))) is False

    def _invariant(self, block: Any, place: _Place) -> int | None:
        """A constant carried through the loop unchanged, as the condition or the body (`block`) sees it."""
        index = self._argument_index(place, block)
        if index is None:
            return None
        return self._constant(_Place(self._loop.operands[index])) if self._kept(index) else None

    def _yielded(self, index: int) -> Any:
        return self._body.operations[len(self._body.operations) - 1].operands[index]

    def _kept(self, index: int) -> bool:
        return bool(self._yielded(index) == self._body.arguments[index])

    def _step(self, index: int) -> int | None:
        """What the body adds to carried value `index` each time."""
        yielded, calls = self._defining(_Place(self._yielded(index)))
        if yielded is None or yielded.name not in ("stablehlo.add", "stablehlo.subtract"):
            return None
        left, right = (_Place(each, calls) for each in yielded.operands)
        if self._argument_index(left, self._body) == index:
            added = right
        elif yielded.name == "stablehlo.add" and self._argument_index(right, self._body) == index:
            added = left
        else:
            return None
        step = self._constant(added)
        if step is None:
            step = self._invariant(self._body, added)
        return None if step is None else (-step if yielded.name == "stablehlo.subtract" else step)

    def _argument_index(self, place: _Place, block: Any) -> int | None:
        found = self._through(place)
        return next((index for index, each in enumerate(block.arguments) if each == found.value), None)

    def _constant(self, place: _Place) -> int | None:
        return _integer(self._behind(place))

    def _behind(self, place: _Place) -> Any | None:
        """What defines a value, through converts, broadcasts and calls; None for a block's argument."""
        return _owner(self._through(place).value)

    def _through(self, place: _Place) -> _Place:
        """The value that a value is, under another name or in another form."""
        while True:
            operation, calls = self._defining(place)
            if operation is None:
                return self._entered(place)
            if operation.name not in _TRANSPARENT:
                return self._entered(place)
            place = _Place(operation.operands[0], calls)

    def _defining(self, place: _Place) -> tuple[Any | None, tuple[Any, ...]]:
        """The op that defines a value, with the calls that lead to it; None for an argument of the condition or the body."""
        found = self._entered(place)
        return _owner(found.value), found.calls

    def _entered(self, place: _Place) -> _Place:
        """A value as it is called where it is made: in the function that returns it, or by the call that hands it over."""
        value, calls = place
        while True:
            operation = _owner(value)
            if operation is None and calls and value.owner == self._function(calls[-1]):
                value, calls = calls[-1].operands[value.arg_number], calls[:-1]
            elif operation is not None and (block := self._function(operation)) is not None:
                place_in_results = list(operation.results).index(value)
                value, calls = (
                    block.operations[len(block.operations) - 1].operands[place_in_results],
                    (*calls, operation),
                )
            else:
                return _Place(value, calls)

    def _function(self, operation: Any) -> Any | None:
        """The block of the function that an op calls; None of other ops, and of functions that are not looked into."""
        if not self._functions or operation.name != "func.call":
            return None
        return self._functions.get(symbol_of(operation.attributes["callee"]))


def _keeps_scalar(operation: Any) -> bool:
    """Whether it is a reduction over no dimensions, which frameworks leave of one over an axis that is not there."""
    return operation.name == "stablehlo.reduce" and len(ir.DenseI64ArrayAttr(operation.attributes["dimensions"])) == 0


def _direction(compare: Any) -> str:
    return str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")


def _iterations(start: int, limit: int, step: int, direction: str) -> int | None:
    if direction == "NE":
        distance = limit - start
        return distance // step if distance % step == 0 and distance // step >= 0 else None
    if direction in ("LE", "GE"):
        limit += 1 if direction == "LE" else -1
    if direction in ("LT", "LE") and step > 0:
        return max(0, -((start - limit) // step))
    if direction in ("GT", "GE") and step < 0:
        return max(0, -((limit - start) // -step))
    return None


def _owner(value: Any) -> Any | None:
    """The op that defines a value; None for a block's argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else getattr(owner, "operation", owner)


def constant_value(value: Any) -> int | None:
    """The integer a value always holds, through converts and broadcasts, or None."""
    operation = _owner(value)
    while operation is not None and operation.name in _TRANSPARENT:
        operation = _owner(operation.operands[0])
    return _integer(operation)


def constant_truth(value: Any) -> bool | None:
    """The truth value that a value always holds, or None."""
    return _truth(_owner(value))


def _integer(operation: Any | None) -> int | None:
    """The integer that an op always gives, or None."""
    if operation is not None and operation.name == "stablehlo.get_dimension_size":
        dim = ir.IntegerAttr(operation.attributes["dimension"]).value
        size = ir.RankedTensorType(operation.operands[0].type).shape[dim]
        return int(size) if size >= 0 else None
    if operation is None or operation.name not in CONSTANTS:
        return None
    attribute = operation.attributes["value"]
    if not isinstance(attribute, (ir.DenseIntElementsAttr, ir.DenseElementsAttr)) or not attribute.is_splat:
        return None
    splat = np.asarray(ir.DenseElementsAttr(attribute)).reshape(-1)
    return int(splat[0]) if splat.size and np.issubdtype(splat.dtype, np.integer) else None


def _truth(operation: Any | None) -> bool | None:
    """The truth value that an op always gives, or None."""
    if operation is None or operation.name not in CONSTANTS:
        return None
    return {"dense<false>": False, "dense<true>": True}.get(str(operation.attributes["value"]).split(" :")[0])
