"""Switches that add: NVLink SHARP (NVLS) inside a domain, SHARP in the fabric across domains.

Each of the n members owns S / n. It asks the switch for the sum of that part (all members send it once through their
port: S in all), and gives the sum back to be copied to everyone (S / n more):

    all-reduce       S (1 + 1 / n) bytes out of each port
    reduce-scatter   S             the sums only
    all-gather       S             received through each port, as from a switch that copies

where a ring sends 2 S (n - 1) / n. Hardly half the traffic, at the share of the rate that adding leaves.
"""

from __future__ import annotations

from meshcast.network.plan import CollectivePlan
from meshcast.network.spread import LevelSpread
from meshcast.network.steps import Problem, StageWork, plan, protocol_of, work

_KINDS = ("all_reduce", "reduce_scatter", "all_gather")


def adding(problem: Problem, at: LevelSpread, *, share: float = 1.0) -> StageWork | None:
    """The stage in which a level's switches add, or None where they cannot.

    Each of the `below` members of a part has a port of its own and S / below to care for. Chunks are handed over between
    all members, each of which owns a part of every chunk.
    """
    link = at.level.link
    able = at.level.in_network_reduction and (link.in_network_share or link.library == "none")
    if not able or at.parts < max(2, link.in_network_members):
        return None
    both = problem.kind == "all_reduce"
    size = problem.size / at.below
    sent = size * (1 + 1 / at.parts) if both else size
    steps = 2 if both else 1
    hop = at.level.latency_s + protocol_of(at.level, problem.protocol).step_s
    return work(
        problem,
        at,
        "in-network",
        steps=steps,
        sent=sent,
        share=share * (link.in_network_share or 1.0),
        step_s=hop + link.in_network_start_s / steps,
        rounds=steps * (at.parts - 1),
    )


def in_network(problem: Problem) -> CollectivePlan | None:
    """Switches add at every level: NVLS inside, SHARP across.

    Where those across are asked to and links inside a host cannot, each of its devices owns a part of the host's sum: rings
    inside (NCCL's CollNet algorithms).
    """
    if problem.kind not in _KINDS or problem.protocol not in ("", "Simple"):
        return None
    if problem.kind != "all_reduce" and any(_too_many(at) for at in problem.spread):
        return None
    asked = any(at.level.in_network_asked for at in problem.spread)
    works = [adding(problem, at) or (_owning(problem, at) if asked else None) for at in problem.spread]
    found = [item for item in works if item is not None]
    return plan(problem, "in-network", found) if len(found) == len(works) else None


def _owning(problem: Problem, at: LevelSpread) -> StageWork | None:
    """The stage inside a host whose links add nothing: sums are scattered in a ring, and gathered in an all-reduce."""
    if at.level.link.between_hosts:
        return None
    phases = 2 if problem.kind == "all_reduce" else 1
    sent = phases * (at.parts - 1) / at.parts * problem.size / at.below
    return work(problem, at, "ring", steps=phases * (at.parts - 1), sent=sent)


def _too_many(at: LevelSpread) -> bool:
    """Whether a level has more members than heads, each of which owns a part: sums and copies then go around in rings.

    After NCCL, which has NVLS for all-gathers and reduce-scatters of at most `NCCL_MAX_NVLS_ARITY` ranks (enqueue.cc).
    """
    heads = at.level.link.in_network_heads
    return bool(heads) and at.parts > heads
