"""What a transpose moves: whether it turns anything, and whether by whole tiles."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.workload import Op, OpKind, Tensor, element_bytes

TILE_BYTES = 64  # of either side that a block turns where elements are packed


WORD_BYTES = 4


def turns(op: Op, tensors: Sequence[Tensor]) -> bool:
    """Whether a transpose changes which of the dimensions that are not 1 is innermost."""
    if op.cost.kind is not OpKind.TRANSPOSE or not op.cost.orders:
        return False
    sizes = tensors[op.results[0]].shape
    order = op.cost.orders[0]
    if len(order) != len(sizes):
        return True
    inner = next((d for d in range(len(sizes) - 1, -1, -1) if sizes[d] > 1), None)
    return inner is not None and order[inner] != max(order[d] for d in range(len(sizes)) if sizes[d] > 1)


def fills_packed_tiles(op: Op, tensors: Sequence[Tensor]) -> bool:
    """Whether a transpose's sides are whole words and fill tiles of 64 bytes, of elements that are packed into words.

    Else XLA's GPU compiler turns them one by one. It tells where it can be asked, of 2 bits, as its code for tiles of those does
    not compile (14 shapes: sides of 128 and of 1000 elements compile, of 256 and 1008 do not).
    """
    result = tensors[op.results[0]]
    width, order = element_bytes(result.dtype), op.cost.orders[0] if op.cost.orders else ()
    if len(order) != len(result.shape) or width <= 0:
        return True
    sides: list[int] = []
    moved: list[int] = []  # the innermost dimension of each side, before it is moved
    for dim, size in zip(order, result.shape, strict=True):
        if moved and moved[-1] == dim - 1:
            sides[-1], moved[-1] = sides[-1] * size, dim
        else:
            sides.append(size)
            moved.append(dim)
    turned = sides[-1], sides[moved.index(max(moved))]
    return all(side >= TILE_BYTES / width and side % (WORD_BYTES / width) == 0 for side in turned)
