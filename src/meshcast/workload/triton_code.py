"""What a Triton kernel computes and moves, counted from its own code (the `tt` dialect), over all programs of its grid.

A kernel's body is straight code with counted loops. Its products are `tt.dot` (2 M N K), its arithmetic one FLOP an element,
its functions (`math.*`, `tt.extern_elementwise`) a transcendental an element, its traffic what it loads and stores; integers
are addresses and are not counted. A loop counts as often as its bounds say. These are integer arithmetic over constants, over
the program's place in the grid and over outer loops, and are evaluated; where they depend on the place (causal attention: as
many keys as there are before the query), the mean over places spread evenly through the grid stands for all.

What depends on data is bounded from above: a minimum with an unknown side is its known side, a branch its costlier side. A loop
without a bound leaves the kernel uncounted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from jaxlib.mlir import ir

from meshcast.workload.graph import DTYPE_BITS

_SAMPLES = 16  # places along one axis of the grid, and turns of an outer loop, that are evaluated


def _quotient(a: int, b: int) -> int:
    """`arith.divsi`: rounded towards zero; 0 where `b` is, which the code leaves undefined."""
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0


_INTEGERS: Mapping[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": _quotient,
    "divui": lambda a, b: a // b if b else 0,
    "remsi": lambda a, b: a - b * _quotient(a, b) if b else 0,
    "remui": lambda a, b: a % b if b else 0,
    "ceildivsi": lambda a, b: -(-a // b) if b else 0,
    "floordivsi": lambda a, b: a // b if b else 0,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "shli": lambda a, b: a << min(b, 64),
    "shrsi": lambda a, b: a >> min(b, 64),
    "shrui": lambda a, b: a >> min(b, 64),
    "maxsi": max,
    "maxui": max,
}
_MINIMA = frozenset({"minsi", "minui"})
_COMPARED: Sequence[Callable[[int, int], bool]] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    *((lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b) * 2),
)  # in the order of MLIR's `arith.cmpi` predicates: eq, ne, then slt sle sgt sge, ult ule ugt uge
_FLOATS = "addf subf mulf divf remf negf maxnumf minnumf maximumf minimumf cmpf"
_ARITHMETIC = frozenset(f"arith.{name}" for name in _FLOATS.split())


class UncountableError(Exception):
    """A loop whose bounds the code does not give."""


@dataclass(frozen=True, slots=True)
class KernelWork:
    """What all programs of a kernel do together."""

    matrix_flops: float = 0.0
    vector_flops: float = 0.0
    transcendentals: float = 0.0
    loaded_bytes: float = 0.0
    stored_bytes: float = 0.0

    def plus(self, other: KernelWork, times: float = 1.0) -> KernelWork:
        """The sum of this work and `times` the other."""
        return KernelWork(*(getattr(self, f.name) + times * getattr(other, f.name) for f in fields(self)))


def kernel_work(module: Any, grid: tuple[int, int, int]) -> KernelWork:
    """The work of the one function of a Triton module over a grid.

    Raises:
        UncountableError: A loop has no bound that the code tells.
    """
    functions = [op.operation for op in module.body.operations if op.operation.name == "tt.func"]
    if len(functions) != 1:
        raise UncountableError(f"the module has {len(functions)} functions")
    body = _Straight.of(functions[0].regions[0].blocks[0])
    asked: set[int] = set()
    _Program((0, 0, 0), asked).run(body)  # tells which axes the bounds of loops depend on
    x, y, z = (_spread(size) if axis in asked else [0] for axis, size in enumerate(grid))
    places = list(product(x, y, z))
    total = KernelWork()
    for place in places:
        total = total.plus(_Program(place, asked).run(body), math.prod(grid) / len(places))
    return total


@dataclass(frozen=True, slots=True)
class _Straight:
    """A block: the work of its straight code, counted once, and the loops and branches in it with their own blocks."""

    work: KernelWork
    inner: tuple[tuple[Any, tuple[_Straight, ...]], ...]

    @classmethod
    def of(cls, block: Any) -> _Straight:
        work, inner = KernelWork(), []
        for view in block.operations:
            op = view.operation
            name = op.name
            if name == "scf.while":
                raise UncountableError("a loop runs until a condition holds")
            if name in ("scf.for", "scf.if"):
                inner.append((op, tuple(cls.of(part) for region in op.regions for part in region.blocks)))
            else:
                work = work.plus(_op_work(name, op))
        return cls(work, tuple(inner))


def _spread(size: int) -> list[int]:
    """All places along an axis, or as many spread evenly: the middles of equal parts."""
    count = max(1, min(size, _SAMPLES))
    return [int((2 * i + 1) * size / (2 * count)) for i in range(count)]


class _Program:
    """One program of the grid: integers are evaluated where a loop or a branch asks for them."""

    def __init__(self, place: tuple[int, int, int], asked: set[int]) -> None:
        self._place = place
        self._asked = asked  # axes of the grid that were asked for
        self._known: dict[Any, int | None] = {}

    def run(self, block: _Straight) -> KernelWork:
        """The work of a block, its loops and branches included."""
        work = block.work
        for op, parts in block.inner:
            work = work.plus(self._loop(op, parts[0]) if op.name == "scf.for" else self._branch(op, parts))
        return work

    def _loop(self, op: Any, body: _Straight) -> KernelWork:
        low, high, step = (self._value(op.operands[position]) for position in range(3))
        if low is None or high is None or not step:
            raise UncountableError("the bounds of a loop depend on data")
        trips = max(0, -(-(high - low) // step))
        if not trips:
            return KernelWork()
        turns = _spread(trips) if body.inner else [0]
        outside = self._known
        work = KernelWork()
        for turn in turns:
            self._known = {**outside, op.regions[0].blocks[0].arguments[0]: low + turn * step}
            work = work.plus(self.run(body), trips / len(turns))
        self._known = outside  # what was found inside may depend on the turn
        return work

    def _branch(self, op: Any, parts: tuple[_Straight, ...]) -> KernelWork:
        taken = self._value(op.operands[0])
        if taken is not None:
            chosen = parts[0] if taken else parts[1] if len(parts) > 1 else None
            return self.run(chosen) if chosen is not None else KernelWork()
        sides = [self.run(part) for part in parts]
        return max(sides, key=lambda side: (side.matrix_flops, side.loaded_bytes + side.stored_bytes))

    def _value(self, value: Any) -> int | None:
        """The integer that a scalar is; None where data decides."""
        if value in self._known:
            return self._known[value]
        found = self._computed(value) if isinstance(value, ir.OpResult) else None
        self._known[value] = found
        return found

    def _computed(self, value: Any) -> int | None:
        op = value.owner
        name = op.name
        if name == "tt.get_program_id":
            axis = int(ir.IntegerAttr(op.attributes["axis"]).value)
            self._asked.add(axis)
            return self._place[axis]
        dialect, _, kind = name.partition(".")
        if dialect != "arith":
            return None
        if kind == "constant":
            said = op.attributes["value"]
            return int(said.value) if isinstance(said, ir.IntegerAttr) else None
        given = [self._value(operand) for operand in op.operands]
        if kind in ("extsi", "extui", "trunci", "index_cast"):
            return given[0]
        if kind in _MINIMA:
            return min((side for side in given if side is not None), default=None)
        if kind == "select" and len(given) == 3:
            return None if given[0] is None else given[1] if given[0] else given[2]
        left, right = given if len(given) == 2 else (None, None)
        if left is None or right is None:
            return None
        if kind == "cmpi":
            return int(_COMPARED[int(ir.IntegerAttr(op.attributes["predicate"]).value)](left, right))
        return _INTEGERS[kind](left, right) if kind in _INTEGERS else None


def _op_work(name: str, op: Any) -> KernelWork:
    """The work of one op of a straight block."""
    if name == "tt.dot":
        (left, _), (result, _) = _sized(op.operands[0].type), _sized(op.results[0].type)
        return KernelWork(matrix_flops=2.0 * math.prod(result) * left[-1])
    if name == "tt.reduce":
        shape, _ = _sized(op.operands[0].type)
        return KernelWork(vector_flops=math.prod(shape))
    if name == "tt.load":
        shape, bits = _sized(op.results[0].type)
        return KernelWork(loaded_bytes=math.prod(shape) * bits / 8)
    if name == "tt.store":
        shape, bits = _sized(op.operands[1].type)
        return KernelWork(stored_bytes=math.prod(shape) * bits / 8)
    if name in _ARITHMETIC:
        return KernelWork(vector_flops=math.prod(_sized(op.results[0].type)[0]))
    if name.startswith("math.") or name == "tt.extern_elementwise":
        return KernelWork(transcendentals=math.prod(_sized(op.results[0].type)[0]))
    return KernelWork()


def _sized(value_type: Any) -> tuple[tuple[int, ...], int]:
    """Shape and bits an element of a value; a scalar has no shape."""
    if isinstance(value_type, ir.RankedTensorType):
        return tuple(value_type.shape), DTYPE_BITS.get(str(value_type.element_type), 32)
    return (), DTYPE_BITS.get(str(value_type), 32)
