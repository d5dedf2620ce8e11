"""Two sequences of kernels put side by side in order, when nothing but order and duration tells which is which.

The alignment minimises the sum of |p - m| over pairs, plus `LEFT_OUT` times the duration of what has no partner (Needleman and
Wunsch 1970); a pair costs `STRANGE` of both durations more where the two say that they are of different places in the program.
Pairs whose durations differ by more than (1 + LEFT_OUT) / (1 - LEFT_OUT), some ninefold, are thus never made. A row of the
table is a few vector operations: leaving out measured kernels one after another is a running minimum over c_j - G_j, where G
is the running sum of what that costs. Large tables are halved (Hirschberg 1975), so that memory stays small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

LEFT_OUT, STRANGE = 0.8, 0.1
WHOLE_TABLE = 8_000_000  # cells whose choices are kept
PAIR, SKIP_PREDICTED, SKIP_MEASURED = 1, 2, 3

Times = npt.NDArray[np.float64]
Agreement = npt.NDArray[np.bool_]


def aligned(
    predicted: Times, measured: Times, agrees: Callable[[int], Agreement] | None = None
) -> list[tuple[int, int]]:
    """Pairs of places, both ascending.

    Args:
        predicted: Durations.
        measured: Durations.
        agrees: For a place in `predicted`, whether each measured kernel may be of the same place in the program.
    """
    found: list[tuple[int, int]] = []
    stack = [(0, len(predicted), 0, len(measured))]

    def cost(place: int, low: int, high: int) -> Times:
        own, others = predicted[place], measured[low:high]
        differing: Times = np.abs(own - others)
        if agrees is not None:
            differing = differing + np.where(agrees(place)[low:high], 0.0, STRANGE * (own + others))
        return differing

    while stack:
        first, last, low, high = stack.pop()
        if first == last or low == high:
            continue
        if (last - first) * (high - low) <= WHOLE_TABLE or last - first == 1:
            found += _traced(predicted, measured, cost, (first, last, low, high))
            continue
        middle = (first + last) // 2
        ahead = _last_row(predicted, measured, cost, (first, middle, low, high), back=False)
        behind = _last_row(predicted, measured, cost, (middle, last, low, high), back=True)
        cut = low + int(np.argmin(ahead + behind[::-1]))
        stack += [(first, middle, low, cut), (middle, last, cut, high)]
    return sorted(found)


AlignmentCost = Callable[[int, int, int], Times]
AlignmentWindow = tuple[int, int, int, int]


def _row(above: Times, costs: Times, skip: float, skipped: Times) -> tuple[Times, npt.NDArray[np.int8]]:
    """The next row of the table and the choice in each of its cells; `skipped` is the running cost of leaving out."""
    over = above + skip
    choice = np.full(len(above), SKIP_PREDICTED, dtype=np.int8)
    pair = above[:-1] + costs
    better = pair <= over[1:]
    best = over.copy()
    best[1:][better] = pair[better]
    choice[1:][better] = PAIR
    relative = best - skipped
    least = np.minimum.accumulate(relative)
    choice[least < relative] = SKIP_MEASURED
    return least + skipped, choice


def _last_row(predicted: Times, measured: Times, cost: AlignmentCost, window: AlignmentWindow, *, back: bool) -> Times:
    first, last, low, high = window
    skips = measured[low:high][::-1] if back else measured[low:high]
    skipped = np.concatenate([[0.0], np.cumsum(LEFT_OUT * skips)])
    row = skipped.copy()
    for place in range(last - 1, first - 1, -1) if back else range(first, last):
        costs = cost(place, low, high)
        row, _ = _row(row, costs[::-1] if back else costs, LEFT_OUT * float(predicted[place]), skipped)
    return row


def _traced(predicted: Times, measured: Times, cost: AlignmentCost, window: AlignmentWindow) -> list[tuple[int, int]]:
    first, last, low, high = window
    skipped = np.concatenate([[0.0], np.cumsum(LEFT_OUT * measured[low:high])])
    row = skipped.copy()
    choices = np.full((last - first + 1, high - low + 1), SKIP_MEASURED, dtype=np.int8)
    for place in range(first, last):
        costs = cost(place, low, high)
        row, choices[place - first + 1] = _row(row, costs, LEFT_OUT * float(predicted[place]), skipped)
    i, j = last - first, high - low
    pairs = []
    while i and j:
        if choices[i, j] == PAIR:
            i, j = i - 1, j - 1
            pairs.append((first + i, low + j))
        elif choices[i, j] == SKIP_PREDICTED:
            i -= 1
        else:
            j -= 1
    return pairs
