"""How far two sets of graphs are from each other: layers, degrees, what nodes are, their sizes and shapes.

Layers, degrees, sizes and dimensions by the first Wasserstein distance of their distributions (sizes in octaves), what nodes are
by the total variation of their shares. Every graph weighs the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from meshcast.traces.synthetic.graphs import OpGraph

POINTS = 200  # quantiles at which distributions are compared


def _layer_sizes(graph: OpGraph) -> list[float]:
    return [math.log2(len(layer)) for layer in graph.layers()]


def _depths(graph: OpGraph) -> list[float]:
    return [math.log2(len(graph.nodes) / len(graph.layers()))]


def _in_degrees(graph: OpGraph) -> list[float]:
    return [float(len(node.parents)) for node in graph.nodes]


def _out_degrees(graph: OpGraph) -> list[float]:
    counts = Counter(parent for node in graph.nodes for parent in node.parents)
    return [float(counts[place]) for place in range(len(graph.nodes))]


def _bytes(graph: OpGraph) -> list[float]:
    return [math.log2(node.bytes) for node in graph.nodes]


def _flops(graph: OpGraph) -> list[float]:
    return [math.log2(1 + node.flops) for node in graph.nodes if not node.is_collective]


def _dimensions(graph: OpGraph) -> list[float]:
    """The innermost dimension of every result, in octaves."""
    return [math.log2(max(1, each.shape[-1])) if each.shape else 0.0 for node in graph.nodes for each in node.results]


def _kept(graph: OpGraph) -> list[float]:
    """Of every tensor that is handed on, whether what takes it makes one of the same shape."""
    return [
        float(any(each.shape == result.shape for result in node.results))
        for node in graph.nodes for each in node.operands if each.parent >= 0
    ]  # fmt: skip


MEASURES: dict[str, Callable[[OpGraph], list[float]]] = {
    "layer sizes": _layer_sizes, "nodes a layer": _depths, "in-degree": _in_degrees, "out-degree": _out_degrees,
    "bytes": _bytes, "operations": _flops, "dimensions": _dimensions, "shapes kept": _kept,
}  # fmt: skip


def distances(ours: Sequence[OpGraph], theirs: Sequence[OpGraph], *, without: Collection[str] = ()) -> dict[str, float]:
    """The distance of two sets by every measure but those left out, and of what their nodes are."""
    found = {}
    at = (np.arange(POINTS) + 0.5) / POINTS
    for name, measure in MEASURES.items():
        if name in without:
            continue
        left, right = (
            np.mean([np.quantile(measure(each) or [0.0], at) for each in graphs], axis=0) for graphs in (ours, theirs)
        )
        found[name] = float(np.mean(np.abs(left - right)))
    mixes = [_mix(graphs) for graphs in (ours, theirs)]
    kinds = set(mixes[0]) | set(mixes[1])
    found["kinds"] = 0.5 * sum(abs(mixes[0].get(kind, 0.0) - mixes[1].get(kind, 0.0)) for kind in kinds)
    return found


def _mix(graphs: Sequence[OpGraph]) -> dict[str, float]:
    """Shares of the kinds of nodes."""
    found: dict[str, float] = {}
    for graph in graphs:
        for kind, count in Counter(node.kind for node in graph.nodes).items():
            found[kind] = found.get(kind, 0.0) + count / len(graph.nodes) / len(graphs)
    return found
