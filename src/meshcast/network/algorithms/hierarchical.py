"""One level after the other, innermost first, each with its own exchange: rings, halving and doubling, or direct.

Let a group have m members in each domain below level l and M in each domain of level l. A phase moves
`S (1 / m - 1 / M)` bytes through each device's port of level l, and the levels work on different chunks at once:
the slowest bounds it. An all-reduce has two phases, scattering sums inwards to outwards and gathering them back.
After Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from meshcast.network.algorithms.rings import SMALLEST_RING
from meshcast.network.plan import AlgorithmName, CollectivePlan
from meshcast.network.ports import exchange_s, farthest_hops, has_hops, pair, wraps
from meshcast.network.spread import LevelSpread
from meshcast.network.steps import Problem, StageWork, plan, protocol_of, work

# Phases. Long messages are broadcast by scattering them and gathering what was scattered, as Thakur has it after Barnett et al.,
# "Interprocessor collective communication library" (1994): every device then sends over its own port between hosts.
_SCATTERED = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "collective_reduce": 2, "collective_broadcast": 2}


def hierarchical(problem: Problem) -> CollectivePlan | None:
    """A ring in each level, `parts - 1` steps a phase; where a level is a torus, rings along its sides (`torus_rings`)."""
    return _by_level(problem, "hierarchical", _ring_name, _ring_steps)


def halved_between_rings(problem: Problem) -> CollectivePlan | None:
    """Rings where links lead to neighbours, halving and doubling where a switch joins everybody.

    What Neuron's collectives have for Trainium ("recursive doubling-halving" across EFA, rings in the torus of an instance: AWS
    Neuron documentation, inter-node and intra-node collective communications): across N parts `ceil(log2 N)` steps a phase in
    place of N - 1, for the same bytes.
    """
    hops = [has_hops(at.level) for at in problem.spread]
    if all(hops) or not any(hops):
        return None
    return _by_level(
        problem,
        "hierarchical + halving-doubling",
        lambda at: _ring_name(at) if has_hops(at.level) else "halving-doubling",
        lambda at: _ring_steps(at) if has_hops(at.level) else math.ceil(math.log2(at.parts)),
    )


def halving_doubling(problem: Problem) -> CollectivePlan | None:
    """Partners at distances that halve and double: `ceil(log2 parts)` steps a phase.

    For numbers that are no powers of two, with the same number of steps, after Bruck et al., "Efficient algorithms for
    all-to-all communications in multiport message-passing systems" (1997). Partners must reach each other directly.
    """
    if any(has_hops(at.level) for at in problem.spread):
        return None
    return _by_level(
        problem, "halving-doubling", lambda _: "halving-doubling", lambda at: math.ceil(math.log2(at.parts))
    )


def direct(problem: Problem) -> CollectivePlan | None:
    """Every member of a level sends to all others of it at once: one step a phase, and a little for each peer."""
    if problem.kind not in _SCATTERED:
        return None
    works = [_direct(problem, at) for at in problem.spread]
    return plan(problem, "direct", works)


def broadcast_tree(problem: Problem) -> CollectivePlan | None:
    """A tree down the levels: all of S over one link to each, `ceil(log2 parts)` steps a level.

    On rings and tori it is a spanning tree of neighbours, as deep as the farthest member is hops away.
    """
    if problem.kind not in ("collective_broadcast", "collective_reduce"):
        return None
    works = [
        work(problem, at, "double-binary-tree", steps=_depth(at), sent=problem.size, rate=pair(at))
        for at in problem.spread
    ]
    return plan(problem, "tree", works)


def _depth(at: LevelSpread) -> int:
    return farthest_hops(at) if has_hops(at.level) else math.ceil(math.log2(at.parts))


def sent_at(problem: Problem, at: LevelSpread) -> float:
    """Bytes that a device sends at a level in all phases."""
    return _SCATTERED[problem.kind] * problem.size * (1 / at.below - 1 / at.within)


def _by_level(
    problem: Problem,
    name: str,
    algorithm: Callable[[LevelSpread], AlgorithmName],
    steps: Callable[[LevelSpread], int],
) -> CollectivePlan | None:
    if problem.kind not in _SCATTERED:
        return None
    phases = _SCATTERED[problem.kind]
    works = [
        work(problem, at, algorithm(at), steps=phases * steps(at), sent=sent_at(problem, at)) for at in problem.spread
    ]
    return plan(problem, name, works)


def _ring_name(at: LevelSpread) -> AlgorithmName:
    return "torus-rings" if wraps(at) else "ring"


def _ring_steps(at: LevelSpread) -> int:
    """Steps of a phase: along a box's sides one after the other, but for 2 x 2, which closes into one ring (`rings.ring`)."""
    by_sides = wraps(at) or (len(at.lines) > 1 and at.parts > SMALLEST_RING)
    return sum(line.length - 1 for line in at.lines) if by_sides else at.parts - 1


def _direct(problem: Problem, at: LevelSpread) -> StageWork:
    phases = _SCATTERED[problem.kind]
    level = at.level
    hop = level.latency_s + protocol_of(level, problem.protocol).step_s
    # Where links go to neighbours only, a message passes all devices in between, and their links.
    step = hop * farthest_hops(at) + (at.parts - 1) * level.link.post_s
    # Only members of equal rank in their parts exchange: which of them share a leaf, the fabric's graph knows.
    along = replace(at, leaving=0.0)
    return work(
        problem,
        at,
        "direct",
        steps=phases,
        sent=sent_at(problem, at),
        rate=(at.within - at.below) / exchange_s(along),
        step_s=step,
        rounds=phases * (at.parts - 1),
    )
