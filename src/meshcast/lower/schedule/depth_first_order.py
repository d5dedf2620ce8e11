"""An order of steps depth first from the results, as XLA's second memory scheduler has it.

`DFSMemoryScheduler` (hlo_memory_scheduler.cc) runs all that leads to an instruction before it, one operand after the other: first
the one with more readers to spare in all that leads to it, then the one of which more bytes are made on the way. So what only one
step needs (weights that are put together for a product) is made right before that step, where the list scheduler would make it as
soon as everything else takes more memory. Both figures are sums over operands in which what is shared counts
again, up to those of the whole program.
"""

from __future__ import annotations

from collections.abc import Sequence, Set


def depth_first_order(before: Sequence[Set[int]], sizes: Sequence[int]) -> list[int]:
    """Places of steps, each behind those that it waits for.

    Args:
        before: The places of the steps that each waits for: earlier ones.
        sizes: Bytes that each step's results take.
    """
    count = len(before)
    readers = [0] * count
    for earlier in before:
        for one in earlier:
            readers[one] += 1
    spare, total = [0] * count, [0] * count
    whole = 0
    for at, earlier in enumerate(before):
        whole += sizes[at]
        spare[at] = min(count, max(0, readers[at] - 1) + sum([spare[one] for one in earlier]))
        total[at] = min(whole, sizes[at] + sum([total[one] for one in earlier]))

    last_first = list(zip(spare, total, range(0, -count, -1), strict=True)).__getitem__
    order: list[int] = []
    seen = [False] * count
    stack = [(at, False) for at in sorted([at for at in range(count) if not readers[at]], key=last_first)]
    while stack:
        at, ready = stack.pop()
        if ready:
            order.append(at)
        elif not seen[at]:
            seen[at] = True
            stack.append((at, True))
            stack += [(one, False) for one in sorted(before[at], key=last_first) if not seen[one]]
    return order
