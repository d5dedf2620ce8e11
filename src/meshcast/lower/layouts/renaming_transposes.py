"""Transposes behind products that move nothing.

XLA's layout assignment gives arithmetic one order for all that it reads and writes: a product's transposed result stays as it
lies, and so does what is computed of it, if only products read that which can take it so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from meshcast.lower.layouts.fixed_orders import KnownOrders, atoms_of, is_tiled, serving_order
from meshcast.lower.layouts.memory_order import MemoryOrder, reshaped, transposed
from meshcast.workload import Op, OpKind

_SPREADING = frozenset({OpKind.BROADCAST, OpKind.GENERATE})  # of no order


def without_renamings(
    ops: Sequence[Op], kept: Set[int], known: KnownOrders, buffer: dict[int, int], views: dict[int, Op]
) -> list[Op]:
    """The ops without transposes that only rename what a product has written; what all others write is noted.

    Args:
        ops: The ops of a block, in order, without views.
        kept: Values that are needed after the block.
        known: How values lie.
        buffer: What a view's value shows; gets such transposes.
        views: The ops whose results are views; gets them, too.
    """
    renaming = _Renaming(ops, kept, known)
    gone: set[int] = set()
    left: list[Op] = []
    for op in ops:
        kind = op.cost.kind
        if kind is OpKind.ELEMENTWISE or kind is OpKind.GEMM:
            known.note(op)
        elif kind is OpKind.TRANSPOSE and renaming.renames(op):
            gone.add(op.results[0])
            buffer[op.results[0]] = buffer.get(op.operands[0], op.operands[0])
            views[op.results[0]] = op
            continue
        left.append(op)
    if gone:  # what was a view of such a transpose is one of the product
        buffer.update({view: buffer[shown] for view, shown in buffer.items() if shown in gone})
    return left


class _Renaming:
    def __init__(self, ops: Sequence[Op], kept: Set[int], known: KnownOrders) -> None:
        self._ops, self._known = ops, known
        self._kept = {known.buffer.get(value, value) for value in kept} | set(kept)
        self._readers: dict[int, list[tuple[Op, int]]] | None = None  # by buffer, with the name that it is read under
        self._spread: set[int] = set()

    def renames(self, transpose: Op) -> bool:
        """Whether a transpose is but another name for what it reads."""
        known, source = self._known, transpose.operands[0]
        if not transpose.cost.orders or known.buffer.get(source, source) in known.fixed:
            return False
        before = known.of(source)
        if before is None:
            return False
        result = transpose.results[0]
        found = transposed(before, transpose.cost.orders[0])
        alike = {result}  # all that arithmetic makes of it lies so
        waiting = [result]
        readers = self._readers_of_all()
        while waiting:
            value = waiting.pop()
            if value in self._kept or value not in readers:
                return False
            for op, read in readers[value]:
                seen = found if read == value else reshaped(found, known.tensors[read].shape)
                if seen is None:
                    return False
                if op.cost.kind is OpKind.GEMM:
                    if not _takes(op, read, seen, direct=value == result):
                        return False
                elif read != value or not self._is_arithmetic(op, alike):
                    return False
                elif op.results[0] not in alike:
                    alike.add(op.results[0])
                    waiting.append(op.results[0])
        return True

    def _readers_of_all(self) -> Mapping[int, Sequence[tuple[Op, int]]]:
        if self._readers is None:
            found = self._readers = {}
            shown = self._known.buffer.get
            for op in self._ops:
                for value in op.operands:
                    source = shown(value, value)
                    if source in found:
                        found[source].append((op, value))
                    else:
                        found[source] = [(op, value)]
                if op.cost.kind in _SPREADING:
                    self._spread.update(op.results)
        return self._readers

    def _is_arithmetic(self, op: Op, alike: Set[int]) -> bool:
        """Whether all that an op reads lies alike, or in no order."""
        if op.cost.kind is not OpKind.ELEMENTWISE or len(op.results) != 1:
            return False
        return all(value in alike or value in self._spread for value in op.operands)


def _takes(product: Op, value: int, lying: MemoryOrder, *, direct: bool) -> bool:
    """Whether a product can read a value that lies so; tile by tile only what nothing was computed of."""
    for operand, dims in zip(product.operands, product.cost.parts, strict=False):
        if operand == value:
            parts = atoms_of(lying, dims)
            if serving_order(lying, parts) is None and not (direct and is_tiled(lying, parts)):
                return False
    return bool(product.cost.parts)
