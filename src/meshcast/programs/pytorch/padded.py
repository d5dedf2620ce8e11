"""Operands of products that Inductor copies with longer rows, so that tensor cores can have them; free of torch.

`torch/_inductor/fx_passes/pad_mm.py`: a product in half precision whose sums or results are no multiple of 8 long, and which
arithmetic bounds rather than memory, is timed with and without zeros at the end of its operands, and padded where that is
faster by a tenth: tensor cores at a seventh of their rate always lose to a copy. The operands are copied, by the kernel that
casts them where there is one; results are looked at without their last columns. Rows of the result that are too many for a
multiple of 8 are left as they are: strides of what Inductor makes itself are padded anyway (`config.comprehensive_padding`).
"""

from __future__ import annotations

from meshcast.programs.pytorch.arithmetic import plain_name
from meshcast.programs.pytorch.recorded import BYTES, AtenOp

LEAST = 256  # of a product's sizes, from which arithmetic bounds it: half of the bytes' worth of it at 4.8 TB/s
_ALIGNED = 8  # elements of half precision in 16 bytes
_HALF = 2  # bytes
_MATRIX = 2  # dimensions
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # and the operands before the matrices


def padded_operands(op: AtenOp) -> dict[int, tuple[int, ...]]:
    """By the place of an operand among those that a call takes, the shape that it is padded to."""
    before = _PRODUCTS.get(plain_name(op.name))
    if before is None or len(op.takes) != before + 2 or len(op.takes[-2].shape) < _MATRIX:
        return {}
    left, right = op.takes[before:]
    (*outer, m, k), n = left.shape, right.shape[-1]
    if BYTES[left.dtype] != _HALF or min(m, k, n) < LEAST or not (k % _ALIGNED or n % _ALIGNED):
        return {}
    long, wide = (-(-size // _ALIGNED) * _ALIGNED for size in (k, n))
    found = {before + 1: (*right.shape[:-2], long, wide)}
    if long != k:
        found[before] = (*outer, m, long)
    if before and wide != n and op.takes[0].shape[-1:] == (n,):
        found[0] = (*op.takes[0].shape[:-1], wide)
    return found
