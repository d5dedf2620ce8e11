"""Exchanges between pairs: all-to-all, permutations, and an all-reduce in one shot."""

from __future__ import annotations

from meshcast.network.plan import CollectivePlan
from meshcast.network.ports import farthest_hops, links_along, mean_hops, port, sides
from meshcast.network.spread import LevelSpread
from meshcast.network.steps import Problem, Work, plan, protocol_of, work


def pairwise(problem: Problem) -> CollectivePlan | None:
    """Every member sends `message = S / n` bytes to every other.

    To the members of its domain that lie outside its own part a device sends `message * (M - m)` through its port. On a
    ring or torus messages also pass through the links of others. With the shortest routes, one dimension after the
    other, a device's `message * M` bytes make `h_d` hops each along dimension d on average, and every device has
    `links_d` links there (half of them either way), so each carries `message * M * h_d / links_d`. On a ring of k,

        h = floor(k^2 / 4) / k        (k / 4 for even k)

    and the time of the longest dimension, `message * M * k / 8` over a link's rate with two links, is the bound by
    bisection: half of the n members send half of S across a cut of `2 n / k` links. After Dally and Towles, "Principles
    and Practices of Interconnection Networks" (2004), chapters 3 and 5.
    """
    if problem.kind != "all_to_all":
        return None
    return plan(problem, "direct", [_fan_out(problem, at) for at in problem.spread])


def _fan_out(problem: Problem, at: LevelSpread) -> Work:
    message = problem.size / problem.members
    level = at.level
    rate = port(level, at.parts)
    sent = message * (at.within - at.below)
    seconds = sent / rate
    for side in sides(level, at.parts):
        along = links_along(level, side) * level.link_bandwidth
        seconds = max(seconds, message * at.within * mean_hops(side) / along)
    peers = max(1, at.within - at.below)
    hop = level.latency_s + protocol_of(level, problem.protocol).step_s
    latency = hop * farthest_hops(level, at.parts) + (peers - 1) * level.link.post_s
    # What passes through others' links shows as a lower rate of a device's own bytes.
    effective = sent / seconds if seconds else rate
    return work(problem, at, "direct", steps=peers, sent=sent, rate=effective, step_s=latency / peers)


def permute(problem: Problem) -> CollectivePlan | None:
    """All of S from each member to one other; the pair that is farthest apart bounds it."""
    if problem.kind != "collective_permute":
        return None
    at = problem.spread[-1]
    done = work(problem, at, "direct", steps=1, sent=problem.size, parts=2)
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
        hops = at.level.topology in ("ring", "torus")
        sent = problem.size * (at.within - at.below)
        if hops:
            works.append(work(problem, at, "one-shot", steps=at.parts - 1, sent=sent))
            continue
        peers = at.within - at.below
        step = at.level.latency_s + protocol_of(at.level, problem.protocol).step_s + peers * at.level.link.post_s
        works.append(work(problem, at, "one-shot", steps=1, sent=sent, step_s=step, rounds=peers))
    return plan(problem, "one-shot", works)
