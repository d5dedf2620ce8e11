"""Operands of products that Inductor copies with longer rows, so that tensor cores can have them; free of torch.

`torch/_inductor/fx_passes/pad_mm.py`: a product in half precision whose sums or results are no multiple of 8 long, and which
arithmetic bounds rather than memory, is timed with and without zeros at the end of its operands, and padded where that is
faster by a tenth: tensor cores at a seventh of their rate always lose to a copy. The operands are copied, by the kernel that
casts them where there is one; results are looked at without their last columns. Rows of the result that are no multiple of 8
are no reason for a copy: where the left operand lies with them side by side (the gradient of logits, for the gradient of their
weights) Inductor made it, with strides that it pads anyway (`config.comprehensive_padding`), and the product is timed so
(`timed_rows`). Products in fp32 are left: plain cores take any rows. Whatever is timed as padded is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshcast.programs.pytorch.eager.arithmetic import plain_name
from meshcast.programs.pytorch.recording.calls import BYTES, AtenOp

# The smallest of m, n and k from which a product is padded: a round number of this project's in place of `is_mm_compute_bound`
# (`pad_mm.py`), which asks for mnk / (mk + nk + mn) above half of the device's FLOP/s over its bytes/s. That is 103 on an H200
# (989 TFLOP/s, 4.8 TB/s by its data sheet), reached by a smallest size of 103 beside two large ones and of 309 in a cube; other
# devices are given the same number.
_LEAST = 256
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
    if not _considered(left.dtype, m, k, n) or not (k % _ALIGNED or n % _ALIGNED):
        return {}
    long, wide = _rounded(k), _rounded(n)
    found = {before + 1: (*right.shape[:-2], long, wide)}
    if long != k:
        found[before] = (*outer, m, long)
    if before and wide != n and op.takes[0].shape[-1:] == (n,):
        found[0] = (*op.takes[0].shape[:-1], wide)
    return found


def timed_rows(told: Mapping[str, Any], dtype: str) -> int:
    """Rows of the result that a product of operands as `padded_operands` has them is timed with: m, or the next multiple of 8."""
    m = int(told["m"])
    beside = not told["left_k_minor"]
    return _rounded(m) if beside and _considered(dtype, m, told["k"], told["n"]) else m


def _considered(dtype: str, *sizes: int) -> bool:
    """Whether a product is one that Inductor tries with zeros at the end."""
    return BYTES[dtype] == _HALF and min(sizes) >= _LEAST


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
