"""Ops that move nothing: their result is another name for their operand's buffer.

Views always are. What else is one depends on the backend, which says so in a table of rules by kind of op (`VIEWS`,
`TPU_ALIASES`, `GPU_ALIASES`): libraries take either layout of an operand, so that a transpose into a product or convolution
is a view of it; a matrix that is transposed twice is itself (XLA's algebraic simplifier); a reduction over dimensions of
size 1 is a reshape; cuDNN's attention leaves its result as the transpose behind it wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from meshcast.lower.graph.reduction_stages import is_identity
from meshcast.workload import Attention, Op, OpKind, Tensor

_LIBRARY = frozenset({OpKind.GEMM, OpKind.CONVOLUTION})


class Aliases:
    """The buffer that every value lies in; filled block by block, as bodies read values that are made around them.

    Attributes:
        tensors: Types of all values.
        buffer: A view's value -> the value whose bytes it shows.
        matrices: A matrix's transpose -> the matrix.
        orders: The transpose of an array of more dimensions -> the array, and the order of its dimensions there.
        transposed: Values that are another's transpose and lie in memory as that one.
        calls: Results of attention calls, which come in the order of the call's layout.
        views: The op whose result each view is.
        undone: Whether a transposed matrix was transposed back, or a view had further operands: nobody may read these any more.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Begins with none."""
        self.tensors = tensors
        self.buffer: dict[int, int] = {}
        self.views: dict[int, Op] = {}
        self.matrices: dict[int, int] = {}
        self.orders: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.transposed: set[int] = set()
        self.calls: set[int] = set()
        self.undone = False

    def undone_transpose(self, op: Op) -> int | None:
        """What a transpose turns back, if that is an array's transpose; one of an array itself is remembered for the next."""
        (operand, *_), (result, *_) = op.operands, op.results
        if operand in self.matrices:
            self.undone = True
            return self.matrices[operand]
        source, order = self.buffer.get(operand, operand), op.cost.orders[0] if op.cost.orders else ()
        if operand in self.orders:
            source, before = self.orders[operand]
            order = tuple([before[dim] for dim in order]) if len(order) == len(before) else ()
            if order and order == tuple(range(len(order))):
                self.undone = True
                return source
        elif sum(size > 1 for size in self.tensors[result].shape) == 2:
            self.matrices[result] = source
        elif order:
            self.orders[result] = source, order
        return None


Readers = Mapping[int, Sequence[OpKind]]
# The value whose bytes the op's result shows, or None. It is asked with what is known, the values that outlive the block, and
# the kinds of ops that read a value in it.
AliasRule = Callable[[Op, Aliases, Set[int], Readers], "int | None"]


def without_aliases(ops: Sequence[Op], known: Aliases, kept: Set[int], rules: Mapping[OpKind, AliasRule]) -> list[Op]:
    """The ops that move something; what the others show is added to `known`.

    Args:
        ops: A block's live ops in order.
        known: Aliases found so far.
        kept: Values that outlive the block.
        rules: Those of the backend.
    """
    readers: dict[int, list[OpKind]] = {}
    if any(op.cost.kind is OpKind.TRANSPOSE for op in ops):  # nobody else asks
        for op in ops:
            for value in op.operands:
                readers.setdefault(value, []).append(op.cost.kind)
    moving: list[Op] = []
    for op in ops:
        if isinstance(op.cost.geometry, Attention):
            known.calls.update(op.results)
        rule = rules.get(op.cost.kind)
        shown = None if rule is None else rule(op, known, kept, readers)
        if shown is None:
            moving.append(op)
        else:
            known.buffer[op.results[0]] = shown
            known.views[op.results[0]] = op
    return moving


def _view(op: Op, known: Aliases, kept: Set[int], readers: Readers) -> int | None:
    if len(op.operands) > 1:  # what a slice of all begins at, or a pad of nothing would pad with
        known.undone = True
    return _operand(op, known) if len(op.results) == 1 and op.operands else None


def _single_elements(op: Op, known: Aliases, kept: Set[int], readers: Readers) -> int | None:
    before, after = known.tensors[op.operands[0]].elements, known.tensors[op.results[0]].elements
    return _operand(op, known) if is_identity(op, before, after) else None


def _library_operand(op: Op, known: Aliases, kept: Set[int], readers: Readers) -> int | None:
    """The buffer of a transpose that only libraries read, which take either layout; None where others need new bytes."""
    if (shown := known.undone_transpose(op)) is not None:
        return shown
    result = op.results[0]
    only_libraries = result not in kept and result in readers and _LIBRARY.issuperset(readers[result])
    return _turned(op, known) if only_libraries else None


def _library_layout(op: Op, known: Aliases, kept: Set[int], readers: Readers) -> int | None:
    """The buffer of a transpose as above, or of one behind an attention call, whose layout it is; else None."""
    shown = _library_operand(op, known, kept, readers)
    return _turned(op, known) if shown is None and op.operands[0] in known.calls else shown


def _turned(op: Op, known: Aliases) -> int:
    if op.results[0] in known.matrices:
        known.transposed.add(op.results[0])
    return _operand(op, known)


def _operand(op: Op, known: Aliases) -> int:
    return known.buffer.get(op.operands[0], op.operands[0])


VIEWS: Mapping[OpKind, AliasRule] = {OpKind.VIEW: _view}
TPU_ALIASES: Mapping[OpKind, AliasRule] = {
    **VIEWS,
    OpKind.TRANSPOSE: _library_operand,
    OpKind.REDUCE: _single_elements,
}
GPU_ALIASES: Mapping[OpKind, AliasRule] = {**TPU_ALIASES, OpKind.TRANSPOSE: _library_layout}
