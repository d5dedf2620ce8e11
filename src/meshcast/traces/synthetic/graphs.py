"""`OpGraph`: the kernels and collectives of one rank's step as a graph, small enough to learn from and to ship."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from meshcast.traces.synthetic.validity import complaints_about
from meshcast.workload import DTYPE_BITS

GroupDims = tuple[tuple[int, int], ...]  # (size, stride) of each dimension of a group of ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A tensor that a node reads or writes.

    Attributes:
        bytes: How many of its bytes are moved: all of them, or a part where a slice is read or written.
        parent: The place of the node that made it; -1 of what is there from the start (weights, state, arguments) and of results.
    """

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    parent: int = -1

    @property
    def whole(self) -> int:
        """Bytes of the whole tensor."""
        return tensor_bytes(self.shape, self.dtype)

    @property
    def elements(self) -> int:
        """Elements that are moved."""
        return self.bytes * 8 // max(1, DTYPE_BITS[self.dtype])


def tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor, of types below a byte packed."""
    return (math.prod(shape) * DTYPE_BITS[dtype] + 7) // 8


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
        operands: The tensors that it reads, one or more of each parent; so `results`. None where shapes are not known.
        contracted: Of a product whose operands and result are known, how many elements each element of it is summed over.
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
    operands: tuple[Moved, ...] = ()
    results: tuple[Moved, ...] = ()
    contracted: int = 0

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
        return list(complaints_about(self))


def packed(graph: OpGraph) -> dict[str, Any]:
    """A graph as JSON: columns, with words and tensors as places in lists."""
    words: dict[str, int] = {}
    tensors: dict[tuple[tuple[int, ...], str], int] = {}

    def moved(row: Sequence[Moved], place: int) -> list[list[int]]:
        """Which tensor, and where that differs from all of one from outside how far back it was made and how much is moved."""
        found = []
        for each in row:
            said = [tensors.setdefault((each.shape, each.dtype), len(tensors))]
            back = place - each.parent if each.parent >= 0 else 0
            if each.bytes != each.whole:
                said += [back, each.bytes]
            elif back:
                said.append(back)
            found.append(said)
        return found

    columns: list[list[Any]] = [
        [words.setdefault(node.kind, len(words)) for node in graph.nodes],
        [words.setdefault(node.dtype, len(words)) for node in graph.nodes],
        [node.group for node in graph.nodes], [node.repeat for node in graph.nodes],
        [round(node.flops) for node in graph.nodes], [node.bytes for node in graph.nodes],
        [int(node.matrix) for node in graph.nodes], [node.written for node in graph.nodes],
        [[place - parent for parent in node.parents] for place, node in enumerate(graph.nodes)],
        [moved(node.operands, place) for place, node in enumerate(graph.nodes)],
        [moved(node.results, place) for place, node in enumerate(graph.nodes)],
        [node.contracted for node in graph.nodes],
    ]  # fmt: skip
    return {
        "name": graph.name, "model": graph.model, "family": graph.family, "ranks": graph.ranks, "groups": graph.groups,
        "held_out": graph.held_out, "state": graph.state, "nodes": columns,
        "tensors": [[words.setdefault(dtype, len(words)), *shape] for shape, dtype in tensors], "words": list(words),
    }  # fmt: skip


def unpacked_graph(found: dict[str, Any]) -> OpGraph:
    """The graph from what `packed` made of it."""
    words: Sequence[str] = found["words"]
    tensors = [(tuple(shape), words[word]) for word, *shape in found["tensors"]]

    def moved(row: Sequence[Sequence[int]], place: int) -> tuple[Moved, ...]:
        made = []
        for tensor, *said in row:
            shape, dtype = tensors[tensor]
            back = said[0] if said else 0
            part = said[1] if len(said) > 1 else tensor_bytes(shape, dtype)
            made.append(Moved(shape=shape, dtype=dtype, bytes=part, parent=place - back if back else -1))
        return tuple(made)

    nodes = tuple(
        OpNode(
            kind=words[kind], dtype=words[dtype], group=group, repeat=repeat, flops=float(flops), bytes=size,
            matrix=bool(matrix), written=written, parents=tuple(place - back for back in parents),
            operands=moved(read, place), results=moved(made, place), contracted=contracted,
        )
        for place, (kind, dtype, group, repeat, flops, size, matrix, written, parents, read, made, contracted) in enumerate(
            zip(*found["nodes"], strict=True)
        )
    )  # fmt: skip
    groups = tuple(tuple((size, stride) for size, stride in dims) for dims in found["groups"])
    return OpGraph(
        name=found["name"], model=found["model"], family=found["family"], ranks=found["ranks"], groups=groups, nodes=nodes,
        held_out=found["held_out"], state=found["state"],
    )  # fmt: skip
