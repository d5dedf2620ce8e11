"""Graphs grown for a step time, for memory, or for both.

LayerDAG hands a graph's label to its networks; here a label changes what a whole graph takes over (`GraphSetting`) and its sizes
(`traces.synthetic.sizing`). Kinds and edges are those that the model grows, and shapes stay consistent with each other.

- Memory: every dimension is larger by the same octaves, so that state and results held at once are what is asked for, the last
  bytes by the state; a graph that was learnt from and holds about as much is preferred as what it takes over.
- Step time: the octaves are those with which the step, predicted on the hardware, is the one that is asked for. A step grows with
  them, so that they are found by halving between one that is too short and one that is too long, beginning with proportion. Sizes
  are whole numbers: what is left between two of them is made up by some nodes that run once more than others, and where the
  smallest are too long loops have fewer turns.
- Both: sizes follow from the memory. Where its step is shorter than what is asked for, a step goes through it several times, as
  with microbatches; where it is longer, sizes shrink until it is not, and what that leaves of the memory is state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from meshcast.base import UsageError, format_bytes, format_time, tell
from meshcast.traces.synthetic.graphs import OpGraph
from meshcast.traces.synthetic.model import GraphModel
from meshcast.traces.synthetic.sizing import Skeleton
from meshcast.traces.synthetic.timed_graphs import graph_seconds

NEAR = 0.01  # of the step or the memory that is asked for
FAIR = 0.05  # likewise, where whole launches and whole sizes come no nearer
FARTHEST = 24.0  # octaves that sizes are changed by at most
ROUNDS = 14
SIZE = 0.25  # octaves of a dimension that the first other try is away, at least
DIMENSIONS = 2  # of most tensors: a step grows about so many times as fast as one of them
FINEST = 1e-3  # octaves of a dimension that a memory or a step is looked for by; the rest is state, or launches


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
    skeleton = model.skeleton(like, nodes, seed, memory=conditions.memory_bytes)
    if conditions.memory_bytes is None:
        if conditions.step_s is None:
            return ConditionedGraph(graph=skeleton.sized())
        return _lasting(skeleton, conditions.step_s, conditions.on)
    octaves, graph = _holding(skeleton, conditions.memory_bytes)
    if conditions.step_s is None:
        return ConditionedGraph(graph=graph)
    once = graph_seconds(graph, conditions.on)
    if once <= conditions.step_s:
        more = _repeated(skeleton, octaves, once, conditions.step_s, conditions.on)
    else:
        more = _lasting(skeleton, conditions.step_s, conditions.on, begin=octaves)
    graph = _filled(more.graph, conditions.memory_bytes)
    _check_held(graph, conditions.memory_bytes)
    return ConditionedGraph(graph=graph, step_s=more.step_s)


def _filled(graph: OpGraph, memory: float) -> OpGraph:
    """The graph with as much state as makes up a memory, if its results leave any."""
    return replace(graph, state=max(0, graph.state + round(memory) - graph.memory_bytes))


def _holding(skeleton: Skeleton, memory: float) -> tuple[float, OpGraph]:
    """Octaves with which a graph holds so much, and the graph."""
    if not skeleton.sized().memory_bytes:
        raise UsageError(
            "what it is like holds nothing that is known", where="--memory", fix="take another --like, or no --memory"
        )
    low, high = -FARTHEST, FARTHEST / 2
    while high - low > FINEST:
        octaves = (low + high) / 2
        low, high = (octaves, high) if skeleton.sized(octaves).memory_bytes < memory else (low, octaves)
    graph = _filled(skeleton.sized(low), memory)
    _check_held(graph, memory)
    return low, graph


def _check_held(graph: OpGraph, memory: float) -> None:
    if abs(graph.memory_bytes / memory - 1) > NEAR:  # no dimension is less than one
        raise UsageError(
            f"{len(graph.nodes):,} nodes like {graph.model} hold {format_bytes(graph.memory_bytes)} however small they are",
            where="--memory", fix="ask for more memory, or fewer --nodes",
        )  # fmt: skip


def _lasting(skeleton: Skeleton, wanted: float, on: str, *, begin: float = 0.0) -> ConditionedGraph:
    """The graph whose step is as long as wanted, by its sizes, and by launches where those jump over it."""
    tried = _searched(skeleton.sized, wanted, on, DIMENSIONS, begin)
    if tried.found is not None:
        return tried.found
    octaves, once = tried.short or tried.shortest
    return _repeated(skeleton, octaves, once, wanted, on)


def _repeated(skeleton: Skeleton, octaves: float, once: float, wanted: float, on: str) -> ConditionedGraph:
    """The graph of such sizes gone through so often, or with so few turns of its loops, that its step is as long as wanted."""
    tried = _searched(lambda more: skeleton.sized(octaves, turns=2.0**more), wanted, on, 1, math.log2(wanted / once))
    if tried.found is not None:
        return tried.found
    nearest = tried.nearest
    if tried.short is not None:  # a launch takes longer than what is left: sizes of the one before grow
        turns = 2.0 ** tried.short[0]
        larger = _searched(lambda more: skeleton.sized(octaves + more, turns=turns), wanted, on, DIMENSIONS, 0.0)
        if larger.found is not None:
            return larger.found
        nearest = min(nearest, larger.nearest, key=lambda each: abs((each.step_s or 0.0) / wanted - 1))
    if abs((nearest.step_s or 0.0) / wanted - 1) <= FAIR:  # both are whole numbers
        return nearest
    raise _refused(nearest, wanted, on)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """What a search came to: the graph, or octaves and step of the longest that is too short; what was shortest, and nearest."""

    found: ConditionedGraph | None
    short: tuple[float, float] | None
    shortest: tuple[float, float]
    nearest: ConditionedGraph


def _searched(sized: Callable[[float], OpGraph], wanted: float, on: str, grows: int, octaves: float) -> _Tried:
    """Looks for a step among graphs with so many octaves more of something; a step grows about `grows` times as fast."""
    short: tuple[float, float] | None = None
    long: tuple[float, float] | None = None
    nearest: ConditionedGraph | None = None
    least = math.inf
    shortest = (octaves, math.inf)
    for number in range(ROUNDS):
        tell(f"step {number + 1} tried", done=number, total=ROUNDS)
        trial = sized(octaves)
        seconds = graph_seconds(trial, on)
        shortest = min(shortest, (octaves, seconds), key=lambda each: each[1])
        away = abs(seconds / wanted - 1)
        if away < least:
            least, nearest = away, ConditionedGraph(graph=trial, step_s=seconds)
        if away <= NEAR:
            return _Tried(found=nearest, short=short, shortest=shortest, nearest=_known(nearest))
        if seconds < wanted:
            short = (octaves, seconds) if short is None or octaves > short[0] else short
        else:
            long = (octaves, seconds) if long is None or octaves < long[0] else long
        if short is not None and long is not None and long[0] - short[0] < FINEST:
            break
        octaves = _next(short, long, wanted, grows)
        if abs(octaves) > FARTHEST:
            break
    return _Tried(found=None, short=short, shortest=shortest, nearest=_known(nearest))


def _known(nearest: ConditionedGraph | None) -> ConditionedGraph:
    assert nearest is not None
    return nearest


def _refused(nearest: ConditionedGraph, wanted: float, on: str) -> UsageError:
    graph, seconds = nearest.graph, nearest.step_s or 0.0
    least = "more" if seconds > wanted else "less"
    return UsageError(
        f"{len(graph.nodes):,} nodes like {graph.model} on {graph.ranks} ranks take {least} than {format_time(wanted)} on {on}, "
        f"{format_time(seconds)}, however small or large they are",
        where="--step-time", fix="ask for another step, fewer or more --nodes, or other memory",
    )  # fmt: skip


def _next(short: tuple[float, float] | None, long: tuple[float, float] | None, wanted: float, grows: int) -> float:
    """Octaves to be tried next: by proportion until both sides are known, then between them."""
    if short is None or long is None:
        known = short or long
        assert known is not None
        away = math.log2(wanted / known[1]) / grows
        # What launches bound does not follow sizes: each try goes at least as far again.
        return known[0] + math.copysign(max(abs(away), SIZE, abs(known[0]) / 2), away)
    below, above = math.log2(wanted / short[1]), math.log2(long[1] / wanted)
    share = min(0.9, max(0.1, below / (below + above)))
    return short[0] + share * (long[0] - short[0])
