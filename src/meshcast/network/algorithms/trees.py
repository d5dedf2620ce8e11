"""Double binary trees across hosts, with chains or adding switches inside them: what NCCL calls Tree and NVLS Tree.

Two binary trees over N hosts, each for half of the buffer, are laid so that an inner host of one is a leaf of the other
(Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009). Up and down, an
inner host sends 1.5 S of one tree's half and S / 2 as a leaf of the other, 2 S in all; of three hosts the inner one is the
root and has nobody above it, which leaves 1.5 S (NCCL's issue 1801: three partitions of GB200 reach 127.9 GB/s over four cards
of 48 GB/s, a rate of 1.51), and of two hosts each sends S; through as many ports as a host has members, in `2 ceil(log2 N)`
steps. Inside a host a chain sums up and hands the result back: `2 (g - 1) / g * S` bytes in `2 (g - 1)` steps.

Where switches add inside, h of a domain's members are heads, each with its own port outwards, and a step hands on one chunk of
c bytes of each of k channels: `min(k c, S / h) / rate` before the next host can begin. With racks of 72 devices, 32 heads and
24 channels of 128 KiB that is 100 MB a round, so that trees over many racks are filled rather than streamed through (NCCL:
`NCCL_MAX_NVLS_ARITY` in device.h, `ncclNvlsTuning` in nvls.cc, `calcCollChunking` in enqueue.cc).
"""

from __future__ import annotations

import math

from meshcast.base import copier
from meshcast.hardware import LinkTechnology
from meshcast.network.across_hosts import TREE_SHARE, of_middle_sizes, tree_share
from meshcast.network.algorithms.in_network import adding
from meshcast.network.plan import CollectivePlan, Stage
from meshcast.network.spread import LevelSpread
from meshcast.network.steps import Problem, StageWork, plan, work

_stage_with, _work_with = copier(Stage, "rate", "alpha_s"), copier(StageWork, "stage")
_with_slack = copier(StageWork, "slack")
# What the busiest of few hosts sends of the buffer; of more than three 2.
_SENT = {2: 1.0, 3: 1.5}
# (rounds of all channels and heads below which NCCL takes smaller chunks, how small), after calcCollChunking.
_FEWER = ((4, 65536.0), (1, 32768.0))


def double_binary_tree(problem: Problem) -> CollectivePlan | None:
    """Chains inside hosts, two trees across them."""
    if problem.kind != "all_reduce":
        return None
    return plan(problem, "double-binary-tree", [_chains_and_trees(problem, at) for at in problem.spread])


def in_network_tree(problem: Problem) -> CollectivePlan | None:
    """Switches add inside the innermost domain, two trees join the domains (NCCL's NVLS Tree)."""
    if problem.kind != "all_reduce" or len(problem.spread) < 2 or problem.protocol not in ("", "Simple"):
        return None
    inside = adding(problem, problem.spread[0], share=TREE_SHARE)
    if inside is None:
        return None
    link = problem.spread[0].level.link
    outside = [_heads_tree(problem, at, link) for at in problem.spread[1:]]
    return plan(problem, "in-network + double-binary-tree", [inside, *outside])


def _heads_tree(problem: Problem, at: LevelSpread, adds: LinkTechnology) -> StageWork:
    """Trees between the heads of domains in which links of `adds` sum up."""
    whole = _tree(problem, at, share=1.0)
    heads = min(at.below, adds.in_network_heads or at.below)
    rate = whole.stage.rate * heads / at.below
    share = problem.size / heads
    filled = min(adds.in_network_channels * _chunk(problem.size, heads, adds), share)
    port_rate = whole.stage.rate  # of one head's port
    stage = _stage_with(whole.stage, rate, whole.stage.alpha_s + filled / port_rate)
    return _work_with(whole, stage)


def _chunk(size: float, heads: int, adds: LinkTechnology) -> float:
    """Bytes that a channel hands on at once: half of the technology's, down to 32 KiB, where the buffer has few rounds of it."""
    chunk = adds.in_network_chunk
    for rounds, least in _FEWER:
        if size < rounds * adds.in_network_channels * heads * chunk and chunk > least:
            chunk = least
    return chunk


def _chains_and_trees(problem: Problem, at: LevelSpread) -> StageWork:
    """A level of NCCL's Tree, at what it reckons to reach of a ring's rate."""
    if not at.level.link.between_hosts:
        return _tree(problem, at, share=TREE_SHARE)
    slack = 1 / of_middle_sizes(problem.size, problem.protocol) - 1
    return _with_slack(_tree(problem, at, share=tree_share(at.parts)), slack)


def _tree(problem: Problem, at: LevelSpread, *, share: float) -> StageWork:
    if at.level.link.between_hosts or at.below > 1:
        sent = _SENT.get(at.parts, 2.0) * problem.size / at.below
        # Never less than the bound: a host's members together send what the others lack.
        steps = 2 * math.ceil(math.log2(at.parts))
        return work(problem, at, "double-binary-tree", steps=steps, sent=sent, share=share)
    sent = 2 * (at.parts - 1) / at.parts * problem.size
    return work(problem, at, "double-binary-tree", steps=2 * (at.parts - 1), sent=sent, share=share)
