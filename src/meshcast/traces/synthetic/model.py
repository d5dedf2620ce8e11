"""`GraphModel`: workload graphs grown layer by layer, nodes first and then their edges.

After LayerDAG (Li et al., ICLR 2025): a graph is a row of layers, in which a node lies one behind the deepest of its parents,
so that what is grown is acyclic by itself. Where LayerDAG has neural networks and categories alone, here are conditional
counts (`traces.synthetic.counts`), which some dozen graphs are enough for, and tensors:

1. how many nodes the next layer has, by the sizes of the two before and how far the graph has come;
2. what each of them is (kind, type, loop, group), by the one before it in the layer, the layer before and how far it has
   come, among graphs that are shared out the same way (which collectives they have, over which groups);
3. its first parent, in the layer right before, by how well kinds go together and how often results of each are taken;
4. its form (`traces.synthetic.forms`): the tensors that it writes, takes from parents and from outside, and operations an
   element, by what it is and the tensor that its first parent makes, of the graph that the new one is like;
5. its other parents, one for each that the form takes something from: nodes that make such a tensor, as far back as nodes of its
   kind look;
6. all sizes together (`traces.synthetic.sizing`).

Counts of layers and nodes are of the model's family first, and of all families behind that, but for what nodes are: a plan
decides on its collectives, and a family's other plans would mix theirs in. A graph's ranks and groups are those of a graph that
was learnt from; so are its tensors, with sizes of their own, about as far from them as graphs of a family that are shared out
alike are from each other.
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
from meshcast.traces.synthetic.contexts import (
    LARGEST_LAYER,
    Token,
    distance_bin,
    foreign_form_contexts,
    form_contexts,
    kind_contexts,
    layer_contexts,
    phase_of,
    token_contexts,
)
from meshcast.traces.synthetic.counts import Counts
from meshcast.traces.synthetic.forms import Form, form_of
from meshcast.traces.synthetic.graphs import GroupDims, OpGraph
from meshcast.traces.synthetic.growing import GrowingGraph
from meshcast.traces.synthetic.sizing import Skeleton

FILE = "model.json.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSetting:
    """What a graph that was learnt from is like as a whole: what a new one takes over.

    Attributes:
        scale: The median of the bytes of its kernels, in octaves.
        repeats: Turns of its loops, ascending.
        sharing: Its collectives and their groups, in one word each: how it is shared out.
        state: Bytes that it holds throughout the step.
    """

    model: str
    family: str
    ranks: int
    groups: tuple[GroupDims, ...]
    scale: float
    repeats: tuple[int, ...]
    nodes: int
    sharing: str
    state: int = 0


class GraphModel:
    """What was learnt."""

    def __init__(self) -> None:
        self.settings: list[GraphSetting] = []
        self.forms: list[Form] = []
        self._known_forms: dict[Form, int] = {}
        self.sizes, self.tokens, self.distances, self.pairs = Counts(), Counts(), Counts(), Counts()
        self.taken, self.shapes = Counts(), Counts()

    def learn(self, graph: OpGraph) -> None:
        """Counts everything about a graph."""
        setting, number = setting_of(graph), len(self.settings)
        self.settings.append(setting)
        family, sharing = graph.family, setting.sharing
        tokens, depths = tokens_of(graph, setting), graph.depths()
        layers = graph.layers()
        seen, before, earlier = 0, 0, 0
        above: tuple[Token, ...] = ()
        for layer in layers:
            phase = phase_of(seen, len(graph.nodes))
            self.sizes.see(layer_contexts(family, phase, before, earlier), min(len(layer), LARGEST_LAYER))
            last: Token | None = None
            row = sorted(tokens[place] for place in layer)
            for left, token in enumerate(row):
                self.tokens.see(token_contexts(family, sharing, phase, last, above, len(row) - left), token)
                last = token
            earlier, before, above, seen = before, len(layer), tuple(row), seen + len(layer)
        taken = Counter(parent for node in graph.nodes for parent in node.parents)
        forms = [form_of(node) for node in graph.nodes]
        for place, node in enumerate(graph.nodes):
            token = tokens[place]
            self.taken.see(kind_contexts(family, token), min(taken[place], LARGEST_LAYER))
            for parent in node.parents:
                back = depths[place] - depths[parent]
                if back > 1:
                    self.distances.see(kind_contexts(family, token), distance_bin(back))
                self.pairs.see([(token[:2], min(back, 2)), (token[0],)], tokens[parent])
            near = [parent for parent in node.parents if depths[parent] == depths[place] - 1]
            first = max(near, key=lambda parent: graph.nodes[parent].written, default=None)
            known = self._known_forms.setdefault(forms[place], len(self.forms))
            if known == len(self.forms):
                self.forms.append(forms[place])
            behind = first is not None
            made = None if first is None else forms[first].main
            self.shapes.see(form_contexts(number, token, behind, made), known)
            self.shapes.see(foreign_form_contexts(family, token, behind), known)
            self.shapes.see([(number,)], known)  # all of a graph

    def grow(self, like: str, nodes: int, seed: int, *, memory: float | None = None) -> OpGraph:
        """A new graph: a skeleton, sized."""
        return self.skeleton(like, nodes, seed, memory=memory).sized()

    def skeleton(self, like: str, nodes: int, seed: int, *, memory: float | None = None) -> Skeleton:
        """A new graph without sizes.

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
        weights = np.array([1 / (1 + abs(math.log(self.settings[each].nodes / nodes))) for each in known])
        if memory is not None:
            weights = weights / [1 + abs(math.log(max(self.settings[each].state, 1) / memory)) for each in known]
        number = known[int(random.choice(len(known), p=weights / weights.sum()))]
        setting = self.settings[number]
        grown = GrowingGraph(self, number, nodes, random).nodes()
        return Skeleton(
            name=f"like {like}, seed {seed}", model=setting.model, family=setting.family, ranks=setting.ranks,
            groups=setting.groups, nodes=tuple(grown), state=setting.state, spread=self.spread(setting), seed=seed,
            forms=tuple(self.forms[each] for each in self.shapes.of((number,))),
        )  # fmt: skip

    def spread(self, setting: GraphSetting) -> float:
        """Octaves by which sizes of a new graph differ from those of the one that it is like.

        New graphs are a smoothed sample of those that are shared out alike in a family: s n^(-1/5) with the standard deviation s
        of the scales of n graphs (D. W. Scott, Multivariate Density Estimation, 1992). Where there is one alone, s is that of a
        middling family.
        """
        scales: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for each in self.settings:
            scales[each.family, each.sharing].append(each.scale)
        known = {key: float(np.std(row, ddof=1)) for key, row in scales.items() if len(row) > 1}
        mine = (setting.family, setting.sharing)
        if mine in known:
            return float(known[mine] * len(scales[mine]) ** -0.2)
        return float(np.median(list(known.values()))) if known else 0.0

    def alike(self, like: str) -> list[int]:
        """The numbers of the graphs of a model or family that were learnt from."""
        found = [number for number, each in enumerate(self.settings) if like in (each.model, each.family)]
        if not found:
            names = sorted({each.model for each in self.settings} | {each.family for each in self.settings})
            raise UsageError(f"nothing like {like!r} was learnt", where="--like", fix=nearest(like, names))
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        settings = [
            [e.model, e.family, e.ranks, e.groups, e.scale, e.repeats, e.nodes, e.sharing, e.state]
            for e in self.settings
        ]
        forms = [each.to_json() for each in self.forms]
        return {"settings": settings, "forms": forms, **{name: getattr(self, name).to_json() for name in _TABLES}}

    @staticmethod
    def from_json(found: dict[str, Any]) -> GraphModel:
        """The model from what `to_json` made of it."""
        model = GraphModel()
        for name, family, ranks, groups, scale, repeats, nodes, sharing, state in found["settings"]:
            dims = tuple(tuple((size, stride) for size, stride in each) for each in groups)
            model.settings.append(
                GraphSetting(
                    model=name, family=family, ranks=ranks, groups=dims, scale=scale,
                    repeats=tuple(repeats), nodes=nodes, sharing=sharing, state=state,
                )
            )  # fmt: skip
        model.forms = [Form.from_json(each) for each in found["forms"]]
        model._known_forms = {each: number for number, each in enumerate(model.forms)}
        for table in _TABLES:
            setattr(model, table, Counts.from_json(found[table]))
        return model


_TABLES = ("sizes", "tokens", "distances", "pairs", "taken", "shapes")


def learnt(graphs: Sequence[OpGraph]) -> GraphModel:
    """A model of some graphs."""
    model = GraphModel()
    for graph in graphs:
        model.learn(graph)
    return model


@cache
def shipped_model() -> GraphModel:
    """The model that is shipped."""
    content = gzip.decompress((files("meshcast.traces.synthetic") / "data" / FILE).read_bytes())
    return GraphModel.from_json(json.loads(content))


def setting_of(graph: OpGraph) -> GraphSetting:
    """What a graph is like as a whole."""
    moved = sorted(math.log2(node.bytes) for node in graph.nodes if not node.is_collective)
    repeats = tuple(sorted({node.repeat for node in graph.nodes}))
    return GraphSetting(
        model=graph.model, family=graph.family, ranks=graph.ranks, groups=graph.groups, repeats=repeats,
        scale=moved[len(moved) // 2] if moved else 20.0,
        nodes=len(graph.nodes), state=graph.state,
        sharing=" ".join(sorted({f"{node.kind}.{node.group}" for node in graph.nodes if node.is_collective})),
    )  # fmt: skip


def tokens_of(graph: OpGraph, setting: GraphSetting) -> list[Token]:
    """What each node is."""
    place = {repeat: index for index, repeat in enumerate(setting.repeats)}
    return [(node.kind, node.dtype, node.group, place[node.repeat], node.matrix) for node in graph.nodes]
