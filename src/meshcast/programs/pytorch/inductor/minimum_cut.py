"""The cheapest set of nodes that stands between a graph's sources and its sinks (Dinic's algorithm); free of torch.

Every node is an edge from where it is entered to where it is left, of the node's weight; edges between nodes weigh nothing and
are never cut. By the theorem of Ford and Fulkerson the largest flow is the smallest cut, and the nodes that are cut are those
whose entrance the remaining capacities still reach and whose exit they do not.

Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation" (1970).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

_ENDLESS = 1 << 62


class _Network:
    """Edges in pairs: an edge and the one that takes flow back, one beside the other."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._ends: list[int] = []
        self._left: list[int] = []
        self._from: list[list[int]] = [[] for _ in range(count)]

    def add(self, start: int, end: int, capacity: int) -> None:
        self._from[start].append(len(self._ends))
        self._from[end].append(len(self._ends) + 1)
        self._ends += (end, start)
        self._left += (capacity, 0)

    def levels(self, source: int) -> list[int]:
        """Edges with capacity left from the source to each place; -1 where none lead."""
        found = [-1] * self.count
        found[source] = 0
        waiting = deque([source])
        while waiting:
            place = waiting.popleft()
            for edge in self._from[place]:
                end = self._ends[edge]
                if self._left[edge] and found[end] < 0:
                    found[end] = found[place] + 1
                    waiting.append(end)
        return found

    def fill(self, source: int, sink: int) -> list[int]:
        """Sends as much as can flow; returns the levels that are left."""
        while (levels := self.levels(source))[sink] >= 0:
            tried = [0] * self.count
            while self._send(source, sink, levels, tried):
                pass
        return levels

    def _send(self, source: int, sink: int, levels: list[int], tried: list[int]) -> bool:
        """One path along rising levels, filled; without recursion, for chains are long."""
        path: list[int] = []
        place = source
        while place != sink:
            edges = self._from[place]
            while tried[place] < len(edges):
                edge = edges[tried[place]]
                if self._left[edge] and levels[self._ends[edge]] == levels[place] + 1:
                    break
                tried[place] += 1
            else:
                if not path:
                    return False
                place = self._ends[path.pop() ^ 1]
                tried[place] += 1
                continue
            path.append(edge)
            place = self._ends[edge]
        most = min(self._left[edge] for edge in path)
        for edge in path:
            self._left[edge] -= most
            self._left[edge ^ 1] += most
        return True


def cut_nodes(
    weights: Mapping[int, int], edges: Iterable[tuple[int, int]], *, sources: Iterable[int], sinks: Iterable[int]
) -> set[int]:
    """The nodes of least weight together without which no path leads from a source to a sink.

    Args:
        weights: Of every node.
        edges: From node to node.
        sources: Nodes at which paths begin, and which may be cut themselves.
        sinks: Nodes behind which paths end, and which may be cut themselves.
    """
    place = {node: i for i, node in enumerate(weights)}
    network = _Network(2 * len(place) + 2)
    source, sink = 2 * len(place), 2 * len(place) + 1
    for node, i in place.items():
        network.add(2 * i, 2 * i + 1, weights[node])
    for start, end in edges:
        network.add(2 * place[start] + 1, 2 * place[end], _ENDLESS)
    for node in sources:
        network.add(source, 2 * place[node], _ENDLESS)
    for node in sinks:
        network.add(2 * place[node] + 1, sink, _ENDLESS)
    levels = network.fill(source, sink)
    return {node for node, i in place.items() if levels[2 * i] >= 0 > levels[2 * i + 1]}
