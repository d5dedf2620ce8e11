"""What one stage of a plan puts on every link: its patterns, routed through a fabric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshcast.base import InfeasibleError, UnsupportedError
from meshcast.network.fabric.fabric import Fabric
from meshcast.network.fabric.links import Floats, Ints
from meshcast.network.fabric.switched import AllPairs, Star
from meshcast.network.fabric.torus import Torus
from meshcast.network.flow.patterns import PATTERNS, Pattern, along_lines, from_one, spanning_tree
from meshcast.network.flow.peers import outside_pairs, parts_of, peer_sets
from meshcast.network.flow.traffic import FlowTraffic, Groups
from meshcast.network.plan import Stage
from meshcast.network.slices import regular

_AT_ONCE = 1 << 20  # flows that are routed in one go, so that memory does not grow with the square of a group


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loads:
    """Bytes and flows on every link of a fabric, during a share of a stage."""

    share: float
    sent: Floats
    flows: Floats


def stage_loads(fabric: Fabric, stage: Stage, traffic: FlowTraffic) -> Iterator[Loads]:
    """The loads of a stage's patterns, one after the other."""
    level = fabric.level_index(stage.level.name)
    if level is None:
        # A graph of one's own has no levels; all of it is one.
        level = len(fabric.levels) - 1
    each = stage.steps * stage.step_bytes
    if stage.primitive == "permute":
        source, target = _permutation(traffic)
        yield _routed(fabric, each, [Pattern(share=1.0, source=source, target=target, part=np.ones(len(source)))])
    elif stage.primitive == "all_to_all":
        yield _exchanged(fabric, level, traffic.groups, each)
    else:
        sets = tuple(peer_sets(traffic.groups, fabric, level))
        if stage.algorithm == "in-network":
            yield _reduced(fabric, level, stage, sets, each)
        elif _uses_all_pairs(fabric, level, stage):
            yield _sum(fabric, [_exchanged_sets(fabric, level, rows, each) for rows in sets])
        else:
            yield from _patterned(fabric, level, stage, sets, each)


def _patterned(fabric: Fabric, level: int, stage: Stage, sets: tuple[Groups, ...], each: float) -> Iterator[Loads]:
    """Loads by pattern; sets of different lengths run their patterns side by side as far as they have equally many."""
    wiring = fabric.wirings[level]
    by_share: dict[tuple[int, float], list[Pattern]] = {}
    for rows in sets:
        if isinstance(wiring, Torus) and (between := _between_neighbours(wiring, stage, rows)) is not None:
            patterns = between
        elif stage.algorithm in ("direct", "one-shot"):
            patterns = from_one(rows, stage)
        elif stage.algorithm in PATTERNS:
            patterns = PATTERNS[stage.algorithm](rows, stage)
        else:
            raise UnsupportedError(
                f"{stage.algorithm} cannot run on level {stage.level.name!r}, a {stage.level.topology}",
                where=fabric.name,
                fix="choose another algorithm, or a level that is a ring or torus",
            )
        for number, pattern in enumerate(patterns):
            by_share.setdefault((number, pattern.share), []).append(pattern)
    for (_, share), together in by_share.items():
        yield _routed(fabric, share * each, together, share)


# What runs between neighbours of a ring or torus: rings, also of small inputs, and trees, which are chains there.
_NEIGHBOURLY = ("ring", "bidirectional-ring", "torus-rings", "double-binary-tree", "one-shot")


def _between_neighbours(wiring: Torus, stage: Stage, rows: Groups) -> Iterator[Pattern] | None:
    """The pattern of a stage along the sides of a ring or torus; None where its members form no box."""
    if stage.algorithm not in _NEIGHBOURLY or wiring.one_way:
        return None
    lines = wiring.lines(rows)
    if not regular(lines):
        return None
    if stage.algorithm == "double-binary-tree" and stage.primitive in ("broadcast", "reduce"):
        return spanning_tree(rows, stage, lines, wiring.coordinates)
    return along_lines(rows, lines, wiring.coordinates)


def _uses_all_pairs(fabric: Fabric, level: int, stage: Stage) -> bool:
    if stage.algorithm == "one-shot" and isinstance(fabric.wirings[level], Torus):
        return False
    if stage.algorithm in ("direct", "one-shot"):
        return stage.primitive not in ("broadcast", "reduce")
    # With a link for every pair, what is faster than one of them has channels with the members in other orders, which
    # use all pairs alike.
    pairwise = isinstance(fabric.wirings[level], AllPairs) and stage.algorithm != "torus-rings"
    each_way = stage.level.bandwidth / max(1, stage.level.size - 1)
    return pairwise and stage.rate > each_way * (1 + 1e-9)


def _permutation(traffic: FlowTraffic) -> tuple[Ints, Ints]:
    if traffic.pairs:
        pairs = np.asarray(traffic.pairs, np.int64)
        return pairs[:, 0], pairs[:, 1]
    return traffic.groups.ravel(), np.roll(traffic.groups, -1, axis=1).ravel()


def _routed(fabric: Fabric, each: float, patterns: list[Pattern], share: float = 1.0) -> Loads:
    return _sum(
        fabric, [_load(fabric, pattern.source, pattern.target, each * pattern.part) for pattern in patterns], share
    )


def _load(fabric: Fabric, source: Ints, target: Ints, sent: Floats) -> Loads:
    apart = source != target
    source, target, sent = source[apart], target[apart], sent[apart]
    paths = fabric.paths(source, target)
    count = len(fabric.links)
    return Loads(
        share=1.0,
        sent=_added(paths.link, sent[paths.flow] * paths.share, count),
        flows=_added(paths.link, paths.share, count),
    )


def _sum(fabric: Fabric, loads: list[Loads], share: float = 1.0) -> Loads:
    sent, flows = np.zeros(len(fabric.links)), np.zeros(len(fabric.links))
    for load in loads:
        sent += load.sent
        flows += load.flows
    return Loads(share=share, sent=sent, flows=flows)


def _added(link: Ints, amount: Floats, count: int) -> Floats:
    return np.bincount(link, weights=amount, minlength=count).astype(np.float64)


def _exchanged_sets(fabric: Fabric, level: int, rows: Groups, each: float) -> Loads:
    """All pairs of each row, in equal parts."""
    size = rows.shape[1]
    members = rows.ravel()
    if shortcut := _through_one_switch(fabric, level, members, np.full(len(members), size - 1.0), each):
        return shortcut
    loads: list[Loads] = []
    at_once = max(1, _AT_ONCE // size)
    for first in range(0, len(members), at_once):
        number = np.arange(first, min(first + at_once, len(members)))
        source = np.repeat(members[number], size)
        target = rows[number // size].ravel()
        loads.append(_load(fabric, source, target, np.full(len(source), each / (size - 1))))
    return _sum(fabric, loads)


def _exchanged(fabric: Fabric, level: int, groups: Groups, each: float) -> Loads:
    """All pairs of members in different parts of a domain, with equal messages."""
    rows = tuple(peer_sets(groups, fabric, level))
    if len(rows) == 1 and rows[0].size == groups.size:  # groups fill their domains evenly
        length = rows[0].shape[1]
        below = groups.size // len(np.unique(np.stack(parts_of(groups, fabric, level)[1:3]), axis=1)[0])
        members = rows[0].ravel()
        peers = np.full(len(members), (length - 1.0) * below)
        if shortcut := _through_one_switch(fabric, level, members, peers, each):
            return shortcut
    loads: list[Loads] = []
    # Equal messages: a device with more peers than others, in a part with fewer members, sends the most.
    message = each / _most_peers(*parts_of(groups, fabric, level)[1:3])
    for source, target in outside_pairs(groups, fabric, level, _AT_ONCE):
        loads.append(_load(fabric, source, target, np.full(len(source), message)))
    return _sum(fabric, loads)


def _most_peers(where: Ints, part: Ints) -> int:
    """Members of a set outside a member's own part, at most."""
    own, counts = np.unique(np.stack([where, part]), axis=1, return_counts=True)
    return max(1, int((np.bincount(where)[own[0]] - counts).max()))


def _through_one_switch(fabric: Fabric, level: int, members: Ints, peers: Floats, each: float) -> Loads | None:
    """Exact without naming a pair: on a switch every member's port carries what it sends and what it gets."""
    wiring = fabric.wirings[level]
    if not isinstance(wiring, Star):
        return None
    ports = np.concatenate([wiring.up[members], wiring.down[members]])
    if (fabric.capacity[ports] <= 0).any():
        return None
    count = len(fabric.links)
    return Loads(
        share=1.0,
        sent=_added(ports, np.full(len(ports), each), count),
        flows=_added(ports, np.tile(peers, 2), count),
    )


def _reduced(fabric: Fabric, level: int, stage: Stage, sets: tuple[Groups, ...], each: float) -> Loads:
    """Switches add on the way up and multicast on the way down; the busier way carries what a device sends."""
    wiring = fabric.wirings[level]
    if wiring is None:
        raise UnsupportedError(
            "a graph of one's own does not say which switches add",
            where=fabric.name,
            fix="choose another algorithm than in-network reduction",
        )
    loads: list[Loads] = []
    for rows in sets:
        number = np.repeat(np.arange(len(rows)), rows.shape[1])
        up, down = wiring.reduction(number, rows.ravel())
        if (fabric.capacity[np.concatenate([up, down])] <= 0).any():
            raise InfeasibleError(
                f"a failed link of level {stage.level.name!r} lies on the tree that its switches add over",
                where=fabric.name,
                fix="choose another algorithm for this collective",
            )
        few = each / rows.shape[1]
        rising = few if stage.primitive in ("all_gather", "broadcast") else each
        falling = few if stage.primitive in ("reduce_scatter", "reduce") else each
        count = len(fabric.links)
        used = np.concatenate([up, down])
        sent = np.concatenate([np.full(len(up), rising), np.full(len(down), falling)])
        loads.append(Loads(share=1.0, sent=_added(used, sent, count), flows=_added(used, np.ones(len(used)), count)))
    return _sum(fabric, loads)
