"""Rings: one through all members, both ways around, or one for every dimension of a torus.

A ring of n passes the buffer on in n - 1 steps (twice that for an all-reduce), `(n - 1) / n` of it from every device:
the least that any algorithm can send (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009).
"""

from __future__ import annotations

import math

from meshcast.network.across_hosts import limit_through_hosts, plateau, posting_s
from meshcast.network.plan import CollectivePlan
from meshcast.network.ports import has_hops, lane, wraps
from meshcast.network.steps import PHASES, Problem, plan, protocol_of, work

SMALLEST_RING = 4  # members of 2 x 2: the least of several sides, whose links close into one ring


def ring(problem: Problem) -> CollectivePlan | None:
    """One ring through all members, domain by domain, as NCCL lays its channels.

    Of the `p (n - 1)` steps those between the d_l domains of level l number `p (d_l - 1)`, and what crosses a domain's
    border is all that a ring passes on, shared by the `below` devices that each have a ring of their own through it:
    `p (n - 1) / n * S / below` bytes a device. On a torus there are rings along every dimension, as XLA lays rings of
    several colours; where the dimensions are not closed they have the links of a corner, and what is passed on goes side by
    side: `sum over sides of (k - 1)` steps a phase, as on closed ones (`torus_rings`), but for four members of 2 x 2, which are
    a closed ring themselves.
    """
    if problem.kind not in PHASES:
        return None
    works = []
    outside = math.prod(at.parts for at in problem.spread)
    least, times = posting_s(problem.spread, problem.protocol), plateau(problem.spread, problem.kind, problem.protocol)
    limit = limit_through_hosts(problem.spread, problem.protocol)
    for at in problem.spread:
        inside, outside = outside, outside // at.parts
        sides = sum(line.length - 1 for line in at.lines)
        by_sides = len(problem.spread) == 1 and len(at.lines) > 1 and at.parts > SMALLEST_RING
        steps = problem.phases * (sides if by_sides else inside - outside)
        sent = problem.passed_on / at.below
        rounds = problem.phases * (at.parts - 1)
        step_s = times * max(least, at.level.latency_s + protocol_of(at.level, problem.protocol).step_s)
        done = work(problem, at, "ring", steps=steps, sent=sent, rounds=rounds, step_s=step_s, limit=limit / at.below)
        works.append(done)
    return plan(problem, "ring", works)


def bidirectional_ring(problem: Problem) -> CollectivePlan | None:
    """Both ways around a ring of links at once: half the steps, `ceil((n - 1) / 2)` a phase, for the same bytes."""
    if problem.kind not in PHASES or len(problem.spread) != 1:
        return None
    (at,) = problem.spread
    ways = sum(line.ways for line in at.lines)
    if not has_hops(at.level) or (ways < 2 and at.parts > 2):
        return None  # a line that is not closed has no other way around
    steps = problem.phases * math.ceil((at.parts - 1) / 2)
    rate = min(2, ways) * min(lane(at.level, line) / line.shared for line in at.lines)
    done = work(problem, at, "bidirectional-ring", steps=steps, sent=problem.passed_on, rate=rate)
    return plan(problem, "bidirectional-ring", [done])


def torus_rings(problem: Problem) -> CollectivePlan | None:
    """Rings along every dimension of a torus at once, each with its part of the buffer.

    With lines of k_d a phase has `sum over d of (k_d - 1)` steps; the buffer is cut into as many parts as there are
    dimensions, and each part goes through the dimensions in another order, so that all links are busy:
    `p (n - 1) / n * S` bytes over all of a device's links, of which `rings_share` is reached.
    """
    if problem.kind not in PHASES or len(problem.spread) != 1:
        return None
    (at,) = problem.spread
    if not wraps(at):
        return None
    steps = problem.phases * sum(line.length - 1 for line in at.lines)
    return plan(problem, "torus-rings", [work(problem, at, "torus-rings", steps=steps, sent=problem.passed_on)])
