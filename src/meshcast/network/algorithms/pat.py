"""Parallel aggregated trees, with which NCCL gathers and scatters among hosts of one member each since version 2.23.

Every member is the root of a tree of its own; the trees are laid so that messages of many of them go to the same partner at
once, `ceil(log2 N)` of them one after the other (Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at
scale", 2025). What is left of a part for each member the library reckons with as well: of N members with hops of `h`

    time = 8 us + ceil(log2 N) h / 3.5 + 2.8 us N + (N - 1) / N S / (75 % of the rate)

(`NCCL_ALGO_PAT` in tuning.cc; version 2.23 itself took 85 %). Rings take N - 1 hops for the same bytes at the whole rate: PAT is
for small messages and many hosts. Groups with several members in a host have none (`ncclPatEnable`).
"""

from __future__ import annotations

import math

from meshcast.network.plan import CollectivePlan
from meshcast.network.steps import Problem, plan, protocol_of, work

_KINDS = ("all_gather", "reduce_scatter")
_START_S = 8e-6
_HOPS_AT_ONCE = 3.5
_MEMBER_S = 2.8e-6
_SHARE = 0.75


def pat(problem: Problem) -> CollectivePlan | None:
    """Gathers and scatters among members of which each has a host to itself."""
    if problem.kind not in _KINDS or problem.protocol != "Simple" or len(problem.spread) != 1:
        return None
    (at,) = problem.spread
    if not at.level.link.between_hosts or at.below > 1:
        return None
    steps = math.ceil(math.log2(at.parts))
    hop = at.level.latency_s + protocol_of(at.level, problem.protocol).step_s
    step_s = hop / _HOPS_AT_ONCE + _MEMBER_S * at.parts / steps
    done = work(
        problem, at, "halving-doubling", steps=steps, sent=problem.passed_on, share=_SHARE, step_s=step_s, rounds=steps
    )
    return plan(problem, "pat", [done], start_s=_START_S)
