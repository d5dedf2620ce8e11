"""Values of a block whose order in memory nobody chooses for their readers: arguments, products, arithmetic on these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from meshcast.lower.layouts.memory_order import MemoryOrder, as_written, lies_together, reshaped, transposed
from meshcast.workload import Op, OpKind, Tensor

TILE = 32  # elements: the shortest edge of a tile that XLA's autotuner tries on tensor cores
_ASKING = frozenset({OpKind.GEMM, OpKind.TRANSPOSE})


class KnownOrders:
    """How values lie: arguments, results of products, and arithmetic on them; of others nothing is known.

    Attributes:
        fixed: Values that lie as they are written.
        tensors: Types of all values.
        views: The ops whose results are views.
        buffer: What a view's value shows, and that of an op which computes what another has computed.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        fixed: Set[int],
        tensors: Sequence[Tensor],
        views: Mapping[int, Op],
        buffer: Mapping[int, int],
    ) -> None:
        """Begins with what is fixed; of the ops only arithmetic on as many elements as products and transposes read is noted."""
        self._asked = {
            tensors[value].elements
            for op in ops
            if op.cost.kind in _ASKING
            for value in op.operands
            if buffer.get(value, value) not in fixed
        }
        self.fixed = fixed
        self.tensors = tensors
        self.views = views
        self.buffer = buffer
        self._made: dict[int, MemoryOrder | None] = {}
        self._depth: dict[int, int] = {}  # of arithmetic: ops between a value and the product that began it

    def note(self, op: Op) -> None:
        """Remembers what a product or arithmetic has written."""
        if len(op.results) != 1:
            return
        result = op.results[0]
        tensor = self.tensors[result]
        if tensor.elements not in self._asked:
            return
        shape = tensor.shape
        if op.cost.kind is OpKind.GEMM:
            if op.cost.parts:
                (batch, own, _), _ = op.cost.parts
                # Of a batch XLA keeps the order that it is written in (GpuLayoutAssignment::SetDotLayout).
                self._made[result] = as_written(shape, columns=None if batch else len(own))
            return
        source = self.deepest(op)
        if source is not None:
            lying = self.of(source)
            assert lying is not None
            self._made[result] = lying._replace(swapped=lying.order)
            self._depth[result] = self._depth.get(source, 0) + 1

    def deepest(self, op: Op) -> int | None:
        """The operand in whose order arithmetic is done: the one that most is computed in already, the first of several."""
        found: int | None = None
        shape = self.tensors[op.results[0]].shape
        for value in op.operands:
            if value in self.fixed or self.tensors[value].shape != shape or self.of(value) is None:
                continue
            if found is None or self._depth.get(value, 0) > self._depth.get(found, 0):
                found = value
        return found

    def follow(self, value: int, lead: int) -> None:
        """Notes that a value was turned to lie as another one does."""
        self._made[value] = self.of(lead)
        self._depth[value] = self._depth.get(lead, 0)

    def of(self, value: int) -> MemoryOrder | None:
        """How a value lies, through views."""
        passed: list[int] = []
        while value not in self._made and value not in self.fixed and value in self.buffer:
            if value in self.views:
                passed.append(value)
                value = self.views[value].operands[0]
            elif self.tensors[self.buffer[value]].shape == self.tensors[value].shape:
                value = self.buffer[value]
            else:
                return None
        lying = as_written(self.tensors[value].shape) if value in self.fixed else self._made.get(value)
        for view in reversed(passed):
            if lying is None:
                return None
            op = self.views[view]
            if op.cost.kind is OpKind.TRANSPOSE and op.cost.orders:
                lying = transposed(lying, op.cost.orders[0])
            else:
                lying = reshaped(lying, self.tensors[view].shape)
            self._made[view] = lying
        return lying


def atoms_of(lying: MemoryOrder, dims: Sequence[Sequence[int]]) -> list[list[int]]:
    """The atoms of a product's parts of an operand."""
    return [[atom for dim in part for atom in lying.dims[dim]] for part in dims]


def serving_order(lying: MemoryOrder, parts: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The order, of those in which a value may lie, that a library takes; None where it takes none."""
    return next((order for order in (lying.order, lying.swapped) if lies_together(order, parts)), None)


def is_tiled(lying: MemoryOrder, parts: Sequence[Sequence[int]]) -> bool:
    """Whether Triton's product reads an operand in tiles that a library would want turned first: of no batch.

    A tile's edges are powers of two, and each lies inside one run of atoms that follow each other in memory
    (XLA's symbolic tile analysis, gemm_fusion.cc): where rows, or what is summed over, have several runs, the innermost
    one is a multiple of the shortest edge. On an H200 the autotuner then mostly takes this kernel, which saves a pass: output
    projections of attention, behind 64 elements of a head, in all language models of the open ground truth.
    """
    if parts[0]:
        return False
    place = {atom: at for at, atom in enumerate(lying.order)}
    for part in parts[1:]:
        inner = 1
        for at in range(len(part) - 1, -1, -1):
            inner *= lying.sizes[part[at]]
            if at and place[part[at - 1]] + 1 != place[part[at]]:
                if inner % TILE:
                    return False
                break
    return True
