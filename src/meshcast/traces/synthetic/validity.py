"""What makes a graph of operations no graph that can be run: edges, sizes, groups, and shapes where it has them.

Shapes are held against everything else that a node says:

- a node moves the bytes of its tensors, a collective puts in those of its operands;
- an operand that a parent made has the shape and the type of one of its results, and every parent makes one;
- no part of a tensor is larger than the tensor;
- a product `out[b,m,n] = sum_k lhs[b,m,k] rhs[b,k,n]` has two operands with |lhs| |rhs| = b |out| k^2 for a whole b that divides
  |out|, and 2 |out| k operations, with what is computed of its elements beside that;
- an all-reduce and a permutation give what they take, an all-gather as often as there are ranks in the group, a reduce-scatter
  one part of as many, padded where they do not share out evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcast.traces.synthetic.graphs import OpGraph, OpNode

SAME = ("all_reduce", "collective_permute", "all_to_all", "collective_broadcast")
MOST_BESIDE = 64  # operations an element that a product does beside itself: functions of its result, masks, sums


def complaints_about(graph: OpGraph) -> Iterator[str]:
    """What is wrong with a graph, a sentence each."""
    if not graph.nodes:
        yield "it has no nodes"
    for place, node in enumerate(graph.nodes):
        if any(not 0 <= parent < place for parent in node.parents):
            yield f"node {place} takes the result of a node that is not before it"
            continue
        if len(set(node.parents)) != len(node.parents):
            yield f"node {place} has a parent twice"
        if node.bytes <= 0 or node.flops < 0 or node.repeat < 1:
            yield f"node {place} moves {node.bytes} bytes in {node.repeat} launches"
        if not 0 <= node.written <= (node.bytes if not node.is_collective else node.bytes * graph.ranks):
            yield f"node {place} has a result of {node.written} bytes, and moves {node.bytes}"
        if node.group >= len(graph.groups):
            yield f"node {place} is over group {node.group} of {len(graph.groups)}"
            continue
        if node.is_collective and node.flops:
            yield f"node {place} is a collective that computes"
        if node.operands or node.results:
            for wrong in _shapes(graph, node):
                yield f"node {place} {wrong}"
    for dims in graph.groups:
        size = 1
        for each, stride in sorted(dims, key=lambda item: item[1]):
            size *= each
            if each < 2 or stride < 1 or each * stride > graph.ranks or graph.ranks % (each * stride):
                yield f"a group of {each} ranks {stride} apart does not share out {graph.ranks} ranks"
        if size > graph.ranks:
            yield f"a group has {size} of {graph.ranks} ranks"


def _shapes(graph: OpGraph, node: OpNode) -> Iterator[str]:
    for each in (*node.operands, *node.results):
        if any(size < 0 for size in each.shape) or not 0 <= each.bytes <= each.whole:
            yield f"moves {each.bytes} bytes of {each.dtype}{list(each.shape)}"
    read, written = (sum(each.bytes for each in row) for row in (node.operands, node.results))
    if node.written != written:
        yield f"writes {node.written} bytes, and its results have {written}"
    moved = read if node.is_collective else read + written
    if node.bytes != max(1, moved):
        yield f"moves {node.bytes} bytes, and its tensors have {moved}"
    taken = {each.parent for each in node.operands} - {-1}
    if not taken <= set(node.parents) <= taken | {parent for parent in node.parents if not graph.nodes[parent].results}:
        yield f"takes results of {sorted(taken)}, and its parents are {sorted(node.parents)}"
    for each in node.operands:
        made = graph.nodes[each.parent].results if each.parent in node.parents else ()
        if made and (each.shape, each.dtype) not in {(other.shape, other.dtype) for other in made}:
            yield f"takes {each.dtype}{list(each.shape)}, which node {each.parent} does not make"
    if node.contracted and not is_product(node):
        yield f"sums over {node.contracted} elements, which its operands do not have"
    if node.is_collective:
        yield from _exchanged(graph, node, read, written)


def is_product(node: OpNode) -> bool:
    """Whether two operands and a result of a node are those of a product over as many elements as it says."""
    depth = node.contracted
    sides = [each.elements for each in node.operands]
    beside = MOST_BESIDE * (sum(sides) + sum(each.elements for each in node.results))
    for out in {math.prod(each.shape) for each in node.results if 0 not in each.shape}:
        if not 0 <= node.flops - 2.0 * out * depth <= beside:
            continue
        for left, right in combinations(sides, 2):
            batch, rest = divmod(left * right, out * depth * depth)
            if batch and not rest and not out % batch:
                return True
    return False


def _exchanged(graph: OpGraph, node: OpNode, read: int, written: int) -> Iterator[str]:
    ranks = math.prod(size for size, _ in graph.groups[node.group])
    # What is not shared out evenly is padded, by less than a slice of the longest dimension on each rank but one.
    padding = (ranks - 1) * sum(each.whole // max((1, *each.shape)) for each in node.operands)
    if node.kind == "reduce_scatter":
        fits = read <= written * ranks <= read + padding * ranks
    elif node.kind == "all_gather":
        fits = read * ranks - padding <= written <= read * ranks
    else:
        fits = node.kind not in SAME or written == read
    if not fits:
        yield f"is {node.kind} of {read} bytes over {ranks} ranks, and gives {written}"
