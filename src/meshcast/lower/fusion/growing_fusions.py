"""Fusions while they grow backwards from their roots: what they read from outside, kept up to date op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshcast.lower.products.matrix_products import is_plain
from meshcast.workload import Op, OpKind, Tensor

Predicate = Callable[[int], bool]
# What Triton's row fusions cannot index by.
_NOT_IN_ROWS = frozenset({OpKind.GATHER, OpKind.MOVE})
# Take every element of an operand once at the most.
_PARTS = frozenset({OpKind.MOVE, OpKind.UPDATE, OpKind.SCATTER})
# Ask for other numbers of an operand's elements than they give themselves.
ASKING_OTHERWISE = _PARTS | {OpKind.WINDOW, OpKind.GATHER}


class Growing:
    """The fusion of a root and what has joined it so far.

    Ops join in the reverse of program order. What one reads is made by ops before it, which have not joined yet, so it comes
    from outside until they do.
    """

    __slots__ = (
        "_is_indexable",
        "_is_plain",
        "_is_unary",
        "_joined",
        "_judged",
        "_outside",
        "asking",
        "space",
    )

    def __init__(self, root: Op, operands: Sequence[int], space: int = 0) -> None:
        """Begins with the root, over so many elements."""
        self.space = space
        # By the place of a member that reads something: which ops ask for its operands at places of their own, itself unless it
        # is arithmetic, and how often each of its operands' elements is computed for that.
        self.asking: dict[int, tuple[frozenset[int], int]] = {}
        self._joined = [(root, operands)]
        self._judged = 0  # how many of those that joined the next three are true of
        self._is_plain = True
        self._is_unary = True
        self._is_indexable = True
        # By what is asked for: how many of those that joined are seen to, and what they take from outside.
        self._outside: dict[int, tuple[int, set[int]]] = {}

    def add(self, op: Op, operands: Sequence[int]) -> None:
        """An op joins."""
        self._joined.append((op, operands))

    @property
    def is_plain(self) -> bool:
        """Whether all of its ops are plain arithmetic."""
        self._judge()
        return self._is_plain

    @property
    def is_unary(self) -> bool:
        """Whether each of its ops is a function of one operand."""
        self._judge()
        return self._is_unary

    @property
    def is_indexable(self) -> bool:
        """Whether Triton can index by all of its ops."""
        self._judge()
        return self._is_indexable

    def _judge(self) -> None:
        """Looks at the ops that have joined since: of most fusions nobody asks."""
        for op, operands in self._joined[self._judged :]:
            self._is_plain = self._is_plain and is_plain(op)
            self._is_unary = self._is_unary and op.cost.kind is OpKind.ELEMENTWISE and len(operands) == 1
            self._is_indexable = self._is_indexable and is_indexable(op)
        self._judged = len(self._joined)

    def outside(self, which: int, predicate: Predicate, op: Op, operands: Sequence[int] = ()) -> int:
        """How many values would come from outside if this op had joined, of those that the predicate is true for.

        Args:
            which: A number for the predicate, which is the same whenever it is asked for by that number.
            predicate: Of values.
            op: The op.
            operands: What it reads, where that counts.
        """
        seen, outside = self._outside.get(which) or (0, set())
        for joined, taken in self._joined[seen:]:
            outside.difference_update(joined.results)
            outside.update(filter(predicate, taken))
        self._outside[which] = len(self._joined), outside
        fewer = len(outside.intersection(op.results))
        if not operands:
            return len(outside) - fewer
        return len(outside) - fewer + sum([value not in outside and predicate(value) for value in set(operands)])


def is_indexable(op: Op) -> bool:
    """Whether Triton's row fusions can index by an op; where not, what it gives is copied first."""
    return op.cost.kind not in _NOT_IN_ROWS and not (op.cost.kind is OpKind.SLICE and op.name.endswith("dynamic_slice"))


def is_index(value: int, gathered: tuple[int, ...], tensors: Sequence[Tensor]) -> bool:
    """Whether a value is a gather's indices, or as many elements that they come from: asked for once (`HandleGather`)."""
    table, *indices = gathered
    return value != table and any(tensors[value].elements == tensors[each].elements for each in indices)
