"""`OpGraph`: the kernels and collectives of one rank's step as a graph, small enough to learn from and to ship."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

GroupDims = tuple[tuple[int, int], ...]  # (size, stride) of each dimension of a group of ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class OpNode:
    """A kernel or a collective.

    Attributes:
        kind: The kind of a kernel, or of a collective.
        dtype: The type of its arithmetic; "" of a collective.
        group: Which of the graph's groups a collective is over; -1 of a kernel.
        repeat: Launches that it stands for: turns of loops.
        flops: Operations of one launch; so `bytes` that it moves, of a collective what a rank puts in.
        written: Bytes of its result.
        matrix: Whether most of its operations are of products.
        parents: Places of the nodes whose results it takes, all before it.
    """

    kind: str
    dtype: str = ""
    group: int = -1
    repeat: int = 1
    flops: float = 0.0
    bytes: int = 0
    written: int = 0
    matrix: bool = False
    parents: tuple[int, ...] = ()

    @property
    def is_collective(self) -> bool:
        """Whether ranks meet in it."""
        return self.group >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpGraph:
    """A step of one rank.

    Attributes:
        name: The model and its plan.
        model: The model; `family` its kind of architecture, as the zoo has them.
        ranks: How many there are, all alike.
        groups: Groups of ranks that collectives are over.
        nodes: In an order in which each comes behind its parents.
        held_out: Whether nothing was learnt from it.
        state: Bytes that are held throughout the step beside results of nodes: weights, optimizer state, what loops keep.
    """

    name: str
    model: str
    family: str
    ranks: int
    groups: tuple[GroupDims, ...]
    nodes: tuple[OpNode, ...] = field(repr=False)
    held_out: bool = False
    state: int = 0

    @property
    def memory_bytes(self) -> int:
        """The most that a rank holds at once, in the order of the nodes: the state, and results up to their last use."""
        last = list(range(len(self.nodes)))
        for place, node in enumerate(self.nodes):
            for parent in node.parents:
                last[parent] = place
        ends: dict[int, int] = {}
        held = most = 0
        for place, node in enumerate(self.nodes):
            held += node.written
            ends[last[place]] = ends.get(last[place], 0) + node.written
            most = max(most, held)
            held -= ends.pop(place, 0)
        return self.state + most

    def depths(self) -> list[int]:
        """The layer of every node: one more than the deepest of its parents', 0 without any."""
        found: list[int] = []
        for node in self.nodes:
            found.append(1 + max((found[parent] for parent in node.parents), default=-1))
        return found

    def layers(self) -> list[list[int]]:
        """Places of the nodes of every layer, in order."""
        found: list[list[int]] = []
        for place, depth in enumerate(self.depths()):
            while len(found) <= depth:
                found.append([])
            found[depth].append(place)
        return found

    def complaints(self) -> list[str]:
        """What makes it no graph that can be run; nothing where it can."""
        return list(_complaints(self))


def _complaints(graph: OpGraph) -> Iterator[str]:
    if not graph.nodes:
        yield "it has no nodes"
    for place, node in enumerate(graph.nodes):
        if any(not 0 <= parent < place for parent in node.parents):
            yield f"node {place} takes the result of a node that is not before it"
        if len(set(node.parents)) != len(node.parents):
            yield f"node {place} has a parent twice"
        if node.bytes <= 0 or node.flops < 0 or node.repeat < 1:
            yield f"node {place} moves {node.bytes} bytes in {node.repeat} launches"
        if not 0 <= node.written <= (node.bytes if not node.is_collective else node.bytes * graph.ranks):
            yield f"node {place} has a result of {node.written} bytes, and moves {node.bytes}"
        if node.group >= len(graph.groups):
            yield f"node {place} is over group {node.group} of {len(graph.groups)}"
        if node.is_collective and node.flops:
            yield f"node {place} is a collective that computes"
    for dims in graph.groups:
        size = 1
        for each, stride in sorted(dims, key=lambda item: item[1]):
            size *= each
            if each < 2 or stride < 1 or each * stride > graph.ranks or graph.ranks % (each * stride):
                yield f"a group of {each} ranks {stride} apart does not share out {graph.ranks} ranks"
        if size > graph.ranks:
            yield f"a group has {size} of {graph.ranks} ranks"


def packed(graph: OpGraph) -> dict[str, Any]:
    """A graph as JSON: columns, with words as places in a list."""
    words: dict[str, int] = {}
    columns: list[list[Any]] = [
        [words.setdefault(node.kind, len(words)) for node in graph.nodes],
        [words.setdefault(node.dtype, len(words)) for node in graph.nodes],
        [node.group for node in graph.nodes], [node.repeat for node in graph.nodes],
        [round(node.flops) for node in graph.nodes], [node.bytes for node in graph.nodes],
        [int(node.matrix) for node in graph.nodes], [node.written for node in graph.nodes],
        [[place - parent for parent in node.parents] for place, node in enumerate(graph.nodes)],
    ]  # fmt: skip
    return {
        "name": graph.name, "model": graph.model, "family": graph.family, "ranks": graph.ranks, "groups": graph.groups,
        "held_out": graph.held_out, "state": graph.state, "words": list(words), "nodes": columns,
    }  # fmt: skip


def unpacked_graph(found: dict[str, Any]) -> OpGraph:
    """The graph from what `packed` made of it."""
    words: Sequence[str] = found["words"]
    nodes = tuple(
        OpNode(
            kind=words[kind], dtype=words[dtype], group=group, repeat=repeat, flops=float(flops), bytes=moved,
            matrix=bool(matrix), written=written, parents=tuple(place - back for back in parents),
        )
        for place, (kind, dtype, group, repeat, flops, moved, matrix, written, parents) in enumerate(
            zip(*found["nodes"], strict=True)
        )
    )  # fmt: skip
    groups = tuple(tuple((size, stride) for size, stride in dims) for dims in found["groups"])
    return OpGraph(
        name=found["name"], model=found["model"], family=found["family"], ranks=found["ranks"], groups=groups, nodes=nodes,
        held_out=found["held_out"], state=found["state"],
    )  # fmt: skip
