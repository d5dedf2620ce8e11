"""Shortest ways through any graph of links: for graphs without a rule of their own, and around links that failed.

Distances are counted in links, breadth first from each target. Among next links that are equally near, a flow takes the
widest; among equally wide ones that which a hash of its ends chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshcast.network.fabric.links import Floats, Ints, Links, Paths
from meshcast.network.fabric.wiring import hashed

_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unreachable(Exception):
    """A flow has no way at all.

    Attributes:
        source: Where it starts.
        target: Where it should go.
        reaching: Nodes that do reach the target.
    """

    source: int
    target: int
    reaching: Ints


def shortest_paths(links: Links, capacity: Floats, nodes: int, source: Ints, target: Ints) -> Paths:
    """Links of a shortest way for each flow, over links that have a capacity.

    Raises:
        Unreachable: There is none.
    """
    usable = np.flatnonzero((capacity > 0) & (links.source != links.target))
    tail, head, wide = links.source[usable], links.target[usable], capacity[usable]
    found: list[Paths] = []
    for end in np.unique(target):
        flow = np.flatnonzero(target == end)
        distance = _distances(tail, head, nodes, int(end))
        cut = distance[source[flow]] == _FAR
        if cut.any():
            raise Unreachable(
                source=int(source[flow][cut][0]), target=int(end), reaching=np.flatnonzero(distance != _FAR)
            )
        nearer = np.flatnonzero((distance[tail] != _FAR) & (distance[head] < distance[tail]))
        widest = np.zeros(nodes)
        np.maximum.at(widest, tail[nearer], wide[nearer])
        nearer = nearer[wide[nearer] >= widest[tail[nearer]] * (1 - 1e-12)]
        nearer = nearer[np.argsort(tail[nearer], kind="stable")]
        first = np.searchsorted(tail[nearer], np.arange(nodes))
        count = np.bincount(tail[nearer], minlength=nodes)
        here, number = source[flow].copy(), flow
        while len(number):
            on_the_way = here != end
            here, number = here[on_the_way], number[on_the_way]
            if not len(number):
                break
            taken = nearer[first[here] + hashed(source[number], target[number], count[here])]
            found.append(Paths.of_hops([usable[taken]], number))
            here = head[taken]
    return Paths.joined(found)


def _distances(tail: Ints, head: Ints, nodes: int, end: int) -> Ints:
    distance = np.full(nodes, _FAR)
    distance[end] = 0
    reached, steps = np.zeros(nodes, bool), 0
    reached[end] = True
    while True:
        steps += 1
        fresh = np.unique(tail[reached[head] & ~reached[tail]])
        if not len(fresh):
            return distance
        distance[fresh] = steps
        reached[fresh] = True
