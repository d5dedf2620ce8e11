"""Ops that compute what an op before them in the same block has computed: XLA's hlo_cse, found while a program is read.

Two ops are equal where their names, operands, attributes, bodies and result types are; an operand that an equal op made counts
as the first one's. Blocks are compared within themselves, as XLA compares within a computation; functions that are called
count as inlined. What an optimization barrier hands on is another value than what it was given, so that nothing is merged
with what `jax.checkpoint` computes again. Random numbers from a hidden state are never equal.

Most ops share name and operands with no other, so attributes and bodies are only looked at where two do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from meshcast.workload.graph import Tensor

_UNEQUAL = frozenset({"stablehlo.rng"})
_CONSTANT = "stablehlo.constant"

Key = tuple[object, ...]
Numbers = tuple[int, ...]


class EqualOps:
    """The ops of the block that is being read, by what makes them equal."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Begins with none; `tensors` are the types of all values, one object of equal ones, and may grow."""
        self._tensors = tensors
        self._barred: dict[Any, int] = {}  # results of barriers -> numbers that no other value has
        self._barriers = itertools.count(1)
        self._first: dict[int, int] = {}  # result of a later equal op -> that of the first
        self._seen: dict[Key, tuple[Any, Numbers]] = {}  # the first op of a name, operands and types, and its results
        self._alike: dict[
            Key, dict[Key, Numbers]
        ] = {}  # where there are several: their results by attributes and bodies

    @contextmanager
    def block(self) -> Iterator[None]:
        """While a block of its own is read: nothing in it is equal to an op outside."""
        outer = self._seen, self._alike
        self._seen, self._alike = {}, {}
        yield
        self._seen, self._alike = outer

    def bar(self, operation: Any) -> None:
        """Takes a barrier's results for values of their own."""
        for result in operation.results:
            self._barred[result] = -next(self._barriers)

    def hand_over(self, arguments: Sequence[Any], operation: Any) -> None:
        """Takes a body's arguments for the operands of the op that runs it."""
        barred = self._barred
        if barred:
            for argument, operand in zip(arguments, operation.operands, strict=True):
                barred.pop(argument, None)
                if operand in barred:
                    barred[argument] = barred[operand]

    def before(self, name: str, operation: Any, operands: Numbers, results: Numbers) -> Numbers:
        """The results of the first op that this one is equal to; none where it is itself the first.

        Args:
            name: The op's.
            operation: In MLIR.
            operands: Numbers of the values that it reads.
            results: Numbers of its results.
        """
        if name in _UNEQUAL or not results:
            return ()
        first, barred, tensors = self._first, self._barred, self._tensors
        if barred:
            operands = tuple([barred.get(v, n) for v, n in zip(operation.operands, operands, strict=True)])
        if first:
            operands = tuple([first.get(value, value) for value in operands])
        key: Key = (name, operands, *[id(tensors[value]) for value in results])
        if name == _CONSTANT:
            key += (_value(operation),)
        found = self._seen.setdefault(key, (operation, results))
        if found[1] is results:
            return ()
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = {_details(found[0]): found[1]}
        same = alike.setdefault(_details(operation), results)
        if same is results:
            return ()
        first.update(zip(results, same, strict=True))
        return same


def _details(operation: Any) -> Key:
    """What sets ops of one name and the same operands apart: attributes, and what their bodies do."""
    return _attributes(operation), tuple([_body(block) for region in operation.regions for block in region.blocks])


def _attributes(operation: Any) -> Key:
    attributes = operation.attributes
    return tuple([(name, _value(operation) if name == "value" else attributes[name]) for name in attributes])


def _value(constant: Any) -> object:
    """A constant's value; of types that the bindings cannot hold (complex numbers) its text, which says the same."""
    try:
        return constant.attributes["value"]
    except TypeError:
        return constant.get_asm(use_local_scope=True).partition("=")[2]


def _body(block: Any) -> Key:
    """A block's ops with values numbered within it; a value from outside stands for itself."""
    numbers = {argument: position for position, argument in enumerate(block.arguments)}
    ops: list[Key] = []
    for view in block.operations:
        operation = view.operation
        reads = tuple([numbers.get(value, value) for value in operation.operands])
        ops.append((operation.name, reads, tuple([result.type for result in operation.results]), *_details(operation)))
        for result in operation.results:
            numbers[result] = len(numbers)
    return tuple(ops)
