"""The state that one NPU is in during a double binary tree of ASTRA-sim.

Two trees take turns, chunk by chunk. Both have the NPUs in order: one hangs NPU n-1 above a complete tree of the others,
the other one NPU 0. Leaves send up, inner nodes reduce what their two children send and send it on, the root sends down.
The whole chunk goes over every edge, and an inner node "reduces" once more on the way down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshcast.network.astra.exchange import Ports
from meshcast.network.astra.phases import AstraPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlace:
    """Where a node hangs: positions of its parent (None for the root) and its children, the left one first."""

    parent: int | None
    children: tuple[int, ...]


def place(position: int, nodes: int, *, root_last: bool) -> TreePlace:
    """The place of a position in a tree of a power of two of nodes whose positions are in order.

    Without the root, positions 1 to n-1 form a complete tree: the height of a position is the number of zeros that its
    binary number ends with, its parent the next number with one more of them.
    """
    shift = 1 if root_last else 0  # positions 0..n-2 hang below n-1, or 1..n-1 below 0
    root, top = (nodes - 1 if root_last else 0), nodes // 2 - shift
    if position == root:
        return TreePlace(parent=None, children=(top,))
    number = position + shift
    height = number & -number
    parent = root if position == top else ((number | (height << 1)) & ~height) - shift
    children = (number - height // 2 - shift, number + height // 2 - shift) if height > 1 else ()
    return TreePlace(parent=parent, children=children)


class Tree:
    """One NPU's part in a tree."""

    __slots__ = ("_children", "_done", "_parent", "_ports", "_reduced", "_size", "_tag")

    def __init__(self, phase: AstraPhase, ports: Ports, tag: int, done: Callable[[], None]) -> None:
        self._ports, self._tag, self._done, self._size = ports, tag, done, phase.size
        at = ports.id // phase.stride % phase.npus
        here = place(at, phase.npus, root_last=phase.call % 2 == 0)

        def number(position: int) -> int:
            return ports.id + (position - at) * phase.stride

        self._parent = None if here.parent is None else number(here.parent)
        self._children = tuple(map(number, here.children))
        self._reduced = 0

    def start(self) -> None:
        """Leaves begin; the others wait for their children."""
        if not self._children:
            self._ports.endpoint(self._up)
        for child in self._children:
            self._ports.receive(self._tag, 0, child, self._size, self._from_child)

    def _from_child(self) -> None:
        self._ports.endpoint(lambda: self._ports.reduction(self._size, self._reduce))

    def _reduce(self) -> None:
        self._reduced += 1
        if self._reduced == len(self._children):
            if self._parent is None:
                self._down()
            else:
                self._up()

    def _up(self) -> None:
        if self._parent is None:
            raise ValueError("the root has no parent")
        self._ports.send(self._tag, 0, self._parent, self._size)
        self._ports.receive(self._tag, 0, self._parent, self._size, self._from_parent)

    def _from_parent(self) -> None:
        if self._children:
            self._ports.endpoint(lambda: self._ports.reduction(self._size, self._down))
        else:
            self._ports.endpoint(self._done)

    def _down(self) -> None:
        for child in self._children:
            self._ports.send(self._tag, 0, child, self._size)
        self._done()
