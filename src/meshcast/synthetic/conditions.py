"""Graphs grown for a step time, for memory, or for both.

LayerDAG hands a graph's label to its networks; here a label changes what a whole graph takes over (`GraphSetting`): its sizes.
All shapes, kinds and edges are those that the model grows.

- Memory: all bytes and operations are multiplied by the same, so that state and results held at once are what is asked for; a
  graph that was learnt from and holds about as much is preferred as what it takes over.
- Step time: all bytes and operations are multiplied by the factor with which the step, predicted on the hardware, is the one that
  is asked for. A step grows with the factor, so that it is found by halving between one that is too short and one that is too
  long, beginning with proportion.
- Both: the bytes follow from the memory, and the operations of products from the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from meshcast.base import UsageError, format_bytes, format_time, tell
from meshcast.synthetic.graphs import OpGraph
from meshcast.synthetic.model import GraphModel
from meshcast.synthetic.timed_graphs import graph_seconds

NEAR = 0.01  # of the step or the memory that is asked for
FARTHEST = 24.0  # octaves that sizes are changed by at most
ROUNDS = 24
SIZE = 1.0  # octaves that the first other factor is away, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConditions:
    """What a graph is grown for; None where it is left to what it is like.

    Attributes:
        step_s: Seconds of its step on `on`.
        memory_bytes: Bytes that a rank holds at most.
    """

    step_s: float | None = None
    memory_bytes: float | None = None
    on: str = "dgx-h100"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedGraph:
    """A graph, and the step that it was found to have; None where none was asked for."""

    graph: OpGraph
    step_s: float | None = None


def grow_for(model: GraphModel, like: str, nodes: int, seed: int, conditions: GraphConditions) -> ConditionedGraph:
    """A graph that meets conditions.

    Args:
        model: What it is grown by.
        like: A model or family that was learnt from.
        nodes: How many it has.
        seed: The same gives the same graph.
        conditions: What it is grown for.

    Raises:
        UsageError: No graph of so many nodes does.
    """
    for value, flag in ((conditions.step_s, "--step-time"), (conditions.memory_bytes, "--memory")):
        if value is not None and not (0 < value < math.inf):
            raise UsageError(f"{value:g} is asked for", where=flag, fix="give more than nothing")
    graph = model.grow(like, nodes, seed, memory=conditions.memory_bytes)
    if conditions.memory_bytes is not None:
        graph = _holding(graph, conditions.memory_bytes)
    if conditions.step_s is None:
        return ConditionedGraph(graph=graph)
    change = resized if conditions.memory_bytes is None else with_products
    return _lasting(graph, conditions.step_s, conditions.on, change)


def resized(graph: OpGraph, octaves: float) -> OpGraph:
    """A graph whose sizes and operations are multiplied by a power of two; results stay the same part of a node's bytes."""
    factor = 2.0**octaves
    nodes = []
    for node in graph.nodes:
        moved, flops = max(1, round(node.bytes * factor)), float(round(node.flops * factor))
        nodes.append(
            replace(
                node, bytes=moved, flops=max(1.0, flops) if node.matrix else flops,
                written=round(moved * node.written / node.bytes),
            )
        )  # fmt: skip
    return replace(graph, nodes=tuple(nodes), state=round(graph.state * factor))


def with_products(graph: OpGraph, octaves: float) -> OpGraph:
    """A graph whose products' operations are multiplied by a power of two."""
    nodes = tuple(
        replace(node, flops=max(1.0, float(round(node.flops * 2.0**octaves)))) if node.matrix else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _holding(graph: OpGraph, memory: float) -> OpGraph:
    held = graph.memory_bytes
    if not held:
        raise UsageError(
            "what it is like holds nothing that is known", where="--memory", fix="take another --like, or no --memory"
        )
    graph = resized(graph, math.log2(memory / held))
    graph = replace(graph, state=max(0, graph.state + round(memory) - graph.memory_bytes))
    if abs(graph.memory_bytes / memory - 1) > NEAR:  # no node writes less than a byte
        raise UsageError(
            f"{len(graph.nodes):,} nodes like {graph.model} hold {format_bytes(graph.memory_bytes)} however small they are",
            where="--memory", fix="ask for more memory, or fewer --nodes",
        )  # fmt: skip
    return graph


def _lasting(graph: OpGraph, wanted: float, on: str, change: Callable[[OpGraph, float], OpGraph]) -> ConditionedGraph:
    short: tuple[float, float] | None = None  # octaves and the step that is too short with them
    long: tuple[float, float] | None = None
    octaves = 0.0
    seconds = math.nan
    for number in range(ROUNDS):
        tell(f"step {number + 1} tried", done=number, total=ROUNDS)
        trial = change(graph, octaves)
        seconds = graph_seconds(trial, on)
        if abs(seconds / wanted - 1) <= NEAR:
            return ConditionedGraph(graph=trial, step_s=seconds)
        short, long = ((octaves, seconds), long) if seconds < wanted else (short, (octaves, seconds))
        octaves = _next(short, long, wanted)
        if abs(octaves) > FARTHEST:
            break
    least = "more" if seconds > wanted else "less"
    raise UsageError(
        f"{len(graph.nodes):,} nodes like {graph.model} on {graph.ranks} ranks take {least} than {format_time(wanted)} on {on}, "
        f"{format_time(seconds)}, however small or large they are"
        + (f" within {format_bytes(graph.memory_bytes)}" if change is with_products else ""),
        where="--step-time", fix="ask for another step, fewer or more --nodes, or other memory",
    )  # fmt: skip


def _next(short: tuple[float, float] | None, long: tuple[float, float] | None, wanted: float) -> float:
    """Octaves to be tried next: by proportion until both sides are known, then between them."""
    if short is None or long is None:
        known = short or long
        assert known is not None
        away = math.log2(wanted / known[1])
        # What launches bound does not follow sizes: each try goes at least as far again.
        return known[0] + math.copysign(max(abs(away), SIZE, abs(known[0])), away)
    below, above = math.log2(wanted / short[1]), math.log2(long[1] / wanted)
    share = min(0.9, max(0.1, below / (below + above)))
    return short[0] + share * (long[0] - short[0])
