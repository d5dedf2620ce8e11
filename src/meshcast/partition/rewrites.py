"""Rewrites around Shardy's passes, on the MLIR module, in the child process.

Before: associative `chlo.scan` (how JAX 0.11+ lowers cumsum) becomes the window reduction of JAX 0.10, for which Shardy
has sharding rules; its legalisation is a sequential loop that no backend would run.

After: a sum that is scaled by one number is made of scaled terms, `AR(x) s` of `AR(x s)`: products in 8 bits scale their
results as they write them, before anything is sent. Then what XLA's AllReduceReassociate and ReduceScatterCreator do on
every backend. `AR(x) + AR(y)` becomes
`AR(x + y)`, and an all-reduce whose result is sliced along some of its own axes becomes a reduce-scatter over those and
an all-reduce over the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from meshcast.programs import ir

_MONOIDS = ("stablehlo.add", "stablehlo.multiply", "stablehlo.maximum", "stablehlo.minimum")
_RESHARDS = ("sdy.all_gather", "sdy.all_to_all", "sdy.all_slice", "sdy.collective_permute")
_AXIS = re.compile(r'"[^"]+"(?::\(\d+\)\d+)?')


def scans_to_windows(module: Any) -> None:
    """Turns `chlo.scan` over one of the plain monoids into `stablehlo.reduce_window`."""
    with module.context, ir.Location.unknown():
        for operation in list(_operations(module, "chlo.scan")):
            _scan_to_window(operation)


def _scan_to_window(scan: Any) -> None:
    body = scan.regions[0].blocks[0]
    ops = [op.operation for op in body.operations]
    if len(scan.operands) != 2 or len(ops) != 2 or ops[0].name not in _MONOIDS or _used(scan.results[1]):
        return
    source, start = scan.operands
    source_type = ir.RankedTensorType(source.type)
    rank, dim = source_type.rank, ir.IntegerAttr(scan.attributes["dimension"]).value
    length = source_type.shape[dim]
    backwards = "is_reverse" in scan.attributes and ir.BoolAttr(scan.attributes["is_reverse"]).value
    ones = [1] * rank
    window = [length if d == dim else 1 for d in range(rank)]
    low_high = [[0, 0] for _ in range(rank)]
    low_high[dim] = [0, length - 1] if backwards else [length - 1, 0]
    scalar = ir.RankedTensorType.get([], source_type.element_type)
    with ir.InsertionPoint(scan):
        initial = _scalar_start(start, scalar)
        if initial is None:
            return
        padding = ir.Attribute.parse(f"dense<{low_high}> : tensor<{rank}x2xi64>")
        new = ir.Operation.create(
            "stablehlo.reduce_window",
            results=[source_type],
            operands=[source, initial],
            attributes={
                "window_dimensions": ir.DenseI64ArrayAttr.get(window),
                "window_strides": ir.DenseI64ArrayAttr.get(ones),
                "base_dilations": ir.DenseI64ArrayAttr.get(ones),
                "window_dilations": ir.DenseI64ArrayAttr.get(ones),
                "padding": padding,
            },
            regions=1,
            loc=scan.location,
        )
        block = new.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            combined = ir.Operation.create(ops[0].name, results=[scalar], operands=list(block.arguments))
            ir.Operation.create("stablehlo.return", operands=[combined.result])
    scan.results[0].replace_all_uses_with(new.result)
    scan.erase()


def _scalar_start(start: Any, scalar: Any) -> Any | None:
    """The scan's initial value as a scalar, where it is a splat constant."""
    owner = getattr(start.owner, "operation", start.owner)
    while getattr(owner, "name", "") == "stablehlo.broadcast_in_dim":
        start = owner.operands[0]
        owner = getattr(start.owner, "operation", start.owner)
    if start.type == scalar:
        return start
    if getattr(owner, "name", "") != "stablehlo.constant":
        return None
    dense = ir.DenseElementsAttr(owner.attributes["value"])
    if not dense.is_splat:
        return None
    value = ir.DenseElementsAttr.get_splat(scalar, dense.get_splat_value())
    return ir.Operation.create("stablehlo.constant", results=[scalar], attributes={"value": value}).result


def merge_equal_reshards(module: Any) -> None:
    """One reshard per value and target sharding in a block; MLIR's own `cse` leaves Shardy's collectives alone.

    XLA's partitioner keeps every reshard it makes and uses it again, so a weight gathered for the forward product of a
    recomputed layer serves its backward product too.
    """
    with module.context, ir.Location.unknown():
        for block in _blocks(module):
            seen: dict[tuple[Any, ...], Any] = {}
            for view in list(block.operations):
                operation = view.operation
                if operation.name not in _RESHARDS:
                    continue
                attributes = tuple(operation.attributes[name] for name in sorted(operation.attributes))
                key = (operation.name, operation.operands[0], attributes)
                first = seen.setdefault(key, operation)
                if first is not operation:
                    operation.results[0].replace_all_uses_with(first.results[0])
                    operation.erase()


def scale_before_all_reduces(module: Any) -> None:
    """`AR(x) * s` becomes `AR(x * s)` where s is one number."""
    with module.context, ir.Location.unknown():
        for multiply in list(_operations(module, "stablehlo.multiply")):
            owners = [_owner(value) for value in multiply.operands]
            for place, reduce in enumerate(owners):
                if reduce is None or reduce.name != "sdy.all_reduce" or not _once(reduce) or not _adds(reduce):
                    continue
                if not _one_number(owners[1 - place]):
                    continue
                multiply.operands[place] = reduce.operands[0]
                _put_behind(multiply, reduce)
                reduce.erase()
                break


def _adds(reduce: Any) -> bool:
    """Whether what is reduced is the partial sums of a product."""
    made = _owner(reduce.operands[0])
    return made is not None and made.name in ("stablehlo.dot_general", "stablehlo.dot")


def _one_number(operation: Any | None) -> bool:
    """Whether a value is a scalar, broadcast."""
    if operation is None or operation.name != "stablehlo.broadcast_in_dim":
        return False
    return ir.RankedTensorType(operation.operands[0].type).rank == 0


def _put_behind(operation: Any, reduce: Any) -> None:
    """A copy of an all-reduce behind an operation, whose readers read the reduced value then."""
    uses = list(operation.results[0].uses)
    moved = reduce.clone(ip=ir.InsertionPoint(_next(operation)))
    moved.operands[0] = operation.results[0]
    for use in uses:
        use.owner.operands[use.operand_number] = moved.results[0]


def reassociate_all_reduces(module: Any) -> None:
    """`AR(x) + AR(y)` becomes `AR(x + y)`, over chains of additions."""
    with module.context, ir.Location.unknown():
        for add in list(_operations(module, "stablehlo.add")):
            left, right = (_owner(value) for value in add.operands)
            if left is None or right is None or left == right:
                continue
            if left.name != "sdy.all_reduce" or right.name != "sdy.all_reduce" or not (_once(left) and _once(right)):
                continue
            if any(left.attributes[n] != right.attributes[n] for n in ("reduction_axes", "out_sharding")):
                continue
            add.operands[0] = left.operands[0]
            add.operands[1] = right.operands[0]
            _put_behind(add, left)
            for old in (left, right):
                old.erase()


def scatter_sliced_all_reduces(module: Any) -> None:
    """Turns an all-reduce over R, sliced along T in R, into a reduce-scatter over T and an all-reduce over R - T."""
    with module.context, ir.Location.unknown():
        for cut in list(_operations(module, "sdy.all_slice")):
            reduce = _owner(cut.operands[0])
            if reduce is None or reduce.name != "sdy.all_reduce" or not _once(reduce):
                continue
            reduced = _AXIS.findall(str(reduce.attributes["reduction_axes"]))
            sliced = _AXIS.findall(str(cut.attributes["slicing_axes"]))
            rest = [axis for axis in reduced if axis not in sliced]
            if not sliced or not set(sliced) <= set(reduced):
                continue
            sharding = cut.attributes["out_sharding"]
            with ir.InsertionPoint(cut):
                value = ir.Operation.create(
                    "sdy.reduce_scatter",
                    results=[cut.results[0].type],
                    operands=[reduce.operands[0]],
                    attributes={"reduce_scatter_axes": cut.attributes["slicing_axes"], "out_sharding": sharding},
                    loc=reduce.location,
                ).result
                if rest:
                    axes = ir.Attribute.parse(f"#sdy<axis_ref_list{{{', '.join(rest)}}}>")
                    value = ir.Operation.create(
                        "sdy.all_reduce",
                        results=[cut.results[0].type],
                        operands=[value],
                        attributes={"reduction_axes": axes, "out_sharding": sharding},
                        loc=reduce.location,
                    ).result
            cut.results[0].replace_all_uses_with(value)
            cut.erase()
            reduce.erase()


def _operations(module: Any, name: str) -> Iterator[Any]:
    for block in _blocks(module):
        for op in block.operations:
            if op.operation.name == name:
                yield op.operation


def _blocks(module: Any) -> Iterator[Any]:
    """Every block of the module, outer ones first."""
    pending = [block for op in module.body.operations for region in op.operation.regions for block in region.blocks]
    while pending:
        block = pending.pop()
        yield block
        pending.extend(inner for op in block.operations for region in op.operation.regions for inner in region.blocks)


def _owner(value: Any) -> Any | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def _once(operation: Any) -> bool:
    return len(list(operation.results[0].uses)) == 1


def _used(value: Any) -> bool:
    return any(True for _ in value.uses)


def _next(operation: Any) -> Any:
    """The op after this one in its block."""
    block = operation.block
    found = False
    for op in block.operations:
        if found:
            return op.operation
        found = op.operation == operation
    raise AssertionError("an op with uses is never the last of its block")
