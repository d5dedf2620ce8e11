"""Behind what each choice of a graph under way is counted, the longest context first (`traces.synthetic.counts`)."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.traces.synthetic.counts import Context
from meshcast.traces.synthetic.forms import Key

PHASES = 10  # parts of a graph, by the share of its nodes that are there
FAR = 8  # layers back that are counted one by one; farther ones by octaves
LARGEST_LAYER = 400
Token = tuple[str, str, int, int, bool]  # kind, type, group, which of the graph's loops, products


def phase_of(seen: int, nodes: int) -> int:
    """How far a graph has come."""
    return min(PHASES - 1, PHASES * seen // nodes)


def layer_contexts(family: str, phase: int, before: int, earlier: int) -> list[Context]:
    """Of how many nodes a layer has, by the two before it."""
    first = before == 0
    return [
        (family, phase, first, min(before, 12), min(earlier, 6)), (family, phase, first, min(before, 12)),
        (family, phase, first), (phase, first), (first,),
    ]  # fmt: skip


def token_contexts(
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


def kind_contexts(family: str, token: Token) -> list[Context]:
    """Of what nodes of a kind have in common."""
    return [(family, token), (family, token[0]), (token[0],), ()]


def form_contexts(graph: int, token: Token, behind: bool, made: Key | None) -> list[Context]:
    """Of forms inside one graph, which tensors of other sizes do not belong into: of nodes behind a parent, which makes a tensor.

    All contexts tell collectives and kernels apart, and nodes with parents from those without.
    """
    like = (graph, behind, token[2] >= 0)
    return [(*like, token, made), (*like, token), (*like, token[0])]


def foreign_form_contexts(family: str, token: Token, behind: bool) -> list[Context]:
    """Of forms in other graphs, where a graph has no node of a kind."""
    like = (behind, token[2] >= 0, token[0])
    return [(family, *like), like]


def distance_bin(back: int) -> int:
    """Layers back: exactly while near, the octave's lowest behind that."""
    return back if back <= FAR else 1 << (back.bit_length() - 1)
