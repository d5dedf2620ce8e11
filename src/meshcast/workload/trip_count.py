"""Trip counts of counted loops: `while i < n: i += step`, as scan and fori_loop lower to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meshcast.base import UsageError
from meshcast.programs import ir

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


def trip_count(loop: Any) -> int | None:
    """How often a `stablehlo.while` runs its body, or None where its bounds are not constants."""
    for name in _KNOWN_COUNT:
        if name in loop.attributes:
            return int(ir.IntegerAttr(loop.attributes[name]).value)
    condition, body = loop.regions[0].blocks[0], loop.regions[1].blocks[0]
    compare = _defining(condition.operations[len(condition.operations) - 1].operands[0])
    if compare is None or compare.name != "stablehlo.compare":
        return None
    direction = str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")
    left, right = compare.operands
    index = _argument_index(left, condition)
    if index is None or _step(loop, body, index) is None:  # the counter may stand on either side
        left, right, direction = right, left, _MIRRORED[direction]
        index = _argument_index(left, condition)
    if index is None:
        return None
    step = _step(loop, body, index)
    start = constant_value(loop.operands[index])
    limit = constant_value(right)
    if limit is None:
        limit = _invariant(loop, condition, body, right)
    if start is None or limit is None or not step:
        return None
    return _iterations(start, limit, step, direction)


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


def _invariant(loop: Any, block: Any, body: Any, value: Any) -> int | None:
    """A constant carried through the loop unchanged, as the condition or the body (`block`) sees it."""
    index = _argument_index(value, block)
    if index is None:
        return None
    yielded = body.operations[len(body.operations) - 1].operands[index]
    return constant_value(loop.operands[index]) if yielded == body.arguments[index] else None


def _step(loop: Any, body: Any, index: int) -> int | None:
    """What the body adds to carried value `index` each time."""
    yielded = _defining(body.operations[len(body.operations) - 1].operands[index])
    if yielded is None or yielded.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = yielded.operands
    if _argument_index(left, body) == index:
        added = right
    elif yielded.name == "stablehlo.add" and _argument_index(right, body) == index:
        added = left
    else:
        return None
    step = constant_value(added)
    if step is None:
        step = _invariant(loop, body, body, added)
    return None if step is None else (-step if yielded.name == "stablehlo.subtract" else step)


def _argument_index(value: Any, block: Any) -> int | None:
    defining = _defining(value)
    while defining is not None and defining.name in _TRANSPARENT:
        value = defining.operands[0]
        defining = _defining(value)
    for index, argument in enumerate(block.arguments):
        if value == argument:
            return index
    return None


def _defining(value: Any) -> Any | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else getattr(owner, "operation", owner)


def constant_value(value: Any) -> int | None:
    """The integer a value always holds, through converts and broadcasts, or None."""
    operation = _defining(value)
    while operation is not None and operation.name in _TRANSPARENT:
        operation = _defining(operation.operands[0])
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


def trips_of(operation: Any, label: str, given: Mapping[str, int], *, where: str) -> tuple[int, str]:
    """A loop's trips, and the name in `given` that they came from; nothing where the program says them.

    Raises:
        UsageError: Neither says them.
    """
    trips = trip_count(operation)
    if trips is not None:
        return trips, ""
    source = label if label in given else "*"
    if source not in given:
        raise UsageError(
            f"the trip count of {label} is not a constant of the program",
            where=where,
            fix=f"give it: --trip-count N, or --trip-count {label}=N for this loop alone",
        )
    return given[source], source


def refuse_unused(given: Mapping[str, int], loops: Mapping[str, str], *, where: str) -> None:
    """A count that changes nothing misleads: whoever gave it believes that it counts.

    Args:
        given: Trip counts by loop label; "*" for every unknown one.
        loops: By label, the name in `given` that a loop's count came from; nothing where the program says it.
        where: The program.

    Raises:
        UsageError: A count that no loop needs.
    """
    unused = [(name, count) for name, count in given.items() if name not in loops.values()]
    if not unused:
        return
    said = ", ".join(f"{count}" if name == "*" else f"{name}={count}" for name, count in unused)
    asking = [label for label, source in loops.items() if source]
    known = len(loops) - len(asking)
    raise UsageError(
        f"--trip-count {said} has no effect: no loop asks for it",
        where=where,
        fix=f"loops that need a count: {', '.join(asking) or 'none'} ({known} have theirs in the program)",
    )
