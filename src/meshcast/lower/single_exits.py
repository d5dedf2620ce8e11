"""Which op all that is made of a value goes through: its single exit, the immediate postdominator in a block's graph.

What leads to an op alone is what has it as an exit, directly or through others: the chain behind it, and also both halves of a
random number generator, whose rounds read each other's results until they are joined. A compiler that works producer by producer
has fused all of that with the op by the time that it asks whether to compute the op again.
"""

from __future__ import annotations

from collections.abc import Sequence

NO_EXIT = -1
# Ops that are looked at between two readers of a value: chains that are longer are never computed again.
_FAR = 2000


def single_exits(readers: Sequence[Sequence[int]]) -> list[int]:
    """For each op the one through which all that reads its results leads out of it; `NO_EXIT` where there is none.

    `exit(i) = r` where all readers are `r` or lead to nothing but `r`: the lowest common ancestor of the readers in the tree of
    exits, which are known by then, as readers come later (Cooper, Harvey, Kennedy: A simple, fast dominance algorithm, 2001).

    Args:
        readers: Places of the ops that read each op's results, all later; empty where it is in memory for others.
    """
    exits = [NO_EXIT] * len(readers)
    for index in range(len(readers) - 1, -1, -1):
        places = readers[index]
        if not places:
            continue
        found = places[0]
        for place in places[1:]:
            found = _meeting(found, place, exits)
            if found == NO_EXIT:
                break
        exits[index] = found
    return exits


def _meeting(one: int, other: int, exits: Sequence[int]) -> int:
    for _ in range(_FAR):
        if one == other:
            return one
        if one > other:
            one, other = other, one
        one = exits[one]
        if one == NO_EXIT:
            return NO_EXIT
    return NO_EXIT
