"""How a value lies in memory, followed through transposes and reshapes that move nothing.

A value's dimensions are split into atoms: factors that no reshape on the way has to divide. Each dimension is a row of atoms,
outermost first, and all of them lie in memory in one order. A transpose reorders dimensions, a reshape regroups the atoms, and
neither touches that order; arithmetic writes its result in the order of what it reads (XLA's layout assignment).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class MemoryOrder(NamedTuple):
    """The atoms of a value, and their orders.

    Attributes:
        sizes: Of every atom, all above one.
        dims: Each dimension's atoms, outermost first; none of a dimension of one element.
        order: All atoms as they lie in memory, outermost first.
        swapped: The order in which a product could have written them as well, its operands swapped; else the same.
    """

    sizes: tuple[int, ...]
    dims: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    swapped: tuple[int, ...]


def as_written(shape: Sequence[int], *, columns: int | None = None) -> MemoryOrder:
    """Row by row; of a product's result that may lie by columns as well, `columns` is the first dimension of these."""
    sizes: list[int] = []
    dims: list[tuple[int, ...]] = []
    for size in shape:
        dims.append((len(sizes),) if size > 1 else ())
        if size > 1:
            sizes.append(size)
    order = tuple(range(len(sizes)))
    swapped = order
    if columns is not None:
        swapped = tuple([atom for dim in (*dims[columns:], *dims[:columns]) for atom in dim])
    return MemoryOrder(tuple(sizes), tuple(dims), order, swapped)


def transposed(lying: MemoryOrder, permutation: Sequence[int]) -> MemoryOrder:
    """The same bytes with other dimensions first: dimension i was `permutation[i]`."""
    return lying._replace(dims=tuple([lying.dims[dim] for dim in permutation]))


def reshaped(lying: MemoryOrder, shape: Sequence[int]) -> MemoryOrder | None:
    """The same elements in another shape; None where that cuts through atoms in a way that has no common factors.

    Atoms are taken in the order of the dimensions; one that is longer than what a dimension still lacks is split, its outer
    part first.
    """
    waiting = [(atom, lying.sizes[atom]) for dim in lying.dims for atom in dim]
    waiting.reverse()
    pieces: list[list[int]] = [[] for _ in lying.sizes]  # of each atom, the new ones
    sizes: list[int] = []
    dims: list[tuple[int, ...]] = []
    for lacking in shape:
        taken: list[int] = []
        while lacking > 1:
            if not waiting:
                return None
            atom, size = waiting.pop()
            part = size if lacking % size == 0 else lacking if size % lacking == 0 else 0
            if not part:
                return None
            if part < size:
                waiting.append((atom, size // part))
            lacking //= part
            pieces[atom].append(len(sizes))
            taken.append(len(sizes))
            sizes.append(part)
        dims.append(tuple(taken))
    if waiting:
        return None

    def split(order: Sequence[int]) -> tuple[int, ...]:
        return tuple([piece for atom in order for piece in pieces[atom]])

    return MemoryOrder(tuple(sizes), tuple(dims), split(lying.order), split(lying.swapped))


def lies_together(order: Sequence[int], parts: Sequence[Sequence[int]]) -> bool:
    """Whether a library takes atoms in this order: one stride steps through each of batch, rows and columns.

    It takes each of the three that lies together, the batch outermost or in the middle (XLA's MatrixLayout).

    Args:
        order: All atoms as they lie.
        parts: Those of the batch, and of the other two.
    """
    place = {atom: at for at, atom in enumerate(order)}
    for part in parts:
        if any([place[after] != place[before] + 1 for before, after in pairwise(part)]):
            return False
    return not parts[0] or len(parts[0]) == len(order) or place[parts[0][-1]] != len(order) - 1
