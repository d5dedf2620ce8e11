"""`GraphModel`: workload graphs grown layer by layer, nodes first and then their edges.

After LayerDAG (Li et al., ICLR 2025): a graph is a row of layers, in which a node lies one behind the deepest of its parents,
so that what is grown is acyclic by itself. Where LayerDAG has neural networks and categories alone, here are conditional
counts (`synthetic.counts`), which some dozen graphs are enough for, and sizes:

1. how many nodes the next layer has, by the sizes of the two before and how far the graph has come;
2. what each of them is (kind, type, loop, group), by the one before it in the layer, the layer before and how far it has
   come, among graphs that are shared out the same way (which collectives they have, over which groups);
3. its parents: one in the layer right before, others as far back as nodes of its kind look, by how well kinds go together and
   how often results of each are taken;
4. its bytes, as half octaves beside the graph's own scale, by those of its largest parent; its operations, as half octaves a
   byte, of products beside the graph's own intensity; its result as a share of its bytes, of collectives as their kind has it.

All counts are of the model's family first, and of all families behind that, but for what nodes are: a plan decides on its
collectives, and a family's other plans would mix theirs in. A graph's ranks and groups are those of a graph that was learnt
from; so are its scale and its intensity, with noise as large as what sets graphs of a family that are shared out alike apart,
and what it holds throughout the step, which grows with its scale.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from meshcast.base import UsageError, nearest
from meshcast.synthetic.counts import Context, Counts
from meshcast.synthetic.graphs import GroupDims, OpGraph, OpNode

FILE = "model.json.gz"
PHASES = 10  # parts of a graph, by the share of its nodes that are there
FINE = 2  # bins of sizes in an octave
FAR = 8  # layers back that are counted one by one; farther ones by octaves
LARGEST_LAYER = 400
PARTS = 16  # that a node's bytes are counted in where its result is a part of them
LITTLE = 0.05  # of a result that is to be taken once more: what has been taken as often as it should can still be
Token = tuple[str, str, int, int, bool]  # kind, type, group, which of the graph's loops, products


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSetting:
    """What a graph that was learnt from is like as a whole: what a new one takes over.

    Attributes:
        scale: The median of the bytes of its kernels, in octaves.
        intensity: Of its products together, operations a byte in octaves.
        repeats: Turns of its loops, ascending.
        sharing: Its collectives and their groups, in one word each: how it is shared out.
        state: Bytes that it holds throughout the step.
    """

    model: str
    family: str
    ranks: int
    groups: tuple[GroupDims, ...]
    scale: float
    intensity: float
    repeats: tuple[int, ...]
    nodes: int
    sharing: str
    state: int = 0


class GraphModel:
    """What was learnt."""

    def __init__(self) -> None:
        self.settings: list[GraphSetting] = []
        self.sizes, self.tokens, self.parents = Counts(), Counts(), Counts()
        self.distances, self.pairs, self.bytes, self.work = Counts(), Counts(), Counts(), Counts()
        self.taken, self.written = Counts(), Counts()

    def learn(self, graph: OpGraph) -> None:
        """Counts everything about a graph."""
        setting = setting_of(graph)
        self.settings.append(setting)
        family, sharing = graph.family, setting.sharing
        tokens, depths = tokens_of(graph, setting), graph.depths()
        bins = [size_bin(node, setting.scale) for node in graph.nodes]
        layers = graph.layers()
        seen, before, earlier = 0, 0, 0
        above: tuple[Token, ...] = ()
        for layer in layers:
            phase = _phase(seen, len(graph.nodes))
            self.sizes.see(_sizes(family, phase, before, earlier), min(len(layer), LARGEST_LAYER))
            last: Token | None = None
            row = sorted(tokens[place] for place in layer)
            for number, token in enumerate(row):
                self.tokens.see(_tokens(family, sharing, phase, last, above, len(row) - number), token)
                last = token
            earlier, before, above, seen = before, len(layer), tuple(row), seen + len(layer)
        taken = Counter(parent for node in graph.nodes for parent in node.parents)
        for place, node in enumerate(graph.nodes):
            token = tokens[place]
            self.taken.see(_of_token(family, token), min(taken[place], LARGEST_LAYER))
            if node.parents:
                self.parents.see(_of_token(family, token), min(len(node.parents), LARGEST_LAYER))
            for parent in node.parents:
                back = depths[place] - depths[parent]
                if back > 1:
                    self.distances.see(_of_token(family, token), _far(back))
                self.pairs.see([(token[:2], min(back, 2)), (token[0],)], tokens[parent])
            largest = max((bins[parent] for parent in node.parents), default=None)
            self.bytes.see(_bytes(family, sharing, token, largest), bins[place])
            self.work.see(_work(family, sharing, token, bins[place]), work_bin(node, setting.intensity))
            if not node.is_collective:
                self.written.see(_of_token(family, token), round(PARTS * node.written / node.bytes))

    def grow(self, like: str, nodes: int, seed: int, *, memory: float | None = None) -> OpGraph:
        """A new graph.

        Args:
            like: A model that was learnt from, or a family.
            nodes: How many it has.
            seed: The same gives the same graph.
            memory: Bytes that it should hold, about: graphs that hold as much are preferred as what it is like.

        Raises:
            UsageError: Nothing was learnt of `like`, or there is no such size.
        """
        if nodes < 1:
            raise UsageError(f"a graph of {nodes} nodes", where="--nodes", fix="give at least 1")
        random = np.random.default_rng(seed)
        known = self.alike(like)
        # Of several, one that is about as large: how nodes are spread depends on that.
        weights = np.array([1 / (1 + abs(math.log(each.nodes / nodes))) for each in known])
        if memory is not None:
            weights = weights / [1 + abs(math.log(max(each.state, 1) / memory)) for each in known]
        setting = known[int(random.choice(len(known), p=weights / weights.sum()))]
        return _Growing(self, setting, nodes, random, np.random.default_rng((seed, 1))).grown(
            f"like {like}, seed {seed}"
        )

    def spread(self, what: str) -> float:
        """How far graphs of a family are from each other: the standard deviation of what they have as a whole."""
        families: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for each in self.settings:
            families[each.family, each.sharing].append(getattr(each, what))
        rows = [np.array(row) for row in families.values() if len(row) > 1]
        freedom = sum(len(row) - 1 for row in rows)
        return math.sqrt(sum(float(((row - row.mean()) ** 2).sum()) for row in rows) / freedom) if freedom else 0.0

    def alike(self, like: str) -> list[GraphSetting]:
        """The graphs of a model or family that were learnt from."""
        found = [each for each in self.settings if like in (each.model, each.family)]
        if not found:
            names = sorted({each.model for each in self.settings} | {each.family for each in self.settings})
            raise UsageError(f"nothing like {like!r} was learnt", where="--like", fix=nearest(like, names))
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        settings = [
            [e.model, e.family, e.ranks, e.groups, e.scale, e.intensity, e.repeats, e.nodes, e.sharing, e.state]
            for e in self.settings
        ]
        return {"settings": settings, **{name: getattr(self, name).to_json() for name in _TABLES}}

    @staticmethod
    def from_json(found: dict[str, Any]) -> GraphModel:
        """The model from what `to_json` made of it."""
        model = GraphModel()
        for name, family, ranks, groups, scale, intensity, repeats, nodes, sharing, state in found["settings"]:
            dims = tuple(tuple((size, stride) for size, stride in each) for each in groups)
            model.settings.append(
                GraphSetting(
                    model=name, family=family, ranks=ranks, groups=dims, scale=scale, intensity=intensity,
                    repeats=tuple(repeats), nodes=nodes, sharing=sharing, state=state,
                )
            )  # fmt: skip
        for table in _TABLES:
            setattr(model, table, Counts.from_json(found[table]))
        return model


_TABLES = ("sizes", "tokens", "parents", "distances", "pairs", "bytes", "work", "taken", "written")


def learnt(graphs: Sequence[OpGraph]) -> GraphModel:
    """A model of some graphs."""
    model = GraphModel()
    for graph in graphs:
        model.learn(graph)
    return model


@cache
def shipped_model() -> GraphModel:
    """The model that is shipped."""
    content = gzip.decompress((files("meshcast.synthetic") / "data" / FILE).read_bytes())
    return GraphModel.from_json(json.loads(content))


def setting_of(graph: OpGraph) -> GraphSetting:
    """What a graph is like as a whole."""
    moved = sorted(math.log2(node.bytes) for node in graph.nodes if not node.is_collective)
    repeats = tuple(sorted({node.repeat for node in graph.nodes}))
    products = [node for node in graph.nodes if node.matrix]
    work, through = (sum(getattr(node, key) * node.repeat for node in products) for key in ("flops", "bytes"))
    return GraphSetting(
        model=graph.model, family=graph.family, ranks=graph.ranks, groups=graph.groups, repeats=repeats,
        scale=moved[len(moved) // 2] if moved else 20.0, intensity=math.log2(work / through) if work else 0.0,
        nodes=len(graph.nodes), state=graph.state,
        sharing=" ".join(sorted({f"{node.kind}.{node.group}" for node in graph.nodes if node.is_collective})),
    )  # fmt: skip


def tokens_of(graph: OpGraph, setting: GraphSetting) -> list[Token]:
    """What each node is."""
    place = {repeat: index for index, repeat in enumerate(setting.repeats)}
    return [(node.kind, node.dtype, node.group, place[node.repeat], node.matrix) for node in graph.nodes]


def size_bin(node: OpNode, scale: float) -> int:
    """Its bytes beside the graph's scale."""
    return round(FINE * (math.log2(node.bytes) - scale))


def work_bin(node: OpNode, intensity: float) -> int | None:
    """Its operations a byte, of products beside the graph's intensity; None where there are none."""
    if not node.flops:
        return None
    return round(FINE * (math.log2(node.flops / node.bytes) - (intensity if node.matrix else 0.0)))


def _phase(seen: int, nodes: int) -> int:
    return min(PHASES - 1, PHASES * seen // nodes)


def _sizes(family: str, phase: int, before: int, earlier: int) -> list[Context]:
    first = before == 0
    return [
        (family, phase, first, min(before, 12), min(earlier, 6)), (family, phase, first, min(before, 12)),
        (family, phase, first), (phase, first), (first,),
    ]  # fmt: skip


def _tokens(
    family: str, sharing: str, phase: int, last: Token | None, above: Sequence[Token], left: int
) -> list[Context]:
    """Nodes of a layer come in order: how many are left says how far along it the next one may be.

    All contexts are of graphs that are shared out the same way: a plan has its own collectives, and no others.
    """
    over, left = (above[-1] if above else None), min(left, 8)
    mine = (family, sharing)
    return [
        (*mine, phase, last, over, left), (*mine, last, over, left), (*mine, phase, last, left), (*mine, last, left),
        (*mine, last), mine,
    ]  # fmt: skip


def _of_token(family: str, token: Token) -> list[Context]:
    return [(family, token), (family, token[0]), (token[0],), ()]


def _bytes(family: str, sharing: str, token: Token, largest: int | None) -> list[Context]:
    mine = (family, sharing, token)
    return [(*mine, largest), mine, (family, token), (token[0], token[1]), (token[0],), ()]


def _work(family: str, sharing: str, token: Token, size: int) -> list[Context]:
    mine = (family, sharing, token)
    return [(*mine, size), mine, (family, token), (token[0], token[4]), (token[0],), ()]


def _far(back: int) -> int:
    """Layers back: exactly while near, the octave's lowest behind that."""
    return back if back <= FAR else 1 << (back.bit_length() - 1)


class _Growing:
    """One graph under way."""

    def __init__(
        self,
        model: GraphModel,
        setting: GraphSetting,
        nodes: int,
        random: np.random.Generator,
        results: np.random.Generator,
    ) -> None:
        self._model = model
        self._results = results  # draws of their own, so that all else of a graph is the same with and without them
        self._setting = setting
        self._target = nodes
        self._random = random
        self._scale = setting.scale + model.spread("scale") * float(random.standard_normal())
        self._intensity = setting.intensity + model.spread("intensity") * float(random.standard_normal())
        self._nodes: list[OpNode] = []
        self._tokens: list[Token] = []
        self._bins: list[int] = []
        self._wanted: list[float] = []  # times that a result is still to be taken
        self._layers: list[list[int]] = []

    def grown(self, name: str) -> OpGraph:
        """The whole graph."""
        while len(self._nodes) < self._target:
            self._layer()
        setting = self._setting
        return OpGraph(
            name=name, model=setting.model, family=setting.family, ranks=setting.ranks, groups=setting.groups,
            nodes=tuple(self._nodes), state=round(setting.state * 2 ** (self._scale - setting.scale)),
        )  # fmt: skip

    def _layer(self) -> None:
        family, phase = self._setting.family, _phase(len(self._nodes), self._target)
        before, earlier = (len(self._layers[-n]) if len(self._layers) >= n else 0 for n in (1, 2))
        wanted = self._model.sizes.draw(_sizes(family, phase, before, earlier), self._random) or 1
        # The first layer is as large a share as it was of graphs like this one, whatever their size.
        if not self._layers:
            wanted = max(1, round(wanted * self._target / max(1, self._setting.nodes)))
        wanted = min(int(wanted), self._target - len(self._nodes))
        above = tuple(self._tokens[place] for place in self._layers[-1]) if self._layers else ()
        row: list[Token] = []
        last: Token | None = None
        for number in range(wanted):
            contexts = _tokens(family, self._setting.sharing, phase, last, above, wanted - number)
            last = self._fitting(self._model.tokens.draw(contexts, self._random))
            row.append(last)
        row.sort()
        self._layers.append([])
        for token in row:
            self._node(token)

    def _fitting(self, token: Token) -> Token:
        """The token with a group and a loop that this graph has; a collective of a graph without groups is a kernel's copy."""
        kind, dtype, group, loop, matrix = token
        groups = len(self._setting.groups)
        if group >= 0 and not groups:
            return ("loop-fusion", "f32", -1, min(loop, len(self._setting.repeats) - 1), False)
        return (kind, dtype, min(group, groups - 1), min(loop, len(self._setting.repeats) - 1), matrix)

    def _node(self, token: Token) -> None:
        family, sharing, random = self._setting.family, self._setting.sharing, self._random
        parents = self._parents(token) if len(self._layers) > 1 else ()
        largest = max((self._bins[parent] for parent in parents), default=None)
        size = int(self._model.bytes.draw(_bytes(family, sharing, token, largest), random) or 0)
        moved = max(1, round(2 ** (self._scale + (size + random.random() - 0.5) / FINE)))
        work = None if token[2] >= 0 else self._model.work.draw(_work(family, sharing, token, size), random)
        above = self._intensity if token[4] else 0.0
        flops = 0.0 if work is None else float(round(moved * 2 ** (above + (work + random.random() - 0.5) / FINE)))
        self._layers[-1].append(len(self._nodes))
        self._nodes.append(
            OpNode(
                kind=token[0], dtype=token[1], group=token[2], repeat=self._setting.repeats[token[3]], flops=flops,
                bytes=moved, written=self._result(token, moved), matrix=token[4] and flops > 0, parents=parents,
            )
        )  # fmt: skip
        self._tokens.append(token)
        self._bins.append(size)
        self._wanted.append(float(self._model.taken.draw(_of_token(family, token), random) or 0))

    def _result(self, token: Token, moved: int) -> int:
        """Bytes of a node's result."""
        if token[2] < 0:
            parts = self._model.written.draw(_of_token(self._setting.family, token), self._results) or 0
            return min(moved, round(moved * int(parts) / PARTS))
        ranks = math.prod(size for size, _ in self._setting.groups[token[2]])
        return {"all_gather": moved * ranks, "reduce_scatter": moved // ranks}.get(token[0], moved)

    def _parents(self, token: Token) -> tuple[int, ...]:
        """One in the layer right before, and others as far back as nodes of its kind look."""
        family = self._setting.family
        count = int(self._model.parents.draw(_of_token(family, token), self._random) or 1)
        found = {self._parent(token, 1)}
        for _ in range(count - 1):
            back = int(self._model.distances.draw(_of_token(family, token), self._random) or 1)
            if back > FAR:
                back += int(self._random.integers(0, back))
            found.add(self._parent(token, min(back, len(self._layers) - 1)))
        for parent in found:
            self._wanted[parent] -= 1
        return tuple(sorted(found))

    def _parent(self, token: Token, back: int) -> int:
        layer = self._layers[-1 - back]
        if len(layer) == 1:
            return layer[0]
        near = self._model.pairs.of((token[:2], min(back, 2))) or self._model.pairs.of((token[0],))
        weights = np.array(
            [(near.get(self._tokens[each], 0) + 0.5) * max(self._wanted[each], LITTLE) for each in layer]
        )
        sums = np.cumsum(weights)
        return layer[int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))]
