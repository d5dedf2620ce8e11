"""One graph under way: layers, what their nodes are, who takes what from whom; sizes come last (`traces.synthetic.sizing`)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from meshcast.base import BugError
from meshcast.traces.synthetic.contexts import (
    FAR,
    Token,
    foreign_form_contexts,
    form_contexts,
    kind_contexts,
    layer_contexts,
    phase_of,
    token_contexts,
)
from meshcast.traces.synthetic.forms import Form, Key
from meshcast.traces.synthetic.sizing import GrownNode

if TYPE_CHECKING:
    from meshcast.traces.synthetic.model import GraphModel

LITTLE = 0.05  # of a result that is to be taken once more: what has been taken as often as it should can still be
TRIES = 4  # forms that are drawn until one takes what the first parent makes
NOTHING_KNOWN = ("loop-fusion", "f32")  # what stands for a collective where a graph has no groups


class GrowingGraph:
    """A graph under way."""

    def __init__(self, model: GraphModel, like: int, nodes: int, random: np.random.Generator) -> None:
        """Like one of the graphs that a model has learnt from, by its number."""
        self._model, self._like, self._setting = model, like, model.settings[like]
        self._target, self._random = nodes, random
        self._nodes: list[GrownNode] = []
        self._tokens: list[Token] = []
        self._wanted: list[float] = []  # times that a result is still to be taken
        self._layers: list[list[int]] = []
        self._layer_of: list[int] = []
        self._makers: dict[Key, list[int]] = {}  # of every tensor, ascending

    def nodes(self) -> list[GrownNode]:
        """All nodes, in an order in which each comes behind its parents."""
        while len(self._nodes) < self._target:
            self._layer()
        return self._nodes

    def _layer(self) -> None:
        family, phase = self._setting.family, phase_of(len(self._nodes), self._target)
        before, earlier = (len(self._layers[-n]) if len(self._layers) >= n else 0 for n in (1, 2))
        wanted = self._model.sizes.draw(layer_contexts(family, phase, before, earlier), self._random) or 1
        # The first layer is as large a share as it was of graphs like this one, whatever their size.
        if not self._layers:
            wanted = max(1, round(wanted * self._target / max(1, self._setting.nodes)))
        wanted = min(int(wanted), self._target - len(self._nodes))
        above = tuple(self._tokens[place] for place in self._layers[-1]) if self._layers else ()
        row: list[Token] = []
        last: Token | None = None
        for number in range(wanted):
            contexts = token_contexts(family, self._setting.sharing, phase, last, above, wanted - number)
            last = self._fitting(self._model.tokens.draw(contexts, self._random))
            row.append(last)
        row.sort()
        self._layers.append([])
        for token in row:
            self._node(token)

    def _fitting(self, token: Token) -> Token:
        """The token with a group and a loop that this graph has; a collective of a graph without groups is a kernel's copy."""
        kind, dtype, group, loop, matrix = token
        groups, loop = len(self._setting.groups), min(loop, len(self._setting.repeats) - 1)
        if group >= 0 and not groups:
            return (*NOTHING_KNOWN, -1, loop, False)
        return (kind, dtype, min(group, groups - 1), loop, matrix)

    def _node(self, token: Token) -> None:
        place = len(self._nodes)
        first = self._parent(token, 1) if len(self._layers) > 1 else None
        form = self._form(token, first)
        edges = self._edges(token, form, first)
        for parent in {parent for parent, _ in edges}:
            self._wanted[parent] -= 1
        self._nodes.append(
            GrownNode(form=form, group=token[2], repeat=self._setting.repeats[token[3]], edges=tuple(edges))
        )
        self._layers[-1].append(place)
        self._layer_of.append(len(self._layers) - 1)
        self._tokens.append(token)
        self._wanted.append(
            float(self._model.taken.draw(kind_contexts(self._setting.family, token), self._random) or 0)
        )
        for key in dict.fromkeys(form.keys):
            self._makers.setdefault(key, []).append(place)

    def _form(self, token: Token, first: int | None) -> Form:
        """What a node of such a kind does, with a tensor of its first parent where such a form is drawn soon."""
        keys = set() if first is None else set(self._nodes[first].form.keys)
        made = None if first is None else self._nodes[first].form.main
        shapes, family = self._model.shapes, self._setting.family
        for behind in (first is not None, first is None):
            found = None
            for _ in range(TRIES):
                found = shapes.draw(form_contexts(self._like, token, behind, made), self._random)
                if found is None or not keys or not keys.isdisjoint(self._model.forms[found].taken):
                    break
            if found is None:
                found = shapes.draw(foreign_form_contexts(family, token, behind), self._random)
            if found is not None:
                return self._model.forms[int(found)]
        raise BugError(f"nothing of the kind {token[0]} was learnt")

    def _edges(self, token: Token, form: Form, first: int | None) -> list[tuple[int, int]]:
        """Who gives what: the first parent what fits it best, others what is left of the form."""
        if first is None:
            return []
        if not form.edges:
            return [(first, -1)]
        keys = set(self._nodes[first].form.keys)
        fitting = [
            number for number, edge in enumerate(form.edges) if any((shape, dtype) in keys for shape, dtype, _ in edge)
        ]
        mine = fitting[0] if fitting else 0
        found = [(first, mine)]
        for number, edge in enumerate(form.edges):
            if number == mine:
                continue
            contexts = kind_contexts(self._setting.family, token)
            back = int(self._model.distances.draw(contexts, self._random) or 1)
            if back > FAR:
                back += int(self._random.integers(0, back))
            back = min(back, len(self._layers) - 1)
            found.append((self._maker(token, edge[0][:2], back) if edge else self._parent(token, back), number))
        return found

    def _maker(self, token: Token, key: Key, back: int) -> int:
        """A node of an earlier layer that makes such a tensor, as near as can be to so many layers back."""
        makers = self._makers.get(key, [])
        count = bisect_left(makers, len(self._nodes) - len(self._layers[-1]))
        if not count:
            return self._parent(token, back)
        layer = len(self._layers) - 1 - back
        at = bisect_left(makers, self._layers[layer][0], 0, count)
        near = min(
            (each for each in (at - 1, at) if 0 <= each < count),
            key=lambda each: abs(self._layer_of[makers[each]] - layer),
        )
        chosen = self._layer_of[makers[near]]
        row = [makers[each] for each in range(max(0, near - len(self._layers[chosen])), count)]
        return self._weighed(token, [each for each in row if self._layer_of[each] == chosen], back)

    def _parent(self, token: Token, back: int) -> int:
        return self._weighed(token, self._layers[-1 - back], back)

    def _weighed(self, token: Token, row: list[int], back: int) -> int:
        """One of some nodes, by how well kinds go together and how often their results are still to be taken."""
        if len(row) == 1:
            return row[0]
        near = self._model.pairs.of((token[:2], min(back, 2))) or self._model.pairs.of((token[0],))
        weights = np.array([(near.get(self._tokens[each], 0) + 0.5) * max(self._wanted[each], LITTLE) for each in row])
        sums = np.cumsum(weights)
        return row[int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))]
