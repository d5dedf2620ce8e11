"""Into how many parts Inductor splits a sum, so that few results keep all multiprocessors busy; free of torch.

`Reduction.num_splits` (`torch/_inductor/ir.py`) and `reduction_split_factor` (`torch/_inductor/choices.py`): parts are summed by
a first kernel, and they by a second. Moments of batch norms (`WelfordReduction`) are split again as long as the rule says so;
other sums once.
"""

from __future__ import annotations

_SMS = 132  # multiprocessors of an H200, which is what shares of this package were measured on
_THREADS_SM = 2048
_LEAST, _MOST = 32, 512  # elements a thread
_THREADS = 256  # of a block
_UNSPLIT = 8192  # elements along a row, up to which it stays one thread block's
_ROWS_A_THREAD, _COLUMNS_A_BLOCK = 4, 128  # of sums down columns


def parts_of_sum(left: int, summed: int, *, rows: bool) -> int:
    """Parts of each of `left` sums over `summed` elements; 1: it is one kernel.

    Args:
        left: Results.
        summed: Elements of each.
        rows: Whether neighbours in memory are summed.
    """
    if left == 1:
        return _along_rows(left, summed)
    if summed <= _LEAST or left >= _SMS * 2 * 32:
        return 1
    return _along_rows(left, summed) if rows else _down_columns(left, summed)


def stages_of_sum(left: int, summed: int, *, rows: bool, moments: bool = False) -> list[int]:
    """Parts after each kernel but the last: empty where one kernel does it."""
    found: list[int] = []
    while (parts := parts_of_sum(left, summed, rows=rows)) > 1 and parts < summed:
        found.append(parts)
        summed = parts
        if not moments:
            break
    return found


def _share(wanted: int, summed: int, *, near: int) -> int:
    """Elements a thread: a divisor of the sum's length, where one is near."""
    closest = min(_divisors(summed), key=lambda n: abs(n - wanted))
    return max(closest, _LEAST) if abs(closest - wanted) < near else wanted


def _along_rows(left: int, summed: int) -> int:
    if left >= 2 * _SMS or summed <= _UNSPLIT:
        return 1
    if left * summed <= _LEAST * _SMS * _THREADS_SM:
        each = _LEAST
    elif left * summed < _MOST * _SMS * _THREADS_SM:
        blocks = -(-_SMS * _THREADS_SM // (2 * _THREADS) // left)
        each = _share(-(-summed // (_THREADS * blocks)), summed, near=30)
    else:
        each = _share(_MOST, summed, near=50)
    return -(-summed // (each * _THREADS))


def _down_columns(left: int, summed: int) -> int:
    if left * summed < _LEAST * _SMS * _THREADS_SM:
        each = _LEAST
    elif left * summed < _MOST * _SMS * _THREADS_SM:
        blocks = -(-(_SMS * _THREADS_SM // _THREADS) // -(-left // _COLUMNS_A_BLOCK))
        each = _share(-(-summed // (_ROWS_A_THREAD * blocks)), summed, near=20)
    else:
        each = _share(_MOST, summed, near=50)
    return -(-summed // (_ROWS_A_THREAD * each))


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in small]
