"""Exchanges between pairs: all-to-all, permutations, and an all-reduce in one shot."""

from __future__ import annotations

from meshcast.network.plan import CollectivePlan
from meshcast.network.ports import exchange_s, farthest_hops, has_hops, pair
from meshcast.network.spread import LevelSpread
from meshcast.network.steps import Problem, StageWork, plan, protocol_of, work


def pairwise(problem: Problem) -> CollectivePlan | None:
    """Every member sends `message = S / n` bytes to every other: `message * exchange_s` on the wire of each level.

    On a ring of k with two links a device that is `message * M * k / 8` over a link's rate, the bound by bisection: half of
    the n members send half of S across a cut of `2 n / k` links.

    Where K of a member's rows are copies of one for K random destinations, a part of the network is sent one, and its members
    hand it on (DeepSeek's DeepEP, NVIDIA's HybridEP): of the D parts that a level connects a row reaches `D (1 - (1 - 1/D)^K)`,
    and each member sends `S / K` times that, less what stays in its own part.
    """
    if problem.kind != "all_to_all":
        return None
    return plan(problem, "direct", [_fan_out(problem, at) for at in problem.spread])


def _fan_out(problem: Problem, at: LevelSpread) -> StageWork:
    message = problem.size / problem.members
    level = at.level
    sent = message * (at.within - at.below)
    if problem.copies > 1:
        parts = problem.members / at.below
        reached = parts * (1 - (1 - 1 / parts) ** problem.copies)
        sent = problem.size / problem.copies * reached * (at.within - at.below) / at.within
    peers = max(1, at.within - at.below)
    hop = level.latency_s + protocol_of(level, problem.protocol).step_s
    latency = hop * farthest_hops(at) + (peers - 1) * level.link.post_s
    # What passes through others' links shows as a lower rate of a device's own bytes.
    rate = (at.within - at.below) / exchange_s(at)
    return work(problem, at, "direct", steps=peers, sent=sent, rate=rate, step_s=latency / peers)


def permute(problem: Problem) -> CollectivePlan | None:
    """All of S from each member to one other; the pair that is farthest apart bounds it."""
    if problem.kind != "collective_permute":
        return None
    at = problem.spread[-1]
    done = work(problem, at, "direct", steps=1, sent=problem.size, rate=pair(at))
    return plan(problem, "direct", [done], start_s=at.level.link.pair_start_s)


def one_shot(problem: Problem) -> CollectivePlan | None:
    """An all-reduce in which every member sends all of its input to all others, and adds up by itself.

    One phase instead of two, for `(n - 1) S` bytes instead of `2 (n - 1) / n * S`: worth it where latency is all that
    counts. On links to neighbours the inputs go around a ring of n - 1 steps.
    """
    if problem.kind != "all_reduce":
        return None
    works = []
    for at in problem.spread:
        sent = problem.size * (at.within - at.below)
        if has_hops(at.level):
            works.append(work(problem, at, "one-shot", steps=at.parts - 1, sent=sent))
            continue
        peers = at.within - at.below
        step = at.level.latency_s + protocol_of(at.level, problem.protocol).step_s + peers * at.level.link.post_s
        works.append(work(problem, at, "one-shot", steps=1, sent=sent, step_s=step, rounds=peers))
    return plan(problem, "one-shot", works)
