"""Two plain ways to make a graph that a model has to beat: a copy with changes, and a graph of chance alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshcast.traces.synthetic.graphs import OpGraph, OpNode

CHANGED = 0.2  # of nodes and of edges of a copy


def perturbed_copy(graphs: Sequence[OpGraph], random: np.random.Generator) -> OpGraph:
    """One of the graphs, with a fifth of its nodes taken from anywhere in it and a fifth of its edges led elsewhere."""
    graph = graphs[int(random.integers(len(graphs)))]
    nodes: list[OpNode] = []
    for place, node in enumerate(graph.nodes):
        made = graph.nodes[int(random.integers(len(graph.nodes)))] if random.random() < CHANGED else node
        parents = {
            int(random.integers(place)) if place and random.random() < CHANGED else parent for parent in node.parents
        }
        nodes.append(replace(made, parents=tuple(sorted(parents))))
    return replace(graph, name=f"copy of {graph.name}", nodes=tuple(nodes))


def random_graph(graphs: Sequence[OpGraph], random: np.random.Generator) -> OpGraph:
    """A graph with the nodes of one of the graphs in any order and as many edges as it has, each between any two nodes."""
    graph = graphs[int(random.integers(len(graphs)))]
    count = len(graph.nodes)
    edges = sum(len(node.parents) for node in graph.nodes)
    parents: list[set[int]] = [set() for _ in range(count)]
    for _ in range(edges):
        first, second = sorted(int(each) for each in random.integers(0, count, 2))
        if first != second:
            parents[second].add(first)
    order = random.permutation(count)
    nodes = tuple(
        replace(graph.nodes[int(order[place])], parents=tuple(sorted(parents[place]))) for place in range(count)
    )
    return replace(graph, name=f"chance, of {graph.name}", nodes=nodes)
