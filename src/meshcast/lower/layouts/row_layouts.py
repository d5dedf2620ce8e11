"""Values without an order of their own lie so that a reduction of them goes along rows: XLA:GPU's layout assignment.

An array that nothing ties to an order (it is computed of broadcasts, gathers and numbers that count up) takes the order that
one of its readers wishes. A reduction whose result has two dimensions or more wishes its operand with the dimensions that are
kept first, in the result's order, and those that go innermost, where its kernel would then go by rows
(`GpuLayoutAssignment::PropagateReductionLayoutToOperand`, `LayoutAssignment::ChooseOperandLayoutFromOutputLayout`): from 32
elements on, or as many as divide a warp. Arithmetic has one order for operands and results, so the wish reaches everything that
arithmetic connects. A scatter that reads such a value as updates wants it as it is written, since it takes a list of them: a
transpose stands before it.

Arguments, results of the block, of loops and of library calls have an order, and so have operands of products and other calls
(`AddBackendConstraints`); arithmetic that touches one of them keeps it, and nothing changes there. Nor does it where two
reductions wish different orders, where a slice, a join or a transpose reads the value, which would hand the order on, or where
a reduction reads a gather itself: XLA gathers a list of slices and reshapes it, and a reshape keeps the order it has.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from meshcast.lower.graph.reduction_stages import WARP
from meshcast.lower.value_types import LAID_OUT_ANEW, ValueTypes, moved
from meshcast.workload import Op, OpKind, Reduction, Tensor

Order = tuple[int, ...]  # dimensions longer than one, outermost first in memory

# Take a value in any order, or have it put in order before them.
_TAKING = frozenset({OpKind.REDUCE, OpKind.BROADCAST, OpKind.SCATTER})
# Want what they read as it is written.
_ORDERING = frozenset(
    {
        OpKind.GEMM,
        OpKind.CONVOLUTION,
        OpKind.SCATTER,
        OpKind.UPDATE,
        OpKind.LOOP,
        OpKind.BRANCH,
        OpKind.COLLECTIVE,
        OpKind.CUSTOM,
    }
)
# Written in any order: at no cost where every element is known without an operand of its size, else by a transpose that fuses.
_GENERATED = frozenset({OpKind.BROADCAST, OpKind.GENERATE})
_FREE = _GENERATED | {OpKind.GATHER}


@dataclass(slots=True)
class _Region:
    """Values that arithmetic connects, which lie alike."""

    sizes: tuple[int, ...]
    values: set[int] = field(default_factory=set)
    order: Order | None = None
    fixed: bool = False  # something in it has an order, or two wishes differ


def with_row_layouts(
    ops: Sequence[Op], kept: Set[int], values: ValueTypes, buffer: Mapping[int, int]
) -> list[Op]:  # fmt: skip
    """The ops with values in the order that a reduction of them wishes, where nothing gives them another.

    Args:
        ops: The ops of a block in order, without views.
        kept: Values that are needed after the block.
        values: Types, to which new values are added.
        buffer: What a view's value shows.
    """
    wishes = _wishes(ops, values.tensors)
    anchored = _anchored(ops, kept, values.tensors, buffer, wishes)
    wishes = {value: order for value, order in wishes.items() if value in anchored or list(order) == sorted(order)}
    regions = _regions(ops, kept, values.tensors, buffer, wishes)
    turned = {
        value: region.order
        for region in {id(each): each for each in regions.values()}.values()
        if not region.fixed and region.order is not None and list(region.order) != sorted(region.order)
        for value in region.values
    }
    return _rewritten(ops, turned, values, buffer) if turned else list(ops)


def may_lay_out_rows(
    ops: Sequence[Op], kept: Set[int], tensors: Sequence[Tensor], buffer: Mapping[int, int]
) -> bool:  # fmt: skip
    """Whether `with_row_layouts` may change something: a reduction wishes another order, and its operand may have none yet."""
    turning = [value for value, order in _wishes(ops, tensors).items() if list(order) != sorted(order)]
    return bool(turning) and _any_granted(ops, kept, tensors, buffer, turning)


def _wishes(ops: Sequence[Op], tensors: Sequence[Tensor]) -> dict[int, Order]:
    """The orders that reductions wish, by their results."""
    reductions = [op for op in ops if op.cost.kind is OpKind.REDUCE]
    return {op.results[0]: order for op in reductions if (order := _wish(op, tensors)) is not None}


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    return tuple([size for size in tensor.shape if size > 1])


def _long_dims(shape: Sequence[int]) -> dict[int, int]:
    """The place of each dimension longer than one among those."""
    return {dim: place for place, dim in enumerate([dim for dim, size in enumerate(shape) if size > 1])}


def _wish(op: Op, tensors: Sequence[Tensor]) -> Order | None:
    """The order in which a reduction wishes its operand; None of one that takes it as it lies."""
    geometry = op.cost.geometry
    if not isinstance(geometry, Reduction) or len(op.results) != 1:
        return None
    if len(tensors[op.results[0]].shape) < 2 or tensors[op.operands[0]].shape != geometry.shape:
        return None  # no order to follow (IsAtMostRank1), or what it reads lies otherwise already
    length = math.prod([geometry.shape[dim] for dim in geometry.dims])
    if length < WARP and (length < 2 or WARP % length):
        return None
    places = _long_dims(geometry.shape)
    gone = [places[dim] for dim in sorted(geometry.dims) if dim in places]
    return (*[place for place in places.values() if place not in gone], *gone)


def _any_granted(
    ops: Sequence[Op], kept: Set[int], tensors: Sequence[Tensor], buffer: Mapping[int, int], results: Collection[int]
) -> bool:
    """Whether one of some reductions may have its wish: False where all of their operands have an order, as mostly.

    Looks at what arithmetic makes each operand of, until something has an order. What has none here may be given one yet by what
    reads it (`_regions`).
    """
    made = {value: op for op in ops for value in op.results}
    needed = {buffer.get(value, value) for value in kept} | set(kept)
    ordered: set[int] = set()  # connected with something that has an order

    def has_order(value: int) -> bool:
        found, waiting = {value}, [value]
        while waiting:
            result = waiting.pop()
            op = made.get(result)
            if op is None or result in needed or result in ordered:
                break
            if op.cost.kind is not OpKind.ELEMENTWISE:
                if op.cost.kind not in _FREE:
                    break
                continue
            if len(op.results) != 1:
                continue
            joined = _joined(op, tensors, buffer)
            if joined is None:
                break
            waiting += [source for source in joined if source not in found]
            found.update(joined)
        else:
            return False
        ordered.update(found)
        return True

    for result in results:
        read = made[result].operands[0]
        value = buffer.get(read, read)
        sizes = _sizes(tensors[value])
        if len(sizes) > 1 and sizes == _sizes(tensors[read]) and not has_order(value):
            return True
    return False


def _joined(op: Op, tensors: Sequence[Tensor], buffer: Mapping[int, int]) -> list[int] | None:
    """What lies as arithmetic makes of it; None where an operand of another shape fixes the order, see `_regions`."""
    sizes = _sizes(tensors[op.results[0]])
    found: list[int] = []
    for value in op.operands:
        source = buffer.get(value, value)
        if _sizes(tensors[source]) == sizes == _sizes(tensors[value]):
            found.append(source)
        elif tensors[value].elements > 1:
            return None
    return found


def _anchored(
    ops: Sequence[Op], kept: Set[int], tensors: Sequence[Tensor], buffer: Mapping[int, int], results: Collection[int]
) -> set[int]:
    """Those results of reductions that arithmetic ties to something with an order: an argument, a result, a call.

    Others take any order once all else has one, and wish nothing of their operand before.
    """
    free = _FREE | {OpKind.ELEMENTWISE, OpKind.REDUCE}
    made = {value: op.cost.kind for op in ops for value in op.results}
    found = {buffer.get(value, value) for value in kept} | set(kept)
    made_of: dict[int, list[int]] = {}  # by arithmetic, of values that lie as it does
    for op in ops:
        sources = {buffer.get(value, value) for value in op.operands}
        if op.cost.kind is not OpKind.ELEMENTWISE or not op.results:
            found |= sources if op.cost.kind in _ORDERING else set()
            continue
        ordered = {_sizes(tensors[each]) for each in sources if made.get(each) not in free}
        sizes = _sizes(tensors[op.results[0]])
        found.update(each for each in sources if _sizes(tensors[each]) in ordered)
        made_of.setdefault(op.results[0], []).extend(each for each in sources if _sizes(tensors[each]) == sizes)
    waiting = list(found)
    while waiting:
        for value in made_of.get(waiting.pop(), ()):
            if value not in found:
                found.add(value)
                waiting.append(value)
    return found.intersection(results)


def _regions(
    ops: Sequence[Op],
    kept: Set[int],
    tensors: Sequence[Tensor],
    buffer: Mapping[int, int],
    wishes: Mapping[int, Order],
) -> dict[int, _Region]:
    """The region of every value that arithmetic makes or reads, or a reduction reads."""
    regions: dict[int, _Region] = {}
    made: dict[int, OpKind] = {value: op.cost.kind for op in ops for value in op.results}
    needed = {buffer.get(value, value) for value in kept} | set(kept)

    def region(read: int) -> _Region | None:
        """Of a value that is read, as it is; None where it is reshaped on the way, or is but an element."""
        value = buffer.get(read, read)
        sizes = _sizes(tensors[value])
        if len(sizes) < 2:
            return None
        if value not in regions:
            found = regions[value] = _Region(sizes, {value})
            found.fixed = value in needed or (
                made.get(value) not in _FREE and made.get(value) is not OpKind.ELEMENTWISE
            )
        if _sizes(tensors[read]) != sizes:
            regions[value].fixed = True  # a reshape, which takes the order as it is written
            return None
        return regions[value]

    def join(one: _Region, other: _Region) -> None:
        if one is other:
            return
        if one.order is not None and other.order is not None and one.order != other.order:
            one.fixed = True
        small, large = sorted((one, other), key=lambda each: len(each.values))
        large.values |= small.values
        large.fixed = large.fixed or small.fixed
        large.order = large.order if large.order is not None else small.order
        regions.update(dict.fromkeys(small.values, large))

    for op in ops:
        kind = op.cost.kind
        if kind is OpKind.ELEMENTWISE and len(op.results) == 1:
            own = region(op.results[0])
            for value in op.operands:
                read = region(value)
                if own is not None and read is not None and read.sizes == own.sizes:
                    join(regions[op.results[0]], read)
                    continue
                if read is not None:
                    read.fixed = True
                if own is not None and tensors[value].elements > 1:  # a product by sums, or a short reduction
                    regions[op.results[0]].fixed = True
        elif kind is OpKind.REDUCE and op.results and op.results[0] in wishes:
            read = region(op.operands[0])
            if read is not None:
                gathered = made.get(buffer.get(op.operands[0], op.operands[0])) is OpKind.GATHER
                read.fixed = read.fixed or gathered or read.order not in (None, wishes[op.results[0]])
                read.order = wishes[op.results[0]]
        else:
            shape = op.cost.geometry.shape if isinstance(op.cost.geometry, Reduction) else None
            for value in op.operands:
                read = region(value)  # fixes it where it is reshaped
                if read is not None and (kind not in _TAKING or shape not in (None, tensors[value].shape)):
                    read.fixed = True
    return regions


def _rewritten(
    ops: Sequence[Op], turned: Mapping[int, Order], values: ValueTypes, buffer: Mapping[int, int]
) -> list[Op]:
    tensors = values.tensors
    lying: dict[int, int] = {}  # value -> the same in its order
    for value, order in turned.items():
        sizes = _sizes(tensors[value])
        lying[value] = values.new(tuple([sizes[place] for place in order]), tensors[value].dtype)
    written: set[int] = set()  # that stand in their own order as well
    made: list[Op] = []

    def in_order(value: int, origin: Op) -> None:
        """The transpose that gives a value as it is written, once."""
        if value not in written:
            written.add(value)
            order = turned[value]
            back = tuple([order.index(place) for place in range(len(order))])
            made.append(_turn(origin, lying[value], value, back, values))

    for op in ops:
        sources = [buffer.get(value, value) for value in op.operands]
        kind, result = op.cost.kind, op.results[0] if op.results else -1
        if result in turned and kind is OpKind.ELEMENTWISE:
            operands = tuple([lying.get(source, value) for source, value in zip(sources, op.operands, strict=True)])
            made.append(replace(op, operands=operands, results=(lying[result],), equal=()))
        elif result in turned and kind in _GENERATED:
            made += _generated(op, turned[result], lying[result], values)
        elif kind is OpKind.REDUCE and sources[0] in turned and isinstance(op.cost.geometry, Reduction):
            operands = tuple([lying.get(source, value) for source, value in zip(sources, op.operands, strict=True)])
            geometry = _in_order(op.cost.geometry, turned[sources[0]])
            made.append(replace(op, operands=operands, cost=replace(op.cost, geometry=geometry)))
        else:
            if kind is OpKind.BROADCAST:  # repeats an array in whichever order it lies
                op = replace(
                    op, operands=tuple([lying.get(source, v) for source, v in zip(sources, op.operands, strict=True)])
                )
            else:
                for source in sources:
                    if source in turned:
                        in_order(source, op)
            made.append(op)
            if result in turned:
                written.add(result)
                made.append(_turn(op, result, lying[result], turned[result], values))
    return made


def _generated(op: Op, order: Order, target: int, values: ValueTypes) -> list[Op]:
    """A broadcast or a counter as it is wanted; an array that is repeated has its own dimensions put in that order first."""
    dims = op.cost.orders[0] if op.cost.kind is OpKind.BROADCAST and op.cost.orders else ()
    written = replace(op, results=(target,), equal=())
    if not dims:
        return [written]
    tensor, places = values.tensors[op.operands[0]], _long_dims(values.tensors[op.results[0]].shape)
    kept = [
        order.index(places[dim]) for dim, size in zip(dims, tensor.shape, strict=False) if size > 1 and dim in places
    ]
    if kept == sorted(kept):
        return [written]
    moved_to = tuple(sorted(range(len(kept)), key=kept.__getitem__))
    source = values.new(tuple([_sizes(tensor)[place] for place in moved_to]), tensor.dtype)
    return [_turn(op, op.operands[0], source, moved_to, values), replace(written, operands=(source, *op.operands[1:]))]


def _turn(origin: Op, source: int, target: int, order: Order, values: ValueTypes) -> Op:
    transpose = moved(origin, OpKind.TRANSPOSE, LAID_OUT_ANEW, source, target, values)
    return replace(transpose, cost=replace(transpose.cost, orders=(order,)), trip_count=1, equal=())


def _in_order(geometry: Reduction, order: Order) -> Reduction:
    """A reduction over what it reads as that lies."""
    places = _long_dims(geometry.shape)
    sizes = [geometry.shape[dim] for dim in places]
    gone = {places[dim] for dim in geometry.dims if dim in places}
    dims = tuple([at for at, place in enumerate(order) if place in gone])
    return Reduction(shape=tuple([sizes[place] for place in order]), dims=dims)
