"""The flows of a stage: which devices send to which, and what part of a device's bytes each flow carries.

A pattern is a share of the stage's bytes and time, and flows between devices: (from, to, part of what one device sends).
Rings, trees, halving and doubling after Thakur, Rabenseifner and Gropp (2005); two binary trees whose leaves and inner
nodes are exchanged after Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan" (2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from meshcast.network.fabric.links import Floats, Ints
from meshcast.network.flow.traffic import Groups
from meshcast.network.plan import Stage
from meshcast.network.slices import SliceLine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pattern:
    """Flows that run at the same time. `share` is their part of the stage; `part` of a device's bytes goes to each."""

    share: float
    source: Ints
    target: Ints
    part: Floats


def ring(sets: Groups, stage: Stage) -> Iterator[Pattern]:
    """Each to the next; of a broadcast or reduction along the line, without the way back to its start."""
    yield _line(sets, stage, 1.0)


def bidirectional_ring(sets: Groups, stage: Stage) -> Iterator[Pattern]:
    """Half of the bytes either way around."""
    forward, backward = _line(sets, stage, 0.5), _line(sets[:, ::-1], stage, 0.5)
    yield Pattern(
        share=1.0,
        source=np.concatenate([forward.source, backward.source]),
        target=np.concatenate([forward.target, backward.target]),
        part=np.concatenate([forward.part, backward.part]),
    )


def _line(sets: Groups, stage: Stage, part: float) -> Pattern:
    source, target = sets, np.roll(sets, -1, axis=1)
    if stage.primitive in ("broadcast", "reduce"):
        source, target = source[:, :-1], target[:, :-1]
        if stage.primitive == "reduce":
            source, target = target, source
    return Pattern(share=1.0, source=source.ravel(), target=target.ravel(), part=np.full(source.size, part))


def from_one(sets: Groups, stage: Stage) -> Iterator[Pattern]:
    """From the first member to all others in equal parts, or of a reduction from all others to it."""
    root, others = np.repeat(sets[:, 0], sets.shape[1] - 1), sets[:, 1:].ravel()
    source, target = (others, root) if stage.primitive == "reduce" else (root, others)
    yield Pattern(share=1.0, source=source, target=target, part=np.full(len(root), 1 / (sets.shape[1] - 1)))


def halving_doubling(sets: Groups, stage: Stage) -> Iterator[Pattern]:
    """Partners at distances 1, 2, 4, ...: half of the data with the nearest, a quarter with the next, and so on.

    Members beyond the largest power of two first hand their data to a partner, and get the result at the end; with them
    the bytes are shared out over one more exchange.
    """
    size = sets.shape[1]
    rounds = size.bit_length() - 1
    power = 1 << rounds
    weights = [2.0**-distance for distance in range(1, rounds + 1)]
    rest = sets[:, power:]
    if rest.size:
        weights.append(1.0)
    total = sum(weights)
    place = np.arange(power)
    for exponent, weight in zip(range(rounds), weights, strict=False):
        partner = sets[:, place ^ (1 << exponent)]
        yield _exchange(sets[:, :power], partner, weight / total)
    if rest.size:
        partner = sets[:, : rest.shape[1]]
        yield _exchange(
            np.concatenate([rest, partner], axis=1), np.concatenate([partner, rest], axis=1), weights[-1] / total
        )


def _exchange(source: Groups, target: Groups, share: float) -> Pattern:
    return Pattern(share=share, source=source.ravel(), target=target.ravel(), part=np.ones(source.size))


def double_binary_tree(sets: Groups, stage: Stage) -> Iterator[Pattern]:
    """Half of the bytes up and down each of two trees; parts are such that the busiest port has all of them."""
    size = sets.shape[1]
    child, parent = _tree_edges(size)
    exchanged = np.roll(np.arange(size), -1) if size % 2 else np.arange(size)[::-1]
    children = np.concatenate([child, exchanged[child]])
    parents = np.concatenate([parent, exchanged[parent]])
    if stage.primitive == "broadcast":
        source, target = parents, children
    elif stage.primitive == "reduce":
        source, target = children, parents
    else:
        source, target = np.concatenate([children, parents]), np.concatenate([parents, children])
    busiest = max(np.bincount(source).max(), np.bincount(target).max())
    flows = len(source) * len(sets)
    yield Pattern(
        share=1.0, source=sets[:, source].ravel(), target=sets[:, target].ravel(), part=np.full(flows, 1 / busiest)
    )


def _tree_edges(size: int) -> tuple[Ints, Ints]:
    """(child, parent) of a binary tree in which odd numbers are leaves: a number's lowest set bit is its height."""
    child = np.arange(1, size)
    bit = child & -child
    parent = (child ^ bit) | (bit << 1)
    return child, np.where(parent < size, parent, child ^ bit)


def along_lines(sets: Groups, lines: Sequence[SliceLine], coordinates: Callable[[Ints], Ints]) -> Iterator[Pattern]:
    """Rings along each side that members lie along, both ways around; sides get bytes as they have links for them.

    Around a closed side a link carries what one member sends to the next. On a line the way back to its start takes the
    links of the other direction, so that each link carries twice that.
    """
    total = sum(line.free_ways for line in lines)
    sources, targets, parts = [], [], []
    for line in lines:
        here, following, _, _ = _neighbours(sets, line.side, coordinates)
        sources += [here, following]
        targets += [following, here]
        parts += [np.full(2 * len(here), line.free_ways / total / 2)]
    yield Pattern(share=1.0, source=np.concatenate(sources), target=np.concatenate(targets), part=np.concatenate(parts))


def spanning_tree(
    sets: Groups, stage: Stage, lines: Sequence[SliceLine], coordinates: Callable[[Ints], Ints]
) -> Iterator[Pattern]:
    """From the first member along one side after the other, to both sides of a ring; of a reduction the other way.

    Rows are in the order of devices, so the first member is also the first on each of its lines.
    """
    sources, targets = [], []
    roots = coordinates(sets[:, 0])
    for line in lines:
        here, following, index, row = _neighbours(sets, line.side, coordinates)
        where = coordinates(here)
        later = [other.side for other in lines if other.side > line.side]
        # Lines that start at a member that has all by then.
        reached = (where[later] == roots[later][:, row]).all(axis=0)
        turn = line.length // 2 if line.closed else line.length - 1
        up, down = reached & (index < turn), reached & (index > turn)
        sources += [here[up], following[down]]
        targets += [following[up], here[down]]
    source, target = np.concatenate(sources), np.concatenate(targets)
    if stage.primitive == "reduce":
        source, target = target, source
    yield Pattern(share=1.0, source=source, target=target, part=np.ones(len(source)))


def _neighbours(sets: Groups, side: int, coordinates: Callable[[Ints], Ints]) -> tuple[Ints, Ints, Ints, Ints]:
    """(member, the next along a side, the member's number on its line, its row); the last is followed by the first."""
    members = sets.ravel()
    where = coordinates(members)
    row = np.repeat(np.arange(len(sets)), sets.shape[1])
    others = [where[other] for other in range(len(where)) if other != side]
    order = np.lexsort((where[side], *others, row))
    keys = np.stack([row, *others])[:, order]
    starts = np.flatnonzero(np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0)))
    lengths = np.diff(np.append(starts, len(order)))
    start, length = np.repeat(starts, lengths), np.repeat(lengths, lengths)
    index = np.arange(len(order)) - start
    return members[order], members[order[start + (index + 1) % length]], index, row[order]


PATTERNS: dict[str, Callable[[Groups, Stage], Iterator[Pattern]]] = {
    "ring": ring,
    "bidirectional-ring": bidirectional_ring,
    "halving-doubling": halving_doubling,
    "double-binary-tree": double_binary_tree,
}
